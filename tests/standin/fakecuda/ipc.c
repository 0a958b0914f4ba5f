/* SPDX-License-Identifier: Apache-2.0 */
/* Handles of memory, which other processes open. A handle says which allocation of which world; all else is looked up. */
#include "tests/standin/fakecuda/process.h"

#include <string.h>

#define HANDLE_MAGIC 0x646e616863757563ULL

struct handle {
	uint64_t magic, world, id;
	int32_t allocation, device;
	uint8_t unused[CU_IPC_HANDLE_SIZE - 32];
};
_Static_assert(sizeof(struct handle) == sizeof(CUipcMemHandle), "a handle fills what the driver gives it");

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *ret_handle, CUdeviceptr memory)
{
	CUresult result = enter("cuIpcGetMemHandle", NEED_CONTEXT, NULL);
	if (result)
		return result;
	const struct range *range = memory_range_at(memory);
	if (!ret_handle || !range || range->is_gone || range->address != memory || range->is_import)
		return leave(CUDA_ERROR_INVALID_VALUE);
	struct world_allocation *of = &world->allocation[range->allocation];
	if (of->is_pool) /* what comes from a pool is exported by other calls */
		return leave(CUDA_ERROR_INVALID_VALUE);
	world_lock();
	of->is_exported = 1;
	world_unlock();
	struct handle handle = {.magic = HANDLE_MAGIC,
				.world = world->id,
				.id = of->id,
				.allocation = range->allocation,
				.device = of->device};
	memcpy(ret_handle, &handle, sizeof handle);
	return leave(CUDA_SUCCESS);
}

/* With the world locked. */
static CUresult check_handle(const struct handle *handle, const struct context *context)
{
	if (handle->magic != HANDLE_MAGIC || handle->world != world->id || handle->allocation < 0 ||
	    handle->allocation >= ALLOCATIONS_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	const struct world_allocation *of = &world->allocation[handle->allocation];
	if (of->id != handle->id || of->state != ALLOCATION_LIVE)
		return CUDA_ERROR_INVALID_HANDLE; /* freed, or its exporter is dead */
	if (of->owner == process.slot) {
		rule_broken(RULE_OWN_HANDLE, "allocation %llu opened where it was exported",
			    (unsigned long long)of->id);
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	return of->device == context->device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static struct world_import *new_import(uint64_t id, int allocation)
{
	for (int i = 0; i < IMPORTS_MAX; i++) {
		struct world_import *new = &world->import[i];
		if (new->id)
			continue;
		*new = (struct world_import){.id = id, .allocation = allocation, .slot = process.slot, .count = 0};
		return new;
	}
	return NULL;
}

static struct range *range_of_import(uint64_t id)
{
	for (int i = 0; i < process.range_count; i++)
		if (process.range[i].id == id && process.range[i].is_import && !process.range[i].is_gone)
			return &process.range[i];
	return NULL;
}

static CUresult open_handle(const struct handle *handle, struct context *context, CUdeviceptr *ret_memory)
{
	CUresult result = check_handle(handle, context);
	if (result)
		return result;
	const struct world_allocation *of = &world->allocation[handle->allocation];
	struct range *range = range_of_import(handle->id);
	struct world_import *import = range ? world_import_find(handle->id, process.slot)
					    : new_import(handle->id, handle->allocation);
	if (!range && import)
		range = memory_range_new(of->bytes, of->id, handle->allocation, of->offset, context_index(context));
	if (!import || !range) {
		rule_broken(RULE_TABLE_FULL, "%d handles open", IMPORTS_MAX);
		return CUDA_ERROR_MAP_FAILED;
	}
	if (import->count++)
		rule_broken(RULE_DOUBLE_OPEN, "allocation %llu is open %u times", (unsigned long long)of->id,
			    import->count);
	range->is_import = 1;
	*ret_memory = range->address;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr *ret_memory, CUipcMemHandle bytes, unsigned int flags)
{
	struct context *context;
	struct handle handle;
	CUresult result = enter("cuIpcOpenMemHandle_v2", NEED_CONTEXT, &context);
	if (result)
		return result;
	result = capture_check();
	if (result)
		return leave(result);
	if (!ret_memory || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return leave(CUDA_ERROR_INVALID_VALUE);
	memcpy(&handle, &bytes, sizeof handle);
	world_lock();
	world_reap();
	result = open_handle(&handle, context, ret_memory);
	world_unlock();
	return leave(result);
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr memory)
{
	CUresult result = enter("cuIpcCloseMemHandle", NEED_CONTEXT, NULL);
	if (result)
		return result;
	result = capture_check();
	if (result)
		return leave(result);
	struct range *range = memory_range_at(memory);
	if (!range || range->address != memory || !range->is_import || range->is_gone) {
		rule_broken(RULE_NOT_OPEN, "cuIpcCloseMemHandle of %#llx", (unsigned long long)memory);
		return leave(CUDA_ERROR_INVALID_VALUE);
	}
	world_lock();
	struct world_import *import = world_import_find(range->id, process.slot);
	int is_last = import && --import->count == 0;
	world_unlock();
	if (!is_last)
		return leave(CUDA_SUCCESS);
	if (access_is_pending(range->id, 1)) {
		rule_broken(RULE_CLOSE_IN_USE, "%#llx closed before its streams were synchronised with",
			    (unsigned long long)memory);
		(void)stream_wait_context(range->context);
		access_forget(range->id);
	}
	world_lock();
	import = world_import_find(range->id, process.slot);
	if (import)
		world_import_drop(import);
	world_unlock();
	range->is_gone = 1;
	return leave(CUDA_SUCCESS);
}
