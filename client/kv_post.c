/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots of a namespace's channel as this process counts them. No other process posts there, so a block that is staged has
 * a slot promised to it, and its commit never finds none. Results are read when somebody comes by.
 */
#include "base/crash.h"
#include "client/kv.h"
#include "shm/ledger.h"
#include "shm/ring.h"
#include "shm/word.h"

/* ---- results ---- */

static void settle_locked(struct cnre_kv_space *space, struct cnre_kv_sent *sent, int result)
{
	if (sent->is_publish)
		cnre_kv_staging_give(&space->staging, sent->staging_off);
	if (result < 0 && sent->is_ancestor && sent->chain != NULL)
		sent->chain->is_stale = 1;
	sent->chain = NULL;
}

void cnre_kv_reap_locked(struct cnre_kv_space *space)
{
	int result;

	for (uint32_t i = 0; i < CNRE_KV_SLOTS; i++)
		if ((space->in_flight >> i & 1) != 0 && cnre_kv_channel_reap(space->channel, i, &result)) {
			space->in_flight &= ~(1ull << i);
			settle_locked(space, &space->sent[i], result);
		}
}

/* Slots that nobody has and none is promised. */
static uint32_t count_free_locked(const struct cnre_kv_space *space)
{
	return CNRE_KV_SLOTS - (uint32_t)__builtin_popcountll(space->in_flight) - space->promised;
}

/* -EAGAIN in spite of the count: the slot is another's than ours, which no honest manager lets happen. */
static int post_locked(struct cnre_kv_space *space, struct cnre_kv_request *request, const struct cnre_kv_sent *sent)
{
	int slot;

	request->ticket = ++space->next_ticket;
	slot = cnre_kv_channel_post(space->channel, request);
	if (slot < 0)
		return slot;
	space->in_flight |= 1ull << slot;
	space->sent[slot] = *sent;
	space->sent[slot].ticket = request->ticket;
	return 0;
}

/* ---- loads ---- */

static int post_load(struct cnre_kv_space *space, struct cnre_kv_request *request)
{
	const struct cnre_kv_sent sent = {0};
	int r = -EAGAIN;

	(void)pthread_mutex_lock(&space->lock);
	cnre_kv_reap_locked(space);
	if (count_free_locked(space) > 0)
		r = post_locked(space, request, &sent);
	(void)pthread_mutex_unlock(&space->lock);
	request->count = 0;
	return r == 0;
}

int cnre_kv_post_loads(struct cnre_kv_space *space, const struct cnre_kv_item *items, uint32_t count)
{
	struct cnre_kv_request request = {.kind = CNRE_KV_LOAD};
	int all = 1, some = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t word = cnre_ledger_load_state(&space->entry[items[i].entry].load);

		if (cnre_word_state(word) != CNRE_STATE_ABSENT)
			continue;
		request.token[request.count++] = (int32_t)items[i].entry;
		if (request.count == CNRE_KV_TOKENS_MAX)
			all &= post_load(space, &request);
		some = 1;
	}
	if (request.count > 0)
		all &= post_load(space, &request);
	if (some)
		cnre_ring_bell(space->client->channel, space->client->page);
	return all;
}

/* ---- blocks ---- */

int cnre_kv_promise(struct cnre_kv_space *space, uint64_t bytes, uint64_t *ret_off)
{
	int r = -EAGAIN;

	(void)pthread_mutex_lock(&space->lock);
	cnre_kv_reap_locked(space);
	if (count_free_locked(space) > 0)
		r = cnre_kv_staging_take(&space->staging, bytes, ret_off);
	if (r == 0)
		space->promised++;
	(void)pthread_mutex_unlock(&space->lock);
	return r;
}

void cnre_kv_unpromise(struct cnre_kv_space *space, uint64_t off)
{
	(void)pthread_mutex_lock(&space->lock);
	cnre_kv_staging_give(&space->staging, off);
	space->promised--;
	(void)pthread_mutex_unlock(&space->lock);
}

int cnre_kv_post_publish(struct cnre_kv_chain *chain, uint64_t *ret_ticket)
{
	struct cnre_kv_space *space = chain->kv->space;
	const struct cnre_kv_sent sent = {
		.chain = chain,
		.staging_off = chain->staged.staging_off,
		.is_publish = 1,
		.is_ancestor = chain->staged.count == chain->kv->block_tokens,
	};
	int r;

	(void)pthread_mutex_lock(&space->lock);
	r = post_locked(space, &chain->staged, &sent);
	if (r == 0)
		space->promised--;
	(void)pthread_mutex_unlock(&space->lock);
	if (r < 0)
		return r;
	*ret_ticket = chain->staged.ticket;
	CNRE_CRASH_POINT("kv-post-silent");
	cnre_ring_bell(space->client->channel, space->client->page);
	return 0;
}
