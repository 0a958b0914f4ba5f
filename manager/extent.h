/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which bytes of which segment are handed out: extents of exact size, best fit, coalesced at once. Pure bookkeeping in
 * private memory; the segments themselves are never touched. It knows owners as numbers and asks nobody anything.
 *
 * A segment is divided into windows of equal size. A border between windows can be *fenced*: no extent, free or owned,
 * crosses it. The pool fences the borders of its guaranteed windows. A segment can be *closed*: its free room is not
 * handed out any more, while what is owned in it stays until it is given back.
 *
 * Invariants (extent_check): the extents of a segment cover it in order without gap or overlap; no two free neighbours
 * without a fence between them; none crosses a fence; used_bytes is the sum of the owned ones.
 *
 * Cost: take and give O(log extents), owner_at O(1), walking a segment O(its extents).
 */
#ifndef CNRE_MANAGER_EXTENT_H
#define CNRE_MANAGER_EXTENT_H

#include <stdint.h>

#define EXTENT_NONE UINT32_MAX       /* no extent */
#define EXTENT_FREE UINT32_MAX       /* owner of free room */
#define EXTENT_GRAIN 4096u           /* offsets and sizes are multiples */

struct extent {
	uint64_t off, bytes;
	uint32_t segment, owner;          /* owner EXTENT_FREE: free */
	uint32_t previous, next;          /* neighbours in the segment, in order of off */
	uint32_t left, right, priority;   /* free ones of open segments: a treap by (bytes, segment, off) */
};

struct extent_segment {
	uint64_t bytes;                   /* 0: no such segment */
	uint64_t used_bytes;
	uint32_t first;
	int open;
	uint32_t *start_at;               /* [bytes / EXTENT_GRAIN]: 1 + index of the extent that starts there */
	unsigned char *fence;             /* [bytes / window_bytes + 1]: border i lies at i * window_bytes */
};

struct extent_map {
	uint64_t window_bytes;
	uint64_t used_bytes;
	struct extent *extent;
	uint32_t extent_count, extent_room;
	uint32_t unused;                  /* chain of free nodes, through next */
	uint32_t root;                    /* of the treap */
	uint32_t random;
	struct extent_segment *segment;
	uint32_t segment_room;
};

void extent_map_init(struct extent_map *map, uint64_t window_bytes);
void extent_map_done(struct extent_map *map);

/* An open segment of free room. 0 or -ENOMEM. */
int extent_add_segment(struct extent_map *map, uint32_t segment, uint64_t bytes);
/* Forgets a segment that nobody owns anything in. */
void extent_remove_segment(struct extent_map *map, uint32_t segment);
void extent_open_segment(struct extent_map *map, uint32_t segment);
void extent_close_segment(struct extent_map *map, uint32_t segment);
uint32_t extent_windows(const struct extent_map *map, uint32_t segment);

/* The smallest free room that is large enough, the lowest of equals. 0, -ENOSPC or -ENOMEM. */
int extent_take(struct extent_map *map, uint64_t bytes, uint32_t owner, uint32_t *ret_segment, uint64_t *ret_off);
/*
 * A certain place, which an earlier incarnation handed out. 0, -EBADMSG (outside the segment, odd, or not free: then two
 * owners claim the same bytes) or -ENOMEM.
 */
int extent_claim(struct extent_map *map, uint32_t segment, uint64_t off, uint64_t bytes, uint32_t owner);
/* The owned extent that starts there becomes free. */
void extent_give(struct extent_map *map, uint32_t segment, uint64_t off);
/* The owned extent that starts there is another's. */
void extent_pass(struct extent_map *map, uint32_t segment, uint64_t off, uint32_t owner);
/* Owner of the extent that starts exactly there; EXTENT_FREE if none does or it is free. */
uint32_t extent_owner_at(const struct extent_map *map, uint32_t segment, uint64_t off);

/* Fences border `border` of a segment. 0, -EBUSY (an owned extent crosses it) or -ENOMEM. */
int extent_set_fence(struct extent_map *map, uint32_t segment, uint32_t border);
void extent_clear_fence(struct extent_map *map, uint32_t segment, uint32_t border);
/* Owner of the extent that crosses a border; EXTENT_FREE if none does or it is free. */
uint32_t extent_owner_across(const struct extent_map *map, uint32_t segment, uint32_t border);
int extent_is_fenced(const struct extent_map *map, uint32_t segment, uint64_t off);

/* Walking: indices stay valid for owned extents while others are given back. */
uint32_t extent_first(const struct extent_map *map, uint32_t segment);
uint32_t extent_next_owned(const struct extent_map *map, uint32_t index); /* behind index */
static inline const struct extent *extent_get(const struct extent_map *map, uint32_t index)
{
	return &map->extent[index];
}

/* A run of neighbours that could become one hole. */
struct extent_run {
	uint32_t first, segment;
	uint64_t end_off;                 /* end of its last extent */
	uint64_t owned_bytes;             /* what has to go */
};

/*
 * extent_find_run - the run of at least `bytes` in this segment that costs the fewest owned bytes
 *
 * Runs hold no busy owner and cross no fence. One walk over the segment; is_busy is asked once for each owner.
 * Returns:  1 and *ret_run, or 0: no such run, or none below `less_than` owned bytes.
 */
int extent_find_run(const struct extent_map *map, uint32_t segment, uint64_t bytes, uint64_t less_than,
		    int (*is_busy)(void *context, uint32_t owner), void *context, struct extent_run *ret_run);

/* Walks everything and aborts if an invariant is broken: for tests. */
void extent_check(const struct extent_map *map);

#endif
