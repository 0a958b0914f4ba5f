/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices a process sees, contexts, what becomes of it all when a device is lost, and failures that are asked for. */
#include "tests/support/child.h"
#include "tests/support/gpu_peer.h"
#include "tests/support/gpu_self.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define gpu fake_gpu
#define FIRST "GPU-00112233-4455-6677-8899-aabbccddeeff"
#define SECOND "GPU-01112233-4455-6677-8899-aabbccddeeff"
#define INSTANCE "MIG-02112233-4455-6677-8899-aabbccddeeff"

static void start_world(void)
{
	(void)setenv("FAKECUDA_DEVICES", "2", 1);
	(void)setenv("FAKECUDA_UUIDS", FIRST "," SECOND, 1);
	(void)setenv("FAKECUDA_REPORT", "/dev/null", 1);
	fake_gpu_start();
}

static void start(void)
{
	start_world();
	gpu_self_start(0);
}

/* What of the devices is seen with a value of CUDA_VISIBLE_DEVICES: the second byte of each UUID. */
static void expect_visible(const char *value, const char *expected)
{
	char seen[8] = "";
	int count = 0;
	CUuuid uuid;
	(void)setenv("CUDA_VISIBLE_DEVICES", value, 1);
	CUresult result = gpu.cuInit(0);
	cr_assert_eq(result, *expected ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE);
	if (!result)
		cr_assert_eq(gpu.cuDeviceGetCount(&count), CUDA_SUCCESS);
	for (int i = 0; i < count; i++) {
		cr_assert_eq(gpu.cuDeviceGetUuid_v2(&uuid, i), CUDA_SUCCESS);
		seen[i] = (char)('0' + uuid.bytes[0]);
	}
	cr_expect_str_eq(seen, expected, "CUDA_VISIBLE_DEVICES=%s", value);
}

Test(fakecuda_device, order_of_the_list, .init = start_world)
{
	expect_visible("1,0", "10");
}

Test(fakecuda_device, by_name, .init = start_world)
{
	expect_visible(SECOND, "1");
}

Test(fakecuda_device, by_the_beginning_of_a_name, .init = start_world)
{
	expect_visible("GPU-011,GPU-001", "10");
}

Test(fakecuda_device, a_beginning_of_two_names, .init = start_world)
{
	expect_visible("GPU-0", "");
}

Test(fakecuda_device, nothing_after_a_bad_entry, .init = start_world)
{
	expect_visible("1,7,0", "1");
}

Test(fakecuda_device, empty_list, .init = start_world)
{
	expect_visible("", "");
}

Test(fakecuda_device, named_twice, .init = start_world)
{
	expect_visible("0,0", "");
}

Test(fakecuda_device, one_instance_of_mig_and_nothing_else)
{
	(void)setenv("FAKECUDA_DEVICES", "2", 1);
	(void)setenv("FAKECUDA_UUIDS", FIRST "," INSTANCE, 1);
	fake_gpu_start();
	expect_visible("0," INSTANCE, "2");
}

Test(fakecuda_device, a_handle_says_the_device_whatever_its_number)
{
	struct gpu_peer peer;
	CUdeviceptr opened;
	CUcontext context;
	start_world();
	gpu_peer_start(&peer, 0, "1,0"); /* the world's second device */
	cr_assert_eq(gpu.cuInit(0), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuCtxSetCurrent(context), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuIpcOpenMemHandle_v2(&opened, peer.handle, 1), CUDA_ERROR_INVALID_VALUE);
	cr_assert_eq(gpu.cuDevicePrimaryCtxRetain(&context, 1), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuCtxSetCurrent(context), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuIpcOpenMemHandle_v2(&opened, peer.handle, 1), CUDA_SUCCESS);
	(void)gpu_peer_do(&peer, GPU_PEER_QUIT);
}

Test(fakecuda_device, names_and_attributes, .init = start)
{
	char name[64];
	int value;
	cr_expect_eq(gpu.cuDeviceGetName(name, sizeof name, 1), CUDA_SUCCESS);
	cr_expect_str_eq(name, "Stand-in GPU 1");
	cr_expect_eq(gpu.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 0), CUDA_SUCCESS);
	cr_expect_eq(value, 1);
	cr_expect_eq(gpu.cuDeviceGetName(name, sizeof name, 2), CUDA_ERROR_INVALID_DEVICE);
}

Test(fakecuda_device, before_init, .init = start_world)
{
	int count;
	cr_expect_eq(gpu.cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
	gpu_self_expect("call-before-init");
}

static int call_in_child(void *argument)
{
	int count;
	(void)argument;
	return gpu.cuInit(0) != CUDA_ERROR_NOT_INITIALIZED ||
	       gpu.cuDeviceGetCount(&count) != CUDA_ERROR_NOT_INITIALIZED;
}

Test(fakecuda_device, in_the_child_of_a_fork, .init = start)
{
	cr_expect_eq(child_run(call_in_child, NULL), 0);
	cr_expect_eq(gpu.fakecuda_count("call-after-fork"), 2);
	cr_expect_eq(gpu_self_checksum(self.memory, 1, self.stream), CUDA_SUCCESS, "the parent goes on");
	cr_expect_eq(gpu.cuStreamSynchronize(self.stream), CUDA_SUCCESS);
}

Test(fakecuda_device, without_a_context, .init = start)
{
	CUdeviceptr memory;
	CUcontext popped;
	cr_assert_eq(gpu.cuCtxPushCurrent_v2(self.context), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
	cr_expect_eq(popped, self.context);
	cr_expect_eq(gpu.cuMemAlloc_v2(&memory, 1), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuCtxSetCurrent(NULL), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuMemAlloc_v2(&memory, 1), CUDA_ERROR_INVALID_CONTEXT);
	gpu_self_expect("no-context");
	cr_expect_eq(gpu.cuCtxPopCurrent_v2(&popped), CUDA_ERROR_INVALID_CONTEXT);
}

Test(fakecuda_device, in_a_context_that_is_gone, .init = start)
{
	CUdeviceptr memory;
	cr_assert_eq(gpu.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuMemAlloc_v2(&memory, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	gpu_self_expect("dead-handle");
	cr_expect_eq(gpu.cuCtxSetCurrent(self.context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	gpu_self_expect("dead-handle");
	cr_expect_eq(gpu.cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
}

Test(fakecuda_device, lost, .init = start)
{
	CUdeviceptr memory;
	CUcontext context;
	int count;
	gpu.fakecuda_hold(0, FAKECUDA_EVERY_PROCESS, 0);
	cr_assert_eq(gpu.cuMemcpyHtoDAsync_v2(self.memory, self.pinned, 4096, self.stream), CUDA_SUCCESS);
	gpu.fakecuda_lose_device(0, CUDA_ERROR_ECC_UNCORRECTABLE);
	cr_expect_eq(gpu.cuStreamSynchronize(self.stream), CUDA_ERROR_ECC_UNCORRECTABLE, "held work ends too");
	cr_expect_eq(gpu.cuStreamQuery(self.stream), CUDA_ERROR_ECC_UNCORRECTABLE);
	cr_expect_eq(gpu.cuMemAlloc_v2(&memory, 1), CUDA_ERROR_ECC_UNCORRECTABLE);
	cr_expect_eq(gpu.cuMemFree_v2(self.memory), CUDA_ERROR_ECC_UNCORRECTABLE);
	cr_expect_eq(gpu.cuDeviceGetCount(&count), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuDevicePrimaryCtxRetain(&context, 1), CUDA_SUCCESS, "the other one works");
	gpu.fakecuda_restore_device(0);
	cr_expect_eq(gpu.cuMemAlloc_v2(&memory, 1), CUDA_ERROR_ECC_UNCORRECTABLE, "not in a context of before");
	cr_expect_eq(gpu.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	gpu.fakecuda_release(0, FAKECUDA_EVERY_PROCESS);
	cr_expect_eq(gpu.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuCtxSetCurrent(context), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuMemAlloc_v2(&memory, 1), CUDA_SUCCESS);
	gpu_self_expect_none();
}

Test(fakecuda_device, lost_and_back_between_two_calls, .init = start)
{
	CUdeviceptr memory;
	gpu.fakecuda_lose_device(FAKECUDA_EVERY_DEVICE, CUDA_ERROR_ECC_UNCORRECTABLE);
	gpu.fakecuda_restore_device(FAKECUDA_EVERY_DEVICE);
	cr_expect_eq(gpu.cuMemAlloc_v2(&memory, 1), CUDA_ERROR_DEVICE_UNAVAILABLE);
}

Test(fakecuda_device, the_context_of_one_process_fails)
{
	struct gpu_peer peer;
	CUdeviceptr memory;
	start_world();
	gpu_peer_start(&peer, 0, NULL);
	gpu_self_start(0);
	gpu.fakecuda_fail_context(peer.pid, 0, CUDA_ERROR_ILLEGAL_ADDRESS);
	cr_expect_eq(gpu_peer_do(&peer, GPU_PEER_INFO), CUDA_ERROR_ILLEGAL_ADDRESS);
	cr_expect_eq(gpu.cuMemAlloc_v2(&memory, 1), CUDA_SUCCESS);
	(void)gpu_peer_do(&peer, GPU_PEER_QUIT);
}

Test(fakecuda_device, the_nth_call_fails, .init = start)
{
	CUdeviceptr memory;
	cr_assert_eq(gpu.fakecuda_fail(getpid(), "cuMemAlloc_v2", 2, CUDA_ERROR_OUT_OF_MEMORY, 0), 0);
	cr_expect_eq(gpu.cuMemAlloc_v2(&memory, 1), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuMemAlloc_v2(&memory, 1), CUDA_ERROR_OUT_OF_MEMORY);
	cr_expect_eq(gpu.cuMemAlloc_v2(&memory, 1), CUDA_SUCCESS);
}

Test(fakecuda_device, failures_from_the_environment)
{
	CUdeviceptr memory;
	(void)setenv("FAKECUDA_FAIL", "cuMemAlloc_v2:3+:2,cuStreamQuery:1:719", 1);
	start();
	cr_expect_eq(gpu.cuMemAlloc_v2(&memory, 1), CUDA_ERROR_OUT_OF_MEMORY, "two were allocated at the start");
	cr_expect_eq(gpu.cuMemAlloc_v2(&memory, 1), CUDA_ERROR_OUT_OF_MEMORY);
	cr_expect_eq(gpu.cuStreamQuery(self.stream), CUDA_ERROR_LAUNCH_FAILED);
	cr_expect_eq(gpu.cuStreamQuery(self.stream), CUDA_SUCCESS);
}

Test(fakecuda_device, a_report_has_a_line_for_each_broken_rule)
{
	char path[] = "/tmp/fakecuda-report-XXXXXX", line[256] = "";
	CUdeviceptr memory;
	start_world();
	int fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	(void)setenv("FAKECUDA_REPORT", path, 1);
	cr_expect_eq(gpu.cuMemAlloc_v2(&memory, 1), CUDA_ERROR_NOT_INITIALIZED);
	cr_expect_gt(read(fd, line, sizeof line - 1), 0);
	cr_expect(strstr(line, "call-before-init: cuMemAlloc_v2"), "%s", line);
	(void)close(fd);
	(void)unlink(path);
}
