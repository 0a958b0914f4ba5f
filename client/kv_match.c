/* SPDX-License-Identifier: Apache-2.0 */
/* cnre_kv_match: the longest run, leased, with everything of it that is still in files asked for. */
#include "base/clock.h"
#include "base/probe.h"
#include "client/kv.h"
#include "shm/access_log.h"

static void log_uses(struct cnre_kv_space *space, const struct cnre_kv_chain *chain)
{
	/* [KV13] relaxed: a ticket. */
	uint64_t position = atomic_fetch_add_explicit(&space->log_position, chain->item_count, memory_order_relaxed);

	for (uint32_t i = 0; i < chain->item_count; i++)
		cnre_access_log_put(space->log, position + i, CNRE_LOG_KV_USE, chain->item[i].tokens,
				    chain->item[i].entry);
}

int cnre_kv_match(struct cnre_kv *kv, const int32_t *tokens, size_t count, const struct cnre_kv_media *media,
		  size_t media_count, struct cnre_kv_chain **ret_chain)
{
	const struct cnre_kv_query query = {
		.kv = kv,
		.tokens = tokens,
		.count = count,
		.media = (const struct kv_media *)media,
		.media_count = media_count,
	};
	int64_t begun_ns = CNRE_PROBE_ATTACHED(kv_match) ? cnre_clock_now_ns() : 0;
	struct cnre_kv_chain *chain;
	int covered = cnre_kv_query_check(&query);

	if (covered == 0 && ret_chain == NULL)
		covered = -EINVAL;
	if (covered < 0)
		return covered;
	covered = cnre_kv_run(&query, &chain);
	if (covered < 0)
		return covered;
	log_uses(kv->space, chain);
	if (!cnre_kv_post_loads(kv->space, chain->item, chain->item_count))
		/* [KV14] relaxed: nobody else knows the chain yet. */
		atomic_store_explicit(&chain->is_unposted, 1, memory_order_relaxed);
	*ret_chain = chain;
	if (begun_ns != 0)
		CNRE_PROBE(kv_match, kv->client->session, (uint32_t)count, (uint32_t)covered,
			   (uint64_t)(cnre_clock_now_ns() - begun_ns));
	return covered;
}
