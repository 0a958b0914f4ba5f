/* SPDX-License-Identifier: Apache-2.0 */
/* cnre_prefetch and cnre_resident: no lease, no wait. */
#include "client/prefetch.h"

#include "client/access.h"
#include "client/connection.h"
#include "client/vram.h"
#include "shm/word.h"

static int check_selection(const struct cnre *client, uint32_t layer, const uint32_t *experts, uint32_t count)
{
	uint32_t object;
	int r = cnre_client_check(client);

	if (r < 0)
		return r;
	if ((experts == NULL && count > 0) || count > CNRE_BATCH_EXPERTS_MAX)
		return -EINVAL;
	if (layer >= client->layer_count)
		return -ENOENT;
	for (uint32_t i = 0; i < count && r == 0; i++)
		r = cnre_client_find(client, layer, experts[i], &object);
	return r;
}

static enum cnre_state state_of(const struct cnre *client, uint32_t object)
{
	/* [P1] relaxed: a look without a lease; it may be otherwise by the time the caller sees it. */
	return cnre_word_state(atomic_load_explicit(&client->entry[object].state, memory_order_relaxed));
}

static uint32_t accesses_of(const struct cnre *client, uint32_t object)
{
	/* [P2] relaxed: a count. */
	return CNRE_LEDGER_ACCESSES(atomic_load_explicit(&client->ledger[object], memory_order_relaxed));
}

/* A mark whose object was asked for since then was a useful prefetch. */
static uint32_t was_used(const struct cnre *client, uint32_t object, uint64_t mark)
{
	return mark != 0 && (uint32_t)mark != accesses_of(client, object);
}

void cnre_prefetch_mark(struct cnre *client, uint32_t object)
{
	uint64_t mark = CNRE_PREFETCH_MARK | accesses_of(client, object);
	/* [P3] relaxed: statistics. */
	uint64_t before = atomic_exchange_explicit(&client->prefetch[object], mark, memory_order_relaxed);

	cnre_tally_add(&client->tally.prefetched, 1);
	cnre_tally_add(&client->tally.prefetch_hits, was_used(client, object, before));
}

uint32_t cnre_prefetch_is_used(const struct cnre *client, uint32_t object)
{
	/* [P4] relaxed: as [P3]. */
	return was_used(client, object, atomic_load_explicit(&client->prefetch[object], memory_order_relaxed));
}

int cnre_prefetch(struct cnre *client, uint32_t layer, const uint32_t *experts, uint32_t count)
{
	struct cnre_post post;
	int r = check_selection(client, layer, experts, count);

	if (r < 0)
		return r;
	if (cnre_connection_is_gone(client))
		return -EPIPE;
	cnre_post_begin(&post, client, CNRE_REQUEST_PREFETCH, layer, 1);
	post.marks = 1;
	for (uint32_t i = 0; i < count && !post.full; i++) {
		uint32_t object = client->layer[layer].first_object + experts[i];

		if (state_of(client, object) == CNRE_STATE_ABSENT)
			cnre_post_add(&post, object);
	}
	return (int)cnre_post_end(&post);
}

int cnre_resident(struct cnre *client, uint32_t layer, const uint32_t *experts, uint32_t count, uint8_t *ret_tiers)
{
	static const uint8_t tiers[] = {
		[CNRE_STATE_ABSENT] = CNRE_ABSENT,
		[CNRE_STATE_LOADING] = CNRE_LOADING,
		[CNRE_STATE_READY] = CNRE_RAM,
		[CNRE_STATE_EVICTING] = CNRE_ABSENT, /* about to be */
	};
	int r = check_selection(client, layer, experts, count);

	if (r < 0)
		return r;
	if (ret_tiers == NULL && count > 0)
		return -EINVAL;
	for (uint32_t i = 0; i < count; i++) {
		enum cnre_state state = state_of(client, client->layer[layer].first_object + experts[i]);

		ret_tiers[i] = state < sizeof tiers ? tiers[state] : CNRE_ABSENT;
	}
	cnre_vram_find_tiers(client, layer, experts, count, ret_tiers);
	return 0;
}
