/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver, looked up at run time: libcuda.so.1 belongs to the machine's kernel driver, so nothing links with it, and
 * a program that finds none goes on without. Every function that gpu/ calls stands in one table, under the name with its
 * version that the library exports: the name says the ABI, and none is ever changed.
 *
 * Threads: any. The driver is loaded once in a process and never unloaded (it has threads of its own). Not after fork() in a
 * child.
 */
#ifndef CNRE_GPU_CUDA_H
#define CNRE_GPU_CUDA_H

#include "gpu/cuda_api.h"
#include "gpu/device.h"

#define GPU_CUDA_CALLS(call) \
	call(cuInit) \
	call(cuDriverGetVersion) \
	call(cuGetErrorName) \
	call(cuGetErrorString) \
	call(cuDeviceGetCount) \
	call(cuDeviceGet) \
	call(cuDeviceGetName) \
	call(cuDeviceGetUuid_v2) \
	call(cuDevicePrimaryCtxRetain) \
	call(cuDevicePrimaryCtxRelease_v2) \
	call(cuCtxSetCurrent) \
	call(cuCtxPushCurrent_v2) \
	call(cuCtxPopCurrent_v2) \
	call(cuMemGetInfo_v2) \
	call(cuMemAlloc_v2) \
	call(cuMemFree_v2) \
	call(cuMemHostAlloc) \
	call(cuMemFreeHost) \
	call(cuMemHostRegister_v2) \
	call(cuMemHostUnregister) \
	call(cuMemcpyHtoDAsync_v2) \
	call(cuIpcGetMemHandle) \
	call(cuIpcOpenMemHandle_v2) \
	call(cuIpcCloseMemHandle) \
	call(cuStreamCreate) \
	call(cuStreamDestroy_v2) \
	call(cuStreamIsCapturing) \
	call(cuThreadExchangeStreamCaptureMode) \
	call(cuEventCreate) \
	call(cuEventDestroy_v2) \
	call(cuEventRecord) \
	call(cuEventQuery) \
	call(cuEventSynchronize)

struct gpu_cuda {
#define GPU_CUDA_MEMBER(name) __typeof__(&name) name;
	GPU_CUDA_CALLS(GPU_CUDA_MEMBER)
#undef GPU_CUDA_MEMBER
	int version;                       /* as cuDriverGetVersion says it: 1000 * major + 10 * minor */
};

/*
 * Loads and initialises the driver, the first time; later calls say what the first said. 0, or -ENODEV: there is none, or it does
 * not work, or it shows no device; `message` says which, and what to do.
 */
int gpu_cuda_load(const struct gpu_cuda **ret_cuda, char message[GPU_MESSAGE_BYTES]);

/*
 * What a code of the driver is as -errno; 0 of CUDA_SUCCESS. -ENODEV: the device or its context works no more, or never did.
 * -EAGAIN: not ready. Whatever says nothing of itself is -EIO.
 */
int gpu_cuda_error(CUresult result);

/* After such a code every later call in that context fails: what is in the device is lost to this process. */
int gpu_cuda_is_loss(CUresult result);

/* "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory" */
void gpu_cuda_describe(const struct gpu_cuda *cuda, const char *call, CUresult result, char text[GPU_MESSAGE_BYTES]);

#endif
