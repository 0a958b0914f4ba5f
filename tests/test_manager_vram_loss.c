/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device that is lost between a job's end and its being told of. Method: no turn is taken; the test makes each step of one, with
 * the stand-in driver.
 */
#include "manager/vram_inner.h"

#include "tests/support/fake_gpu.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

TestSuite(manager_vram_loss, .timeout = 60);

#define MIB (1ull << 20)

static struct manager manager;
static struct vram vram;
static struct vram_device device;

static void start(void)
{
	static const uint32_t layer_of[1];
	static const uint64_t bytes_of[1] = {MIB};
	const struct tier_setup tier = {.object_count = 1, .layer_count = 1, .layer_of = layer_of, .charged_bytes_of = bytes_of,
					.top_k = 1, .device_count = 1, .can_upload = vram_can_upload, .can_leave = vram_can_leave, .context = &vram};
	char message[GPU_MESSAGE_BYTES] = "";

	(void)setenv("FAKECUDA_MEMORY", "256M", 1);
	fake_gpu_start();
	manager.page = calloc(1, sizeof *manager.page);
	manager.counters = calloc(1, sizeof *manager.counters);
	cr_assert(manager.page != NULL && manager.counters != NULL);
	manager.vram = &vram;
	manager.window_bytes = MIB;
	vram.manager = &manager;
	vram.device = &device;
	vram.device_count = 1;
	vram.limit.burst = 20;
	cr_assert_eq(gpu_open(&vram.gpu, &(struct gpu_setup){.staging_bytes = 0}, message), 0, "%s", message);
	cr_assert_eq(tier_create(&vram.tier, &tier), 0);
	vram_device_open(&vram, 0, 64 * MIB);
	device.is_open = 1;
	device.session_count = 1;
	vram_device_apply(&device);
}

static void stop(void)
{
	vram.gpu = gpu_close(vram.gpu);
	vram.tier = tier_destroy(vram.tier);
	vram_arenas_close(&device);
	free(manager.page);
	free(manager.counters);
}

static uint32_t allocations(void)
{
	struct fakecuda_usage usage;

	fake_gpu.fakecuda_usage(0, &usage);
	return usage.allocations;
}

static void ignore(struct gpu_job *job)
{
	(void)job;
}

/* The driver is done with what was submitted, and nobody has reaped it; then the device is lost, and the turn sees that first. */
static void lose(void)
{
	static struct gpu_job measure;
	struct gpu_device_status status;

	measure = (struct gpu_job){.kind = GPU_JOB_MEASURE, .done = ignore};
	(void)usleep(100000); /* from the driver's answer to the list of what is finished */
	fake_gpu.fakecuda_lose_device(0, CUDA_ERROR_ECC_UNCORRECTABLE);
	gpu_submit(vram.gpu, &measure);
	do
		gpu_get_status(vram.gpu, 0, &status);
	while (status.state != GPU_LOST); /* the suite's time-out ends it */
	vram_device_lost(&device);
	(void)gpu_reap(vram.gpu);
}

static void await_growth(void)
{
	cr_assert_eq(vram_arena_grow(&device), 1);
	while (device.growth != VRAM_GROWS_NOT)
		(void)gpu_reap(vram.gpu);
	cr_assert_eq(device.arena[0].state, VRAM_ARENA_LIVE);
	cr_assert_gt(device.charged_bytes, 0);
}

Test(manager_vram_loss, memory_that_was_freed_just_before)
{
	start();
	await_growth();
	device.budget_bytes = 0;
	vram_device_apply(&device);
	(void)vram_arena_trim(&device);
	cr_assert_eq(device.arena[0].state, VRAM_ARENA_FREEING);
	while (allocations() > 0)
		(void)usleep(1000);
	lose();
	cr_expect_eq(device.charged_bytes, 0);
	stop();
}

Test(manager_vram_loss, memory_that_was_allocated_just_before)
{
	start();
	cr_assert_eq(vram_arena_grow(&device), 1);
	while (device.growth != VRAM_ALLOCATES)
		(void)gpu_reap(vram.gpu);
	while (allocations() == 0)
		(void)usleep(1000);
	lose();
	cr_expect_eq(device.charged_bytes, 0, "nothing of a lost device is charged");
	/* [T1] relaxed: a test's look. */
	cr_expect_eq(atomic_load_explicit(&manager.page->vram_devices, memory_order_relaxed), 0);
	cr_expect_eq(cnre_counter_get(&manager.counters->vram_bytes), 0);
	stop();
}
