/* SPDX-License-Identifier: Apache-2.0 */
/* See range_map.h. */
#include "tools/inspect/range_map.h"

#include <errno.h>
#include <stdlib.h>

#define ROOM_FIRST 64u

int range_map_add(struct range_map *map, const struct range *range)
{
	if (range->bytes == 0 || range->begin + range->bytes < range->begin)
		return -EINVAL;
	if (map->count == map->room) {
		uint32_t room = map->room == 0 ? ROOM_FIRST : map->room * 2;
		struct range *grown = reallocarray(map->range, room, sizeof *grown);

		if (grown == NULL)
			return -ENOMEM;
		map->range = grown;
		map->room = room;
	}
	map->range[map->count++] = *range;
	return 0;
}

static int compare(const void *a, const void *b)
{
	const struct range *left = a, *right = b;

	return (left->begin > right->begin) - (left->begin < right->begin);
}

void range_map_sort(struct range_map *map)
{
	uint32_t kept = 0;

	if (map->count > 1)
		qsort(map->range, map->count, sizeof map->range[0], compare);
	for (uint32_t i = 0; i < map->count; i++) {
		struct range *last = kept == 0 ? NULL : &map->range[kept - 1];

		if (last != NULL && last->object == map->range[i].object && last->begin + last->bytes == map->range[i].begin)
			last->bytes += map->range[i].bytes;
		else
			map->range[kept++] = map->range[i];
	}
	map->count = kept;
}

void range_map_done(struct range_map *map)
{
	free(map->range);
	*map = (struct range_map){.range = NULL};
}

/* How many ranges begin at or before an offset. */
static uint32_t count_before(const struct range_map *map, uint64_t off)
{
	uint32_t low = 0, high = map->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (map->range[middle].begin <= off)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

struct range_piece range_map_cut(const struct range_map *map, uint64_t off, uint64_t bytes)
{
	uint32_t next = count_before(map, off);
	uint64_t gap;

	if (next > 0 && off - map->range[next - 1].begin < map->range[next - 1].bytes) {
		const struct range *range = &map->range[next - 1];

		return (struct range_piece){.kind = RANGE_EXPERT,
					    .object = range->object,
					    .bytes = least(bytes, range->begin + range->bytes - off)};
	}
	gap = next < map->count ? map->range[next].begin - off : UINT64_MAX;
	if (off < map->header_bytes)
		return (struct range_piece){.kind = RANGE_HEADER, .bytes = least(bytes, least(gap, map->header_bytes - off))};
	return (struct range_piece){.kind = RANGE_DENSE, .bytes = least(bytes, gap)};
}
