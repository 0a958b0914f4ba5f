/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an engine does on a device, for checks with whatever driver there is: memory and a stream of its own, copies, kernels. In the
 * primary context, as the runtime API has it. Every call that fails says so on standard output.
 */
#ifndef CNRE_TESTS_GPU_ENGINE_H
#define CNRE_TESTS_GPU_ENGINE_H

#include "gpu/cuda_api.h"
#include "gpu/import.h"

#include <stdint.h>

#define ENGINE_CALLS(call) \
	call(cuDeviceGet) call(cuDevicePrimaryCtxRetain) call(cuDevicePrimaryCtxRelease_v2) call(cuCtxSetCurrent) \
	call(cuMemAlloc_v2) call(cuMemFree_v2) call(cuMemGetInfo_v2) call(cuMemHostAlloc) call(cuMemFreeHost) \
	call(cuMemcpyHtoD_v2) call(cuMemcpyDtoH_v2) call(cuMemcpyHtoDAsync_v2) call(cuMemcpyDtoHAsync_v2) \
	call(cuStreamCreate) call(cuStreamDestroy_v2) call(cuStreamSynchronize) \
	call(cuModuleLoadData) call(cuModuleUnload) call(cuModuleGetFunction) call(cuLaunchKernel)

struct engine {
#define ENGINE_MEMBER(name) __typeof__(&(name)) name;
	ENGINE_CALLS(ENGINE_MEMBER)
#undef ENGINE_MEMBER
	CUcontext context;
	CUstream stream;
	CUmodule module;
};

/* On the device of this number, whose import is open. 0, or -1. */
int engine_open(struct engine *engine, int ordinal);
void engine_close(struct engine *engine);
/* The kernels of matvec.cu. 0; 77: there are none, since nvcc was not there at build time; -1: the driver does not take them. */
int engine_load_kernels(struct engine *engine);
/* Compares bytes of device memory, as the stream reads them, with what fill makes of the seed. 0, or -1: other bytes. */
int engine_compare(struct engine *engine, uint64_t address, uint64_t bytes, void (*fill)(void *, uint64_t, uint32_t),
		   uint32_t seed);
/* One kernel of matvec.cu on an expert (matvec.h) at this address, once or many times; y comes back. 0, or -1. */
int engine_matvec(struct engine *engine, const char *kernel, uint64_t weights, uint64_t scales, const int8_t *x, float *ret_y,
		  unsigned times);
/* The sum of bytes by the kernel cnre_checksum. 0, or -1. */
int engine_checksum(struct engine *engine, uint64_t address, uint64_t bytes, uint64_t *ret_sum);

#endif
