/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of one client: slots, and the order in which the manager takes them. Slots are the truth, the ring is only
 * order and a hint (R13): many threads of the client push slot indices, the manager's core thread pops. There are as
 * many cells as slots and a slot is in the ring at most once, so a push by an honest client never finds it full; what a
 * hostile one writes only disorders its own requests.
 *
 * Ordering map:
 *   [Q1] acquire-release claim FREE -> CLAIMED (client) <- [Q6] release store FREE (manager)   slot may be refilled
 *   [Q2] release store SUBMITTED (client)  -> [Q5] acquire load state (manager)                contents of the slot
 *   [Q3] release store cell (client)       -> [Q4] acquire load cell (manager)                 index after SUBMITTED
 *   [Q15] release add tail (client)        -> [Q24] acquire load tail (manager)                SUBMITTED before the tail
 *   [Q16] release store want_scan (client) -> [Q27] acquire exchange (manager)               leases of the wants
 *   [Q7] seq_cst fence (client)           <-> [B2] seq_cst fence (manager, manager/bell.c)     no lost bell
 */
#ifndef CNRE_SHM_RING_H
#define CNRE_SHM_RING_H

#include "shm/layout.h"

/* What a request says; the manager's copy of a slot, or the client's before it is posted. */
struct cnre_request {
	uint32_t kind;                    /* enum cnre_request_kind */
	uint32_t count;
	uint32_t token_count;
	uint32_t layer;
	uint32_t object[CNRE_SLOT_OBJECTS];
};

/*
 * cnre_ring_post - client: hand one request to the manager
 *
 * Claims a free slot, fills it, submits it and pushes its index. Rings no bell: cnre_ring_bell does, once for many posts.
 * Returns:  0, or -EAGAIN (all CNRE_SLOTS are in flight: set want_scan by cnre_ring_want_scan and ring), -EINVAL (more
 *           objects than a slot holds).
 * Threads:  any number of the client's threads. No lock, no allocation, no system call.
 */
int cnre_ring_post(struct cnre_channel *channel, const struct cnre_request *request);

/* Client: asks the manager to look for unmet leases in the whole ledger (demand that found no slot). */
void cnre_ring_want_scan(struct cnre_channel *channel);

/* Client: after posting. Wakes the manager when it says that it sleeps: one system call then, none otherwise. */
void cnre_ring_bell(struct cnre_channel *channel, const struct cnre_page *page);

/*
 * cnre_ring_take - manager: the next submitted request, copied out and its slot freed
 *
 * @head  the manager's private position, started at 0 (or at ring_tail of a freshly made channel)
 *
 * The copy is unchecked input except that count is at most CNRE_SLOT_OBJECTS. A hole (a thread stopped between its two
 * steps, or a hostile tail) is passed over by looking at the slots themselves, so it delays nobody else.
 * Returns:  1 one request in *ret_request, 0 nothing submitted.
 */
int cnre_ring_take(struct cnre_channel *channel, uint32_t *head, struct cnre_request *ret_request);

/* Manager: whether take would find anything, without taking it. Two loads when nothing was posted, else a look at the slots. */
int cnre_ring_is_pending(struct cnre_channel *channel, uint32_t head);

/* Manager: want_scan, cleared. */
int cnre_ring_take_want_scan(struct cnre_channel *channel);

#endif
