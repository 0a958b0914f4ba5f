/* SPDX-License-Identifier: Apache-2.0 */
/* Bookkeeping of extents; see extent.h. */
#include "manager/extent.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void extent_map_init(struct extent_map *map, uint64_t window_bytes)
{
	CNRE_CHECK(window_bytes > 0 && window_bytes % EXTENT_GRAIN == 0);
	*map = (struct extent_map){
		.window_bytes = window_bytes, .unused = EXTENT_NONE, .root = EXTENT_NONE, .random = 2463534242u};
}

void extent_map_done(struct extent_map *map)
{
	for (uint32_t i = 0; i < map->segment_room; i++) {
		free(map->segment[i].start_at);
		free(map->segment[i].fence);
	}
	free(map->segment);
	free(map->extent);
	*map = (struct extent_map){.unused = EXTENT_NONE, .root = EXTENT_NONE};
}

/* ---- nodes ---- */

/* Makes sure that new_extent can be called `count` times: the only step of a take or a fence that can fail. */
static int reserve_extents(struct extent_map *map, uint32_t count)
{
	struct extent *grown;
	uint32_t room = map->extent_room;

	if (room - map->extent_count >= count)
		return 0;
	if (room > UINT32_MAX / 4)
		return -ENOMEM;
	room = room == 0 ? 64 : room * 2;
	grown = realloc(map->extent, room * sizeof *grown);
	if (grown == NULL)
		return -ENOMEM;
	for (uint32_t i = map->extent_room; i < room; i++) {
		grown[i].next = map->unused;
		map->unused = i;
	}
	map->extent = grown;
	map->extent_room = room;
	return 0;
}

static uint32_t new_extent(struct extent_map *map)
{
	uint32_t index = map->unused;

	CNRE_CHECK(index != EXTENT_NONE);
	map->unused = map->extent[index].next;
	map->extent_count++;
	map->random ^= map->random << 13; /* xorshift32, Marsaglia 2003 */
	map->random ^= map->random >> 17;
	map->random ^= map->random << 5;
	map->extent[index] = (struct extent){.previous = EXTENT_NONE,
					     .next = EXTENT_NONE,
					     .left = EXTENT_NONE,
					     .right = EXTENT_NONE,
					     .priority = map->random};
	return index;
}

static void drop_extent(struct extent_map *map, uint32_t index)
{
	map->extent[index].next = map->unused;
	map->unused = index;
	map->extent_count--;
}

/* ---- free room, ordered by size: a treap (Aragon and Seidel 1989), expected depth O(log n) ---- */

static int is_before(const struct extent *a, const struct extent *b)
{
	if (a->bytes != b->bytes)
		return a->bytes < b->bytes;
	if (a->segment != b->segment)
		return a->segment < b->segment;
	return a->off < b->off;
}

static void split_at(struct extent_map *map, uint32_t root, uint32_t key, uint32_t *ret_less, uint32_t *ret_more)
{
	while (root != EXTENT_NONE) {
		struct extent *node = &map->extent[root];

		if (is_before(node, &map->extent[key])) {
			*ret_less = root;
			ret_less = &node->right;
			root = node->right;
		} else {
			*ret_more = root;
			ret_more = &node->left;
			root = node->left;
		}
	}
	*ret_less = EXTENT_NONE;
	*ret_more = EXTENT_NONE;
}

/* Every key of less is before every key of more. */
static uint32_t join(struct extent_map *map, uint32_t less, uint32_t more)
{
	uint32_t root, *link = &root;

	while (less != EXTENT_NONE && more != EXTENT_NONE) {
		if (map->extent[less].priority > map->extent[more].priority) {
			*link = less;
			link = &map->extent[less].right;
			less = *link;
		} else {
			*link = more;
			link = &map->extent[more].left;
			more = *link;
		}
	}
	*link = less != EXTENT_NONE ? less : more;
	return root;
}

static void offer(struct extent_map *map, uint32_t index)
{
	struct extent *node = &map->extent[index];
	uint32_t *link = &map->root;

	if (!map->segment[node->segment].open)
		return;
	while (*link != EXTENT_NONE && map->extent[*link].priority >= node->priority)
		link = is_before(node, &map->extent[*link]) ? &map->extent[*link].left : &map->extent[*link].right;
	split_at(map, *link, index, &node->left, &node->right);
	*link = index;
}

static void withdraw(struct extent_map *map, uint32_t index)
{
	struct extent *node = &map->extent[index];
	uint32_t *link = &map->root;

	if (!map->segment[node->segment].open)
		return;
	while (*link != index) {
		CNRE_CHECK(*link != EXTENT_NONE);
		link = is_before(node, &map->extent[*link]) ? &map->extent[*link].left : &map->extent[*link].right;
	}
	*link = join(map, node->left, node->right);
}

static uint32_t best_fit(const struct extent_map *map, uint64_t bytes)
{
	uint32_t best = EXTENT_NONE;

	for (uint32_t at = map->root; at != EXTENT_NONE;) {
		const struct extent *node = &map->extent[at];

		if (node->bytes >= bytes) {
			best = at;
			at = node->left;
		} else {
			at = node->right;
		}
	}
	return best;
}

/* ---- order within a segment ---- */

static void set_start(struct extent_map *map, uint32_t index)
{
	const struct extent *node = &map->extent[index];

	map->segment[node->segment].start_at[node->off / EXTENT_GRAIN] = index + 1;
}

/* Cuts a free extent that is not on offer; returns the part behind `bytes`, free and not on offer. */
static uint32_t cut(struct extent_map *map, uint32_t index, uint64_t bytes)
{
	uint32_t rest = new_extent(map);
	struct extent *a = &map->extent[index], *b = &map->extent[rest];

	b->segment = a->segment;
	b->owner = EXTENT_FREE;
	b->off = a->off + bytes;
	b->bytes = a->bytes - bytes;
	a->bytes = bytes;
	b->previous = index;
	b->next = a->next;
	a->next = rest;
	if (b->next != EXTENT_NONE)
		map->extent[b->next].previous = rest;
	set_start(map, rest);
	return rest;
}

/* The free extent swallows its free neighbour behind it; neither is on offer. */
static void swallow_next(struct extent_map *map, uint32_t index)
{
	struct extent *a = &map->extent[index];
	uint32_t gone = a->next;
	struct extent *b = &map->extent[gone];

	map->segment[b->segment].start_at[b->off / EXTENT_GRAIN] = 0;
	a->bytes += b->bytes;
	a->next = b->next;
	if (a->next != EXTENT_NONE)
		map->extent[a->next].previous = index;
	drop_extent(map, gone);
}

static int may_merge(const struct extent_map *map, uint32_t before, uint32_t behind)
{
	return before != EXTENT_NONE && behind != EXTENT_NONE && map->extent[before].owner == EXTENT_FREE &&
	       map->extent[behind].owner == EXTENT_FREE &&
	       !extent_is_fenced(map, map->extent[behind].segment, map->extent[behind].off);
}

/* ---- segments ---- */

static int reserve_segment(struct extent_map *map, uint32_t segment)
{
	uint32_t room = map->segment_room;
	struct extent_segment *grown;

	if (segment < room)
		return 0;
	if (segment >= UINT32_MAX / 2)
		return -ENOMEM;
	room = segment + 1 > room * 2 ? segment + 1 : room * 2;
	grown = realloc(map->segment, room * sizeof *grown);
	if (grown == NULL)
		return -ENOMEM;
	memset(grown + map->segment_room, 0, (room - map->segment_room) * sizeof *grown);
	map->segment = grown;
	map->segment_room = room;
	return 0;
}

static int is_segment(const struct extent_map *map, uint32_t segment)
{
	return segment < map->segment_room && map->segment[segment].bytes != 0;
}

int extent_add_segment(struct extent_map *map, uint32_t segment, uint64_t bytes)
{
	struct extent_segment *s;
	uint32_t index;

	CNRE_CHECK(bytes > 0 && bytes % EXTENT_GRAIN == 0 && !is_segment(map, segment));
	if (reserve_segment(map, segment) < 0 || reserve_extents(map, 1) < 0)
		return -ENOMEM;
	s = &map->segment[segment];
	s->start_at = calloc(bytes / EXTENT_GRAIN, sizeof *s->start_at); /* mostly never touched, so never backed */
	s->fence = calloc(bytes / map->window_bytes + 1, 1);
	if (s->start_at == NULL || s->fence == NULL) {
		free(s->start_at);
		free(s->fence);
		*s = (struct extent_segment){0};
		return -ENOMEM;
	}
	index = new_extent(map);
	map->extent[index].segment = segment;
	map->extent[index].owner = EXTENT_FREE;
	map->extent[index].bytes = bytes;
	s->bytes = bytes;
	s->first = index;
	s->open = 1;
	set_start(map, index);
	offer(map, index);
	return 0;
}

void extent_remove_segment(struct extent_map *map, uint32_t segment)
{
	struct extent_segment *s = &map->segment[segment];

	CNRE_CHECK(is_segment(map, segment) && s->used_bytes == 0);
	extent_close_segment(map, segment);
	for (uint32_t i = s->first, next; i != EXTENT_NONE; i = next) {
		next = map->extent[i].next;
		drop_extent(map, i);
	}
	free(s->start_at);
	free(s->fence);
	*s = (struct extent_segment){0};
}

void extent_open_segment(struct extent_map *map, uint32_t segment)
{
	CNRE_CHECK(is_segment(map, segment));
	if (map->segment[segment].open)
		return;
	map->segment[segment].open = 1;
	for (uint32_t i = map->segment[segment].first; i != EXTENT_NONE; i = map->extent[i].next)
		if (map->extent[i].owner == EXTENT_FREE)
			offer(map, i);
}

void extent_close_segment(struct extent_map *map, uint32_t segment)
{
	CNRE_CHECK(is_segment(map, segment));
	if (!map->segment[segment].open)
		return;
	for (uint32_t i = map->segment[segment].first; i != EXTENT_NONE; i = map->extent[i].next)
		if (map->extent[i].owner == EXTENT_FREE)
			withdraw(map, i);
	map->segment[segment].open = 0;
}

uint32_t extent_windows(const struct extent_map *map, uint32_t segment)
{
	return is_segment(map, segment) ? (uint32_t)(map->segment[segment].bytes / map->window_bytes) : 0;
}

/* ---- taking and giving ---- */

static void own(struct extent_map *map, uint32_t index, uint32_t owner)
{
	struct extent *node = &map->extent[index];

	node->owner = owner;
	map->segment[node->segment].used_bytes += node->bytes;
	map->used_bytes += node->bytes;
}

int extent_take(struct extent_map *map, uint64_t bytes, uint32_t owner, uint32_t *ret_segment, uint64_t *ret_off)
{
	uint32_t index;

	CNRE_CHECK(bytes > 0 && bytes % EXTENT_GRAIN == 0 && owner != EXTENT_FREE);
	index = best_fit(map, bytes);
	if (index == EXTENT_NONE)
		return -ENOSPC;
	if (map->extent[index].bytes > bytes && reserve_extents(map, 1) < 0)
		return -ENOMEM;
	withdraw(map, index);
	if (map->extent[index].bytes > bytes)
		offer(map, cut(map, index, bytes));
	own(map, index, owner);
	*ret_segment = map->extent[index].segment;
	*ret_off = map->extent[index].off;
	return 0;
}

static uint32_t find_start(const struct extent_map *map, uint32_t segment, uint64_t off)
{
	if (!is_segment(map, segment) || off >= map->segment[segment].bytes || off % EXTENT_GRAIN != 0)
		return EXTENT_NONE;
	return map->segment[segment].start_at[off / EXTENT_GRAIN] - 1; /* 0 - 1 is EXTENT_NONE */
}

void extent_pass(struct extent_map *map, uint32_t segment, uint64_t off, uint32_t owner)
{
	uint32_t index = find_start(map, segment, off);

	CNRE_CHECK(index != EXTENT_NONE && map->extent[index].owner != EXTENT_FREE && owner != EXTENT_FREE);
	map->extent[index].owner = owner;
}

uint32_t extent_owner_at(const struct extent_map *map, uint32_t segment, uint64_t off)
{
	uint32_t index = find_start(map, segment, off);

	return index == EXTENT_NONE ? EXTENT_FREE : map->extent[index].owner;
}

/* The extent that holds the byte at off: looks back to the nearest start, at most the size of an extent. */
static uint32_t find_holder(const struct extent_map *map, uint32_t segment, uint64_t off)
{
	const uint32_t *start_at = map->segment[segment].start_at;
	uint64_t at = off / EXTENT_GRAIN;

	while (start_at[at] == 0)
		at--; /* the first extent starts at 0 */
	return start_at[at] - 1;
}

static int is_claim(const struct extent_map *map, uint32_t segment, uint64_t off, uint64_t bytes)
{
	return is_segment(map, segment) && bytes > 0 && bytes % EXTENT_GRAIN == 0 && off % EXTENT_GRAIN == 0 &&
	       off < map->segment[segment].bytes && bytes <= map->segment[segment].bytes - off;
}

int extent_claim(struct extent_map *map, uint32_t segment, uint64_t off, uint64_t bytes, uint32_t owner)
{
	uint32_t index, before;

	CNRE_CHECK(owner != EXTENT_FREE);
	if (!is_claim(map, segment, off, bytes))
		return -EBADMSG;
	index = find_holder(map, segment, off);
	if (map->extent[index].owner != EXTENT_FREE || off + bytes > map->extent[index].off + map->extent[index].bytes)
		return -EBADMSG;
	if (reserve_extents(map, 2) < 0)
		return -ENOMEM;
	withdraw(map, index);
	if (map->extent[index].off < off) {
		before = index;
		index = cut(map, before, off - map->extent[before].off);
		offer(map, before);
	}
	if (map->extent[index].bytes > bytes)
		offer(map, cut(map, index, bytes));
	own(map, index, owner);
	return 0;
}

void extent_give(struct extent_map *map, uint32_t segment, uint64_t off)
{
	uint32_t index = find_start(map, segment, off), previous;
	struct extent *node;

	CNRE_CHECK(index != EXTENT_NONE && map->extent[index].owner != EXTENT_FREE);
	node = &map->extent[index];
	map->segment[segment].used_bytes -= node->bytes;
	map->used_bytes -= node->bytes;
	node->owner = EXTENT_FREE;
	if (may_merge(map, index, node->next)) {
		withdraw(map, node->next);
		swallow_next(map, index);
	}
	previous = node->previous;
	if (may_merge(map, previous, index)) {
		withdraw(map, previous);
		swallow_next(map, previous);
		index = previous;
	}
	offer(map, index);
}

/* ---- fences ---- */

int extent_is_fenced(const struct extent_map *map, uint32_t segment, uint64_t off)
{
	return off % map->window_bytes == 0 && map->segment[segment].fence[off / map->window_bytes];
}

uint32_t extent_owner_across(const struct extent_map *map, uint32_t segment, uint32_t border)
{
	uint64_t off = border * map->window_bytes;
	const struct extent *holder;

	if (!is_segment(map, segment) || off == 0 || off >= map->segment[segment].bytes)
		return EXTENT_FREE;
	holder = extent_get(map, find_holder(map, segment, off));
	return holder->off == off ? EXTENT_FREE : holder->owner;
}

int extent_set_fence(struct extent_map *map, uint32_t segment, uint32_t border)
{
	uint64_t off = border * map->window_bytes;
	struct extent_segment *s = &map->segment[segment];
	uint32_t index, rest;

	CNRE_CHECK(is_segment(map, segment) && off <= s->bytes);
	if (s->fence[border])
		return 0;
	index = off < s->bytes ? find_holder(map, segment, off) : EXTENT_NONE;
	if (index == EXTENT_NONE || map->extent[index].off == off) {
		s->fence[border] = 1;
		return 0;
	}
	if (map->extent[index].owner != EXTENT_FREE)
		return -EBUSY;
	if (reserve_extents(map, 1) < 0)
		return -ENOMEM;
	withdraw(map, index);
	rest = cut(map, index, off - map->extent[index].off);
	offer(map, index);
	offer(map, rest);
	s->fence[border] = 1;
	return 0;
}

void extent_clear_fence(struct extent_map *map, uint32_t segment, uint32_t border)
{
	uint64_t off = border * map->window_bytes;
	struct extent_segment *s = &map->segment[segment];
	uint32_t index, previous;

	CNRE_CHECK(is_segment(map, segment) && off <= s->bytes);
	if (!s->fence[border])
		return;
	s->fence[border] = 0;
	index = find_start(map, segment, off);
	if (index == EXTENT_NONE)
		return;
	previous = map->extent[index].previous;
	if (!may_merge(map, previous, index))
		return;
	withdraw(map, index);
	withdraw(map, previous);
	swallow_next(map, previous);
	offer(map, previous);
}

/* ---- walking ---- */

uint32_t extent_first(const struct extent_map *map, uint32_t segment)
{
	return is_segment(map, segment) ? map->segment[segment].first : EXTENT_NONE;
}

uint32_t extent_next_owned(const struct extent_map *map, uint32_t index)
{
	for (index = map->extent[index].next; index != EXTENT_NONE; index = map->extent[index].next)
		if (map->extent[index].owner != EXTENT_FREE)
			break;
	return index;
}

static uint64_t cost_of(const struct extent *node)
{
	return node->owner == EXTENT_FREE ? 0 : node->bytes;
}

int extent_find_run(const struct extent_map *map, uint32_t segment, uint64_t bytes, uint64_t less_than,
		    int (*is_busy)(void *context, uint32_t owner), void *context, struct extent_run *ret_run)
{
	uint32_t first = EXTENT_NONE;
	uint64_t length = 0, cost = 0;
	int found = 0;

	for (uint32_t i = extent_first(map, segment); i != EXTENT_NONE; i = map->extent[i].next) {
		const struct extent *node = &map->extent[i];

		if (first != EXTENT_NONE && extent_is_fenced(map, segment, node->off))
			first = EXTENT_NONE;
		if (node->owner != EXTENT_FREE && is_busy(context, node->owner)) {
			first = EXTENT_NONE;
			continue;
		}
		if (first == EXTENT_NONE) {
			first = i;
			length = cost = 0;
		}
		length += node->bytes;
		cost += cost_of(node);
		while (length - map->extent[first].bytes >=
		       bytes) { /* shorter from the left, as long as it is enough */
			length -= map->extent[first].bytes;
			cost -= cost_of(&map->extent[first]);
			first = map->extent[first].next;
		}
		if (length < bytes || cost >= less_than)
			continue;
		*ret_run = (struct extent_run){first, segment, node->off + node->bytes, cost};
		less_than = cost;
		found = 1;
	}
	return found;
}

/* ---- checking ---- */

static uint32_t count_offers(const struct extent_map *map, uint32_t root)
{
	const struct extent *node;

	if (root == EXTENT_NONE)
		return 0;
	node = &map->extent[root];
	CNRE_CHECK(node->owner == EXTENT_FREE && map->segment[node->segment].open);
	CNRE_CHECK(node->left == EXTENT_NONE ||
		   (is_before(&map->extent[node->left], node) && map->extent[node->left].priority <= node->priority));
	CNRE_CHECK(node->right == EXTENT_NONE ||
		   (is_before(node, &map->extent[node->right]) && map->extent[node->right].priority <= node->priority));
	return 1 + count_offers(map, node->left) + count_offers(map, node->right);
}

static void check_neighbours(const struct extent_map *map, uint32_t index)
{
	const struct extent *node = &map->extent[index];
	const struct extent_segment *s = &map->segment[node->segment];

	CNRE_CHECK(node->bytes > 0 && node->bytes % EXTENT_GRAIN == 0 &&
		   find_start(map, node->segment, node->off) == index);
	CNRE_CHECK(!may_merge(map, index, node->next));
	for (uint64_t border = node->off / map->window_bytes + 1; border * map->window_bytes < node->off + node->bytes;
	     border++)
		CNRE_CHECK(!s->fence[border]);
}

static void check_segment(const struct extent_map *map, uint32_t segment, uint32_t *extents, uint32_t *offers)
{
	uint64_t at = 0, used = 0;
	uint32_t previous = EXTENT_NONE;

	for (uint32_t i = extent_first(map, segment); i != EXTENT_NONE; i = map->extent[i].next) {
		const struct extent *node = &map->extent[i];

		CNRE_CHECK(node->segment == segment && node->off == at && node->previous == previous);
		check_neighbours(map, i);
		at += node->bytes;
		used += cost_of(node);
		*extents += 1;
		*offers += node->owner == EXTENT_FREE && map->segment[segment].open;
		previous = i;
	}
	CNRE_CHECK(at == map->segment[segment].bytes && used == map->segment[segment].used_bytes);
}

void extent_check(const struct extent_map *map)
{
	uint32_t extents = 0, offers = 0;
	uint64_t used = 0;

	for (uint32_t s = 0; s < map->segment_room; s++) {
		if (!is_segment(map, s))
			continue;
		check_segment(map, s, &extents, &offers);
		used += map->segment[s].used_bytes;
	}
	CNRE_CHECK(used == map->used_bytes && extents == map->extent_count && count_offers(map, map->root) == offers);
}
