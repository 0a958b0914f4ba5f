/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a place on a block device to a place in a file. Filled from what file systems say (FIEMAP), sorted once, then asked for
 * every read. Pure but for memory.
 */
#ifndef CNRE_TOOLS_INSPECT_EXTENT_MAP_H
#define CNRE_TOOLS_INSPECT_EXTENT_MAP_H

#include <stdint.h>

#define EXTENT_NO_FILE UINT32_MAX
#define EXTENT_MAP_MAX (1u << 22)         /* extents in one map */

struct extent {
	uint64_t device;                  /* as the block layer numbers it */
	uint64_t begin, bytes;            /* on the device; no extent is empty */
	uint64_t file_off;
	uint32_t file;
};

struct extent_map {
	struct extent *extent;
	uint32_t count, room;
	int is_sorted;
};

/* One stretch of a read, as long as it lies in one extent or in none. */
struct extent_piece {
	uint32_t file;                    /* EXTENT_NO_FILE: in no file that is known */
	uint64_t file_off, bytes;
};

/* 0, -EINVAL (empty, or beyond 2^64), -E2BIG, -ENOMEM. */
int extent_map_add(struct extent_map *map, const struct extent *extent);
/* Of extents that share a place, as copies by reference do, the file with the least number answers. */
void extent_map_sort(struct extent_map *map);
void extent_map_done(struct extent_map *map); /* as if nothing had been added */

/* The first stretch of [begin, begin + bytes); bytes is not 0, and the map is sorted. */
struct extent_piece extent_map_cut(const struct extent_map *map, uint64_t device, uint64_t begin, uint64_t bytes);

#endif
