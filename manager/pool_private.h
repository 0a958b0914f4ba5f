/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the pool share: pool.c (room), pool_memory.c (segments), pool_guarantee.c, pool_budget.c. */
#ifndef CNRE_MANAGER_POOL_PRIVATE_H
#define CNRE_MANAGER_POOL_PRIVATE_H

#include "manager/extent.h"
#include "manager/pool.h"

#define POOL_SEGMENTS_WANTED 16u     /* a budget is cut into about so many, so that it can shrink in steps */
#define POOL_TRIES_MAX 16u           /* victims that got leased between the look and the eviction, before we give up */

struct pool_segment {
	struct cnre_segment memory;
	int live;
	unsigned char *guaranteed;    /* [windows]: WINDOW_ values */
};

enum { WINDOW_PLAIN, WINDOW_GUARANTEED, WINDOW_NEW /* guaranteed by the change that is going on */ };

struct pool {
	struct pool_setup setup;
	struct extent_map map;
	uint64_t budget_bytes;
	uint64_t needed_bytes;        /* all objects together */
	uint64_t segment_bytes;       /* a full segment; a multiple of the window */
	uint64_t backed_bytes;
	uint32_t guaranteed;
	int numa_error;               /* first refusal of a policy, where that matters; noted once */
	uint32_t segments_made;
	struct pool_segment *segment; /* [CNRE_SEGMENTS_MAX] */
};

static inline int pool_is_open(const struct pool *pool, uint32_t segment)
{
	return pool->segment[segment].live && pool->map.segment[segment].open;
}

/* Evicts one owner by the caller's rules: 0 it is gone, -EBUSY it stays. */
int pool_evict(struct pool *pool, uint32_t owner);
/* Evicts what is not busy in a segment. */
void pool_evict_segment(struct pool *pool, uint32_t segment);

/* pool_memory.c */
uint64_t pool_open_bytes(const struct pool *pool);
uint32_t pool_open_windows(const struct pool *pool);
void pool_size_segments(struct pool *pool);
/* A segment of memory becomes number `segment`. 0 or -ENOMEM. */
int pool_enter_segment(struct pool *pool, uint32_t segment, struct cnre_segment *memory);
/* Adds segments until all objects fit and there are that many windows, or budget or memory end; notes the latter. */
void pool_grow(struct pool *pool, uint32_t wanted_windows);
void pool_remove_segment(struct pool *pool, uint32_t segment);
void pool_note(const struct pool *pool, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* pool_guarantee.c: `count` more windows outside `excluded`. 0 or -ENOSPC and no more guaranteed than before. */
int pool_guarantee_more(struct pool *pool, uint32_t count, uint32_t excluded);
uint32_t pool_unguarantee_segment(struct pool *pool, uint32_t segment, uint32_t count_max);
uint32_t pool_guaranteed_in(const struct pool *pool, uint32_t segment);

#endif
