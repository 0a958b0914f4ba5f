/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of one client to one namespace: slots, as in shm/ring.h, but a slot stays the manager's until the effect is in
 * shared memory, and its result comes back in it. The bell is that of the client's own channel.
 *
 * Ordering map:
 *   [P1] acq_rel claim FREE -> CLAIMED (client)
 *   [P2] release store SUBMITTED (client) -> [P5] acquire load state (manager)    request and staged bytes
 *   [P3] release or of the bit (client)   -> [P4] acquire exchange (manager)      SUBMITTED before its bit
 *   [P6] release store DONE (manager)     -> [P7] acquire load state (client)     result, effect; staging is free
 */
#ifndef CNRE_SHM_KV_CHANNEL_H
#define CNRE_SHM_KV_CHANNEL_H

#include "shm/kv.h"

/* Client: claims a slot, fills it, submits it. Slot number, or -EAGAIN: none is free. No bell, no lock, no system call. */
int cnre_kv_channel_post(struct cnre_kv_channel *channel, const struct cnre_kv_request *request);
/* Client: 1 and the result if the slot is DONE; it is FREE then. 0: not yet. */
int cnre_kv_channel_reap(struct cnre_kv_channel *channel, uint32_t slot, int *ret_result);

/* Manager: slots that were submitted since the last look; a bit each. Input: any bits. */
uint64_t cnre_kv_channel_submitted(struct cnre_kv_channel *channel);
int cnre_kv_channel_is_pending(struct cnre_kv_channel *channel);
/* Manager: copies a request out if its slot is SUBMITTED. 1, or 0: it is not. The copy is unchecked input. */
int cnre_kv_channel_take(struct cnre_kv_channel *channel, uint32_t slot, struct cnre_kv_request *ret_request);
/* Manager: the effect is there. Wakes who sleeps on the slot's word. */
void cnre_kv_channel_finish(struct cnre_kv_channel *channel, uint32_t slot, int result);

#endif
