/* SPDX-License-Identifier: Apache-2.0 */
/* See extent_map.h. */
#include "tools/inspect/extent_map.h"

#include <errno.h>
#include <stdlib.h>

#define ROOM_FIRST 256u

int extent_map_add(struct extent_map *map, const struct extent *extent)
{
	if (extent->bytes == 0 || extent->begin + extent->bytes < extent->begin)
		return -EINVAL;
	if (map->count == EXTENT_MAP_MAX)
		return -E2BIG;
	if (map->count == map->room) {
		uint32_t room = map->room == 0 ? ROOM_FIRST : map->room * 2;
		struct extent *grown = reallocarray(map->extent, room, sizeof *grown);

		if (grown == NULL)
			return -ENOMEM;
		map->extent = grown;
		map->room = room;
	}
	map->extent[map->count++] = *extent;
	map->is_sorted = 0;
	return 0;
}

/* -1, 0, 1: where the extent begins, beside (device, begin). */
static int compare_with(const struct extent *extent, uint64_t device, uint64_t begin)
{
	if (extent->device != device)
		return extent->device < device ? -1 : 1;
	return (extent->begin > begin) - (extent->begin < begin);
}

static int compare(const void *a, const void *b)
{
	const struct extent *left = a, *right = b;
	int order = compare_with(left, right->device, right->begin);

	return order != 0 ? order : (left->file > right->file) - (left->file < right->file);
}

void extent_map_sort(struct extent_map *map)
{
	uint32_t kept = 0;

	if (map->is_sorted)
		return;
	if (map->count > 1)
		qsort(map->extent, map->count, sizeof map->extent[0], compare);
	for (uint32_t i = 0; i < map->count; i++) {
		struct extent extent = map->extent[i];
		const struct extent *last = kept == 0 ? NULL : &map->extent[kept - 1];

		/* What an earlier extent answers already is cut off, so that one search finds the only answer. */
		if (last != NULL && last->device == extent.device && last->begin + last->bytes > extent.begin) {
			uint64_t shared = last->begin + last->bytes - extent.begin;

			if (shared >= extent.bytes)
				continue;
			extent.begin += shared;
			extent.file_off += shared;
			extent.bytes -= shared;
		}
		map->extent[kept++] = extent;
	}
	map->count = kept;
	map->is_sorted = 1;
}

void extent_map_done(struct extent_map *map)
{
	free(map->extent);
	*map = (struct extent_map){.extent = NULL};
}

/* How many extents begin at or before a place. */
static uint32_t count_before(const struct extent_map *map, uint64_t device, uint64_t begin)
{
	uint32_t low = 0, high = map->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (compare_with(&map->extent[middle], device, begin) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct extent_piece extent_map_cut(const struct extent_map *map, uint64_t device, uint64_t begin, uint64_t bytes)
{
	uint32_t next = count_before(map, device, begin);
	struct extent_piece piece = {.file = EXTENT_NO_FILE, .bytes = bytes};

	if (next > 0) {
		const struct extent *extent = &map->extent[next - 1];
		uint64_t into = begin - extent->begin;

		if (extent->device == device && into < extent->bytes) {
			piece.file = extent->file;
			piece.file_off = extent->file_off + into;
			if (piece.bytes > extent->bytes - into)
				piece.bytes = extent->bytes - into;
			return piece;
		}
	}
	if (next < map->count && map->extent[next].device == device && map->extent[next].begin - begin < bytes)
		piece.bytes = map->extent[next].begin - begin;
	return piece;
}
