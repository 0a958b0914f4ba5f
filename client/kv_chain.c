/* SPDX-License-Identifier: Apache-2.0 */
/* A chain's life: made by a match, extended by stage and commit, unpinned when its blocks were copied, released. */
#include "client/kv.h"

#include <stdlib.h>
#include <string.h>

int cnre_kv_chain_open(struct cnre_kv *kv, size_t item_room, struct cnre_kv_chain **ret_chain)
{
	size_t room = item_room < kv->space->entry_count ? item_room : kv->space->entry_count;
	struct cnre_kv_chain *chain = calloc(1, sizeof *chain + room * sizeof chain->item[0]);

	if (chain == NULL)
		return -ENOMEM;
	(void)pthread_mutex_init(&chain->lock, NULL); /* cannot fail for a default mutex */
	chain->kv = cnre_kv_ref(kv);
	chain->item_room = (uint32_t)room;
	memcpy(chain->tip, kv->root, sizeof chain->tip);
	*ret_chain = chain;
	return 0;
}

void cnre_kv_chain_close(struct cnre_kv_chain *chain)
{
	(void)pthread_mutex_destroy(&chain->lock);
	cnre_kv_unref(chain->kv);
	free(chain);
}

int cnre_kv_chain_check(const struct cnre_kv_chain *chain)
{
	return chain == NULL ? -EINVAL : cnre_client_check(chain->kv->client);
}

void cnre_kv_chain_advance(struct cnre_kv_chain *chain, const unsigned char *key, uint64_t ticket)
{
	memcpy(chain->tip, key, sizeof chain->tip);
	chain->tip_ticket = ticket;
	chain->base += chain->kv->block_tokens;
}

void cnre_kv_chain_unstage(struct cnre_kv_chain *chain)
{
	if (chain->is_staged)
		cnre_kv_unpromise(chain->kv->space, chain->staged.staging_off);
	chain->is_staged = 0;
}

/* ---- whether it can be extended ---- */

static int is_tip_pending_locked(const struct cnre_kv_chain *chain)
{
	const struct cnre_kv_space *space = chain->kv->space;

	for (uint32_t i = 0; i < CNRE_KV_SLOTS && chain->tip_ticket != 0; i++)
		if ((space->in_flight >> i & 1) != 0 && space->sent[i].ticket == chain->tip_ticket)
			return 1;
	return 0;
}

int cnre_kv_chain_check_tip(struct cnre_kv_chain *chain)
{
	struct cnre_kv_space *space = chain->kv->space;
	int is_stale, is_pending;

	(void)pthread_mutex_lock(&space->lock);
	cnre_kv_reap_locked(space);
	is_stale = chain->is_stale != 0;
	is_pending = is_tip_pending_locked(chain);
	(void)pthread_mutex_unlock(&space->lock);
	if (is_stale)
		return -ESTALE;
	if (chain->base == 0 || is_pending || cnre_kv_is_there(space, chain->kv->root, chain->tip))
		return 0;
	return -ESTALE;
}

/* ---- the public end ---- */

static void unpin(struct cnre_kv_chain *chain)
{
	/* [KV12] relaxed: the chain's lock is held; no block of it is being read. */
	if (atomic_exchange_explicit(&chain->is_pinned, 0, memory_order_relaxed) == 0)
		return;
	for (uint32_t i = 0; i < chain->item_count; i++)
		cnre_kv_unpin_item(chain->kv->space, &chain->item[i]);
}

int cnre_kv_unpin(struct cnre_kv_chain *chain)
{
	int r = cnre_kv_chain_check(chain);

	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&chain->lock);
	unpin(chain);
	(void)pthread_mutex_unlock(&chain->lock);
	(void)pthread_mutex_lock(&chain->kv->space->lock);
	cnre_kv_reap_locked(chain->kv->space);
	(void)pthread_mutex_unlock(&chain->kv->space->lock);
	return 0;
}

/* What is on its way is stored all the same; nobody asks how it went. */
static void forget_requests(struct cnre_kv_chain *chain)
{
	struct cnre_kv_space *space = chain->kv->space;

	(void)pthread_mutex_lock(&space->lock);
	cnre_kv_reap_locked(space);
	for (uint32_t i = 0; i < CNRE_KV_SLOTS; i++)
		if (space->sent[i].chain == chain)
			space->sent[i].chain = NULL;
	(void)pthread_mutex_unlock(&space->lock);
}

void cnre_kv_release(struct cnre_kv_chain *chain)
{
	if (chain == NULL)
		return;
	/* In a forked child nothing is mapped, and a lock may be another thread's for ever. */
	if (cnre_kv_chain_check(chain) == 0) {
		unpin(chain);
		cnre_kv_chain_unstage(chain);
		forget_requests(chain);
	}
	cnre_kv_chain_close(chain);
}
