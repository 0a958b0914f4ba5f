/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stand-in driver (tests/standin/fakecuda/) in a test: loaded here, so that a later dlopen("libcuda.so.1") of what is
 * tested finds it, and put into the environment for programs that the test starts. Settings of the world are environment
 * variables (fakecuda.h), set before fake_gpu_start().
 *
 *	setenv("FAKECUDA_MEMORY", "64M", 1);
 *	fake_gpu_start();
 *	fake_gpu.cuInit(0);
 *	fake_gpu.fakecuda_hold(0, 0, 3);
 */
#ifndef CNRE_TESTS_SUPPORT_FAKE_GPU_H
#define CNRE_TESTS_SUPPORT_FAKE_GPU_H

#include "gpu/cuda_api.h"
#include "tests/standin/fakecuda/fakecuda.h"

#define FAKE_GPU_CALLS(CALL) \
	CALL(cuInit) CALL(cuDriverGetVersion) CALL(cuGetErrorName) CALL(cuGetErrorString) CALL(cuGetProcAddress_v2) \
	CALL(cuDeviceGetCount) CALL(cuDeviceGet) CALL(cuDeviceGetName) CALL(cuDeviceGetUuid_v2) CALL(cuDeviceGetAttribute) \
	CALL(cuDeviceTotalMem_v2) CALL(cuDevicePrimaryCtxRetain) CALL(cuDevicePrimaryCtxRelease_v2) \
	CALL(cuCtxPushCurrent_v2) CALL(cuCtxPopCurrent_v2) CALL(cuCtxSetCurrent) CALL(cuCtxGetCurrent) CALL(cuCtxGetDevice) \
	CALL(cuCtxSynchronize) CALL(cuMemGetInfo_v2) CALL(cuMemAlloc_v2) CALL(cuMemAllocAsync) CALL(cuMemFree_v2) \
	CALL(cuMemGetAddressRange_v2) CALL(cuPointerGetAttribute) CALL(cuMemHostRegister_v2) CALL(cuMemHostUnregister) \
	CALL(cuMemHostAlloc) CALL(cuMemFreeHost) CALL(cuMemcpyHtoD_v2) CALL(cuMemcpyDtoH_v2) CALL(cuMemcpyHtoDAsync_v2) \
	CALL(cuMemcpyDtoHAsync_v2) CALL(cuMemcpyDtoDAsync_v2) CALL(cuIpcGetMemHandle) CALL(cuIpcOpenMemHandle_v2) \
	CALL(cuIpcCloseMemHandle) CALL(cuStreamCreate) CALL(cuStreamDestroy_v2) CALL(cuStreamQuery) CALL(cuStreamSynchronize) \
	CALL(cuStreamWaitEvent) CALL(cuStreamAddCallback) CALL(cuStreamBeginCapture_v2) CALL(cuStreamEndCapture) \
	CALL(cuStreamIsCapturing) CALL(cuThreadExchangeStreamCaptureMode) CALL(cuLaunchHostFunc) CALL(cuEventCreate) CALL(cuEventDestroy_v2) \
	CALL(cuEventRecord) CALL(cuEventQuery) CALL(cuEventSynchronize) CALL(cuModuleLoadData) CALL(cuModuleUnload) \
	CALL(cuModuleGetFunction) CALL(cuLaunchKernel) \
	CALL(fakecuda_world) CALL(fakecuda_hold) CALL(fakecuda_release) CALL(fakecuda_delay) CALL(fakecuda_lose_device) \
	CALL(fakecuda_restore_device) CALL(fakecuda_fail_context) CALL(fakecuda_fail) CALL(fakecuda_count) CALL(fakecuda_last) \
	CALL(fakecuda_forget_reports) CALL(fakecuda_usage) CALL(fakecuda_process) CALL(fakecuda_peek)

struct fake_gpu {
#define FAKE_GPU_CALL(name) __typeof__(&(name)) name;
	FAKE_GPU_CALLS(FAKE_GPU_CALL)
#undef FAKE_GPU_CALL
};
extern struct fake_gpu fake_gpu;

/* Loads the driver and makes a world that lives as long as this process; exits(99) if that cannot be. Of a world that
 * FAKECUDA_WORLD names already, it becomes a part. */
void fake_gpu_start(void);
void fake_gpu_load(void); /* the driver alone */

#endif
