/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that the driver knows: registered, or allocated by it. All else is pageable, and copied through a stage. */
#include "tests/standin/fakecuda/process.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct host_range *host_find(const void *address, size_t bytes)
{
	uintptr_t at = (uintptr_t)address;
	for (int i = 0; i < HOST_RANGES_MAX; i++) {
		struct host_range *range = &process.host_range[i];
		if (range->bytes && at >= range->address && at - range->address <= range->bytes &&
		    bytes <= range->bytes - (at - range->address))
			return range;
	}
	return NULL;
}

void host_pending(const void *address, size_t bytes, int change)
{
	struct host_range *range = host_find(address, bytes);
	if (range)
		range->pending += change;
}

/* Not a good hash, but a fast one, and it sees every byte. */
uint64_t host_sum(const void *memory, size_t bytes)
{
	const unsigned char *at = memory;
	uint64_t lane[4] = {bytes, 1, 2, 3}, word;
	for (; bytes >= 32; bytes -= 32, at += 32)
		for (int i = 0; i < 4; i++) {
			memcpy(&word, at + 8 * i, 8);
			lane[i] = (lane[i] ^ word) * 0x9e3779b97f4a7c15ULL;
		}
	while (bytes--)
		lane[0] = (lane[0] ^ *at++) * 0x9e3779b97f4a7c15ULL;
	return lane[0] ^ lane[1] << 1 ^ lane[2] << 2 ^ lane[3] << 3;
}

void host_count_staged(int64_t bytes)
{
	struct world_process *own = &world->process[process.slot];
	own->staged_bytes += (uint64_t)bytes;
	if (own->staged_bytes > own->staged_peak_bytes)
		own->staged_peak_bytes = own->staged_bytes;
}

static void count_pinned(int64_t bytes)
{
	struct world_process *own = &world->process[process.slot];
	own->pinned_bytes += (uint64_t)bytes;
	if (own->pinned_bytes > own->pinned_peak_bytes)
		own->pinned_peak_bytes = own->pinned_bytes;
}

static int pinned_fits(size_t bytes)
{
	uint64_t is = world->process[process.slot].pinned_bytes;
	return is <= world->pinned_limit_bytes && bytes <= world->pinned_limit_bytes - is;
}

static int overlaps_registered(uintptr_t at, size_t bytes)
{
	for (int i = 0; i < HOST_RANGES_MAX; i++) {
		const struct host_range *range = &process.host_range[i];
		if (range->bytes && at < range->address + range->bytes && range->address < at + bytes)
			return 1;
	}
	return 0;
}

static struct host_range *new_range(uintptr_t at, size_t bytes, int is_allocated)
{
	for (int i = 0; i < HOST_RANGES_MAX; i++) {
		struct host_range *new = &process.host_range[i];
		if (new->bytes)
			continue;
		*new = (struct host_range){.address = at, .bytes = bytes, .is_allocated = is_allocated};
		count_pinned((int64_t)bytes);
		return new;
	}
	rule_broken(RULE_TABLE_FULL, "%d pieces of registered memory", HOST_RANGES_MAX);
	return NULL;
}

/* Whether all of it is mapped, and writable if that is asked for. */
static int is_mapped(uintptr_t at, size_t bytes, int must_be_writable)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512], access[5];
	unsigned long from, to;
	uintptr_t end = at + bytes;
	while (maps && at < end && fgets(line, sizeof line, maps)) {
		if (sscanf(line, "%lx-%lx %4s", &from, &to, access) != 3 || to <= at)
			continue;
		if (from > at || (must_be_writable && access[1] != 'w'))
			break;
		at = to;
	}
	if (maps)
		(void)fclose(maps);
	return at >= end;
}

CUresult CUDAAPI cuMemHostRegister_v2(void *memory, size_t bytes, unsigned int flags)
{
	CUresult result = enter("cuMemHostRegister_v2", NEED_CONTEXT, NULL);
	if (result)
		return result;
	uintptr_t at = (uintptr_t)memory;
	if (!memory || !bytes || at + bytes < at ||
	    flags & ~(unsigned)(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
				CU_MEMHOSTREGISTER_READ_ONLY) ||
	    !is_mapped(at, bytes, !(flags & CU_MEMHOSTREGISTER_READ_ONLY)))
		result = CUDA_ERROR_INVALID_VALUE;
	else if (overlaps_registered(at, bytes))
		result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	else if (!pinned_fits(bytes) || !new_range(at, bytes, 0))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	return leave(result);
}

static CUresult drop_range(void *memory, int is_allocated)
{
	for (int i = 0; i < HOST_RANGES_MAX; i++) {
		struct host_range *range = &process.host_range[i];
		if (!range->bytes || range->address != (uintptr_t)memory || range->is_allocated != is_allocated)
			continue;
		if (range->pending)
			rule_broken(RULE_UNREGISTER_IN_USE, "%d copies of %p wait", range->pending, memory);
		if (is_allocated)
			(void)munmap(memory, range->bytes);
		count_pinned(-(int64_t)range->bytes);
		range->bytes = 0;
		return CUDA_SUCCESS;
	}
	return is_allocated ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult CUDAAPI cuMemHostUnregister(void *memory)
{
	CUresult result = enter("cuMemHostUnregister", NEED_CONTEXT, NULL);
	return result ? result : leave(drop_range(memory, 0));
}

CUresult CUDAAPI cuMemHostAlloc(void **ret_memory, size_t bytes, unsigned int flags)
{
	CUresult result = enter("cuMemHostAlloc", NEED_CONTEXT, NULL);
	if (result)
		return result;
	if (!ret_memory || !bytes || flags & ~7U)
		return leave(CUDA_ERROR_INVALID_VALUE);
	void *memory = pinned_fits(bytes)
			       ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
			       : MAP_FAILED;
	if (memory == MAP_FAILED || !new_range((uintptr_t)memory, bytes, 1))
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	*ret_memory = memory;
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemFreeHost(void *memory)
{
	CUresult result = enter("cuMemFreeHost", NEED_CONTEXT, NULL);
	return result ? result : leave(drop_range(memory, 1));
}
