/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The expert pool: backed segments of memory, and which bytes of them belong to whom. It knows owners (numbers) and
 * bytes; it knows neither objects, nor leases, nor policy: whoever may be evicted is asked through pool_tenants.
 *
 * Memory comes in segments of at most 1 GiB, so that a budget can shrink by giving whole ones back. Room is handed out
 * in exact sizes (multiples of 4096), best fit with immediate coalescing, never across segments.
 *
 * Windows: every segment is also divided into windows of the largest slab. A *guaranteed* window is one whose borders
 * no extent crosses, so one busy owner blocks at most one of them. With sum(reservations) + reads in flight +
 * quarantined slabs <= guaranteed windows, some guaranteed window has no busy owner, and any demand finds room
 * by evicting what lies in it (R15; the bound is tight: tests/model/reserve.pml).
 *
 * Strict budget: what is handed out never exceeds it, also while a shrink waits for leases. A segment that is to be given
 * back is closed at once: nothing new goes into it.
 *
 * Core thread only.
 */
#ifndef CNRE_MANAGER_POOL_H
#define CNRE_MANAGER_POOL_H

#include "shm/segment.h"

#include <stdint.h>

#define POOL_OWNER_NONE UINT32_MAX
#define POOL_MESSAGE_BYTES 256
#define POOL_WINDOWS_MIN 4u          /* fewer are no pool, however small the models */

struct pool;

struct pool_tenants {                     /* answers about owners; context is the caller's */
	void *context;
	/* 1: leased, loading or quarantined: cannot go now. */
	int (*is_busy)(void *context, uint32_t owner);
	/* Evicts it now: it calls pool_give for its extent and returns 0; -EBUSY if it got leased meanwhile. */
	int (*evict)(void *context, uint32_t owner);
};

struct pool_memory {                      /* told about segments: the loader registers them, the page counts them */
	void *context;
	void (*added)(void *context, uint32_t segment, const struct cnre_segment *memory);
	void (*removed)(void *context, uint32_t segment, const struct cnre_segment *memory); /* before its pages go */
};

struct pool_setup {
	uint64_t budget_bytes;
	uint64_t window_bytes;            /* largest slab of any model, a multiple of 4096 */
	uint64_t slab_bytes_total;        /* all objects together: the pool never needs more */
	enum cnre_backing first_backing;  /* CNRE_BACKING_1G: try the whole ladder; CNRE_BACKING_4K: plain pages */
	int numa_node;                    /* or CNRE_NUMA_… */
	struct pool_tenants tenants;
	struct pool_memory memory;
	/* One line for the log about each step down the ladder: what was missing and what to do. Called with memory.context. */
	void (*note)(void *context, const char *line);
};

/*
 * pool_open - back the budget with memory
 *
 * The ladder per segment: hugetlb 1 GiB (only for segments of exactly 1 GiB), 2 MiB, THP, 4 KiB; once a step failed it
 * is not tried again in this call. Memory is touched here. If memory runs out half-way the pool is smaller than the
 * budget, which is noted; -ENOMEM only if not even four windows fit, -EINVAL for a window that is no multiple of 4096 or
 * larger than a segment. Where all objects need less than the budget the pool is as large as they need.
 */
int pool_open(struct pool **ret_pool, const struct pool_setup *setup, char message[POOL_MESSAGE_BYTES]);
struct pool *pool_close(struct pool *pool);

/*
 * After a restart: a pool without memory, the segments that survived, and who owned what in them. Numbers go on behind
 * the highest that was ever made, so that none is reused in front of clients that have it mapped.
 * pool_adopt_segment takes the segment over; 0, -EBADMSG (number or size) or -ENOMEM.
 * pool_claim: 0, -EBADMSG (no such place, or it has an owner already: then nothing may be adopted, R21b) or -ENOMEM.
 */
int pool_open_empty(struct pool **ret_pool, const struct pool_setup *setup, uint32_t segments_made, char message[POOL_MESSAGE_BYTES]);
int pool_adopt_segment(struct pool *pool, uint32_t segment, struct cnre_segment *memory);
int pool_claim(struct pool *pool, uint64_t place, uint64_t bytes, uint32_t owner);

/* Room for `bytes` (a multiple of 4096, a window at most) without evicting anybody: 0 and its place, or -ENOSPC (also when
 * it would exceed the budget), -EINVAL, -ENOMEM. */
int pool_take(struct pool *pool, uint64_t bytes, uint32_t owner, uint64_t *ret_place);
/* The extent that begins at place returns. */
void pool_give(struct pool *pool, uint64_t place);
void pool_pass(struct pool *pool, uint64_t place, uint32_t owner); /* it is another's now */

/*
 * pool_make_room - by evicting, in one guaranteed window (or any other), whatever is not busy
 *
 * Used when victims in policy order left no hole that is large enough. Evicts as few bytes as it can.
 * Returns:  0 (pool_take of `bytes` will succeed now), or -ENOSPC: every window has a busy owner.
 */
int pool_make_room(struct pool *pool, uint64_t bytes);

void *pool_address(const struct pool *pool, uint64_t place);
/* Owner of the extent at place, or POOL_OWNER_NONE. */
uint32_t pool_owner_at(const struct pool *pool, uint64_t place);

/*
 * pool_set_guaranteed - how many windows must be guaranteed from now on
 *
 * Growing may evict what crosses the borders of new ones, and backs more memory where the budget allows and the pool was
 * kept small because the objects need no more. Returns 0, or -ENOSPC (fewer could be had; the guarantee is as before).
 */
int pool_set_guaranteed(struct pool *pool, uint32_t windows);

/*
 * pool_set_budget - grow or shrink
 *
 * Growing adds segments (best effort, noted). Shrinking: the caller has lowered what it keeps resident and evicts by
 * its own policy; this gives back whole segments, highest number first, evicting what is left in them, until the
 * backed bytes fit; a segment with a busy owner is left and retried by pool_trim. Never below the guaranteed windows.
 * Returns:  0 done, 1 some segments are still in use (call pool_trim later), -ENOSPC below the guarantee (nothing done).
 */
int pool_set_budget(struct pool *pool, uint64_t budget_bytes);
int pool_check_budget(const struct pool *pool, uint64_t budget_bytes); /* 0, or the -ENOSPC that setting it would give */
int pool_trim(struct pool *pool); /* 0 fits, 1 not yet */

struct pool_status {
	uint64_t budget_bytes, backed_bytes, used_bytes; /* used: handed out */
	uint32_t windows, guaranteed;     /* windows: where something new may go, so without segments on their way out */
	uint32_t segments_made, segments_live;
	uint64_t bytes_by_backing[CNRE_BACKING_4K + 1];
	int numa_error;                   /* why memory does not lie where numa_node says; 0: it does, or there is one node */
};
void pool_get_status(const struct pool *pool, struct pool_status *ret_status);

/* The descriptor and size of a segment to pass on; NULL: given back. Numbers are never reused. */
const struct cnre_segment *pool_segment(const struct pool *pool, uint32_t segment);

#endif
