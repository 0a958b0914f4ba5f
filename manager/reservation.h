/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much a client may hold at once (R15), counted in slabs of the largest class so that any object fits any slab:
 * sum(reservations) + loads in flight + quarantined slabs <= windows of the pool. With that, a demand always finds room.
 */
#ifndef CNRE_MANAGER_RESERVATION_H
#define CNRE_MANAGER_RESERVATION_H

#include "manager/manager.h"
#include "manager/peer.h"

#define RESERVATION_DEFAULT_SLABS 64u     /* asked for, plus top_k, when the client names no number */

/*
 * Grants a reservation: exactly what reserve_bytes asks for, or for 0 a share of what is free. A user who may not
 * administer leaves the least reservation for somebody else (R27). The grant is not yet counted: the session adds it to
 * reserved_slabs.
 * Returns:  0, or -ENOSPC; message then says the numbers and what to do.
 */
int reservation_grant(struct manager *manager, const struct peer *peer, const struct served_model *model,
		      uint64_t reserve_bytes, uint32_t *ret_slabs, char *message, size_t message_bytes);

/* After the sum changed: tells the pool how many windows must be guaranteed. */
void reservation_apply(struct manager *manager);

/*
 * Ends the sessions of clients that surely lease more than was granted to them (R19). A ledger is its client's to write,
 * so only this keeps one from pinning the pool. O(objects) a session: when a demand finds no room, not every turn.
 */
void reservation_enforce(struct manager *manager);

/* The least that is granted to a client of any model without a number of its own: one layer's top-k, and one. */
uint32_t reservation_least(const struct manager *manager);

/*
 * Loads in flight that a pool of so many windows has room for beside its clients: a share of it, never so many that the
 * first client finds no room, at most manager->loads_most, at least one for each drive if there is that room, else one.
 */
#define RESERVATION_LOADS_SHARE 4u
uint32_t reservation_loads(const struct manager *manager, uint64_t windows);

/* Slabs that must stay: reservations and loads in flight. */
uint32_t reservation_needed(const struct manager *manager);

#endif
