/* SPDX-License-Identifier: Apache-2.0 */
/* cnre_kv_commit: hands the staged block over. From here on its staging range is the manager's (R25). */
#include "client/connection.h"
#include "client/kv.h"

/* Chain's lock held. */
static int hand_over(struct cnre_kv_chain *chain)
{
	uint64_t ticket;
	int r = cnre_kv_chain_check_tip(chain);

	if (r == 0)
		r = cnre_connection_check(chain->kv->client);
	if (r == 0)
		r = cnre_kv_post_publish(chain, &ticket);
	if (r < 0) {
		cnre_kv_chain_unstage(chain);
		return r;
	}
	chain->is_staged = 0;
	if (chain->staged.count == chain->kv->block_tokens)
		cnre_kv_chain_advance(chain, chain->staged_key, ticket);
	return 0;
}

int cnre_kv_commit(struct cnre_kv_chain *chain, uint64_t compute_ns, uint32_t flags)
{
	int r = cnre_kv_chain_check(chain);

	if (r < 0)
		return r;
	if ((flags & ~(uint32_t)CNRE_KV_POINT) != 0)
		return -EINVAL;
	(void)pthread_mutex_lock(&chain->lock);
	if (chain->is_staged) {
		chain->staged.compute_ns = compute_ns;
		chain->staged.flags = ((flags & CNRE_KV_POINT) != 0 ? CNRE_KV_ENTRY_POINT : 0) |
				      ((chain->kv->flags & CNRE_KV_CHECKPOINTS) != 0 ? CNRE_KV_ENTRY_CHECKPOINTS : 0);
		r = hand_over(chain);
	} else {
		r = -EINVAL;
	}
	(void)pthread_mutex_unlock(&chain->lock);
	return r;
}
