/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices of a client's process, and arenas of an exporter's in them; see import.h. Calls are made in the primary context, pushed
 * and popped, so that the caller's own stays current. No lock is held over one.
 */
#include "gpu/import.h"

#include "base/message.h"
#include "gpu/import_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int gpu_import_load(char message[GPU_MESSAGE_BYTES])
{
	const struct gpu_cuda *cuda;

	return gpu_cuda_load(&cuda, message);
}

int gpu_import_enter(const struct gpu_import *import, CUstreamCaptureMode *ret_mode)
{
	if (import->cuda->cuCtxPushCurrent_v2(import->context) != CUDA_SUCCESS)
		return -ENODEV;
	*ret_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	(void)import->cuda->cuThreadExchangeStreamCaptureMode(ret_mode);
	return 0;
}

void gpu_import_leave(const struct gpu_import *import, CUstreamCaptureMode mode)
{
	CUcontext popped;

	(void)import->cuda->cuThreadExchangeStreamCaptureMode(&mode);
	(void)import->cuda->cuCtxPopCurrent_v2(&popped);
}

static int refuse(const struct gpu_cuda *cuda, const char *call, CUresult result, int ordinal, char message[GPU_MESSAGE_BYTES])
{
	char text[GPU_MESSAGE_BYTES];
	int r = result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -ENODEV;

	gpu_cuda_describe(cuda, call, result, text);
	return cnre_message(message, GPU_MESSAGE_BYTES, r, "GPU %d of this process does not open: %.180s", ordinal, text);
}

int gpu_import_open(struct gpu_import **ret_import, int ordinal, char message[GPU_MESSAGE_BYTES])
{
	const struct gpu_cuda *cuda;
	struct gpu_import *import;
	CUresult result;
	CUuuid uuid;
	int count = 0, r = gpu_cuda_load(&cuda, message);

	if (r < 0)
		return r;
	if (cuda->cuDeviceGetCount(&count) != CUDA_SUCCESS)
		return cnre_message(message, GPU_MESSAGE_BYTES, -ENODEV, "the CUDA driver does not say how many GPUs there are");
	if (ordinal < 0 || ordinal >= count)
		return cnre_message(message, GPU_MESSAGE_BYTES, -ENXIO, "this process has no GPU %d: it sees %d", ordinal, count);
	import = calloc(1, sizeof *import);
	if (import == NULL)
		return cnre_message(message, GPU_MESSAGE_BYTES, -ENOMEM, "no memory");
	import->cuda = cuda;
	result = cuda->cuDeviceGet(&import->device, ordinal);
	if (result == CUDA_SUCCESS)
		result = cuda->cuDeviceGetUuid_v2(&uuid, import->device);
	if (result == CUDA_SUCCESS)
		result = cuda->cuDevicePrimaryCtxRetain(&import->context, import->device);
	if (result != CUDA_SUCCESS) {
		free(import);
		return refuse(cuda, "cuDevicePrimaryCtxRetain", result, ordinal, message);
	}
	memcpy(import->uuid, uuid.bytes, sizeof import->uuid);
	(void)pthread_mutex_init(&import->lock, NULL);
	*ret_import = import;
	return 0;
}

struct gpu_import *gpu_import_close(struct gpu_import *import)
{
	if (import == NULL)
		return NULL;
	while (import->arenas != NULL)
		if (gpu_import_close_arena(import, NULL, import->arenas->address) < 0)
			break; /* a device that does not work: its mappings go with the process */
	while (import->arenas != NULL) {
		struct import_arena *arena = import->arenas;

		import->arenas = arena->next;
		free(arena);
	}
	(void)import->cuda->cuDevicePrimaryCtxRelease_v2(import->device);
	(void)pthread_mutex_destroy(&import->lock);
	free(import);
	return NULL;
}

const unsigned char *gpu_import_uuid(const struct gpu_import *import)
{
	return import->uuid;
}

static int is_own(const unsigned char *token)
{
	return token != NULL && memcmp(token, gpu_token(), GPU_TOKEN_BYTES) == 0;
}

/* A driver has no code for "the exporter is gone": the handle is an invalid value then, or names nothing that can be mapped. */
static int open_error(CUresult result)
{
	switch (result) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_HANDLE:
	case CUDA_ERROR_MAP_FAILED:
	case CUDA_ERROR_NOT_FOUND:
		return -EPIPE;
	case CUDA_ERROR_INVALID_CONTEXT: /* of this call only: what drivers say to an exporter that opens its own */
		return -EIO;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return -ENOMEM;
	default:
		return gpu_cuda_is_loss(result) ? -ENODEV : -EIO;
	}
}

int gpu_import_arena(struct gpu_import *import, const unsigned char handle[GPU_HANDLE_BYTES],
		     const unsigned char token[GPU_TOKEN_BYTES], uint64_t local, uint64_t *ret_address)
{
	struct import_arena *arena;
	CUstreamCaptureMode mode;
	CUipcMemHandle exported;
	CUdeviceptr address = 0;
	int r;

	if (is_own(token)) {
		*ret_address = local;
		return 0;
	}
	arena = calloc(1, sizeof *arena);
	if (arena == NULL)
		return -ENOMEM;
	memcpy(&exported, handle, sizeof exported);
	r = gpu_import_enter(import, &mode);
	if (r == 0) {
		r = open_error(import->cuda->cuIpcOpenMemHandle_v2(&address, exported, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
		gpu_import_leave(import, mode);
	}
	if (r < 0) {
		free(arena);
		return r;
	}
	(void)pthread_mutex_lock(&import->lock);
	arena->address = address;
	arena->next = import->arenas;
	import->arenas = arena;
	(void)pthread_mutex_unlock(&import->lock);
	*ret_address = address;
	return 0;
}

/* Taken from the list before it is closed, so that of two threads one does it. NULL: it is not open. */
static struct import_arena *take_arena(struct gpu_import *import, uint64_t address)
{
	struct import_arena **link = &import->arenas, *arena;

	(void)pthread_mutex_lock(&import->lock);
	while (*link != NULL && (*link)->address != address)
		link = &(*link)->next;
	arena = *link;
	if (arena != NULL)
		*link = arena->next;
	(void)pthread_mutex_unlock(&import->lock);
	return arena;
}

int gpu_import_close_arena(struct gpu_import *import, const unsigned char token[GPU_TOKEN_BYTES], uint64_t address)
{
	struct import_arena *arena;
	CUstreamCaptureMode mode;
	int r;

	if (is_own(token))
		return 0;
	arena = take_arena(import, address);
	if (arena == NULL)
		return -EINVAL;
	free(arena);
	r = gpu_import_enter(import, &mode);
	if (r < 0)
		return r;
	r = import->cuda->cuIpcCloseMemHandle(address) == CUDA_SUCCESS ? 0 : -ENODEV;
	gpu_import_leave(import, mode);
	return r;
}
