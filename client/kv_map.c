/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mappings of a namespace. The manager is trusted with what it writes, but sizes that do not fit each other would be
 * a crash in the engine: they are checked here once, and the index walks within them.
 */
#include "client/kv.h"

#include "base/clock.h"
#include "client/map.h"

#include <string.h>
#include <sys/mman.h>

#define SEGMENTS_TRIES_MAX 8 /* as in map.c */

/* ---- what comes with KV_OPENED ---- */

static int check_directory(const struct cnre_kv_space *space)
{
	const struct cnre_segment *segment = &space->fixed[CNRE_KV_FD_DIRECTORY];
	const struct cnre_kv_directory *directory = segment->base;
	uint32_t buckets = directory->bucket_count;

	if (directory->number != space->number || directory->entry_count == 0 ||
	    directory->entry_count > CNRE_KV_ENTRIES_MAX || buckets == 0 || (buckets & (buckets - 1)) != 0 ||
	    segment->bytes < CNRE_KV_DIRECTORY_BYTES(directory->entry_count, buckets))
		return -EBADMSG;
	return 0;
}

static int check_channel(const struct cnre_kv_space *space)
{
	const struct cnre_kv_channel *channel = space->fixed[CNRE_KV_FD_CHANNEL].base;
	const struct cnre_kv_directory *directory = space->fixed[CNRE_KV_FD_DIRECTORY].base;

	if (channel->number != space->number || channel->entry_count != directory->entry_count ||
	    space->fixed[CNRE_KV_FD_CHANNEL].bytes < CNRE_KV_CHANNEL_BYTES(directory->entry_count) ||
	    channel->staging_bytes > space->fixed[CNRE_KV_FD_STAGING].bytes)
		return -EBADMSG;
	return 0;
}

static void use_segments(struct cnre_kv_space *space)
{
	space->directory = space->fixed[CNRE_KV_FD_DIRECTORY].base;
	space->entry = cnre_kv_entries(space->directory);
	space->entry_count = space->directory->entry_count;
	space->channel = space->fixed[CNRE_KV_FD_CHANNEL].base;
	space->ledger = cnre_kv_ledger(space->channel);
	space->log = cnre_kv_log(space->channel);
	space->staging.bytes = space->channel->staging_bytes;
}

int cnre_kv_map_fixed(struct cnre_kv_space *space, const int *fds)
{
	static const struct {
		enum cnre_segment_kind kind;
		int writable;
		uint64_t min_bytes;
	} wanted[CNRE_KV_FD_COUNT] = {
		[CNRE_KV_FD_DIRECTORY] = {CNRE_SEGMENT_KV_DIRECTORY, 0, sizeof(struct cnre_kv_directory)},
		[CNRE_KV_FD_CHANNEL] = {CNRE_SEGMENT_KV_CHANNEL, 1, sizeof(struct cnre_kv_channel)},
		[CNRE_KV_FD_STAGING] = {0, 1, CNRE_PAGE_BYTES},
	};
	int r = 0;

	for (unsigned i = 0; i < CNRE_KV_FD_COUNT && r == 0; i++)
		r = cnre_segment_map(&space->fixed[i], fds[i], wanted[i].kind, wanted[i].min_bytes, wanted[i].writable);
	if (r == 0)
		r = check_directory(space);
	if (r == 0)
		r = check_channel(space);
	if (r < 0)
		cnre_kv_map_done(space);
	else
		use_segments(space);
	return r;
}

void cnre_kv_map_done(struct cnre_kv_space *space)
{
	cnre_map_segments_done(space->pool, CNRE_KV_SEGMENTS_MAX);
	for (unsigned i = 0; i < CNRE_KV_FD_COUNT; i++)
		cnre_segment_close(&space->fixed[i]);
}

/* ---- the pool ---- */

/* Maps what one answer brings; the segment that was asked for is its first. */
static int ask_once(struct cnre_kv_space *space, uint32_t first, int64_t deadline_ns)
{
	struct cnre_wire_kv_segments ask = {.number = space->number, .first = first};
	struct cnre_wire_kv_segments told;
	struct cnre_answer answer;
	int r = cnre_connection_ask(space->client, &ask, sizeof ask, CNRE_WIRE_KV_SEGMENTS, CNRE_WIRE_KV_SEGMENTS,
				    sizeof told, deadline_ns, &answer);

	if (r < 0)
		return r;
	memcpy(&told, answer.message, sizeof told);
	r = told.status > 0 ? -EBADMSG : told.status;
	if (r == 0 && (told.number != space->number || told.count != answer.fd_count || told.first < first ||
		       told.first > CNRE_KV_SEGMENTS_MAX || told.count > CNRE_KV_SEGMENTS_MAX - told.first))
		r = -EBADMSG;
	for (uint32_t i = 0; i < answer.fd_count && r == 0; i++)
		r = cnre_map_segment(&space->pool[told.first + i], answer.fds[i]);
	cnre_connection_close_fds(&answer);
	return r;
}

/* -EAGAIN: descriptors of an earlier answer were unread (R27); they have been read by now. */
static int ask_segments(struct cnre_kv_space *space, uint32_t first, int64_t deadline_ns)
{
	int r = -EAGAIN;

	for (int i = 0; i < SEGMENTS_TRIES_MAX && r == -EAGAIN; i++)
		r = ask_once(space, first, deadline_ns);
	return r == -EAGAIN ? -EBADMSG : r;
}

int cnre_kv_map_segment(struct cnre_kv_space *space, uint32_t segment, int64_t timeout_ns, const char **ret_base)
{
	int is_short = timeout_ns >= 0 && timeout_ns < CNRE_ANSWER_MIN_NS;
	int64_t deadline_ns = cnre_clock_deadline_ns(is_short ? CNRE_ANSWER_MIN_NS : timeout_ns);
	const char *base;
	int r = 0;

	/* [KV1] acquire, pairs with [V3] in client/map.c: its size and its mapping. */
	base = atomic_load_explicit(&space->pool[segment].base, memory_order_acquire);
	if (base == NULL) {
		r = cnre_connection_lock(space->client, deadline_ns);
		if (r < 0)
			return r;
		r = ask_segments(space, segment, deadline_ns);
		/* [KV7] relaxed: written under the connection's lock, which this thread holds. */
		base = atomic_load_explicit(&space->pool[segment].base, memory_order_relaxed);
		cnre_connection_unlock(space->client);
	}
	if (r < 0)
		return r;
	if (base == NULL)
		return -EBADMSG; /* a place in a segment that the manager does not have */
	*ret_base = base;
	return 0;
}
