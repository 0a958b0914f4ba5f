/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a device: arenas of the driver, made one after another as they are needed and no more than the budget, each
 * exported once, and the places of objects within them. What counts is what the driver charges, not what was asked for. Before
 * each the driver is asked what is free, since others take memory too: the reserve is theirs.
 *
 * An arena goes back in steps: CLOSING, and no place is given in it any more; its objects are evicted; no client says that it
 * has it open; then it is freed, and its place in the table is another's. A client that never comes by keeps it: then more
 * stays charged than was asked for, and status says whose it is.
 */
#include "manager/vram_inner.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "shm/word.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- places ---- */

int vram_arena_take(struct vram_device *device, uint32_t owner, uint32_t *ret_arena, uint64_t *ret_off)
{
	return extent_take(&device->room, vram_place_bytes(device->vram->manager, owner), owner, ret_arena, ret_off) == 0 ? 0 : -ENOSPC;
}

void vram_arena_give(struct vram_device *device, uint64_t place)
{
	extent_give(&device->room, cnre_place_segment(place), cnre_place_offset(place));
}

/* ---- growing ---- */

static uint64_t align_down(uint64_t bytes, uint64_t to)
{
	return bytes / to * to;
}

/* What one grain of the driver is, and of places in it. */
static uint64_t grain(const struct gpu_device_status *status)
{
	return status->granularity > EXTENT_GRAIN ? status->granularity : EXTENT_GRAIN;
}

/* Bytes of the next arena, 0: none would be of use. */
static uint64_t next_bytes(const struct vram_device *device, const struct gpu_device_status *status)
{
	uint64_t bytes = device->target_bytes / VRAM_ARENA_PARTS, left = device->charged_bytes + device->overhead_bytes;

	left = device->target_bytes > left ? device->target_bytes - left : 0;
	if (bytes < VRAM_ARENA_BYTES)
		bytes = VRAM_ARENA_BYTES;
	bytes = cnre_size_align_up(bytes, grain(status));
	if (bytes > device->arena_bytes_max)
		bytes = device->arena_bytes_max;
	if (bytes > left)
		bytes = left;
	bytes = align_down(bytes, grain(status));
	return bytes >= device->vram->manager->window_bytes ? bytes : 0;
}

static uint32_t free_arena(const struct vram_device *device)
{
	uint32_t i = 0;

	while (i < CNRE_VRAM_ARENAS_MAX && device->arena[i].state != VRAM_ARENA_NONE)
		i++;
	return i;
}

static void give_back(struct vram_device *device, uint32_t number);

static struct vram_device *growing(struct gpu_job *job)
{
	return (struct vram_device *)((char *)job - offsetof(struct vram_device, grow_job));
}

static void stop_growing(struct vram_device *device, const char *why)
{
	device->growth = VRAM_GROWS_NOT;
	device->grow_ns = cnre_clock_deadline_ns(VRAM_GROW_RETRY_NS);
	vram_device_short(device, why);
}

static void use_arena(struct vram_device *device, const struct gpu_job *job)
{
	uint32_t number = free_arena(device);
	struct vram_arena *arena = &device->arena[number];

	CNRE_CHECK(number < CNRE_VRAM_ARENAS_MAX); /* there was one when it was asked for, and nobody else takes them */
	*arena = (struct vram_arena){.state = VRAM_ARENA_CLOSING, .address = job->address, .bytes = align_down(job->bytes, EXTENT_GRAIN)};
	arena->charged_bytes = job->charged_bytes;
	arena->device = device;
	arena->id = ++device->vram->next_id;
	memcpy(arena->handle, job->handle, sizeof arena->handle);
	device->charged_bytes += job->charged_bytes;
	/* More than it was asked for for, or the budget shrank meanwhile: never shown, so nobody can have it open. */
	if (device->charged_bytes > device->target_bytes || extent_add_segment(&device->room, number, arena->bytes) < 0) {
		give_back(device, number);
		return;
	}
	arena->state = VRAM_ARENA_LIVE;
	vram_tables_show(device, number);
	vram_device_short(device, NULL);
}

/* What to ask for where so much was refused; 0: nothing smaller is of use. */
static uint64_t half(const struct vram_device *device, uint64_t bytes)
{
	struct gpu_device_status status;

	gpu_get_status(device->vram->gpu, device->number, &status);
	bytes = align_down(bytes / 2, grain(&status));
	return bytes >= device->vram->manager->window_bytes ? bytes : 0;
}

static void allocated(struct gpu_job *job)
{
	struct vram_device *device = growing(job);

	device->growth = VRAM_GROWS_NOT;
	if (device->is_lost)
		return; /* it had come back before */
	if (job->status == 0) {
		if (job->charged_bytes > job->bytes + device->overhead_bytes)
			device->overhead_bytes = job->charged_bytes - job->bytes;
		use_arena(device, job);
	} else if (job->status == -ENOMEM && half(device, job->bytes) > 0) {
		device->arena_bytes_max = half(device, job->bytes);
		(void)vram_arena_grow(device);
	} else if (job->status != -ENODEV) {
		device->arena_bytes_max = UINT64_MAX; /* when it is tried again there may be more */
		stop_growing(device, "the driver has no memory left on it");
	}
	vram_count(device->vram);
}

static void allocate(struct vram_device *device, uint64_t bytes)
{
	device->growth = VRAM_ALLOCATES;
	device->grow_job = (struct gpu_job){.kind = GPU_JOB_ALLOCATE, .device = device->number, .bytes = bytes, .done = allocated};
	gpu_submit(device->vram->gpu, &device->grow_job);
}

static void measured(struct gpu_job *job)
{
	struct vram_device *device = growing(job);
	struct gpu_device_status status;
	uint64_t bytes, spare;

	device->growth = VRAM_GROWS_NOT;
	if (job->status < 0 || device->is_lost)
		return; /* and that is seen elsewhere */
	gpu_get_status(device->vram->gpu, device->number, &status);
	spare = status.free_bytes > device->vram->reserve_bytes ? status.free_bytes - device->vram->reserve_bytes : 0;
	bytes = next_bytes(device, &status);
	if (bytes > spare)
		bytes = align_down(spare, grain(&status));
	if (bytes >= device->vram->manager->window_bytes)
		allocate(device, bytes);
	else if (next_bytes(device, &status) > 0)
		stop_growing(device, "others have its memory, but for the reserve");
}

int vram_arena_grow(struct vram_device *device)
{
	struct gpu_device_status status;

	if (device->is_lost || device->growth != VRAM_GROWS_NOT)
		return device->growth != VRAM_GROWS_NOT;
	gpu_get_status(device->vram->gpu, device->number, &status);
	if (!device->is_open || cnre_clock_left_ns(device->grow_ns) > 0 || next_bytes(device, &status) == 0 ||
	    free_arena(device) == CNRE_VRAM_ARENAS_MAX)
		return 0;
	device->growth = VRAM_MEASURES;
	device->grow_job = (struct gpu_job){.kind = GPU_JOB_MEASURE, .device = device->number, .done = measured};
	gpu_submit(device->vram->gpu, &device->grow_job);
	return 1;
}

/* ---- giving back ---- */

static void freed(struct gpu_job *job)
{
	struct vram_arena *arena = (struct vram_arena *)((char *)job - offsetof(struct vram_arena, job));
	struct vram_device *device = arena->device;

	if (job->status == -ENODEV || device->is_lost)
		return; /* lost, perhaps after this had come back: nothing of it is used again, or charged */
	CNRE_CHECK(device->charged_bytes >= arena->charged_bytes);
	if (job->status < 0) {
		cnre_log(CNRE_LOG_ERROR, "vram: device %u: memory of %llu bytes could not be freed: it stays charged", device->number,
			 (unsigned long long)arena->bytes);
		return;
	}
	device->charged_bytes -= arena->charged_bytes;
	device->arena_bytes_max = UINT64_MAX;
	device->trimming = device->charged_bytes > device->target_bytes;
	*arena = (struct vram_arena){.state = VRAM_ARENA_NONE};
	vram_count(device->vram);
}

/* Nobody has it open, and no place in it is anybody's. */
static void give_back(struct vram_device *device, uint32_t number)
{
	struct vram_arena *arena = &device->arena[number];

	arena->state = VRAM_ARENA_FREEING;
	arena->job = (struct gpu_job){
		.kind = GPU_JOB_FREE, .device = device->number, .address = arena->address, .bytes = arena->bytes, .done = freed};
	gpu_submit(device->vram->gpu, &arena->job);
}

static uint64_t used_in(const struct vram_device *device, uint32_t number)
{
	return device->room.segment[number].used_bytes;
}

/* Charged for arenas that stay. */
static uint64_t staying_bytes(const struct vram_device *device)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < CNRE_VRAM_ARENAS_MAX; i++)
		bytes += device->arena[i].state == VRAM_ARENA_LIVE ? device->arena[i].charged_bytes : 0;
	return bytes;
}

/* The one in which the least would have to go. */
static uint32_t emptiest(const struct vram_device *device)
{
	uint32_t best = CNRE_VRAM_ARENAS_MAX;

	for (uint32_t i = 0; i < CNRE_VRAM_ARENAS_MAX; i++)
		if (device->arena[i].state == VRAM_ARENA_LIVE &&
		    (best == CNRE_VRAM_ARENAS_MAX || used_in(device, i) < used_in(device, best)))
			best = i;
	return best;
}

static void close_arena(struct vram_device *device, uint32_t number)
{
	device->arena[number].state = VRAM_ARENA_CLOSING;
	extent_close_segment(&device->room, number);
	vram_tables_store_state(device, number, CNRE_ARENA_CLOSING);
}

/* Evicts what can go, `budget` at most; the rest is leased or on its way. */
static void empty_arena(struct vram_device *device, uint32_t number, uint32_t *budget)
{
	uint32_t index = extent_first(&device->room, number);

	if (index != EXTENT_NONE && extent_get(&device->room, index)->owner == EXTENT_FREE)
		index = extent_next_owned(&device->room, index);
	while (index != EXTENT_NONE && *budget > 0) {
		uint32_t owner = extent_get(&device->room, index)->owner, next = extent_next_owned(&device->room, index);

		(*budget)--;
		(void)vram_evict(device, owner);
		index = next;
	}
}

int vram_arena_trim(struct vram_device *device)
{
	uint32_t budget = VRAM_EVICTIONS_PER_TURN;
	int waits = 0;

	while (staying_bytes(device) > device->target_bytes)
		close_arena(device, emptiest(device));
	for (uint32_t i = 0; i < CNRE_VRAM_ARENAS_MAX; i++) {
		struct vram_arena *arena = &device->arena[i];

		if (arena->state != VRAM_ARENA_CLOSING)
			continue;
		waits = 1;
		if (used_in(device, i) > 0)
			empty_arena(device, i, &budget);
		if (used_in(device, i) > 0 || vram_any_open(device, i))
			continue;
		extent_remove_segment(&device->room, i);
		vram_tables_store_state(device, i, CNRE_ARENA_NONE);
		give_back(device, i);
	}
	device->trimming = device->charged_bytes > device->target_bytes;
	return waits;
}

/* The driver has closed: whatever it still knows of goes with it. */
void vram_arenas_close(struct vram_device *device)
{
	extent_map_done(&device->room);
	memset(device->arena, 0, sizeof device->arena);
}
