/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnre_kv_block: from a pinned block to its bytes, waiting for the file where it is not in memory (R6-R9). The words are
 * those of experts, and so are the rules: a lease is the demand, a request only a hint, no sleep is longer than a slice.
 */
#include "base/clock.h"
#include "client/access.h"
#include "client/connection.h"
#include "client/kv.h"
#include "client/wait.h"
#include "shm/ledger.h"
#include "shm/word.h"

/* One look: 1 READY, 0 wait, -errno: the read that the chain waited for failed. */
static int judge(const struct cnre_kv_item *item, uint32_t word)
{
	int r;

	switch (cnre_word_state(word)) {
	case CNRE_STATE_READY:
		return 1;
	case CNRE_STATE_EVICTING:
		return 0; /* back as it was when the manager has seen our lease */
	case CNRE_STATE_ABSENT:
	case CNRE_STATE_LOADING:
		break;
	default:
		return -ESTALE;
	}
	if (item->attempt == (CNRE_KV_ATTEMPT_SEEN | cnre_word_generation(word)))
		return 0;
	r = cnre_word_errno(word);
	return r == -ETIMEDOUT ? -EIO : r; /* the drive's time-out; -ETIMEDOUT is the caller's own */
}

struct repost {
	struct cnre_kv_space *space;
	const struct cnre_kv_item *item;
};

static void post_again(void *context)
{
	const struct repost *repost = context;

	(void)cnre_kv_post_loads(repost->space, repost->item, 1); /* no slot now: perhaps in the next slice */
}

/* What found no slot when it was matched. */
static void post_rest(struct cnre_kv_chain *chain)
{
	/* [KV15] relaxed: a hint; posted twice is harmless. */
	if (atomic_exchange_explicit(&chain->is_unposted, 0, memory_order_relaxed) != 0 &&
	    !cnre_kv_post_loads(chain->kv->space, chain->item, chain->item_count))
		/* [KV16] relaxed: as [KV15]. */
		atomic_store_explicit(&chain->is_unposted, 1, memory_order_relaxed);
}

static int wait_until_ready(struct cnre_kv_space *space, const struct cnre_kv_item *item, int64_t deadline_ns)
{
	const struct cnre_entry *entry = &space->entry[item->entry].load;
	struct repost context = {.space = space, .item = item};
	const struct cnre_access_repost repost = {.post = post_again, .context = &context};
	int gone = cnre_connection_is_gone(space->client) ? -EPIPE : 0;
	struct cnre_slice slice;

	cnre_slice_begin(space->client, &slice);
	for (;;) {
		uint32_t word = cnre_ledger_load_state(entry);
		const struct cnre_wait_word wait = {.word = &entry->state, .expected = word};
		int r = judge(item, word);
		int64_t left_ns;

		if (r != 0)
			return r < 0 ? r : 0;
		if (gone < 0)
			return gone;
		left_ns = cnre_clock_left_ns(deadline_ns);
		if (left_ns == 0)
			return cnre_connection_check(space->client) < 0 ? -EPIPE : -ETIMEDOUT;
		(void)cnre_wait_any(&wait, 1, cnre_slice_sleep_ns(&slice, left_ns)); /* looked at again either way */
		/* One more look before it is an error: READY stays usable. */
		gone = cnre_slice_look(space->client, &slice, repost);
	}
}

/* A READY, leased entry's bytes. */
static int resolve(struct cnre_kv_space *space, const struct cnre_kv_item *item, int64_t timeout_ns,
		   const void **ret_data)
{
	/* [KV17] relaxed: written before LOADING or READY, which was seen under the lease (R2). */
	uint64_t place = atomic_load_explicit(&space->entry[item->entry].load.place, memory_order_relaxed);
	uint32_t segment = cnre_place_segment(place);
	uint64_t offset = cnre_place_offset(place);
	const char *base;
	int r;

	if (segment >= CNRE_KV_SEGMENTS_MAX)
		return -EBADMSG;
	r = cnre_kv_map_segment(space, segment, timeout_ns, &base);
	if (r < 0)
		return r;
	if (offset > space->pool[segment].bytes || item->bytes > space->pool[segment].bytes - offset)
		return -EBADMSG;
	*ret_data = base + offset;
	return 0;
}

/* What is left of a time-out, as another. */
static int64_t rest_of(int64_t deadline_ns)
{
	return deadline_ns == CNRE_NEVER ? -1 : cnre_clock_left_ns(deadline_ns);
}

int cnre_kv_block(const struct cnre_kv_chain *chain, size_t index, int64_t timeout_ns, const void **ret_data,
		  uint64_t *ret_bytes)
{
	int64_t deadline_ns = cnre_clock_deadline_ns(timeout_ns);
	const struct cnre_kv_item *item;
	int r = cnre_kv_chain_check(chain);

	if (r < 0)
		return r;
	if (ret_data == NULL || ret_bytes == NULL)
		return -EINVAL;
	if (index >= chain->item_count)
		return 0;
	/* [KV18] relaxed: an unpin beside this call is the caller's error. */
	if (atomic_load_explicit(&chain->is_pinned, memory_order_relaxed) == 0)
		return -ESTALE;
	item = &chain->item[index];
	post_rest((struct cnre_kv_chain *)chain);
	r = wait_until_ready(chain->kv->space, item, deadline_ns);
	if (r == 0)
		r = resolve(chain->kv->space, item, rest_of(deadline_ns), ret_data);
	if (r < 0)
		return r;
	*ret_bytes = item->bytes;
	return (int)item->tokens;
}
