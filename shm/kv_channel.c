/* SPDX-License-Identifier: Apache-2.0 */
/* Request slots of a namespace; the ordering map is in kv_channel.h. */
#include "shm/kv_channel.h"

#include "base/crash.h"
#include "shm/futex.h"

#include <errno.h>
#include <string.h>

/* ---- client ---- */

/* Begins at the ticket, so that threads of a client do not all try the first one. */
static int claim_slot(struct cnre_kv_channel *channel, uint64_t ticket)
{
	for (uint32_t i = 0; i < CNRE_KV_SLOTS; i++) {
		uint32_t slot = (uint32_t)((ticket + i) % CNRE_KV_SLOTS);
		uint32_t free_state = CNRE_KV_SLOT_FREE;

		/* [P8] relaxed: a cheap look before the exchange. */
		if (atomic_load_explicit(&channel->slot[slot].state, memory_order_relaxed) != CNRE_KV_SLOT_FREE)
			continue;
		/* [P1] acq_rel, pairs with [P9]: the result of the request before was read. */
		if (atomic_compare_exchange_strong_explicit(&channel->slot[slot].state, &free_state,
							    CNRE_KV_SLOT_CLAIMED, memory_order_acq_rel,
							    memory_order_relaxed))
			return (int)slot;
	}
	return -EAGAIN;
}

/*
 * Crash note: killed after the claim: the slot is lost to a client that is dead anyway. Killed before the bit is set: the
 * request waits until the channel ends or a restarted manager looks at every slot; nobody misses it.
 */
int cnre_kv_channel_post(struct cnre_kv_channel *channel, const struct cnre_kv_request *request)
{
	uint64_t words[CNRE_KV_REQUEST_WORDS];
	int index = claim_slot(channel, request->ticket);
	struct cnre_kv_slot *slot;

	if (index < 0)
		return index;
	CNRE_CRASH_POINT("kv-post-claimed");
	slot = &channel->slot[index];
	memcpy(words, request, sizeof words);
	for (uint32_t i = 0; i < CNRE_KV_REQUEST_WORDS; i++)
		/* [P10] relaxed: carried by [P2]. */
		atomic_store_explicit(&slot->word[i], words[i], memory_order_relaxed);
	CNRE_CRASH_POINT("kv-post-filled");
	/* [P2] release, pairs with [P5]: the request and the staged bytes. */
	atomic_store_explicit(&slot->state, CNRE_KV_SLOT_SUBMITTED, memory_order_release);
	CNRE_CRASH_POINT("kv-post-submitted");
	/* [P3] release, pairs with [P4]: who takes the bit sees the slot SUBMITTED. */
	(void)atomic_fetch_or_explicit(&channel->submitted, 1ull << index, memory_order_release);
	return index;
}

int cnre_kv_channel_reap(struct cnre_kv_channel *channel, uint32_t slot, int *ret_result)
{
	struct cnre_kv_slot *reaped = &channel->slot[slot];

	/* [P7] acquire, pairs with [P6]: the result and what the request did; its staging range is not read any more. */
	if (atomic_load_explicit(&reaped->state, memory_order_acquire) != CNRE_KV_SLOT_DONE)
		return 0;
	/* [P11] relaxed: carried by [P7]. */
	*ret_result = atomic_load_explicit(&reaped->result, memory_order_relaxed);
	/* [P9] release, pairs with [P1]: the result was read. */
	atomic_store_explicit(&reaped->state, CNRE_KV_SLOT_FREE, memory_order_release);
	return 1;
}

/* ---- manager: every word here is the client's to write ---- */

uint64_t cnre_kv_channel_submitted(struct cnre_kv_channel *channel)
{
	/* [P12] relaxed: most looks find nothing and shall not take the line away; a bit that is missed now is seen next. */
	if (atomic_load_explicit(&channel->submitted, memory_order_relaxed) == 0)
		return 0;
	/* [P4] acquire, pairs with [P3]: each slot of these bits is SUBMITTED, or was taken already. */
	return atomic_exchange_explicit(&channel->submitted, 0, memory_order_acquire);
}

/* Bits alone are not enough: a client that only sets them would keep the manager awake for ever. */
int cnre_kv_channel_is_pending(struct cnre_kv_channel *channel)
{
	/* [P13] relaxed: after the fence of the caller it sees every post whose client saw awake = 1; so below. */
	uint64_t bits = atomic_load_explicit(&channel->submitted, memory_order_relaxed);

	for (uint32_t i = 0; i < CNRE_KV_SLOTS && bits != 0; i++, bits >>= 1)
		/* [P14] relaxed: as [P13]. */
		if ((bits & 1) != 0 &&
		    atomic_load_explicit(&channel->slot[i].state, memory_order_relaxed) == CNRE_KV_SLOT_SUBMITTED)
			return 1;
	return 0;
}

int cnre_kv_channel_take(struct cnre_kv_channel *channel, uint32_t slot, struct cnre_kv_request *ret_request)
{
	uint64_t words[CNRE_KV_REQUEST_WORDS];
	struct cnre_kv_slot *taken = &channel->slot[slot % CNRE_KV_SLOTS];

	/* [P5] acquire, pairs with [P2]: the request and the staged bytes. */
	if (atomic_load_explicit(&taken->state, memory_order_acquire) != CNRE_KV_SLOT_SUBMITTED)
		return 0;
	for (uint32_t i = 0; i < CNRE_KV_REQUEST_WORDS; i++)
		/* [P15] relaxed: input, loaded once into the copy and checked there. */
		words[i] = atomic_load_explicit(&taken->word[i], memory_order_relaxed);
	memcpy(ret_request, words, sizeof words);
	return 1;
}

/* Crash note: killed before DONE: the successor finds the slot SUBMITTED and does it again, which is harmless (R13). */
void cnre_kv_channel_finish(struct cnre_kv_channel *channel, uint32_t slot, int result)
{
	struct cnre_kv_slot *finished = &channel->slot[slot % CNRE_KV_SLOTS];

	/* [P16] relaxed: carried by [P6]. */
	atomic_store_explicit(&finished->result, result, memory_order_relaxed);
	/* [P6] release, pairs with [P7]: result and effect; the staged bytes were read. */
	atomic_store_explicit(&finished->state, CNRE_KV_SLOT_DONE, memory_order_release);
	(void)cnre_futex_wake_all(&finished->state); /* nobody asleep is as good as a wake */
}
