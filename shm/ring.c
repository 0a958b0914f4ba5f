/* SPDX-License-Identifier: Apache-2.0 */
/* Request slots and their ring; the ordering map is in ring.h. */
#include "shm/ring.h"

#include "base/crash.h"
#include "shm/futex.h"

#include <errno.h>

/* A cell as layout.h describes it. The mark makes sure that a cell that was never written names no slot in any lap. */
static uint32_t cell_of(uint32_t position, uint32_t slot)
{
	return (position / CNRE_SLOTS + 1) << 8 | CNRE_RING_MARK | slot;
}

static int claim_slot(struct cnre_channel *channel, uint32_t *ret_slot)
{
	/* [Q8] relaxed: only where to begin the search. */
	uint32_t start = atomic_load_explicit(&channel->ring_tail, memory_order_relaxed);

	for (uint32_t i = 0; i < CNRE_SLOTS; i++) {
		uint32_t slot = (start + i) % CNRE_SLOTS;
		uint32_t free_state = CNRE_SLOT_FREE;

		/* [Q9] relaxed: a cheap look before the exchange. */
		if (atomic_load_explicit(&channel->slot[slot].state, memory_order_relaxed) != CNRE_SLOT_FREE)
			continue;
		/* [Q1] acq_rel, pairs with [Q6]: the manager has copied the old contents. */
		if (atomic_compare_exchange_strong_explicit(&channel->slot[slot].state, &free_state, CNRE_SLOT_CLAIMED,
							    memory_order_acq_rel, memory_order_relaxed)) {
			*ret_slot = slot;
			return 0;
		}
	}
	return -EAGAIN;
}

/* Crash note: killed after the claim or before SUBMITTED: the slot is lost to a client that is dead anyway; its channel
 * ends with it. Killed between SUBMITTED and the push: take() finds the slot by looking at the slots. */
int cnre_ring_post(struct cnre_channel *channel, const struct cnre_request *request)
{
	uint32_t index, position;
	struct cnre_slot *slot;
	int r;

	if (request->count > CNRE_SLOT_OBJECTS)
		return -EINVAL;
	r = claim_slot(channel, &index);
	if (r < 0)
		return r;
	CNRE_CRASH_POINT("post-claimed");
	slot = &channel->slot[index];
	/* [Q10] relaxed: the contents are carried by [Q2]. */
	atomic_store_explicit(&slot->kind, request->kind, memory_order_relaxed);
	/* [Q11] relaxed: as [Q10]. */
	atomic_store_explicit(&slot->count, request->count, memory_order_relaxed);
	/* [Q12] relaxed: as [Q10]. */
	atomic_store_explicit(&slot->token_count, request->token_count, memory_order_relaxed);
	/* [Q13] relaxed: as [Q10]. */
	atomic_store_explicit(&slot->layer, request->layer, memory_order_relaxed);
	for (uint32_t i = 0; i < request->count; i++)
		/* [Q14] relaxed: as [Q10]. */
		atomic_store_explicit(&slot->object[i], request->object[i], memory_order_relaxed);
	CNRE_CRASH_POINT("post-filled");
	/* [Q2] release, pairs with [Q5]: contents before the state. */
	atomic_store_explicit(&slot->state, CNRE_SLOT_SUBMITTED, memory_order_release);
	CNRE_CRASH_POINT("post-submitted");
	/* [Q15] release, pairs with [Q24]: who sees the tail beyond this position sees the slot SUBMITTED. */
	position = atomic_fetch_add_explicit(&channel->ring_tail, 1, memory_order_release);
	CNRE_CRASH_POINT("post-ticket");
	/* [Q3] release, pairs with [Q4]: the slot is SUBMITTED before its index is seen. */
	atomic_store_explicit(&channel->ring[position % CNRE_SLOTS], cell_of(position, index), memory_order_release);
	CNRE_CRASH_POINT("post-pushed");
	return 0;
}

void cnre_ring_want_scan(struct cnre_channel *channel)
{
	/* [Q16] release, pairs with [Q27]: the leases that the scan shall find are up. */
	atomic_store_explicit(&channel->want_scan, 1, memory_order_release);
}

void cnre_ring_bell(struct cnre_channel *channel, const struct cnre_page *page)
{
	/* [Q7] seq_cst fence, pairs with [B2]: either the manager's look after awake = 0 sees the post, or we see awake = 0. */
	atomic_thread_fence(memory_order_seq_cst);
	/* [Q17] relaxed: ordered by [Q7]; a stale 0 costs one needless wake. */
	if (atomic_load_explicit(&page->awake, memory_order_relaxed) != 0)
		return;
	/* [Q18] relaxed: the kernel compares the bell under its own lock. */
	(void)atomic_fetch_add_explicit(&channel->bell, 1, memory_order_relaxed);
	(void)cnre_futex_wake_all(&channel->bell); /* nobody asleep is as good as a wake */
}

/* Copies a SUBMITTED slot out and frees it; 0 if it was not submitted (a hostile cell, or already taken). */
static int take_slot(struct cnre_channel *channel, uint32_t index, struct cnre_request *ret_request)
{
	struct cnre_slot *slot = &channel->slot[index];

	/* [Q5] acquire, pairs with [Q2]: contents of the slot. */
	if (atomic_load_explicit(&slot->state, memory_order_acquire) != CNRE_SLOT_SUBMITTED)
		return 0;
	/* [Q19] relaxed: input, loaded once into the copy and checked there. */
	ret_request->kind = atomic_load_explicit(&slot->kind, memory_order_relaxed);
	/* [Q20] relaxed: as [Q19]. */
	ret_request->count = atomic_load_explicit(&slot->count, memory_order_relaxed);
	/* [Q21] relaxed: as [Q19]. */
	ret_request->token_count = atomic_load_explicit(&slot->token_count, memory_order_relaxed);
	/* [Q22] relaxed: as [Q19]. */
	ret_request->layer = atomic_load_explicit(&slot->layer, memory_order_relaxed);
	if (ret_request->count > CNRE_SLOT_OBJECTS)
		ret_request->count = CNRE_SLOT_OBJECTS;
	for (uint32_t i = 0; i < ret_request->count; i++)
		/* [Q23] relaxed: as [Q19]. */
		ret_request->object[i] = atomic_load_explicit(&slot->object[i], memory_order_relaxed);
	CNRE_CRASH_POINT("take-copied");
	/* [Q6] release, pairs with [Q1]: our copy is made before the client refills the slot. */
	atomic_store_explicit(&slot->state, CNRE_SLOT_FREE, memory_order_release);
	CNRE_CRASH_POINT("take-freed");
	return 1;
}

static int take_any(struct cnre_channel *channel, struct cnre_request *ret_request)
{
	for (uint32_t i = 0; i < CNRE_SLOTS; i++)
		if (take_slot(channel, i, ret_request))
			return 1;
	return 0;
}

/* Takes in order as far as the cells tell it; stops at a cell that is not written yet. */
static int take_in_order(struct cnre_channel *channel, uint32_t *head, uint32_t tail, struct cnre_request *ret_request)
{
	while (*head != tail) {
		/* [Q4] acquire, pairs with [Q3]: the slot named here is SUBMITTED, or was taken already. */
		uint32_t cell = atomic_load_explicit(&channel->ring[*head % CNRE_SLOTS], memory_order_acquire);
		uint32_t slot = cell % CNRE_SLOTS;

		if (cell != cell_of(*head, slot))
			return 0;
		(*head)++;
		if (take_slot(channel, slot, ret_request))
			return 1;
	}
	return 0;
}

/*
 * Bounded by one ring of cells and one round of slots, whatever the client writes. After a hole (or a tail that is
 * further away than there are slots) the slots decide. Only when none of them is left does head move up to the tail:
 * every slot pushed before that tail was SUBMITTED before we looked, so none of them can be passed over and leak.
 */
int cnre_ring_take(struct cnre_channel *channel, uint32_t *head, struct cnre_request *ret_request)
{
	/* [Q24] acquire, pairs with [Q15]: input, how far the client says it went; the slots pushed before are SUBMITTED. */
	uint32_t tail = atomic_load_explicit(&channel->ring_tail, memory_order_acquire);

	if (tail - *head <= CNRE_SLOTS && take_in_order(channel, head, tail, ret_request))
		return 1;
	if (*head == tail)
		return 0;
	if (take_any(channel, ret_request))
		return 1;
	*head = tail;
	return 0;
}

int cnre_ring_is_pending(struct cnre_channel *channel, uint32_t head)
{
	/* [Q25] relaxed: after the fence of the caller ([B2]) it sees every post whose client saw awake = 1. */
	uint32_t tail = atomic_load_explicit(&channel->ring_tail, memory_order_relaxed);

	/* [Q26] relaxed: as [Q25]. */
	if (atomic_load_explicit(&channel->want_scan, memory_order_relaxed) != 0)
		return 1;
	if (tail == head)
		return 0;
	/* A tail that moved is not enough: a client that only moves it would keep the manager awake for ever. */
	for (uint32_t i = 0; i < CNRE_SLOTS; i++)
		/* [Q28] relaxed: as [Q25]. */
		if (atomic_load_explicit(&channel->slot[i].state, memory_order_relaxed) == CNRE_SLOT_SUBMITTED)
			return 1;
	return 0;
}

int cnre_ring_take_want_scan(struct cnre_channel *channel)
{
	/* [Q27] acquire, pairs with [Q16]: without it the flag could be cleared by a scan that still misses the lease. */
	return atomic_exchange_explicit(&channel->want_scan, 0, memory_order_acquire) != 0;
}
