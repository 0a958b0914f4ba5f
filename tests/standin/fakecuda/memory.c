/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device addresses of this process and what lies there. An address is never given out twice, so one that was freed is
 * known for that; reads and writes go to the world's file, and the addresses are only numbers.
 */
#include "tests/standin/fakecuda/fakecuda.h"
#include "tests/standin/fakecuda/process.h"

#include <fcntl.h>
#include <unistd.h>

struct range *memory_range_at(uint64_t address)
{
	for (int i = 0; i < process.range_count; i++)
		if (address - process.range[i].address < process.range[i].bytes)
			return &process.range[i];
	return NULL;
}

static struct range *free_entry(void)
{
	if (process.range_count < RANGES_MAX)
		return &process.range[process.range_count++];
	for (int i = 0; i < RANGES_MAX; i++) /* whose late use will be a bad address, and no use after free */
		if (process.range[i].is_gone)
			return &process.range[i];
	return NULL;
}

struct range *memory_range_new(uint64_t bytes, uint64_t id, int allocation, uint64_t file_offset, int context)
{
	struct range *new = free_entry();
	if (!new)
		return NULL;
	*new = (struct range){.address = process.next_address,
			      .bytes = bytes,
			      .id = id,
			      .allocation = allocation,
			      .file_offset = file_offset,
			      .context = context};
	/* A gap behind each, so that one past the end is nobody's. */
	process.next_address += (bytes + (4ULL << 20) - 1) / (2ULL << 20) * (2ULL << 20);
	return new;
}

static int is_freed_by_exporter(const struct range *range)
{
	const struct world_allocation *of = &world->allocation[range->allocation];
	return range->is_import && (of->id != range->id || of->state == ALLOCATION_FREED_OPEN);
}

CUresult memory_find(uint64_t address, uint64_t bytes, struct piece *ret_piece)
{
	const struct range *range = memory_range_at(address);
	if (!range) {
		rule_broken(RULE_BAD_ADDRESS, "%#llx is no device memory of this process", (unsigned long long)address);
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (range->is_gone || is_freed_by_exporter(range)) {
		rule_broken(RULE_USE_AFTER_FREE, "%#llx was %s", (unsigned long long)address,
			    !range->is_gone    ? "freed by its exporter"
			    : range->is_import ? "closed"
					       : "freed");
		return CUDA_ERROR_INVALID_VALUE;
	}
	uint64_t offset = address - range->address;
	if (bytes > range->bytes - offset) {
		rule_broken(RULE_BAD_ADDRESS, "%#llx+%llu reaches past the end of its allocation of %llu bytes",
			    (unsigned long long)address, (unsigned long long)bytes, (unsigned long long)range->bytes);
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_piece = (struct piece){.id = range->id,
				    .allocation = range->allocation,
				    .file_offset = range->file_offset + offset,
				    .offset = offset,
				    .bytes = bytes};
	return CUDA_SUCCESS;
}

static CUresult allocate(struct context *context, CUdeviceptr *ret_memory, size_t bytes, int is_pool)
{
	if (!ret_memory || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	world_lock();
	world_reap();
	int index = world_allocation_new(context->device, process.slot, bytes);
	struct world_allocation *new = index < 0 ? NULL : &world->allocation[index];
	if (new)
		new->is_pool = is_pool;
	world_unlock();
	if (index == -2)
		rule_broken(RULE_TABLE_FULL, "%d allocations", ALLOCATIONS_MAX);
	if (!new)
		return CUDA_ERROR_OUT_OF_MEMORY;
	const struct range *range = memory_range_new(bytes, new->id, index, new->offset, context_index(context));
	if (!range) {
		rule_broken(RULE_TABLE_FULL, "%d addresses of device memory", RANGES_MAX);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_memory = range->address;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *ret_memory, size_t bytes)
{
	struct context *context;
	CUresult result = enter("cuMemAlloc_v2", NEED_CONTEXT, &context);
	return result ? result : leave(allocate(context, ret_memory, bytes, 0));
}

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr *ret_memory, size_t bytes, CUstream stream)
{
	struct context *context;
	int index;
	CUresult result = enter("cuMemAllocAsync", NEED_CONTEXT, &context);
	if (result)
		return result;
	result = stream_find(stream, context, &index);
	return leave(result ? result : allocate(context, ret_memory, bytes, 1));
}

/* With nothing of this process using it any more. */
static void give_back(struct range *range)
{
	access_forget(range->id);
	int user = access_is_pending(range->id, 0);
	world_lock();
	world_reap();
	struct world_allocation *of = &world->allocation[range->allocation];
	uint32_t importers = world_importers(of->id);
	if (importers) {
		rule_broken(RULE_FREE_WHILE_OPEN, "allocation %llu has %u importers", (unsigned long long)of->id,
			    importers);
		of->state = ALLOCATION_FREED_OPEN;
		(void)fallocate(world_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)of->offset,
				(off_t)of->bytes);
	} else {
		world_allocation_drop(range->allocation);
	}
	world_unlock();
	if (user)
		rule_broken(RULE_FREE_IN_USE, "streams of process %d have not been synchronised with", user);
	range->is_gone = 1;
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr memory)
{
	struct context *context;
	CUresult result = enter("cuMemFree_v2", NEED_CONTEXT, &context);
	if (result || !memory)
		return result ? result : leave(CUDA_SUCCESS);
	struct range *range = memory_range_at(memory);
	if (!range || range->address != memory || range->is_gone) {
		rule_broken(range && range->is_gone ? RULE_USE_AFTER_FREE : RULE_BAD_ADDRESS,
			    "cuMemFree of %#llx, which is not allocated", (unsigned long long)memory);
		return leave(CUDA_ERROR_INVALID_VALUE);
	}
	if (range->is_import) {
		rule_broken(RULE_FREE_IMPORTED, "cuMemFree of %#llx, which was opened", (unsigned long long)memory);
		return leave(CUDA_ERROR_INVALID_VALUE);
	}
	/* It waits for all that was queued, as the real one may; memory of a pool does not, but no test needs that. */
	result = stream_wait_context(range->context);
	range = memory_range_at(memory);
	if (!result && range && !range->is_gone)
		give_back(range);
	return leave(result);
}

void memory_drop_context(int context)
{
	for (int i = 0; i < process.range_count; i++) {
		struct range *range = &process.range[i];
		if (range->is_gone || range->context != context)
			continue;
		if (!range->is_import) {
			give_back(range);
			continue;
		}
		access_forget(range->id);
		world_lock();
		struct world_import *import = world_import_find(range->id, process.slot);
		if (import)
			world_import_drop(import);
		world_unlock();
		range->is_gone = 1;
	}
}

CUresult CUDAAPI cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
	struct context *context;
	CUresult result = enter("cuMemGetInfo_v2", NEED_CONTEXT, &context);
	if (result)
		return result;
	if (!ret_free || !ret_total)
		return leave(CUDA_ERROR_INVALID_VALUE);
	world_lock();
	world_reap();
	uint64_t total = world->device[context->device].total_bytes, used = world_used_bytes(context->device);
	world_unlock();
	*ret_total = total;
	*ret_free = used < total ? total - used : 0;
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *ret_base, size_t *ret_bytes, CUdeviceptr memory)
{
	CUresult result = enter("cuMemGetAddressRange_v2", NEED_CONTEXT, NULL);
	if (result)
		return result;
	const struct range *range = memory_range_at(memory);
	if (!range || range->is_gone)
		return leave(CUDA_ERROR_NOT_FOUND);
	if (ret_base)
		*ret_base = range->address;
	if (ret_bytes)
		*ret_bytes = range->bytes;
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuPointerGetAttribute(void *ret_value, CUpointer_attribute attribute, CUdeviceptr memory)
{
	CUresult result = enter("cuPointerGetAttribute", NEED_INIT, NULL);
	if (result)
		return result;
	const struct range *range = memory_range_at(memory);
	if (!ret_value || !range || range->is_gone)
		return leave(CUDA_ERROR_INVALID_VALUE);
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)ret_value = context_handle(range->context);
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned int *)ret_value = CU_MEMORYTYPE_DEVICE;
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)ret_value = range->id;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)ret_value = range->context;
		break;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(int *)ret_value = !world->allocation[range->allocation].is_pool;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)ret_value = range->address;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)ret_value = range->bytes;
		break;
	default:
		result = CUDA_ERROR_NOT_SUPPORTED;
	}
	return leave(result);
}

long fakecuda_peek(uint64_t memory, void *to, size_t bytes)
{
	(void)pthread_mutex_lock(&process.lock);
	const struct range *range = memory_range_at(memory);
	long count = -1;
	if (range && bytes <= range->bytes - (memory - range->address))
		count = pread(world_fd, to, bytes, (off_t)(range->file_offset + memory - range->address));
	(void)pthread_mutex_unlock(&process.lock);
	return count;
}
