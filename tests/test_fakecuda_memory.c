/* SPDX-License-Identifier: Apache-2.0 */
/* Device and host memory of one process: what is charged, and every way to use it wrong. */
#include "tests/support/gpu_peer.h"
#include "tests/support/gpu_self.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define gpu fake_gpu
#define MIB (1ULL << 20)
#define KIB 1024ULL

static unsigned char bytes[4096];

static void start(void)
{
	(void)setenv("FAKECUDA_REPORT", "/dev/null", 1);
	fake_gpu_start();
	gpu_self_start(0);
}

static uint64_t used_bytes(void)
{
	struct fakecuda_usage usage;
	gpu.fakecuda_usage(0, &usage);
	return usage.used_bytes;
}

/* 1000 objects of 768 KiB in a device of 800 MiB that charges 1 MiB each: 800 of them fit, whatever their sum is. */
Test(fakecuda_memory, what_is_charged_is_what_fits)
{
	CUdeviceptr object;
	CUcontext context;
	int count = 0;
	CUresult result;
	(void)setenv("FAKECUDA_GRANULE", "1M", 1);
	(void)setenv("FAKECUDA_MEMORY", "800M", 1);
	fake_gpu_start();
	cr_assert_eq(gpu.cuInit(0), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuCtxSetCurrent(context), CUDA_SUCCESS);
	while (!(result = gpu.cuMemAlloc_v2(&object, 768 * KIB)) && count < 1000)
		count++;
	cr_expect_eq(result, CUDA_ERROR_OUT_OF_MEMORY);
	cr_expect_eq(count, 800);
	cr_expect_eq(used_bytes(), 800 * MIB);
}

Test(fakecuda_memory, a_device_is_one_for_all_processes)
{
	struct gpu_peer peer;
	CUdeviceptr memory;
	size_t before, after, total;
	(void)setenv("FAKECUDA_MEMORY", "64M", 1);
	(void)setenv("FAKECUDA_CONTEXT", "10M", 1);
	fake_gpu_start();
	gpu_peer_start(&peer, 0, NULL);
	gpu_self_start(0);
	cr_assert_eq(gpu.cuMemGetInfo_v2(&before, &total), CUDA_SUCCESS);
	cr_expect_eq(before, (64 - 2 * 10 - 3 * 2) * MIB, "two contexts and three allocations");
	cr_assert_eq(gpu_peer_do(&peer, GPU_PEER_LIMIT), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuMemAlloc_v2(&memory, 1), CUDA_ERROR_OUT_OF_MEMORY);
	cr_assert_eq(gpu_peer_do(&peer, GPU_PEER_QUIT), 0);
	cr_assert_eq(gpu.cuMemGetInfo_v2(&after, &total), CUDA_SUCCESS);
	cr_expect_eq(after, before + (10 + 2) * MIB, "all that the peer had came back");
}

Test(fakecuda_memory, read_after_free, .init = start)
{
	cr_assert_eq(gpu.cuMemFree_v2(self.memory), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuMemcpyDtoH_v2(bytes, self.memory, 1), CUDA_ERROR_INVALID_VALUE);
	gpu_self_expect("use-after-free");
}

Test(fakecuda_memory, a_kernel_after_free_kills_its_context, .init = start)
{
	size_t free_bytes, total;
	cr_assert_eq(gpu.cuMemFree_v2(self.memory), CUDA_SUCCESS);
	cr_expect_eq(gpu_self_checksum(self.memory, 1, self.stream), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuStreamSynchronize(self.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
	cr_expect_eq(gpu.cuMemGetInfo_v2(&free_bytes, &total), CUDA_ERROR_ILLEGAL_ADDRESS, "and all else is sticky");
	gpu_self_expect("use-after-free");
}

Test(fakecuda_memory, freed_twice, .init = start)
{
	cr_assert_eq(gpu.cuMemFree_v2(self.memory), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuMemFree_v2(self.memory), CUDA_ERROR_INVALID_VALUE);
	gpu_self_expect("use-after-free");
}

Test(fakecuda_memory, free_waits_for_the_streams, .init = start)
{
	struct fakecuda_process is;
	gpu.fakecuda_delay(20 * 1000000, 0);
	cr_assert_eq(gpu_self_checksum(self.memory, GPU_SELF_BYTES, self.stream), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuMemFree_v2(self.memory), CUDA_SUCCESS);
	cr_assert_eq(gpu.fakecuda_process(getpid(), &is), 0);
	cr_expect_eq(is.executed, is.queued);
	gpu_self_expect_none();
}

Test(fakecuda_memory, past_the_end, .init = start)
{
	cr_expect_eq(gpu.cuMemcpyDtoH_v2(bytes, self.memory + GPU_SELF_BYTES - 1, 2), CUDA_ERROR_INVALID_VALUE);
	gpu_self_expect("bad-address");
	cr_expect_eq(gpu.cuMemcpyDtoH_v2(bytes, self.memory + GPU_SELF_BYTES, 1), CUDA_ERROR_INVALID_VALUE);
	gpu_self_expect("bad-address");
}

Test(fakecuda_memory, an_address_of_the_host, .init = start)
{
	cr_expect_eq(gpu.cuMemcpyHtoD_v2((CUdeviceptr)(uintptr_t)bytes, self.pinned, 1), CUDA_ERROR_INVALID_VALUE);
	gpu_self_expect("bad-address");
}

Test(fakecuda_memory, read_of_what_nothing_has_written, .init = start)
{
	CUdeviceptr memory;
	cr_assert_eq(gpu.cuMemAlloc_v2(&memory, MIB), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuMemcpyDtoH_v2(bytes, memory, 1), CUDA_SUCCESS);
	gpu_self_expect("never-written");
}

/* A device address is nothing that the host could read: to touch it is to crash, as with a real device. */
Test(fakecuda_memory, a_device_address_is_no_memory_of_the_host, .init = start)
{
	int ends[2];
	cr_assert_eq(pipe(ends), 0);
	cr_expect_eq(write(ends[1], (void *)(uintptr_t)self.memory, 1), -1);
	cr_expect_eq(errno, EFAULT);
}

Test(fakecuda_memory, registered_twice_and_never, .init = start)
{
	cr_expect_eq(gpu.cuMemHostRegister_v2(bytes, sizeof bytes, 0), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuMemHostRegister_v2(bytes + 1, 10, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	cr_expect_eq(gpu.cuMemHostUnregister(bytes), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuMemHostUnregister(bytes), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

Test(fakecuda_memory, registered_must_be_mapped_and_writable_unless_it_says_so, .init = start)
{
	char *page = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(page, MAP_FAILED);
	cr_expect_eq(gpu.cuMemHostRegister_v2(page, 8192, 0), CUDA_ERROR_INVALID_VALUE);
	cr_expect_eq(gpu.cuMemHostRegister_v2(page, 8192, CU_MEMHOSTREGISTER_READ_ONLY), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuMemHostUnregister(page), CUDA_SUCCESS);
	cr_assert_eq(munmap(page + 4096, 4096), 0);
	cr_expect_eq(gpu.cuMemHostRegister_v2(page, 8192, CU_MEMHOSTREGISTER_READ_ONLY), CUDA_ERROR_INVALID_VALUE);
}

Test(fakecuda_memory, registered_and_staged_bytes_are_counted)
{
	struct fakecuda_process is;
	(void)setenv("FAKECUDA_PINNED", "2M", 1);
	(void)setenv("FAKECUDA_REPORT", "/dev/null", 1);
	fake_gpu_start();
	gpu_self_start(0);
	char *more = malloc(2 * MIB);
	cr_expect_eq(gpu.cuMemHostRegister_v2(more, MIB, 0), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuMemHostRegister_v2(more + MIB, 1, 0), CUDA_ERROR_OUT_OF_MEMORY);
	cr_expect_eq(gpu.cuMemHostUnregister(more), CUDA_SUCCESS);
	gpu_self_expect_none();
	cr_expect_eq(gpu.cuMemcpyHtoDAsync_v2(self.memory, bytes, sizeof bytes, self.stream), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuStreamSynchronize(self.stream), CUDA_SUCCESS);
	gpu_self_expect("pageable");
	cr_assert_eq(gpu.fakecuda_process(getpid(), &is), 0);
	cr_expect_eq(is.pinned_bytes, GPU_SELF_BYTES);
	cr_expect_eq(is.pinned_peak_bytes, 2 * MIB);
	cr_expect_eq(is.staged_bytes, 0);
	cr_expect_eq(is.staged_peak_bytes, sizeof bytes);
	free(more);
}

static void hold_an_upload(void)
{
	start();
	gpu.fakecuda_hold(0, FAKECUDA_EVERY_PROCESS, 0);
}

static void release(void)
{
	gpu.fakecuda_release(0, FAKECUDA_EVERY_PROCESS);
}

Test(fakecuda_memory, pageable_memory_is_free_once_the_call_returns, .init = hold_an_upload)
{
	memset(bytes, 1, sizeof bytes);
	cr_assert_eq(gpu.cuMemcpyHtoDAsync_v2(self.memory, bytes, sizeof bytes, self.stream), CUDA_SUCCESS);
	memset(bytes, 2, sizeof bytes);
	release();
	cr_assert_eq(gpu.cuStreamSynchronize(self.stream), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuMemcpyDtoH_v2(bytes, self.memory, sizeof bytes), CUDA_SUCCESS);
	cr_expect_eq(bytes[0], 1);
	gpu_self_expect("pageable");
}

Test(fakecuda_memory, registered_memory_is_not, .init = hold_an_upload)
{
	cr_assert_eq(gpu.cuMemcpyHtoDAsync_v2(self.memory, self.pinned, 4096, self.stream), CUDA_SUCCESS);
	self.pinned[100] = 2;
	release();
	cr_assert_eq(gpu.cuStreamSynchronize(self.stream), CUDA_SUCCESS);
	gpu_self_expect("source-changed");
	cr_assert_eq(gpu.cuMemcpyDtoH_v2(bytes, self.memory, sizeof bytes), CUDA_SUCCESS);
	cr_expect_eq(bytes[100], 2, "what the device got is what was there last");
}

Test(fakecuda_memory, unregistered_under_a_copy, .init = start)
{
	cr_assert_eq(gpu.cuMemHostRegister_v2(bytes, sizeof bytes, 0), CUDA_SUCCESS);
	gpu.fakecuda_hold(0, FAKECUDA_EVERY_PROCESS, 0);
	cr_assert_eq(gpu.cuMemcpyHtoDAsync_v2(self.memory, bytes, sizeof bytes, self.stream), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuMemHostUnregister(bytes), CUDA_SUCCESS);
	gpu_self_expect("unregister-in-use");
	release();
}

Test(fakecuda_memory, unmapped_under_a_copy, .init = start)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_eq(gpu.cuMemHostRegister_v2(page, 4096, 0), CUDA_SUCCESS);
	gpu.fakecuda_hold(0, FAKECUDA_EVERY_PROCESS, 0);
	cr_assert_eq(gpu.cuMemcpyHtoDAsync_v2(self.memory, page, 4096, self.stream), CUDA_SUCCESS);
	cr_assert_eq(munmap(page, 4096), 0);
	release();
	cr_expect_eq(gpu.cuStreamSynchronize(self.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
	gpu_self_expect("host-gone");
}

Test(fakecuda_memory, addresses_say_whose_they_are, .init = start)
{
	CUdeviceptr base;
	size_t size;
	int ordinal = -1;
	cr_expect_eq(gpu.cuMemGetAddressRange_v2(&base, &size, self.memory + 5000), CUDA_SUCCESS);
	cr_expect_eq(base, self.memory);
	cr_expect_eq(size, GPU_SELF_BYTES);
	cr_expect_eq(gpu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, self.memory),
		     CUDA_SUCCESS);
	cr_expect_eq(ordinal, 0);
	cr_expect_eq(gpu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (uintptr_t)bytes),
		     CUDA_ERROR_INVALID_VALUE);
}

Test(fakecuda_memory, copies_within_the_device, .init = start)
{
	memset(self.pinned, 3, GPU_SELF_BYTES);
	CUdeviceptr second;
	cr_assert_eq(gpu.cuMemAlloc_v2(&second, GPU_SELF_BYTES), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuMemcpyHtoDAsync_v2(self.memory, self.pinned, GPU_SELF_BYTES, self.stream), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuMemcpyDtoDAsync_v2(second, self.memory, GPU_SELF_BYTES, self.stream), CUDA_SUCCESS);
	cr_assert_eq(gpu_self_checksum(second, GPU_SELF_BYTES, self.stream), CUDA_SUCCESS);
	uint64_t sum = 0;
	cr_assert_eq(gpu.cuStreamSynchronize(self.stream), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuMemcpyDtoH_v2(&sum, self.word, sizeof sum), CUDA_SUCCESS);
	cr_expect_eq(sum, 3ULL * GPU_SELF_BYTES);
	gpu_self_expect_none();
}
