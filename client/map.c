/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapping what the manager passed; see map.h. The manager is trusted with the bytes, but a wrong offset would be a
 * crash in the engine, so the catalog is checked once here and nowhere later.
 */
#include "client/map.h"

#include "base/clock.h"

#include <string.h>
#include <sys/mman.h>

#define SEGMENTS_TRIES_MAX 8 /* each restart of the manager leaves one answer unread at most */

static int is_inside(uint64_t segment_bytes, uint64_t off, uint64_t count, uint64_t item_bytes)
{
	uint64_t bytes;

	return off % 8 == 0 && off <= segment_bytes && !__builtin_mul_overflow(count, item_bytes, &bytes) &&
	       bytes <= segment_bytes - off;
}

static int check_sizes(const struct cnre_catalog *catalog, uint64_t segment_bytes)
{
	if (catalog->view[sizeof catalog->view - 1] != '\0' || catalog->layer_count > CNRE_LAYERS_MAX || catalog->object_count > CNRE_OBJECTS_MAX ||
	    catalog->expert_count > CNRE_OBJECTS_MAX)
		return -EBADMSG;
	if (!is_inside(segment_bytes, catalog->layers_off, catalog->layer_count, sizeof(struct cnre_catalog_layer)) ||
	    !is_inside(segment_bytes, catalog->shapes_off, catalog->shape_count, sizeof(struct cnre_catalog_shape)) ||
	    !is_inside(segment_bytes, catalog->objects_off, catalog->object_count, sizeof(struct cnre_catalog_object)))
		return -EBADMSG;
	return 0;
}

static int check_layers(const struct cnre *client)
{
	for (uint32_t i = 0; i < client->layer_count; i++) {
		const struct cnre_catalog_layer *layer = &client->layer[i];

		if (layer->expert_count > client->catalog->expert_count || layer->first_object > client->object_count ||
		    layer->expert_count > client->object_count - layer->first_object)
			return -EBADMSG;
	}
	return 0;
}

static int check_objects(const struct cnre *client)
{
	for (uint32_t i = 0; i < client->object_count; i++) {
		const struct cnre_catalog_object *object = &client->object[i];
		const struct cnre_catalog_shape *shape;

		if (object->shape >= client->shape_count)
			return -EBADMSG;
		shape = &client->shape[object->shape];
		for (unsigned role = 0; role < CNRE_ROLE_COUNT; role++)
			if (shape->part[role].bytes != 0 &&
			    (object->part_off[role] > shape->slab_bytes ||
			     shape->part[role].bytes > shape->slab_bytes - object->part_off[role]))
				return -EBADMSG;
	}
	return 0;
}

static int use_catalog(struct cnre *client)
{
	const struct cnre_segment *segment = &client->fixed[CNRE_FD_CATALOG];
	const struct cnre_catalog *catalog = segment->base;
	int r = check_sizes(catalog, segment->bytes);

	if (r < 0)
		return r;
	client->catalog = catalog;
	client->layer_count = catalog->layer_count;
	client->object_count = catalog->object_count;
	client->shape_count = catalog->shape_count;
	client->layer = (const void *)((const char *)catalog + catalog->layers_off);
	client->shape = (const void *)((const char *)catalog + catalog->shapes_off);
	client->object = (const void *)((const char *)catalog + catalog->objects_off);
	r = check_layers(client);
	return r < 0 ? r : check_objects(client);
}

int cnre_map_fixed(struct cnre *client, const int *fds)
{
	static const struct {
		enum cnre_segment_kind kind;
		int writable;
		uint64_t min_bytes;
	} wanted[CNRE_FD_COUNT] = {
		[CNRE_FD_PAGE] = {CNRE_SEGMENT_PAGE, 0, sizeof(struct cnre_page)},
		[CNRE_FD_COUNTERS] = {CNRE_SEGMENT_COUNTERS, 0, sizeof(struct cnre_segment_header)},
		[CNRE_FD_CATALOG] = {CNRE_SEGMENT_CATALOG, 0, sizeof(struct cnre_catalog)},
		[CNRE_FD_DIRECTORY] = {CNRE_SEGMENT_DIRECTORY, 0, sizeof(struct cnre_directory)},
		[CNRE_FD_CHANNEL] = {CNRE_SEGMENT_CHANNEL, 1, sizeof(struct cnre_channel)},
		[CNRE_FD_LEDGER] = {CNRE_SEGMENT_LEDGER, 1, sizeof(struct cnre_ledger)},
	};
	const struct cnre_segment *fixed = client->fixed;
	int r;

	for (unsigned i = 0; i < CNRE_FD_COUNT; i++) {
		r = cnre_segment_map(&client->fixed[i], fds[i], wanted[i].kind, wanted[i].min_bytes,
				     wanted[i].writable);
		if (r < 0)
			return r;
	}
	r = use_catalog(client);
	if (r < 0)
		return r;
	if (fixed[CNRE_FD_DIRECTORY].bytes <
		    sizeof(struct cnre_directory) + client->object_count * sizeof(struct cnre_entry) ||
	    fixed[CNRE_FD_LEDGER].bytes < sizeof(struct cnre_ledger) + client->object_count * sizeof(uint64_t) ||
	    fixed[CNRE_FD_CHANNEL].bytes < CNRE_CHANNEL_BYTES(client->layer_count))
		return -EBADMSG;
	client->page = fixed[CNRE_FD_PAGE].base;
	client->entry = ((const struct cnre_directory *)fixed[CNRE_FD_DIRECTORY].base)->entry;
	client->channel = fixed[CNRE_FD_CHANNEL].base;
	client->log = (_Atomic uint64_t *)((char *)fixed[CNRE_FD_CHANNEL].base + CNRE_CHANNEL_LOG_OFF);
	client->account = (struct cnre_account *)((char *)fixed[CNRE_FD_CHANNEL].base + CNRE_CHANNEL_ACCOUNTS_OFF);
	client->ledger = ((struct cnre_ledger *)fixed[CNRE_FD_LEDGER].base)->word;
	return 0;
}

int cnre_map_segment(struct cnre_pool_map *map, int fd)
{
	struct cnre_segment segment;
	int r;

	/* [M1] relaxed: written under the connection's lock, which this thread holds. */
	if (atomic_load_explicit(&map->base, memory_order_relaxed) != NULL)
		return 0;
	r = cnre_segment_map(&segment, fd, 0, CNRE_PAGE_BYTES, 0);
	if (r < 0)
		return r;
	map->bytes = segment.bytes;
	/* [V3] release, pairs with [V2] and [KV1]: the mapping and its size. */
	atomic_store_explicit(&map->base, segment.base, memory_order_release);
	return 0;
}

/* One request: maps what comes, and says where to ask on. 0 (*ret_next: past the end when all are there) or -errno. */
static int ask_segments_once(struct cnre *client, uint32_t first, int64_t deadline_ns, uint32_t *ret_next)
{
	struct cnre_wire_segments ask = {.first = first};
	struct cnre_wire_segments told;
	struct cnre_answer answer;
	int r = cnre_connection_ask(client, &ask, sizeof ask, CNRE_WIRE_SEGMENTS, CNRE_WIRE_SEGMENTS, sizeof told,
				    deadline_ns, &answer);

	if (r < 0)
		return r;
	memcpy(&told, answer.message, sizeof told);
	r = told.status;
	if (r == 0 && (told.count != answer.fd_count || told.first < first || told.first > CNRE_SEGMENTS_MAX ||
		       told.count > CNRE_SEGMENTS_MAX - told.first))
		r = -EBADMSG;
	for (uint32_t i = 0; i < answer.fd_count && r == 0; i++)
		r = cnre_map_segment(&client->pool[told.first + i], answer.fds[i]);
	cnre_connection_close_fds(&answer);
	if (r < 0)
		return r;
	/* An answer that leads no further ends the round, whatever its total says. */
	*ret_next = told.first + told.count;
	if (*ret_next >= told.total || *ret_next == first)
		*ret_next = CNRE_SEGMENTS_MAX;
	return r;
}

/*
 * -EAGAIN: the manager saw descriptors that we had not read (R27), those of the answer to an earlier sending of a
 * repeated request. They came before this answer, so they have been read by now.
 */
static int ask_segments(struct cnre *client, uint32_t first, int64_t deadline_ns, uint32_t *ret_next)
{
	int r = -EAGAIN;

	for (int i = 0; i < SEGMENTS_TRIES_MAX && r == -EAGAIN; i++)
		r = ask_segments_once(client, first, deadline_ns, ret_next);
	return r == -EAGAIN ? -EBADMSG : r;
}

int cnre_map_pool(struct cnre *client, int64_t deadline_ns)
{
	for (uint32_t next = 0; next < CNRE_SEGMENTS_MAX;) {
		int r = ask_segments(client, next, deadline_ns, &next);

		if (r < 0)
			return r;
	}
	return 0;
}

int cnre_map_pool_segment(struct cnre *client, uint32_t segment, int64_t timeout_ns, const char **ret_base)
{
	int is_short = timeout_ns >= 0 && timeout_ns < CNRE_ANSWER_MIN_NS;
	int64_t deadline_ns = cnre_clock_deadline_ns(is_short ? CNRE_ANSWER_MIN_NS : timeout_ns);
	const char *base;
	uint32_t next;
	int r = cnre_connection_lock(client, deadline_ns);

	if (r < 0)
		return r;
	/* [M2] relaxed: as [M1]. */
	base = atomic_load_explicit(&client->pool[segment].base, memory_order_relaxed);
	if (base == NULL) {
		r = ask_segments(client, segment, deadline_ns, &next);
		/* [M3] relaxed: as [M1]. */
		base = atomic_load_explicit(&client->pool[segment].base, memory_order_relaxed);
	}
	cnre_connection_unlock(client);
	if (r < 0)
		return r;
	if (base == NULL)
		return -EBADMSG; /* a place in a segment that the manager does not have */
	*ret_base = base;
	return 0;
}

void cnre_map_segments_done(struct cnre_pool_map *map, uint32_t count)
{
	for (uint32_t i = 0; map != NULL && i < count; i++) {
		/* [M4] relaxed: no other call runs. */
		const char *base = atomic_load_explicit(&map[i].base, memory_order_relaxed);

		if (base != NULL)
			(void)munmap((void *)base, map[i].bytes);
		/* [M5] relaxed: as [M4]. */
		atomic_store_explicit(&map[i].base, NULL, memory_order_relaxed);
	}
}

void cnre_map_done(struct cnre *client)
{
	cnre_map_segments_done(client->pool, CNRE_SEGMENTS_MAX);
	for (unsigned i = 0; i < CNRE_FD_COUNT; i++)
		if (i != CNRE_FD_PAGE)
			cnre_segment_close(&client->fixed[i]);
}

void cnre_map_page_done(struct cnre *client)
{
	client->page = NULL;
	cnre_segment_close(&client->fixed[CNRE_FD_PAGE]);
}
