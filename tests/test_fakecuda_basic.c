/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in driver, used as its rules want it: nothing is broken then. */
#include "tests/support/fake_gpu.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define gpu fake_gpu
enum { MIB = 1 << 20 };

static CUcontext context;

static void start(void)
{
	fake_gpu_start();
	cr_assert_eq(gpu.cuInit(0), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuCtxSetCurrent(context), CUDA_SUCCESS);
}

static void expect_no_rule_broken(void)
{
	char last[256];
	gpu.fakecuda_last(last, sizeof last);
	cr_expect_eq(gpu.fakecuda_count(NULL), 0, "%s", last);
}

Test(fakecuda_basic, what_was_uploaded_is_read_back, .init = start)
{
	CUdeviceptr memory;
	char from[1000], to[1000];
	memset(from, 7, sizeof from);
	cr_assert_eq(gpu.cuMemAlloc_v2(&memory, 3 * MIB), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuMemcpyHtoD_v2(memory + MIB, from, sizeof from), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuMemcpyDtoH_v2(to, memory + MIB, sizeof to), CUDA_SUCCESS);
	cr_expect_arr_eq(from, to, sizeof to);
	cr_assert_eq(gpu.cuMemFree_v2(memory), CUDA_SUCCESS);
	expect_no_rule_broken();
}

Test(fakecuda_basic, allocations_are_charged_by_the_granule, .init = start)
{
	CUdeviceptr memory;
	size_t before, after, total;
	cr_assert_eq(gpu.cuMemGetInfo_v2(&before, &total), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuMemAlloc_v2(&memory, 3 * MIB), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuMemGetInfo_v2(&after, &total), CUDA_SUCCESS);
	cr_expect_eq(before - after, 4 * MIB);
	cr_expect_eq(total, 1 << 30);
	cr_assert_eq(gpu.cuMemFree_v2(memory), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuMemGetInfo_v2(&after, &total), CUDA_SUCCESS);
	cr_expect_eq(before, after);
}

Test(fakecuda_basic, a_stream_runs_when_it_is_released, .init = start)
{
	CUstream stream;
	CUevent event;
	CUdeviceptr memory;
	char *from;
	cr_assert_eq(gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuMemAlloc_v2(&memory, MIB), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuMemHostAlloc((void **)&from, MIB, 0), CUDA_SUCCESS);
	gpu.fakecuda_hold(0, FAKECUDA_EVERY_PROCESS, 0);
	cr_assert_eq(gpu.cuMemcpyHtoDAsync_v2(memory, from, MIB, stream), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuEventRecord(event, stream), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
	cr_expect_eq(gpu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	gpu.fakecuda_release(0, FAKECUDA_EVERY_PROCESS);
	cr_expect_eq(gpu.cuEventSynchronize(event), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuStreamQuery(stream), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuEventDestroy_v2(event), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuMemFree_v2(memory), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuMemFreeHost(from), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	expect_no_rule_broken();
}

/* How gpu/ looks for the driver: by name, and the one that is loaded already is it. */
Test(fakecuda_basic, it_is_found_by_the_name_of_the_library)
{
	fake_gpu_start();
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	cr_assert(library, "%s", dlerror());
	cr_expect_eq((uintptr_t)dlsym(library, "cuInit"), (uintptr_t)gpu.cuInit);
}
