/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that are lost or hang, with the stand-in driver: every job ends, others work on, and nothing waits without a bound. */
#include "base/clock.h"
#include "gpu/device.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/gpu_jobs.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1ull << 20)

TestSuite(gpu_loss, .timeout = 60);

static struct gpu *gpu;
static char message[GPU_MESSAGE_BYTES];
static unsigned char *source;

static void start(int64_t hang_ns)
{
	const struct gpu_setup setup = {.staging_bytes = 2 * MIB, .hang_ns = hang_ns};

	(void)setenv("FAKECUDA_DEVICES", "2", 1);
	fake_gpu_start();
	cr_assert_eq(gpu_open(&gpu, &setup, message), 0, "%s", message);
	source = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	gpu_fill(source, 8 * MIB, 1);
}

static struct gpu_device_status status_of(uint32_t device)
{
	struct gpu_device_status status;

	gpu_get_status(gpu, device, &status);
	return status;
}

static void expect_lost(const char *words)
{
	struct gpu_device_status status = status_of(0);
	struct gpu_job job;

	cr_expect_eq(status.state, GPU_LOST);
	cr_expect(strstr(status.reason, words) != NULL, "\"%s\" says nothing of \"%s\"", status.reason, words);
	cr_expect_eq(status.arena_bytes, 0);
	cr_expect_eq(gpu_try_allocate(gpu, 0, MIB, &job), -ENODEV, "for ever");
	cr_expect_eq(gpu_try_measure(gpu, 0), -ENODEV);
	cr_expect_eq(status_of(1).state, GPU_SERVING);
	cr_assert_eq(gpu_try_allocate(gpu, 1, 8 * MIB, &job), 0, "the other one works on");
	cr_expect_eq(gpu_try_upload(gpu, 1, job.address, source, 8 * MIB, 0), 0);
	cr_expect_eq(gpu_try_free(gpu, 1, job.address), 0);
}

/* Every call of each kind of job, once: what the driver says there means that the device is gone. */
static void lose_in(const char *call, enum gpu_job_kind kind)
{
	struct gpu_job arena, job;
	int r = 0;

	start(0);
	cr_assert_eq(gpu_try_allocate(gpu, 0, 8 * MIB, &arena), 0);
	cr_assert_eq(fake_gpu.fakecuda_fail(0, call, 1, CUDA_ERROR_ECC_UNCORRECTABLE, 0), 0);
	switch (kind) {
	case GPU_JOB_ALLOCATE:
		r = gpu_try_allocate(gpu, 0, MIB, &job);
		break;
	case GPU_JOB_FREE:
		r = gpu_try_free(gpu, 0, arena.address);
		break;
	case GPU_JOB_UPLOAD:
		r = gpu_try_upload(gpu, 0, arena.address, source, 8 * MIB, 0);
		break;
	case GPU_JOB_MEASURE:
		r = gpu_try_measure(gpu, 0);
		break;
	}
	cr_expect_eq(r, -ENODEV, "%s: %d", call, r);
	expect_lost(call);
	expect_lost("CUDA_ERROR_ECC_UNCORRECTABLE (214)");
	gpu = gpu_close(gpu);
}

Test(gpu_loss, when_memory_is_asked_for) { lose_in("cuMemAlloc_v2", GPU_JOB_ALLOCATE); }
Test(gpu_loss, when_memory_is_exported) { lose_in("cuIpcGetMemHandle", GPU_JOB_ALLOCATE); }
Test(gpu_loss, when_memory_is_measured) { lose_in("cuMemGetInfo_v2", GPU_JOB_MEASURE); }
Test(gpu_loss, when_memory_is_freed) { lose_in("cuMemFree_v2", GPU_JOB_FREE); }
Test(gpu_loss, when_a_copy_is_begun) { lose_in("cuMemcpyHtoDAsync_v2", GPU_JOB_UPLOAD); }
Test(gpu_loss, when_an_event_is_recorded) { lose_in("cuEventRecord", GPU_JOB_UPLOAD); }
Test(gpu_loss, when_a_copy_is_waited_for) { lose_in("cuEventSynchronize", GPU_JOB_UPLOAD); }

/* Many jobs are waiting and running when it goes. */
Test(gpu_loss, every_job_that_waits_ends_once)
{
	struct gpu_try jobs[32] = {0};
	struct gpu_job arena;

	start(0);
	cr_assert_eq(gpu_try_allocate(gpu, 0, 8 * MIB, &arena), 0);
	fake_gpu.fakecuda_hold(0, FAKECUDA_EVERY_PROCESS, 3);
	for (int i = 0; i < 32; i++) {
		jobs[i].job = (struct gpu_job){.kind = i % 4 == 3 ? GPU_JOB_MEASURE : GPU_JOB_UPLOAD,
					       .address = arena.address,
					       .source = source,
					       .bytes = 8 * MIB};
		gpu_try_submit(gpu, &jobs[i]);
	}
	(void)usleep(20000);
	fake_gpu.fakecuda_lose_device(0, CUDA_ERROR_ILLEGAL_ADDRESS);
	for (int i = 0; i < 32; i++)
		cr_expect_eq(gpu_try_wait(gpu, &jobs[i]), -ENODEV);
	cr_expect_eq(gpu_reap(gpu), 0);
	for (int i = 0; i < 32; i++)
		cr_expect_eq(jobs[i].dones, 1);
	fake_gpu.fakecuda_release(0, FAKECUDA_EVERY_PROCESS);
	fake_gpu.fakecuda_restore_device(0);
	expect_lost("CUDA_ERROR_");
	gpu = gpu_close(gpu);
	cr_expect_eq(fake_gpu.fakecuda_count(NULL), 0);
}

Test(gpu_loss, the_event_says_so_without_a_job)
{
	struct pollfd event;

	start(50 * CNRE_NS_PER_MS);
	event = (struct pollfd){.fd = gpu_event_fd(gpu), .events = POLLIN};
	(void)gpu_reap(gpu);
	cr_expect_eq(poll(&event, 1, 0), 0);
	fake_gpu.fakecuda_lose_device(0, CUDA_ERROR_UNKNOWN);
	cr_expect_eq(gpu_try_measure(gpu, 0), -ENODEV);
	cr_expect_eq(status_of(0).state, GPU_LOST);
	gpu = gpu_close(gpu);
}

/* A stream that never moves on: the device is lost after the time, its jobs end, and close does not wait for it. */
Test(gpu_loss, a_device_that_hangs)
{
	struct gpu_try upload = {0}, waiting = {0};
	struct gpu_job arena;
	int64_t begun_ns;

	start(300 * CNRE_NS_PER_MS);
	cr_assert_eq(gpu_try_allocate(gpu, 0, 8 * MIB, &arena), 0);
	fake_gpu.fakecuda_hold(0, FAKECUDA_EVERY_PROCESS, 0);
	upload.job = (struct gpu_job){.kind = GPU_JOB_UPLOAD, .address = arena.address, .source = source, .bytes = 8 * MIB};
	waiting.job = (struct gpu_job){.kind = GPU_JOB_MEASURE};
	gpu_try_submit(gpu, &upload);
	gpu_try_submit(gpu, &waiting);
	cr_expect_eq(gpu_try_wait(gpu, &upload), -ENODEV);
	cr_expect_eq(gpu_try_wait(gpu, &waiting), -ENODEV);
	expect_lost("it does not answer: cuEventSynchronize");
	(void)munmap(source, 8 * MIB); /* it is ours again: if the thread comes back it must not look at it */
	memset(&upload, 0xa5, sizeof upload);
	begun_ns = cnre_clock_now_ns();
	cr_expect_eq(gpu_stop(gpu, 10 * CNRE_NS_PER_S), -ETIMEDOUT);
	cr_expect_lt(cnre_clock_now_ns() - begun_ns, 5 * CNRE_NS_PER_S, "it is in a call: no use in waiting");
	gpu = gpu_close(gpu);
	fake_gpu.fakecuda_release(0, FAKECUDA_EVERY_PROCESS);
	(void)usleep(200000);
	for (size_t i = 0; i < sizeof upload; i++)
		cr_assert_eq(((unsigned char *)&upload)[i], 0xa5, "the thread wrote into a job that was answered");
}

/* SIGSTOP, a frozen control group, a machine that is moved: calls took long because nothing ran. */
Test(gpu_loss, an_asker_that_was_stopped_takes_no_device_for_hung)
{
	struct gpu_try upload = {0};
	struct gpu_job arena;

	start(400 * CNRE_NS_PER_MS);
	cr_assert_eq(gpu_try_allocate(gpu, 0, 8 * MIB, &arena), 0);
	fake_gpu.fakecuda_hold(0, FAKECUDA_EVERY_PROCESS, 0);
	upload.job = (struct gpu_job){.kind = GPU_JOB_UPLOAD, .address = arena.address, .source = source, .bytes = 8 * MIB};
	gpu_try_submit(gpu, &upload);
	(void)usleep(600000);
	cr_expect_eq(gpu_reap(gpu), 0);
	cr_expect_eq(status_of(0).state, GPU_SERVING);
	fake_gpu.fakecuda_release(0, FAKECUDA_EVERY_PROCESS);
	cr_expect_eq(gpu_try_wait(gpu, &upload), 0);
	gpu = gpu_close(gpu);
}

/* It hangs when we end: nobody has noticed before. */
Test(gpu_loss, stopping_is_bounded_and_says_why_it_gave_up)
{
	struct gpu_try upload = {0};
	struct gpu_job arena;

	start(0);
	cr_assert_eq(gpu_try_allocate(gpu, 0, 8 * MIB, &arena), 0);
	fake_gpu.fakecuda_hold(0, FAKECUDA_EVERY_PROCESS, 0);
	upload.job = (struct gpu_job){.kind = GPU_JOB_UPLOAD, .address = arena.address, .source = source, .bytes = 8 * MIB};
	gpu_try_submit(gpu, &upload);
	(void)usleep(50000);
	cr_expect_eq(gpu_stop(gpu, 300 * CNRE_NS_PER_MS), -ETIMEDOUT);
	cr_expect_eq(status_of(0).state, GPU_LOST);
	cr_expect(strstr(status_of(0).reason, "does not answer") != NULL, "%s", status_of(0).reason);
	cr_expect_eq(status_of(1).state, GPU_SERVING);
	cr_expect_eq(upload.dones, 0, "done is called by gpu_reap only");
	gpu = gpu_close(gpu);
	fake_gpu.fakecuda_release(0, FAKECUDA_EVERY_PROCESS);
	(void)usleep(100000);
}

Test(gpu_loss, stopping_finishes_what_runs)
{
	struct gpu_try jobs[16] = {0};
	struct fakecuda_process process;
	struct gpu_job arena;

	start(0);
	cr_assert_eq(gpu_try_allocate(gpu, 0, 8 * MIB, &arena), 0);
	fake_gpu.fakecuda_delay(1000000, 0);
	for (int i = 0; i < 16; i++) {
		jobs[i].job = (struct gpu_job){.kind = GPU_JOB_UPLOAD, .address = arena.address, .source = source, .bytes = MIB};
		gpu_try_submit(gpu, &jobs[i]);
	}
	cr_expect_eq(gpu_stop(gpu, 20 * CNRE_NS_PER_S), 0);
	cr_expect_eq(gpu_stop(gpu, 0), 0, "again");
	gpu = gpu_close(gpu);
	cr_assert_eq(fake_gpu.fakecuda_process(getpid(), &process), 0);
	cr_expect_eq(process.pinned_bytes, 0);
	cr_expect_eq(fake_gpu.fakecuda_count(NULL), 0);
	for (int i = 0; i < 16; i++)
		cr_expect_eq(jobs[i].dones, 0);
}

Test(gpu_loss, opening_is_bounded)
{
	const struct gpu_setup setup = {.hang_ns = 300 * CNRE_NS_PER_MS};
	int64_t begun_ns;

	(void)setenv("FAKECUDA_DEVICES", "1", 1);
	fake_gpu_start();
	cr_assert_eq(fake_gpu.cuInit(0), CUDA_SUCCESS);
	CUcontext context;
	CUdeviceptr memory;
	CUstream stream;
	cr_assert_eq(fake_gpu.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	cr_assert_eq(fake_gpu.cuCtxSetCurrent(context), CUDA_SUCCESS);
	cr_assert_eq(fake_gpu.cuMemAlloc_v2(&memory, MIB), CUDA_SUCCESS);
	cr_assert_eq(fake_gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	source = malloc(MIB);
	fake_gpu.fakecuda_hold(0, FAKECUDA_EVERY_PROCESS, 0);
	cr_assert_eq(fake_gpu.cuMemcpyHtoDAsync_v2(memory, source, MIB, stream), CUDA_SUCCESS);
	begun_ns = cnre_clock_now_ns();
	cr_expect_eq(gpu_open(&gpu, &setup, message), -ENODEV, "freeing the probe waits for the device");
	cr_expect(strstr(message, "cuMemFree_v2 began") != NULL, "%s", message);
	cr_expect_lt(cnre_clock_now_ns() - begun_ns, 20 * CNRE_NS_PER_S);
	cr_expect_null(gpu);
	fake_gpu.fakecuda_release(0, FAKECUDA_EVERY_PROCESS);
	(void)usleep(200000);
}
