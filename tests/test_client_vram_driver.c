/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experts in VRAM as a client has them, with gpu/ and the stand-in driver, which counts what breaks a driver's rules; the exporter
 * is another process. The manager is an invented one.
 */
#include "tests/support/attached.h"
#include "tests/support/child.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/vram_attached.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define gpu fake_gpu
#define OBJECTS 64u
#define SLAB_BYTES 4096u

TestSuite(client_vram_driver, .timeout = 60);

/* ---- the exporter ---- */

struct shared {
	struct fake_vram_exported exported;
	int device;
	_Atomic int is_ready;
};

#define EXPORTER_MUST(e) \
	do { \
		if (!(e)) \
			_exit(__LINE__ % 200 + 1); \
	} while (0)

static void export_arena(struct shared *shared, uint32_t arena)
{
	static uint32_t content[OBJECTS * SLAB_BYTES / sizeof(uint32_t)];
	CUdeviceptr memory;
	CUipcMemHandle handle;

	for (uint32_t i = 0; i < sizeof content / sizeof content[0]; i++)
		content[i] = i / (SLAB_BYTES / sizeof(uint32_t));
	EXPORTER_MUST(gpu.cuMemAlloc_v2(&memory, sizeof content) == CUDA_SUCCESS);
	EXPORTER_MUST(gpu.cuMemcpyHtoD_v2(memory, content, sizeof content) == CUDA_SUCCESS);
	EXPORTER_MUST(gpu.cuCtxSynchronize() == CUDA_SUCCESS); /* of pageable memory the call returns before the copy is done */
	EXPORTER_MUST(gpu.cuIpcGetMemHandle(&handle, memory) == CUDA_SUCCESS);
	memcpy(shared->exported.handle[arena], &handle, sizeof handle);
	shared->exported.local[arena] = memory;
}

static int run_exporter(void *context)
{
	struct shared *shared = context;
	CUcontext its_context;
	CUuuid uuid;

	EXPORTER_MUST(gpu.cuInit(0) == CUDA_SUCCESS);
	EXPORTER_MUST(gpu.cuDevicePrimaryCtxRetain(&its_context, shared->device) == CUDA_SUCCESS);
	EXPORTER_MUST(gpu.cuCtxSetCurrent(its_context) == CUDA_SUCCESS);
	EXPORTER_MUST(gpu.cuDeviceGetUuid_v2(&uuid, shared->device) == CUDA_SUCCESS);
	memcpy(shared->exported.uuid, uuid.bytes, sizeof uuid.bytes);
	memset(shared->exported.token, 0x11, sizeof shared->exported.token);
	for (uint32_t i = 0; i < FAKE_VRAM_ARENAS; i++)
		export_arena(shared, i);
	atomic_store(&shared->is_ready, 1);
	for (;;)
		(void)pause();
	return 0;
}

static struct vram_attached begin(int device, const char *devices, uint32_t flags)
{
	struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(shared, MAP_FAILED);
	(void)setenv("FAKECUDA_DEVICES", devices, 1);
	fake_gpu_start();
	shared->device = device;
	shared->exported.exporter = child_start(run_exporter, shared);
	cr_assert_gt(shared->exported.exporter, 0);
	while (atomic_load(&shared->is_ready) == 0) {
		cr_assert_eq(kill(shared->exported.exporter, 0), 0);
		(void)sched_yield();
	}
	return vram_attached_start(&(struct fake_vram_setup){.exported = &shared->exported}, flags);
}

static void expect_no_rule_broken(void)
{
	char last[256];

	gpu.fakecuda_last(last, sizeof last);
	cr_expect_eq(gpu.fakecuda_count(NULL), 0, "%s", last);
}

static uint32_t opened(int device)
{
	struct fakecuda_usage usage;

	gpu.fakecuda_usage(device, &usage);
	return usage.opened;
}

/* ---- the caller's side: an engine with a context of its own device current ---- */

static CUstream make_stream(int device)
{
	CUcontext context;
	CUstream stream;

	cr_assert_eq(gpu.cuInit(0), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuCtxSetCurrent(context), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	return stream;
}

static int device_bytes_are_right(const struct cnre_expert *view)
{
	uint32_t object = view->layer * EXPERTS + view->expert, word[FAKE_HOST_PART_BYTES / sizeof(uint32_t)];

	for (unsigned role = 0; role < 3; role++) {
		if (gpu.cuMemcpyDtoH_v2(word, (CUdeviceptr)(uintptr_t)view->part[role].data, sizeof word) != CUDA_SUCCESS)
			return 0;
		for (unsigned i = 0; i < sizeof word / sizeof word[0]; i++)
			if (word[i] != object)
				return 0;
	}
	return 1;
}

Test(client_vram_driver, expert_is_read_where_another_process_has_put_it)
{
	struct vram_attached a = begin(0, "1", CNRE_WANT_VRAM);
	struct cnre_expert view[3];
	CUcontext before, after;

	(void)make_stream(0);
	(void)gpu.cuCtxGetCurrent(&before);
	for (uint32_t i = 0; i < 3; i++) {
		fake_vram_fill(a.fake, i + 16, i % 2);
		cr_assert_eq(cnre_acquire_vram(a.client, 1, i, 0, 0, &view[i]), 0);
		cr_expect(device_bytes_are_right(&view[i]));
	}
	(void)gpu.cuCtxGetCurrent(&after);
	cr_expect_eq(before, after);
	cr_expect_eq(opened(0), 2);
	for (uint32_t i = 0; i < 3; i++)
		cr_expect_eq(cnre_release(a.client, &view[i]), 0);
	cnre_detach(a.client);
	cr_expect_eq(opened(0), 0);
	expect_no_rule_broken();
	vram_attached_stop_host(&a);
}

Test(client_vram_driver, lease_is_held_until_the_copy_on_a_stream_is_done)
{
	struct vram_attached a = begin(0, "1", CNRE_WANT_VRAM);
	CUstream stream = make_stream(0);
	uint32_t *word; /* pinned, or the copy would not be asynchronous */
	struct cnre_expert view;

	cr_assert_eq(gpu.cuMemHostAlloc((void **)&word, FAKE_HOST_PART_BYTES, 0), CUDA_SUCCESS);
	word[0] = 0;
	fake_vram_fill(a.fake, 3, 0);
	cr_assert_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), 0);
	gpu.fakecuda_hold(0, getpid(), 0);
	cr_assert_eq(gpu.cuMemcpyDtoHAsync_v2(word, (CUdeviceptr)(uintptr_t)view.part[0].data, FAKE_HOST_PART_BYTES, stream), CUDA_SUCCESS);
	cr_assert_eq(cnre_release_on_stream(a.client, &view, stream), 0);
	(void)usleep(20000);
	cr_expect_eq(fake_vram_evict(a.fake, 3), 0, "it is leased");
	cr_expect_eq(word[0], 0);
	gpu.fakecuda_release(0, getpid());
	while (fake_vram_leases(a.fake, 3) > 0)
		(void)sched_yield();
	cr_expect_eq(gpu.cuStreamSynchronize(stream), CUDA_SUCCESS);
	cr_expect_eq(word[0], 3);
	cr_expect_eq(fake_vram_evict(a.fake, 3), 1);
	cnre_detach(a.client);
	expect_no_rule_broken();
	vram_attached_stop_host(&a);
}

Test(client_vram_driver, devices_are_found_by_uuid_whatever_this_process_calls_them)
{
	struct vram_attached a;
	struct cnre_expert view;

	a = begin(1, "2", CNRE_WANT_VRAM); /* the exporter sees both, as they are */
	(void)setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
	fake_vram_fill(a.fake, 3, 0);
	(void)make_stream(0);
	cr_assert_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), 0);
	cr_expect(device_bytes_are_right(&view));
	cr_expect_eq(opened(1), 1);
	cr_expect_eq(cnre_release(a.client, &view), 0);
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 1, 0, &view), -ENODEV, "the other one, of which none is served");
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 2, 0, &view), -ENODEV);
	cnre_detach(a.client);
	expect_no_rule_broken();
	vram_attached_stop_host(&a);
}

Test(client_vram_driver, dead_exporter_is_epipe_and_what_cannot_be_opened_any_more_is_not_in_vram)
{
	struct vram_attached a = begin(0, "1", CNRE_WANT_VRAM | CNRE_VRAM_OR_RAM);
	struct cnre_expert view, other;

	fake_vram_fill(a.fake, 3, 0);
	fake_vram_fill(a.fake, 4, 1);
	cr_assert_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), 0);
	fake_vram_kill_exporter(a.fake);
	cr_assert_eq(cnre_acquire_vram(a.client, 0, 4, 0, -1, &other), 0);
	cr_expect_eq(other.flags & CNRE_IN_VRAM, 0);
	cr_expect(attached_is_right(&other));
	cr_expect_eq(cnre_release(a.client, &other), 0);
	cr_expect_eq(cnre_release(a.client, &view), -EPIPE);
	cnre_detach(a.client);
	cr_expect_eq(opened(0), 0);
	vram_attached_stop_host(&a);
}

Test(client_vram_driver, stream_of_a_device_that_is_lost_gives_its_leases_back)
{
	struct vram_attached a = begin(0, "1", CNRE_WANT_VRAM);
	CUstream stream = make_stream(0);
	struct cnre_expert view;

	fake_vram_fill(a.fake, 3, 0);
	cr_assert_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), 0);
	gpu.fakecuda_hold(0, getpid(), 0);
	cr_assert_eq(cnre_release_on_stream(a.client, &view, stream), 0);
	gpu.fakecuda_lose_device(0, 719 /* CUDA_ERROR_LAUNCH_FAILED */);
	gpu.fakecuda_release(0, getpid());
	while (fake_vram_leases(a.fake, 3) > 0)
		(void)sched_yield();
	cnre_detach(a.client);
	cr_expect_eq(fake_host_detaches(a.host), 1);
	vram_attached_stop_host(&a);
}

/* A kernel of the program's own went wrong: the driver closes nothing for it any more, and has it mapped until the process ends. */
Test(client_vram_driver, arena_that_a_failed_context_cannot_close_is_not_said_to_be_closed)
{
	struct vram_attached a = begin(0, "1", CNRE_WANT_VRAM);
	struct cnre_expert view;

	(void)make_stream(0); /* an engine has the context, too */
	fake_vram_fill(a.fake, 3, 0);
	cr_assert_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), 0);
	gpu.fakecuda_fail_context(getpid(), 0, 700 /* CUDA_ERROR_ILLEGAL_ADDRESS */);
	cr_expect_eq(cnre_release(a.client, &view), 0);
	cnre_detach(a.client);
	cr_expect_eq(opened(0), 1);
	cr_expect(fake_vram_is_open(a.fake, 0));
	vram_attached_stop_host(&a);
}

/* ---- a client that is killed while its stream runs ---- */

static int run_and_be_killed(void *context)
{
	const struct vram_attached *a = context;
	struct cnre *client;
	struct cnre_expert view;
	CUstream stream = make_stream(0);
	void *word;

	if (gpu.cuMemHostAlloc(&word, FAKE_HOST_PART_BYTES, 0) != CUDA_SUCCESS)
		return 3;
	if (vram_attached_again(a, CNRE_WANT_VRAM, &client) != 0 || cnre_acquire_vram(client, 0, 3, 0, -1, &view) != 0)
		return 1;
	if (gpu.cuMemcpyDtoHAsync_v2(word, (CUdeviceptr)(uintptr_t)view.part[0].data, FAKE_HOST_PART_BYTES, stream) != CUDA_SUCCESS ||
	    cnre_release_on_stream(client, &view, stream) != 0)
		return 2;
	for (;;)
		(void)pause();
}

Test(client_vram_driver, killed_client_has_nothing_open_and_another_one_goes_on)
{
	struct vram_attached a = begin(0, "1", CNRE_WANT_VRAM);
	struct cnre_expert view;
	pid_t child;

	fake_vram_fill(a.fake, 3, 0);
	gpu.fakecuda_hold(0, FAKECUDA_EVERY_PROCESS, 0);
	child = child_start(run_and_be_killed, &a);
	cr_assert_gt(child, 0);
	while (fake_vram_leases(a.fake, 3) == 0)
		(void)sched_yield();
	(void)usleep(5000);
	(void)kill(child, SIGKILL);
	cr_expect_eq(child_wait(child), -SIGKILL);
	gpu.fakecuda_release(0, FAKECUDA_EVERY_PROCESS);
	(void)make_stream(0);
	cr_assert_eq(cnre_acquire_vram(a.client, 0, 3, 0, -1, &view), 0);
	cr_expect(device_bytes_are_right(&view));
	cr_expect_eq(opened(0), 1, "its own only");
	cr_expect_eq(cnre_release(a.client, &view), 0);
	vram_attached_stop(&a);
}
