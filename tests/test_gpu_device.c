/* SPDX-License-Identifier: Apache-2.0 */
/* Devices of the manager's side: which are served, what they charge, and what does not open, with the stand-in driver. */
#include "gpu/device.h"

#include "tests/support/fake_gpu.h"
#include "tests/support/gpu_jobs.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define FIRST "GPU-00112233-4455-6677-8899-aabbccddeeff"
#define SECOND "GPU-11112233-4455-6677-8899-aabbccddeeff"
#define THIRD "GPU-22112233-4455-6677-8899-aabbccddeeff"

TestSuite(gpu_device, .timeout = 60);

static struct gpu *gpu;
static char message[GPU_MESSAGE_BYTES];

static void start(const char *devices)
{
	(void)setenv("FAKECUDA_DEVICES", devices, 1);
	(void)setenv("FAKECUDA_UUIDS", FIRST "," SECOND "," THIRD, 1);
	fake_gpu_start();
}

static void open_all(const char *devices)
{
	const struct gpu_setup setup = {0};

	start(devices);
	cr_assert_eq(gpu_open(&gpu, &setup, message), 0, "%s", message);
}

static int open_named(const char *const *uuids, uint32_t count)
{
	const struct gpu_setup setup = {.uuids = uuids, .uuid_count = count};

	return gpu_open(&gpu, &setup, message);
}

static struct gpu_device_status status_of(uint32_t device)
{
	struct gpu_device_status status;

	gpu_get_status(gpu, device, &status);
	return status;
}

/* Nothing is left, and no rule of the driver was broken on the way. */
static void close_all(void)
{
	struct fakecuda_process process;
	char last[256];

	gpu = gpu_close(gpu);
	fake_gpu.fakecuda_last(last, sizeof last);
	cr_expect_eq(fake_gpu.fakecuda_count(NULL), 0, "%s", last);
	cr_assert_eq(fake_gpu.fakecuda_process(getpid(), &process), 0);
	cr_expect_eq(process.pinned_bytes, 0);
	cr_expect_eq(process.contexts, 0);
}

Test(gpu_device, all_that_the_driver_shows_are_served_in_its_order)
{
	open_all("3");
	cr_assert_eq(gpu_count(gpu), 3);
	cr_expect_str_eq(status_of(0).uuid_text, FIRST);
	cr_expect_str_eq(status_of(2).uuid_text, THIRD);
	cr_expect_eq(status_of(1).state, GPU_SERVING);
	cr_expect_eq(status_of(1).total_bytes, 1024 * MIB);
	cr_expect_gt(status_of(1).free_bytes, 1000 * MIB);
	cr_expect_neq(status_of(0).name[0], '\0');
	close_all();
}

Test(gpu_device, named_ones_are_served_in_the_order_of_the_names)
{
	static const char *const uuids[] = {THIRD, FIRST};

	start("3");
	cr_assert_eq(open_named(uuids, 2), 0, "%s", message);
	cr_assert_eq(gpu_count(gpu), 2);
	cr_expect_str_eq(status_of(0).uuid_text, THIRD);
	cr_expect_str_eq(status_of(1).uuid_text, FIRST);
	close_all();
}

/* Case G3: this process's numbers are not the machine's. */
Test(gpu_device, a_uuid_is_found_whatever_number_it_has_here)
{
	static const char *const uuids[] = {FIRST};
	struct fakecuda_usage usage;
	struct gpu_job job;

	(void)setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
	start("3");
	cr_assert_eq(open_named(uuids, 1), 0, "%s", message);
	cr_expect_str_eq(status_of(0).uuid_text, FIRST);
	cr_assert_eq(gpu_try_allocate(gpu, 0, 64 * MIB, &job), 0);
	fake_gpu.fakecuda_usage(0, &usage);
	cr_expect_eq(usage.used_bytes, 64 * MIB, "it is device 0 of the machine, and 1 of this process");
	close_all();
}

Test(gpu_device, a_mig_instance_is_named_as_one)
{
	(void)setenv("FAKECUDA_DEVICES", "2", 1);
	(void)setenv("FAKECUDA_UUIDS", "MIG-00112233-4455-6677-8899-aabbccddeeff", 1);
	fake_gpu_start();
	cr_assert_eq(gpu_open(&gpu, &(struct gpu_setup){0}, message), 0, "%s", message);
	cr_assert_eq(gpu_count(gpu), 1, "a process sees one instance and no more");
	cr_expect_str_eq(status_of(0).uuid_text, "MIG-00112233-4455-6677-8899-aabbccddeeff");
	close_all();
}

Test(gpu_device, names_that_are_wrong)
{
	static const char *const unknown[] = {"GPU-ffffffff-4455-6677-8899-aabbccddeeff"}, *const no_uuid[] = {"0"},
				*const twice[] = {FIRST, SECOND, FIRST};

	(void)setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
	start("3");
	cr_expect_eq(open_named(unknown, 1), -ENOENT);
	cr_expect(strstr(message, "GPU-ffffffff") != NULL && strstr(message, SECOND) != NULL && strstr(message, THIRD) == NULL, "%s", message);
	cr_expect_eq(open_named(no_uuid, 1), -EINVAL);
	cr_expect(strstr(message, "nvidia-smi -L") != NULL, "%s", message);
	cr_expect_eq(open_named(twice, 3), -EINVAL);
	cr_expect(strstr(message, FIRST " is named twice") != NULL, "%s", message);
	cr_expect_eq(open_named(twice, 0), -EINVAL);
	cr_expect_null(gpu, "output is untouched on failure");
	cr_expect_eq(open_named(twice, 2), 0, "and none of it is in the way: %s", message);
	close_all();
}

Test(gpu_device, staging_memory_is_divided_and_never_more_than_asked_for)
{
	const struct gpu_setup setup = {.staging_bytes = 3 * MIB}, little = {.staging_bytes = MIB / 2};
	struct fakecuda_process process;

	start("2");
	cr_expect_eq(gpu_open(&gpu, &little, message), 0, "%s", message);
	close_all();
	cr_assert_eq(gpu_open(&gpu, &setup, message), 0, "%s", message);
	cr_assert_eq(fake_gpu.fakecuda_process(getpid(), &process), 0);
	cr_expect_leq(process.pinned_bytes, 3 * MIB);
	cr_expect_geq(process.pinned_bytes, 3 * MIB - 8 * 4096);
	close_all();
	cr_expect_eq(gpu_open(&gpu, &(struct gpu_setup){.staging_bytes = MIB / 2 - 1}, message), -EINVAL);
	cr_expect(strstr(message, "524288 are needed") != NULL, "%s", message);
}

/* Case A7: what the driver takes is what counts. */
Test(gpu_device, what_is_charged_is_what_the_driver_takes)
{
	struct fakecuda_usage usage;
	struct gpu_job job;
	uint64_t charged = 0;

	(void)setenv("FAKECUDA_GRANULE", "1M", 1);
	open_all("1");
	cr_expect_eq(status_of(0).granularity, MIB);
	for (int i = 0; i < 100; i++) {
		cr_assert_eq(gpu_try_allocate(gpu, 0, 768 * 1024, &job), 0);
		cr_expect_eq(job.charged_bytes, MIB);
		charged += job.charged_bytes;
	}
	fake_gpu.fakecuda_usage(0, &usage);
	cr_expect_eq(usage.used_bytes, charged);
	cr_expect_eq(status_of(0).arena_bytes, charged);
	cr_expect_eq(status_of(0).free_bytes, 1024 * MIB - charged);
	cr_assert_eq(gpu_try_free(gpu, 0, job.address), 0);
	cr_expect_eq(status_of(0).arena_bytes, charged - MIB);
	cr_expect_eq(status_of(0).free_bytes, 1025 * MIB - charged);
	close_all();
}

Test(gpu_device, granularities_are_found_by_trying)
{
	static const char *const given[] = {"512", "64K", "2M", "4M"};
	static const uint64_t expected[] = {512, 64 << 10, 2 * MIB, 4 * MIB};
	unsigned i = 0;

	(void)setenv("FAKECUDA_GRANULE", "512,64K,2M,4M", 1);
	(void)setenv("FAKECUDA_UUIDS", FIRST, 1);
	(void)setenv("FAKECUDA_DEVICES", "4", 1);
	fake_gpu_start();
	cr_assert_eq(gpu_open(&gpu, &(struct gpu_setup){0}, message), 0, "%s", message);
	for (i = 0; i < 4; i++)
		cr_expect_eq(status_of(i).granularity, expected[i], "%s: %llu", given[i], (unsigned long long)status_of(i).granularity);
	close_all();
}

/* Another process that allocates between two looks must not be charged to us. */
Test(gpu_device, what_others_take_meanwhile_is_not_charged)
{
	CUcontext context;
	CUdeviceptr others;
	struct gpu_job job;

	open_all("1");
	cr_assert_eq(fake_gpu.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	cr_assert_eq(fake_gpu.cuCtxSetCurrent(context), CUDA_SUCCESS);
	cr_assert_eq(fake_gpu.cuMemAlloc_v2(&others, 512 * MIB), CUDA_SUCCESS);
	cr_assert_eq(gpu_try_measure(gpu, 0), 0);
	cr_expect_eq(status_of(0).free_bytes, 512 * MIB);
	cr_expect_eq(status_of(0).arena_bytes, 0);
	cr_assert_eq(gpu_try_allocate(gpu, 0, 512 * MIB + 1, &job), -ENOMEM);
	cr_expect_eq(job.address, 0);
	cr_assert_eq(gpu_try_allocate(gpu, 0, 512 * MIB, &job), 0);
	cr_expect_eq(status_of(0).free_bytes, 0);
	cr_assert_eq(gpu_try_allocate(gpu, 0, 1, &job), -ENOMEM);
	cr_expect_eq(status_of(0).state, GPU_SERVING, "being full is no loss");
	cr_assert_eq(fake_gpu.cuMemFree_v2(others), CUDA_SUCCESS);
	cr_assert_eq(gpu_try_allocate(gpu, 0, MIB, &job), 0);
	cr_assert_eq(fake_gpu.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	close_all();
}

Test(gpu_device, memory_that_was_never_given_is_not_freed)
{
	struct gpu_job job;

	open_all("1");
	cr_assert_eq(gpu_try_allocate(gpu, 0, MIB, &job), 0);
	cr_expect_eq(gpu_try_free(gpu, 0, job.address + 4096), -EINVAL);
	cr_expect_eq(gpu_try_free(gpu, 0, 0), -EINVAL);
	cr_expect_eq(gpu_try_free(gpu, 0, job.address), 0);
	cr_expect_eq(gpu_try_free(gpu, 0, job.address), -EINVAL);
	cr_expect_eq(gpu_try_allocate(gpu, 0, 0, &job), -EIO);
	close_all();
}

/* Case G5 */
Test(gpu_device, memory_that_cannot_be_exported_is_found_at_open)
{
	static const char *const second[] = {SECOND};

	start("2");
	cr_assert_eq(fake_gpu.cuInit(0), CUDA_SUCCESS);
	cr_assert_eq(fake_gpu.fakecuda_fail(0, "cuIpcGetMemHandle", 1, CUDA_ERROR_NOT_SUPPORTED, 1), 0);
	cr_expect_eq(open_named(second, 1), -ENOTSUP);
	cr_expect(strstr(message, SECOND ": its memory cannot be exported") != NULL, "%s", message);
	cr_expect_eq(gpu_open(&gpu, &(struct gpu_setup){0}, message), -ENOTSUP, "none can");
	cr_expect_null(gpu);
}

Test(gpu_device, one_that_does_not_open_leaves_the_others)
{
	static const char *const both[] = {FIRST, SECOND};
	struct gpu_job job;

	start("2");
	cr_assert_eq(fake_gpu.cuInit(0), CUDA_SUCCESS);
	fake_gpu.fakecuda_lose_device(1, CUDA_ERROR_ECC_UNCORRECTABLE);
	cr_expect_eq(open_named(both, 2), -ENODEV, "it was named");
	cr_expect(strstr(message, SECOND) != NULL && strstr(message, "CUDA_ERROR_DEVICE_UNAVAILABLE") != NULL, "%s", message);
	cr_assert_eq(gpu_open(&gpu, &(struct gpu_setup){0}, message), 0, "%s", message);
	cr_assert_eq(gpu_count(gpu), 2);
	cr_expect_eq(status_of(0).state, GPU_SERVING);
	cr_expect_eq(status_of(1).state, GPU_LOST);
	cr_expect(strstr(status_of(1).reason, "CUDA_ERROR_DEVICE_UNAVAILABLE") != NULL, "%s", status_of(1).reason);
	cr_expect_eq(gpu_try_allocate(gpu, 0, MIB, &job), 0);
	cr_expect_eq(gpu_try_allocate(gpu, 1, MIB, &job), -ENODEV);
	gpu = gpu_close(gpu);
}

Test(gpu_device, a_full_device_and_host_memory_that_cannot_be_pinned)
{
	CUcontext context;
	CUdeviceptr others;

	(void)setenv("FAKECUDA_PINNED", "8M", 1);
	start("1");
	cr_assert_eq(fake_gpu.cuInit(0), CUDA_SUCCESS);
	cr_expect_eq(gpu_open(&gpu, &(struct gpu_setup){0}, message), -ENOMEM);
	cr_expect(strstr(message, "pinned host memory") != NULL, "%s", message);
	cr_assert_eq(fake_gpu.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	cr_assert_eq(fake_gpu.cuCtxSetCurrent(context), CUDA_SUCCESS);
	cr_assert_eq(fake_gpu.cuMemAlloc_v2(&others, 1024 * MIB), CUDA_SUCCESS);
	cr_expect_eq(gpu_open(&gpu, &(struct gpu_setup){.staging_bytes = 8 * MIB}, message), -ENOMEM);
	cr_expect(strstr(message, "no memory left") != NULL, "%s", message);
	cr_assert_eq(fake_gpu.cuMemFree_v2(others), CUDA_SUCCESS);
	cr_expect_eq(gpu_open(&gpu, &(struct gpu_setup){.staging_bytes = 8 * MIB}, message), 0, "%s", message);
	cr_assert_eq(fake_gpu.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	close_all();
}

/* Each call that opening makes, failing: an error, and whatever was taken is given back. */
Test(gpu_device, every_call_of_opening_may_fail)
{
	static const char *const calls[] = {"cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuStreamCreate",    "cuMemHostAlloc",
					    "cuEventCreate",            "cuMemGetInfo_v2", "cuMemAlloc_v2",     "cuIpcGetMemHandle",
					    "cuMemFree_v2",             "cuDeviceGet",     "cuDeviceGetUuid_v2", "cuDeviceGetName"};

	start("1");
	cr_assert_eq(fake_gpu.cuInit(0), CUDA_SUCCESS);
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		struct fakecuda_process process;

		memset(message, 0, sizeof message);
		cr_assert_eq(fake_gpu.fakecuda_fail(0, calls[i], 1, CUDA_ERROR_NOT_PERMITTED, 0), 0);
		cr_expect_lt(gpu_open(&gpu, &(struct gpu_setup){0}, message), 0, "%s", calls[i]);
		cr_expect_gt(strlen(message), 20, "%s: \"%s\"", calls[i], message);
		cr_expect_null(gpu);
		cr_assert_eq(fake_gpu.fakecuda_process(getpid(), &process), 0);
		cr_expect_eq(process.pinned_bytes, 0, "%s", calls[i]);
		cr_expect_eq(process.contexts, 0, "%s", calls[i]);
	}
}

Test(gpu_device, an_allocation_that_cannot_be_exported_is_given_back)
{
	struct fakecuda_usage usage;
	struct gpu_job job;

	open_all("1");
	cr_assert_eq(fake_gpu.fakecuda_fail(0, "cuIpcGetMemHandle", 1, CUDA_ERROR_INVALID_VALUE, 0), 0);
	cr_expect_eq(gpu_try_allocate(gpu, 0, MIB, &job), -EIO);
	fake_gpu.fakecuda_usage(0, &usage);
	cr_expect_eq(usage.used_bytes, 0);
	cr_expect_eq(gpu_try_allocate(gpu, 0, MIB, &job), 0);
	cr_assert_eq(fake_gpu.fakecuda_fail(0, "cuMemFree_v2", 1, CUDA_ERROR_NOT_PERMITTED, 0), 0);
	cr_expect_eq(gpu_try_free(gpu, 0, job.address), -EIO);
	cr_expect_eq(status_of(0).arena_bytes, 2 * MIB, "it is still there, so it is still charged");
	cr_expect_eq(gpu_try_free(gpu, 0, job.address), 0);
	close_all();
}

Test(gpu_device, a_token_is_of_this_process)
{
	unsigned char own[GPU_TOKEN_BYTES];
	int pipes[2];
	pid_t child;

	memcpy(own, gpu_token(), sizeof own);
	cr_expect_eq(memcmp(own, gpu_token(), sizeof own), 0);
	cr_assert_eq(pipe(pipes), 0);
	child = fork();
	if (child == 0)
		_exit(write(pipes[1], gpu_token(), GPU_TOKEN_BYTES) == GPU_TOKEN_BYTES ? 0 : 1);
	cr_assert_gt(child, 0);
	unsigned char theirs[GPU_TOKEN_BYTES];
	cr_assert_eq(read(pipes[0], theirs, sizeof theirs), (ssize_t)sizeof theirs);
	cr_expect_neq(memcmp(own, theirs, sizeof own), 0, "a child is another process");
	(void)close(pipes[0]);
	(void)close(pipes[1]);
}
