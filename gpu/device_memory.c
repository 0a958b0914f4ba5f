/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a device: arenas, what the driver charges for them, and what it rounds up to.
 *
 * A driver rounds an allocation up, and says nowhere by how much (case A7): asked for 768 KiB it may take 1 or 2 MiB. So the rounding
 * is probed at open, and an allocation is charged by the free memory before and after it. Another process may allocate in
 * between, so the difference is believed only where it is at least the rounded size and not far above it.
 */
#include "gpu/device_state.h"

#include "base/message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GRANULARITY_DEFAULT (2ull << 20)  /* of today's drivers, where probing says nothing */
#define PROBE_BYTES_MAX (32ull << 20)
#define PROBE_BYTES_MIN (4ull << 20)      /* a multiple of every granularity that is believed */
#define PROBES 3u                         /* two must agree, as others may allocate meanwhile */
#define EXCESS_MAX (32ull << 20)          /* of a difference above the rounded size, with an eighth of that: tables of pages */

static uint64_t round_up(uint64_t bytes, uint64_t granularity)
{
	uint64_t rest = bytes % granularity;

	return rest == 0 ? bytes : bytes + (granularity - rest);
}

static int ask_memory(struct device *device, uint64_t *ret_free)
{
	size_t free_bytes = 0, total_bytes = 0;
	int r = DEVICE_CALL(device, cuMemGetInfo_v2, &free_bytes, &total_bytes);

	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&device->gpu->lock);
	if (device->status.state != GPU_LOST) {
		device->status.free_bytes = free_bytes;
		device->status.total_bytes = total_bytes;
	}
	(void)pthread_mutex_unlock(&device->gpu->lock);
	*ret_free = free_bytes;
	return 0;
}

int device_measure(struct device *device)
{
	uint64_t free_bytes;

	return ask_memory(device, &free_bytes);
}

static void count_arena(struct device *device, uint64_t added, uint64_t removed)
{
	(void)pthread_mutex_lock(&device->gpu->lock);
	if (device->status.state != GPU_LOST)
		device->status.arena_bytes += added - removed;
	(void)pthread_mutex_unlock(&device->gpu->lock);
}

/* Allocates and exports; the free memory before and after tells what it took. */
static int take_memory(struct device *device, uint64_t bytes, struct device_arena *arena, unsigned char *handle, uint64_t *ret_taken)
{
	CUdeviceptr address = 0;
	CUipcMemHandle exported;
	uint64_t before, after;
	int r = ask_memory(device, &before);

	if (r == 0)
		r = DEVICE_CALL(device, cuMemAlloc_v2, &address, bytes);
	if (r < 0)
		return r;
	r = DEVICE_CALL(device, cuIpcGetMemHandle, &exported, address);
	if (r == 0)
		r = ask_memory(device, &after);
	if (r < 0) {
		(void)DEVICE_CALL(device, cuMemFree_v2, address);
		return r == -ENODEV ? -ENODEV : -EIO;
	}
	arena->address = address;
	arena->bytes = bytes;
	memcpy(handle, &exported, GPU_HANDLE_BYTES);
	*ret_taken = before > after ? before - after : 0;
	return 0;
}

int device_allocate(struct device *device, uint64_t bytes, struct gpu_job *result)
{
	struct device_arena *arena = calloc(1, sizeof *arena);
	uint64_t rounded, taken;
	int r;

	_Static_assert(sizeof(CUipcMemHandle) == GPU_HANDLE_BYTES, "a handle is what is sent");
	if (arena == NULL)
		return -ENOMEM;
	r = take_memory(device, bytes, arena, result->handle, &taken);
	if (r < 0) {
		free(arena);
		return r == -ENOMEM || r == -ENODEV ? r : -EIO;
	}
	rounded = round_up(bytes, device->status.granularity); /* constant since open */
	arena->charged_bytes = taken > rounded && taken - rounded <= EXCESS_MAX + rounded / 8 ? taken : rounded;
	arena->next = device->arenas;
	device->arenas = arena;
	count_arena(device, arena->charged_bytes, 0);
	result->address = arena->address;
	result->charged_bytes = arena->charged_bytes;
	return 0;
}

int device_free(struct device *device, uint64_t address)
{
	struct device_arena **link = &device->arenas, *arena;
	int r;

	while (*link != NULL && (*link)->address != address)
		link = &(*link)->next;
	arena = *link;
	if (arena == NULL)
		return -EINVAL;
	r = DEVICE_CALL(device, cuMemFree_v2, arena->address);
	if (r < 0)
		return r == -ENODEV ? r : -EIO; /* it stays charged */
	*link = arena->next;
	count_arena(device, 0, arena->charged_bytes);
	free(arena);
	return device_measure(device);
}

void device_free_all(struct device *device)
{
	while (device->arenas != NULL) {
		struct device_arena *arena = device->arenas;

		(void)DEVICE_CALL(device, cuMemFree_v2, arena->address);
		device->arenas = arena->next;
		free(arena);
	}
}

int device_holds(const struct device *device, uint64_t address, uint64_t bytes)
{
	const struct device_arena *arena;

	for (arena = device->arenas; arena != NULL; arena = arena->next)
		if (address >= arena->address && address - arena->address <= arena->bytes)
			return bytes <= arena->bytes - (address - arena->address);
	return 0;
}

/* One byte more than a round size: what it takes beyond that size is what the driver rounds up to. 0: it said nothing. */
static int probe_once(struct device *device, uint64_t bytes, uint64_t *ret_granularity)
{
	unsigned char handle[GPU_HANDLE_BYTES];
	struct device_arena arena;
	uint64_t taken, excess;
	int r = take_memory(device, bytes + 1, &arena, handle, &taken);

	if (r < 0)
		return r;
	r = DEVICE_CALL(device, cuMemFree_v2, arena.address);
	if (r < 0)
		return r;
	excess = taken > bytes ? taken - bytes : 0;
	*ret_granularity = excess <= PROBE_BYTES_MIN && (excess & (excess - 1)) == 0 ? excess : 0;
	return 0;
}

int device_probe(struct device *device, char message[GPU_MESSAGE_BYTES])
{
	uint64_t bytes = device->status.free_bytes / 4 / PROBE_BYTES_MIN * PROBE_BYTES_MIN, found[PROBES] = {0};
	uint64_t granularity = 0;
	int r;

	bytes = bytes > PROBE_BYTES_MAX ? PROBE_BYTES_MAX : bytes;
	for (uint32_t i = 0; i < PROBES && granularity == 0; i++) {
		r = probe_once(device, bytes, &found[i]);
		if (r == -ENOMEM)
			return cnre_message(message, GPU_MESSAGE_BYTES, r, "it has no memory left: an allocation of %llu bytes failed",
					    (unsigned long long)bytes + 1);
		if (r == -ENODEV)
			return r;
		if (r < 0)
			return cnre_message(message, GPU_MESSAGE_BYTES, -ENOTSUP,
					    "its memory cannot be exported to other processes (cuIpcGetMemHandle), so it is of no use here");
		for (uint32_t j = 0; j < i; j++)
			granularity = found[i] == found[j] ? found[i] : granularity;
	}
	(void)pthread_mutex_lock(&device->gpu->lock);
	device->status.granularity = granularity > 0 ? granularity : GRANULARITY_DEFAULT;
	(void)pthread_mutex_unlock(&device->gpu->lock);
	return device_measure(device);
}
