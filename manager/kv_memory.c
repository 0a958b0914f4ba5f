/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the KV store: segments that belong to one namespace each, so that nothing of another is ever mapped by its
 * clients, within one budget for all. A namespace gets segments while there is budget; then it evicts its own blocks, or,
 * while it has less than an equal share and another has more, gets a segment that the other one gives back. One that has
 * none at all gets one of who can do without: there may be more namespaces than segments, and most of them asleep.
 *
 * A worker makes segments: touching 512 MiB takes a quarter of a second, in which the core thread serves everybody. But who
 * publishes or loads the first block waits for it. So the first segment is small, and the next ones as large as all before.
 */
#include "manager/kv_inner.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "manager/keep_wire.h"
#include "manager/settings.h"
#include "manager/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HUGE_BYTES (2ull << 20)

static void name_of(const struct kv_namespace *space, uint32_t segment, char name[KEEP_NAME_BYTES])
{
	(void)snprintf(name, KEEP_NAME_BYTES, "kv%u.p%u", space->number, segment);
}

uint64_t kv_memory_bytes(const struct kv_store *store)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
		if (store->space[i] != NULL)
			bytes += store->space[i]->directory_segment.bytes + store->space[i]->pool_bytes +
				 (store->space[i]->making.is_under_way ? store->space[i]->making.bytes : 0);
	return bytes;
}

static uint64_t segment_bytes(const struct kv_namespace *space, uint64_t block_bytes)
{
	uint64_t bytes = cnre_size_align_up(space->store->budget_bytes / KV_SEGMENTS_WANTED, HUGE_BYTES);
	uint64_t before = space->pool_bytes < KV_SEGMENT_BYTES_FIRST ? KV_SEGMENT_BYTES_FIRST : space->pool_bytes;

	if (bytes > before)
		bytes = cnre_size_align_up(before, HUGE_BYTES);
	if (bytes < KV_SEGMENT_BYTES_MIN)
		bytes = KV_SEGMENT_BYTES_MIN;
	if (bytes < block_bytes)
		bytes = cnre_size_align_up(block_bytes, HUGE_BYTES);
	return bytes < CNRE_SEGMENT_BYTES_MAX ? bytes : CNRE_SEGMENT_BYTES_MAX;
}

/* ---- making ---- */

static enum cnre_backing first_backing(const struct manager *manager)
{
	switch (manager->settings == NULL ? SETTINGS_HUGEPAGES_4K : manager->settings->hugepages) {
	case SETTINGS_HUGEPAGES_THP:
		return CNRE_BACKING_THP;
	case SETTINGS_HUGEPAGES_4K:
		return CNRE_BACKING_4K;
	default:
		return CNRE_BACKING_2M;
	}
}

/* On a worker: touches nothing but the making. */
static void make(struct worker_job *job)
{
	struct kv_making *making = (struct kv_making *)job;
	const struct manager *manager = making->space->store->manager;

	making->status = -ENOMEM;
	for (int backing = (int)first_backing(manager); backing <= CNRE_BACKING_4K && making->status < 0; backing++)
		making->status = cnre_segment_create(&making->memory, "cnre-kv-pool", making->bytes,
						     (enum cnre_backing)backing, CNRE_NUMA_DEFAULT,
						     CNRE_SEGMENT_NO_DUMP);
}

static int enter(struct kv_namespace *space, uint32_t segment, const struct cnre_segment *memory)
{
	int r = extent_add_segment(&space->map, segment, memory->bytes);

	if (r < 0)
		return r;
	space->segment[segment] = (struct kv_segment){.memory = *memory, .is_live = 1};
	space->pool_bytes += memory->bytes;
	if (segment >= space->segments_made)
		space->segments_made = segment + 1;
	/* [Y1] relaxed: a hint; clients ask over the socket. */
	atomic_store_explicit(&space->directory->segment_count, space->segments_made, memory_order_relaxed);
	return 0;
}

static void made(struct worker_job *job)
{
	struct kv_making *making = (struct kv_making *)job;
	struct kv_namespace *space = making->space;
	char name[KEEP_NAME_BYTES];
	int r = making->status;

	making->is_under_way = 0;
	making->retry_ns = 0;
	if (r == 0)
		r = enter(space, space->segments_made, &making->memory);
	if (r < 0) {
		cnre_log(CNRE_LOG_WARNING, "kv: no memory for %.64s: %s: it evicts instead; see --kv-ram", space->name,
			 strerror(-r));
		cnre_segment_close(&making->memory);
		making->retry_ns = cnre_clock_now_ns() + KV_MEMORY_RETRY_NS;
		return;
	}
	name_of(space, space->segments_made - 1, name);
	(void)store_put(space->store->manager->store, name, making->memory.fd); /* else it is told of as missing */
}

/* 1: one is on its way. */
static int grow(struct kv_namespace *space, uint64_t block_bytes)
{
	struct kv_store *store = space->store;
	uint64_t bytes = segment_bytes(space, block_bytes), used = kv_memory_bytes(store);

	if (space->making.is_under_way)
		return 1;
	if (cnre_clock_now_ns() < space->making.retry_ns)
		return 0; /* else who wants memory would only ever hear that it is on its way */
	if (used + bytes > store->budget_bytes && used + kv_room(block_bytes) <= store->budget_bytes)
		bytes = (store->budget_bytes - used) & ~(uint64_t)(EXTENT_GRAIN - 1); /* the last one is smaller */
	if (used + bytes > store->budget_bytes || space->segments_made == CNRE_KV_SEGMENTS_MAX)
		return 0;
	space->making = (struct kv_making){
		.job = {.run = make, .done = made}, .space = space, .bytes = bytes, .is_under_way = 1, .memory.fd = -1};
	worker_submit(store->copier, &space->making.job);
	return 1;
}

/* ---- giving back ---- */

static void evict_segment(struct kv_namespace *space, uint32_t segment)
{
	uint32_t at = extent_first(&space->map, segment);

	if (at != EXTENT_NONE && extent_get(&space->map, at)->owner == EXTENT_FREE)
		at = extent_next_owned(&space->map, at);
	while (at != EXTENT_NONE) {
		uint32_t owner = extent_get(&space->map, at)->owner, next = extent_next_owned(&space->map, at);
		const struct cnre_kv_entry *entry = &space->entry[owner];

		if (kv_is_indexed(entry) && kv_state(entry) == CNRE_STATE_READY)
			(void)kv_entry_evict(space, owner); /* else it is in use: next time */
		at = next;
	}
}

/* Nobody has any of them mapped, so their numbers may come back. */
static void count_again(struct kv_namespace *space)
{
	if (space->making.is_under_way)
		return;
	space->segments_made = 0;
	/* [Y2] relaxed: a hint, as [Y1]. */
	atomic_store_explicit(&space->directory->segment_count, 0, memory_order_relaxed);
}

/* 1: the memory is the kernel's again. */
static int close_segment(struct kv_namespace *space, uint32_t segment)
{
	struct kv_segment *closing = &space->segment[segment];
	char name[KEEP_NAME_BYTES];

	closing->is_closing = 1;
	extent_close_segment(&space->map, segment);
	evict_segment(space, segment);
	if (space->map.segment[segment].used_bytes > 0)
		return 0;
	extent_remove_segment(&space->map, segment);
	space->pool_bytes -= closing->memory.bytes;
	(void)cnre_segment_punch(&closing->memory); /* clients may have it mapped still */
	cnre_segment_close(&closing->memory);
	*closing = (struct kv_segment){.memory.fd = -1};
	name_of(space, segment, name);
	store_remove(space->store->manager->store, name);
	if (space->pool_bytes == 0 && space->session_count == 0)
		count_again(space);
	return 1;
}

/* Another namespace gives a segment back, as far as its leases let it. */
static void borrow(struct kv_namespace *space)
{
	struct kv_namespace *giver = kv_share_giver(space);

	if (giver != NULL)
		(void)close_segment(giver, kv_share_segment(giver));
}

/* In use: by a lease, by ourselves, or on its way out already. */
static int is_busy(void *context, uint32_t owner)
{
	const struct kv_namespace *space = context;
	const struct cnre_kv_entry *entry = &space->entry[owner];

	return !kv_is_indexed(entry) || kv_state(entry) != CNRE_STATE_READY || space->note[owner].doing != 0 ||
	       kv_is_leased(space, owner);
}

static int has_busy(struct kv_namespace *space, uint32_t segment)
{
	uint32_t at = extent_first(&space->map, segment);

	if (at != EXTENT_NONE && extent_get(&space->map, at)->owner == EXTENT_FREE)
		at = extent_next_owned(&space->map, at);
	for (; at != EXTENT_NONE; at = extent_next_owned(&space->map, at))
		if (is_busy(space, extent_get(&space->map, at)->owner))
			return 1;
	return 0;
}

static void close_closing(struct kv_namespace *space)
{
	for (uint32_t s = 0; s < space->segments_made; s++)
		if (space->segment[s].is_closing)
			(void)close_segment(space, s);
}

/* Instead of what is leased, until that can go. */
static void close_idle(struct kv_namespace *space)
{
	for (uint32_t s = space->segments_made; s-- > 0 && kv_memory_has_too_much(space->store);)
		if (space->segment[s].is_live && !space->segment[s].is_closing && !has_busy(space, s))
			(void)close_segment(space, s);
}

/* What there will be when everything that is being given back is. */
static uint64_t bytes_to_stay(const struct kv_store *store)
{
	uint64_t bytes = kv_memory_bytes(store);

	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
		if (store->space[i] != NULL)
			bytes -= store->space[i]->pool_bytes - kv_share_bytes(store->space[i]);
	return bytes;
}

void kv_memory_trim(struct kv_store *store)
{
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
		if (store->space[i] != NULL)
			close_closing(store->space[i]);
	while (kv_memory_has_too_much(store) && bytes_to_stay(store) > store->budget_bytes) {
		struct kv_namespace *space = kv_share_largest(store);
		uint32_t segment = space == NULL ? CNRE_KV_NONE : kv_share_segment(space);

		if (segment == CNRE_KV_NONE)
			break;
		(void)close_segment(space, segment);
	}
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
		if (store->space[i] != NULL)
			close_idle(store->space[i]);
}

/* ---- taking ---- */

/* Blocks of several sizes may leave no hole that is large enough: then a whole run of neighbours goes. */
static int free_run(struct kv_namespace *space, uint64_t bytes)
{
	struct extent_run run, best = {.first = EXTENT_NONE};
	uint64_t less_than = UINT64_MAX;
	uint32_t at;

	for (uint32_t s = 0; s < space->segments_made; s++)
		if (space->segment[s].is_live && !space->segment[s].is_closing &&
		    extent_find_run(&space->map, s, bytes, less_than, is_busy, space, &run)) {
			best = run;
			less_than = run.owned_bytes;
		}
	if (best.first == EXTENT_NONE)
		return -ENOSPC;
	at = best.first;
	if (extent_get(&space->map, at)->owner == EXTENT_FREE)
		at = extent_next_owned(&space->map, at);
	while (at != EXTENT_NONE && extent_get(&space->map, at)->off < best.end_off) {
		uint32_t owner = extent_get(&space->map, at)->owner, next = extent_next_owned(&space->map, at);

		if (kv_entry_evict(space, owner) < 0)
			return -ENOSPC; /* leased just now */
		at = next;
	}
	return 0;
}

static int take(struct kv_namespace *space, uint64_t bytes, uint32_t index, uint64_t *ret_place)
{
	uint32_t segment;
	uint64_t off;
	int r = extent_take(&space->map, bytes, index, &segment, &off);

	if (r == 0)
		*ret_place = cnre_place_pack(segment, off);
	return r;
}

int kv_memory_take(struct kv_namespace *space, uint64_t payload_bytes, uint32_t index, uint64_t *ret_place)
{
	uint64_t bytes = kv_room(payload_bytes);
	int r = take(space, bytes, index, ret_place);

	if (r != -ENOSPC)
		return r;
	if (grow(space, bytes))
		return -EAGAIN;
	borrow(space);
	if (grow(space, bytes))
		return -EAGAIN;
	for (uint32_t i = 0; i < KV_EVICTIONS_PER_TURN && r == -ENOSPC; i++) {
		if (kv_evict_one(space) < 0)
			break;
		r = take(space, bytes, index, ret_place);
	}
	if (r == -ENOSPC && free_run(space, bytes) == 0)
		r = take(space, bytes, index, ret_place);
	return r;
}

void kv_memory_give(struct kv_namespace *space, uint64_t place)
{
	extent_give(&space->map, cnre_place_segment(place), cnre_place_offset(place));
}

int kv_memory_has_too_much(const struct kv_store *store)
{
	return kv_memory_bytes(store) > store->budget_bytes;
}

void kv_memory_persist(struct kv_namespace *space)
{
	struct store *store = space->store->manager->store;
	char name[KEEP_NAME_BYTES];

	for (uint32_t i = 0; i < space->segments_made; i++) {
		name_of(space, i, name);
		if (space->segment[i].is_live && !store_has(store, name))
			(void)store_put(store, name, space->segment[i].memory.fd);
	}
}

int kv_memory_adopt(struct kv_namespace *space, uint32_t segment, int fd)
{
	struct cnre_segment memory;
	int r = segment >= CNRE_KV_SEGMENTS_MAX || space->segment[segment].is_live ? -EBADMSG : 0;

	if (r == 0)
		r = cnre_segment_map(&memory, fd, 0, CNRE_PAGE_BYTES, 1);
	if (r < 0) {
		(void)close(fd);
		return r;
	}
	memory.fd = fd;
	r = enter(space, segment, &memory);
	if (r < 0)
		cnre_segment_close(&memory);
	return r;
}
