/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clients say that they used: words of their logs. Input, so every entry is checked; a lie moves values within the
 * liar's own namespace only.
 */
#include "manager/kv_inner.h"

#include "base/clock.h"

void kv_uses_hold(struct kv_session *client, uint32_t index)
{
	/* [U1] relaxed: a hint for cnre_kv_route, which asks holder[] whether that client is still there. */
	atomic_store_explicit(&client->space->entry[index].holder, (uint64_t)client->number << 32 | client->place,
			      memory_order_relaxed);
}

static void count_use(struct kv_session *client, uint32_t index, uint32_t tokens)
{
	struct kv_namespace *space = client->space;
	const struct cnre_kv_entry *entry = &space->entry[index];
	struct kv_note *note = &space->note[index];
	uint64_t avoided_ns;

	if (tokens > entry->token_count)
		tokens = entry->token_count;
	avoided_ns = entry->compute_ns / entry->token_count * tokens;
	kv_use_add(&note->use, 1, cnre_clock_now_ns());
	note->uses++;
	note->used_tokens += tokens;
	space->tally.matches += entry->position == 0;
	space->tally.hit_tokens += tokens;
	space->tally.avoided_ns += avoided_ns;
	cnre_counter_add(&space->store->manager->counters->kv_hit_tokens, tokens);
	cnre_counter_add(&space->store->manager->counters->kv_avoided_ns, avoided_ns);
	kv_uses_hold(client, index);
}

uint32_t kv_uses_follow(struct kv_session *client, uint32_t words)
{
	const struct kv_namespace *space = client->space;
	uint64_t entry;
	uint32_t count = 0;

	while (count < words && cnre_access_log_next(cnre_kv_log(client->channel), &client->log, &entry)) {
		uint32_t index = cnre_log_value(entry);

		count++;
		if (cnre_log_kind_of(entry) == CNRE_LOG_KV_USE && index < space->entry_count &&
		    kv_is_indexed(&space->entry[index]))
			count_use(client, index, cnre_log_argument(entry));
	}
	return count;
}
