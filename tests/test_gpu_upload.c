/* SPDX-License-Identifier: Apache-2.0 */
/* Uploads with the stand-in driver: what arrives, in which order jobs end, and how much host memory is pinned for it. */
#include "base/clock.h"
#include "gpu/device.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/gpu_jobs.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1ull << 20)

TestSuite(gpu_upload, .timeout = 100);

static struct gpu *gpu;
static char message[GPU_MESSAGE_BYTES];

static void start(const char *devices, uint64_t staging_bytes)
{
	const struct gpu_setup setup = {.staging_bytes = staging_bytes};

	(void)setenv("FAKECUDA_DEVICES", devices, 1);
	fake_gpu_start();
	cr_assert_eq(gpu_open(&gpu, &setup, message), 0, "%s", message);
}

static void close_all(void)
{
	char last[256];

	gpu = gpu_close(gpu);
	fake_gpu.fakecuda_last(last, sizeof last);
	cr_expect_eq(fake_gpu.fakecuda_count(NULL), 0, "%s", last);
}

static unsigned char *host_memory(uint64_t bytes, uint32_t seed)
{
	unsigned char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(memory, MAP_FAILED);
	gpu_fill(memory, bytes, seed);
	return memory;
}

static void expect_there(uint64_t address, const unsigned char *expected, uint64_t bytes)
{
	unsigned char *found = malloc(bytes);

	cr_assert_not_null(found);
	cr_assert_eq(fake_gpu.fakecuda_peek(address, found, bytes), (long)bytes);
	cr_expect_eq(memcmp(found, expected, bytes), 0, "other bytes at %#llx", (unsigned long long)address);
	free(found);
}

Test(gpu_upload, what_arrives_is_what_was_sent)
{
	/* Around the size of a part, and over several rounds of them. */
	static const uint64_t sizes[] = {1, 4095, 65535, 65536, 65537, 4 * 65536, 4 * 65536 + 1, 3 * MIB + 7};
	unsigned char *source = host_memory(4 * MIB, 1);
	struct gpu_device_status status;
	struct gpu_job arena;
	uint64_t at = 0, sum = 0;

	start("1", 4 * GPU_STAGING_PART_MIN);
	cr_assert_eq(gpu_try_allocate(gpu, 0, 16 * MIB, &arena), 0);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		cr_assert_eq(gpu_try_upload(gpu, 0, arena.address + at, source + i, sizes[i], 0), 0);
		expect_there(arena.address + at, source + i, sizes[i]);
		at += sizes[i] + 3;
		sum += sizes[i];
	}
	gpu_get_status(gpu, 0, &status);
	cr_expect_eq(status.uploaded_bytes, sum);
	cr_expect_gt(status.upload_ns, 0);
	close_all();
}

/* Case A6: whatever is filled, the pinned memory is the staging memory. */
Test(gpu_upload, host_memory_that_is_pinned_is_what_was_given)
{
	enum { ARENAS = 4, ARENA_MIB = 64 };
	unsigned char *source = host_memory(ARENA_MIB * MIB, 2);
	struct gpu_try uploads[ARENAS] = {0};
	struct fakecuda_process process;
	struct gpu_job arena[ARENAS];

	start("1", 4 * MIB);
	for (int i = 0; i < ARENAS; i++) {
		cr_assert_eq(gpu_try_allocate(gpu, 0, ARENA_MIB * MIB, &arena[i]), 0);
		uploads[i].job = (struct gpu_job){
			.kind = GPU_JOB_UPLOAD, .address = arena[i].address, .source = source, .bytes = ARENA_MIB * MIB};
		gpu_try_submit(gpu, &uploads[i]);
	}
	for (int i = 0; i < ARENAS; i++)
		cr_assert_eq(gpu_try_wait(gpu, &uploads[i]), 0);
	expect_there(arena[ARENAS - 1].address, source, ARENA_MIB * MIB);
	cr_assert_eq(fake_gpu.fakecuda_process(getpid(), &process), 0);
	cr_expect_leq(process.pinned_peak_bytes, 4 * MIB);
	cr_expect_geq(process.pinned_peak_bytes, 3 * MIB);
	cr_expect_eq(process.staged_peak_bytes, 0, "nor does the driver stage anything of its own");
	cr_expect_eq(fake_gpu.fakecuda_count("pageable"), 0);
	close_all();
}

Test(gpu_upload, registered_memory_is_read_where_it_lies)
{
	unsigned char *source = host_memory(32 * MIB, 3);
	struct fakecuda_process before, after;
	struct gpu_job arena;

	start("2", MIB);
	cr_assert_eq(gpu_register(gpu, source, 32 * MIB), 0);
	cr_expect_eq(gpu_register(gpu, source, 32 * MIB), -ENOTSUP, "twice");
	for (uint32_t device = 0; device < 2; device++) {
		cr_assert_eq(gpu_try_allocate(gpu, device, 32 * MIB, &arena), 0);
		cr_assert_eq(fake_gpu.fakecuda_process(getpid(), &before), 0);
		cr_assert_eq(gpu_try_upload(gpu, device, arena.address, source, 32 * MIB, 1), 0);
		cr_assert_eq(fake_gpu.fakecuda_process(getpid(), &after), 0);
		cr_expect_eq(after.queued - before.queued, 2, "one copy and an event");
		expect_there(arena.address, source, 32 * MIB);
	}
	cr_expect_eq(fake_gpu.fakecuda_count("pageable"), 0);
	gpu_unregister(gpu, source);
	cr_assert_eq(fake_gpu.fakecuda_process(getpid(), &after), 0);
	cr_expect_leq(after.pinned_bytes, MIB);
	close_all();
}

Test(gpu_upload, memory_that_cannot_be_registered_goes_by_staging)
{
	unsigned char *source = host_memory(4 * MIB, 4);
	struct gpu_job arena;

	(void)setenv("FAKECUDA_PINNED", "2M", 1);
	start("1", MIB);
	cr_expect_eq(gpu_register(gpu, source, 4 * MIB), -ENOMEM);
	cr_expect_eq(gpu_register(gpu, NULL, 4 * MIB), -ENOTSUP);
	cr_assert_eq(gpu_try_allocate(gpu, 0, 4 * MIB, &arena), 0);
	cr_assert_eq(gpu_try_upload(gpu, 0, arena.address, source, 4 * MIB, 0), 0);
	expect_there(arena.address, source, 4 * MIB);
	close_all();
}

Test(gpu_upload, done_means_that_the_copy_has_completed)
{
	unsigned char *source = host_memory(MIB, 5);
	struct gpu_try upload = {0};
	struct gpu_job arena;

	start("1", 4 * MIB);
	cr_assert_eq(gpu_try_allocate(gpu, 0, MIB, &arena), 0);
	fake_gpu.fakecuda_hold(0, FAKECUDA_EVERY_PROCESS, 0);
	upload.job = (struct gpu_job){.kind = GPU_JOB_UPLOAD, .address = arena.address, .source = source, .bytes = MIB};
	gpu_try_submit(gpu, &upload);
	for (int i = 0; i < 20; i++) {
		(void)usleep(5000);
		(void)gpu_reap(gpu);
		cr_assert_eq(upload.dones, 0);
	}
	fake_gpu.fakecuda_release(0, FAKECUDA_EVERY_PROCESS);
	cr_expect_eq(gpu_try_wait(gpu, &upload), 0);
	cr_expect_eq(upload.dones, 1);
	cr_expect_gt(upload.job.begun_ns, 0);
	cr_expect_geq(upload.job.ended_ns, upload.job.begun_ns);
	expect_there(arena.address, source, MIB);
	close_all();
}

static struct gpu_job *ended[64];
static int ended_count;

static void note_end(struct gpu_job *job)
{
	ended[ended_count++] = job;
}

/* While one is on its way the next is staged; what is not an upload waits for both. */
Test(gpu_upload, jobs_end_in_the_order_in_which_they_came)
{
	unsigned char *source = host_memory(MIB, 6);
	struct gpu_job arena, job[24];
	int64_t deadline_ns = cnre_clock_deadline_ns(20 * CNRE_NS_PER_S);
	struct gpu_device_status status;
	int64_t sum_ns = 0;

	start("1", 4 * MIB);
	cr_assert_eq(gpu_try_allocate(gpu, 0, 32 * MIB, &arena), 0);
	fake_gpu.fakecuda_delay(200000, 0);
	for (int i = 0; i < 24; i++) {
		job[i] = (struct gpu_job){.kind = i % 5 == 4 ? GPU_JOB_MEASURE : i == 12 ? GPU_JOB_ALLOCATE : GPU_JOB_UPLOAD,
					  .address = arena.address + (uint64_t)i * MIB,
					  .source = source,
					  .bytes = i == 7 ? 64 * MIB : MIB - 1, /* one that does not fit */
					  .done = note_end};
		gpu_submit(gpu, &job[i]);
	}
	while (ended_count < 24 && cnre_clock_left_ns(deadline_ns) > 0) {
		(void)usleep(1000);
		(void)gpu_reap(gpu);
	}
	cr_assert_eq(ended_count, 24);
	for (int i = 0; i < 24; i++) {
		cr_expect_eq(ended[i], &job[i], "%d", i);
		cr_expect_eq(job[i].status, i == 7 ? -EINVAL : 0, "%d: %d", i, job[i].status);
		if (job[i].kind == GPU_JOB_UPLOAD && i != 7) {
			expect_there(job[i].address, source, MIB - 1);
			sum_ns += job[i].ended_ns - job[i].begun_ns;
		}
	}
	gpu_get_status(gpu, 0, &status);
	cr_expect_lt((int64_t)status.upload_ns, sum_ns, "what overlaps counts once");
	close_all();
}

Test(gpu_upload, two_devices_work_at_once)
{
	unsigned char *source = host_memory(8 * MIB, 7);
	struct gpu_try held = {0};
	struct gpu_job arena[2];

	start("2", 4 * MIB);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(gpu_try_allocate(gpu, i, 8 * MIB, &arena[i]), 0);
	fake_gpu.fakecuda_hold(0, FAKECUDA_EVERY_PROCESS, 0);
	held.job = (struct gpu_job){.kind = GPU_JOB_UPLOAD, .device = 0, .address = arena[0].address, .source = source, .bytes = 8 * MIB};
	gpu_try_submit(gpu, &held);
	cr_expect_eq(gpu_try_upload(gpu, 1, arena[1].address, source, 8 * MIB, 0), 0, "the other one does not wait");
	cr_expect_eq(held.dones, 0);
	expect_there(arena[1].address, source, 8 * MIB);
	fake_gpu.fakecuda_release(0, FAKECUDA_EVERY_PROCESS);
	cr_expect_eq(gpu_try_wait(gpu, &held), 0);
	expect_there(arena[0].address, source, 8 * MIB);
	close_all();
}

Test(gpu_upload, what_does_not_lie_in_an_arena_is_refused)
{
	unsigned char *source = host_memory(MIB, 8);
	struct gpu_job arena;

	start("1", MIB);
	cr_assert_eq(gpu_try_allocate(gpu, 0, MIB, &arena), 0);
	cr_expect_eq(gpu_try_upload(gpu, 0, arena.address, source, MIB + 1, 0), -EINVAL);
	cr_expect_eq(gpu_try_upload(gpu, 0, arena.address + 1, source, MIB, 0), -EINVAL);
	cr_expect_eq(gpu_try_upload(gpu, 0, arena.address - 1, source, 1, 0), -EINVAL);
	cr_expect_eq(gpu_try_upload(gpu, 0, arena.address + MIB, source, 1, 0), -EINVAL);
	cr_expect_eq(gpu_try_upload(gpu, 0, arena.address, source, 0, 0), -EINVAL);
	cr_expect_eq(gpu_try_upload(gpu, 0, arena.address, source, UINT64_MAX, 0), -EINVAL);
	cr_expect_eq(gpu_try_upload(gpu, 0, arena.address, NULL, 1, 0), -EINVAL);
	cr_expect_eq(gpu_try_free(gpu, 0, arena.address), 0);
	cr_expect_eq(gpu_try_upload(gpu, 0, arena.address, source, 1, 0), -EINVAL, "freed");
	close_all();
}

/* A copy that the driver refuses, in the middle: the pieces before it are over when the job ends, and the next job works. */
Test(gpu_upload, one_that_is_refused_in_the_middle_ends_and_spoils_nothing)
{
	unsigned char *source = host_memory(2 * MIB, 9);
	struct fakecuda_process process;
	struct gpu_job arena;

	start("1", MIB);
	cr_assert_eq(gpu_try_allocate(gpu, 0, 2 * MIB, &arena), 0);
	fake_gpu.fakecuda_delay(500000, 0);
	cr_assert_eq(fake_gpu.fakecuda_fail(0, "cuMemcpyHtoDAsync_v2", 6, CUDA_ERROR_INVALID_VALUE, 0), 0);
	cr_expect_eq(gpu_try_upload(gpu, 0, arena.address, source, 2 * MIB, 0), -EIO);
	cr_assert_eq(fake_gpu.fakecuda_process(getpid(), &process), 0);
	cr_expect_eq(process.queued, process.executed, "nothing reads the source any more");
	cr_expect_eq(gpu_try_upload(gpu, 0, arena.address, source, 2 * MIB, 0), 0);
	expect_there(arena.address, source, 2 * MIB);
	close_all();
}
