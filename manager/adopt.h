/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking over from an incarnation that died: its segments, its clients, its residents. Clients notice a pause. What does
 * not fit (another layout, other models, two owners of one slab) is refused as a whole: the stored descriptors are
 * dropped, which hangs up on the clients, and this manager starts anew beside their old memory (R33).
 *
 * Every step may be killed and the whole run again by the next incarnation (R22): a slab is quarantined before its entry
 * changes, generations do not move, and what was settled is found settled.
 */
#ifndef CNRE_MANAGER_ADOPT_H
#define CNRE_MANAGER_ADOPT_H

#include "manager/manager.h"

/* Bytes of the pool that the store holds: for the budget, which is decided before anything is mapped. */
uint64_t adopt_pool_bytes(struct manager *manager);

/*
 * First half, before anything else is made: page, counters, state, and each model's catalog and directory.
 * Returns 1 adopted, 0 there is nothing to adopt, or it was refused and dropped (logged).
 */
int adopt_segments(struct manager *manager);

/* The pool's segments, into an empty pool. 0 or -errno. */
int adopt_pool(struct manager *manager);

/*
 * Second half, when pool, loader, residency and bell are there: sessions first (R10: every stored ledger is in the scan
 * list before the first eviction), then objects, then requests; the epoch moves and everybody is woken.
 * Returns 0, or -errno: inconsistent, or a living client's leases cannot be had; then nothing may be adopted, see
 * adopt_refuse.
 */
int adopt_clients_and_objects(struct manager *manager);

/*
 * Takes everything that was inherited out of the store. The caller then ends with a failure, and the next incarnation,
 * which the keeper or systemd starts, finds nothing to adopt.
 */
void adopt_refuse(struct manager *manager, const char *why);

#endif
