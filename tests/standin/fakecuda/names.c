/* SPDX-License-Identifier: Apache-2.0 */
/* Names: of errors, and of the functions that cuGetProcAddress() finds. */
#include "tests/standin/fakecuda/process.h"

#include <stdio.h>
#include <string.h>

#define ERROR(code)         \
	{                   \
		code, #code \
	}
static const struct {
	CUresult code;
	const char *name;
} errors[] = {
	ERROR(CUDA_SUCCESS),
	ERROR(CUDA_ERROR_INVALID_VALUE),
	ERROR(CUDA_ERROR_OUT_OF_MEMORY),
	ERROR(CUDA_ERROR_NOT_INITIALIZED),
	ERROR(CUDA_ERROR_DEINITIALIZED),
	ERROR(CUDA_ERROR_STUB_LIBRARY),
	ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE),
	ERROR(CUDA_ERROR_NO_DEVICE),
	ERROR(CUDA_ERROR_INVALID_DEVICE),
	ERROR(CUDA_ERROR_INVALID_IMAGE),
	ERROR(CUDA_ERROR_INVALID_CONTEXT),
	ERROR(CUDA_ERROR_MAP_FAILED),
	ERROR(CUDA_ERROR_ECC_UNCORRECTABLE),
	ERROR(CUDA_ERROR_INVALID_HANDLE),
	ERROR(CUDA_ERROR_NOT_FOUND),
	ERROR(CUDA_ERROR_NOT_READY),
	ERROR(CUDA_ERROR_ILLEGAL_ADDRESS),
	ERROR(CUDA_ERROR_LAUNCH_TIMEOUT),
	ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED),
	ERROR(CUDA_ERROR_TOO_MANY_PEERS),
	ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED),
	ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
	ERROR(CUDA_ERROR_LAUNCH_FAILED),
	ERROR(CUDA_ERROR_NOT_PERMITTED),
	ERROR(CUDA_ERROR_NOT_SUPPORTED),
	ERROR(CUDA_ERROR_SYSTEM_NOT_READY),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
	ERROR(CUDA_ERROR_CAPTURED_EVENT),
	ERROR(CUDA_ERROR_UNKNOWN),
};

/* For both: real texts are sentences. */
static CUresult name_of(CUresult error, const char **ret_name)
{
	if (!ret_name)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == error) {
			*ret_name = errors[i].name;
			return CUDA_SUCCESS;
		}
	*ret_name = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char **ret_name)
{
	return name_of(error, ret_name);
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char **ret_text)
{
	return name_of(error, ret_text);
}

#define FUNCTION(name)                      \
	{                                   \
#name, (void (*)(void))name \
	}
static const struct {
	const char *name; /* with its version */
	void (*function)(void);
} functions[] = {
	FUNCTION(cuInit),
	FUNCTION(cuDriverGetVersion),
	FUNCTION(cuGetErrorName),
	FUNCTION(cuGetErrorString),
	FUNCTION(cuGetProcAddress_v2),
	FUNCTION(cuDeviceGetCount),
	FUNCTION(cuDeviceGet),
	FUNCTION(cuDeviceGetName),
	FUNCTION(cuDeviceGetUuid_v2),
	FUNCTION(cuDeviceGetAttribute),
	FUNCTION(cuDeviceTotalMem_v2),
	FUNCTION(cuDevicePrimaryCtxRetain),
	FUNCTION(cuDevicePrimaryCtxRelease_v2),
	FUNCTION(cuCtxPushCurrent_v2),
	FUNCTION(cuCtxPopCurrent_v2),
	FUNCTION(cuCtxSetCurrent),
	FUNCTION(cuCtxGetCurrent),
	FUNCTION(cuCtxGetDevice),
	FUNCTION(cuCtxSynchronize),
	FUNCTION(cuMemGetInfo_v2),
	FUNCTION(cuMemAlloc_v2),
	FUNCTION(cuMemAllocAsync),
	FUNCTION(cuMemFree_v2),
	FUNCTION(cuMemGetAddressRange_v2),
	FUNCTION(cuPointerGetAttribute),
	FUNCTION(cuMemHostRegister_v2),
	FUNCTION(cuMemHostUnregister),
	FUNCTION(cuMemHostAlloc),
	FUNCTION(cuMemFreeHost),
	FUNCTION(cuMemcpyHtoD_v2),
	FUNCTION(cuMemcpyDtoH_v2),
	FUNCTION(cuMemcpyHtoDAsync_v2),
	FUNCTION(cuMemcpyDtoHAsync_v2),
	FUNCTION(cuMemcpyDtoDAsync_v2),
	FUNCTION(cuIpcGetMemHandle),
	FUNCTION(cuIpcOpenMemHandle_v2),
	FUNCTION(cuIpcCloseMemHandle),
	FUNCTION(cuStreamCreate),
	FUNCTION(cuStreamDestroy_v2),
	FUNCTION(cuStreamQuery),
	FUNCTION(cuStreamSynchronize),
	FUNCTION(cuStreamWaitEvent),
	FUNCTION(cuStreamAddCallback),
	FUNCTION(cuStreamBeginCapture_v2),
	FUNCTION(cuStreamEndCapture),
	FUNCTION(cuStreamIsCapturing),
	FUNCTION(cuThreadExchangeStreamCaptureMode),
	FUNCTION(cuLaunchHostFunc),
	FUNCTION(cuEventCreate),
	FUNCTION(cuEventDestroy_v2),
	FUNCTION(cuEventRecord),
	FUNCTION(cuEventQuery),
	FUNCTION(cuEventSynchronize),
	FUNCTION(cuModuleLoadData),
	FUNCTION(cuModuleUnload),
	FUNCTION(cuModuleGetFunction),
	FUNCTION(cuLaunchKernel),
};

/* By the plain name, as the real one: it gives the version that suits. */
CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **ret_function, int version, cuuint64_t flags,
				     CUdriverProcAddressQueryResult *ret_status)
{
	char versioned[64];
	(void)flags;
	if (!symbol || !ret_function)
		return CUDA_ERROR_INVALID_VALUE;
	(void)snprintf(versioned, sizeof versioned, "%s_v2", symbol);
	*ret_function = NULL;
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
		if (!strcmp(functions[i].name, symbol) || !strcmp(functions[i].name, versioned)) {
			void (*function)(void) = version < 12000 ? NULL : functions[i].function;
			memcpy(ret_function, &function, sizeof function);
		}
	if (ret_status)
		*ret_status = *ret_function     ? CU_GET_PROC_ADDRESS_SUCCESS
			      : version < 12000 ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
						: CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return *ret_function || ret_status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
