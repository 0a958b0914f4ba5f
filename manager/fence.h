/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Late DMA (R20, R21): a read that was in flight when a manager was killed still lands in its slab, perhaps long after.
 * Every incarnation holds the write end of a pipe in its ring; the read end is stored. It hangs up only when no read of
 * that incarnation can arrive any more, and until then slabs that were LOADING at its death are quarantined.
 */
#ifndef CNRE_MANAGER_FENCE_H
#define CNRE_MANAGER_FENCE_H

#include "manager/manager.h"

#define FENCE_OWNER (UINT32_MAX - 1)      /* of a quarantined slab, in the pool */

/*
 * Makes this incarnation's own fence, and watches those that dead ones left. 0 or -errno. Where the ring holds no files
 * there is no fence: what is quarantined then stays so until this manager's end, and that is logged.
 */
int fence_open(struct manager *manager);
void fence_close(struct manager *manager);

/* Quarantines a slab in the state segment for a dead incarnation: before its entry changes (R21). 0 or -ENOSPC. */
int fence_quarantine(struct manager *manager, uint64_t place, uint64_t bytes, uint32_t epoch);
/* 1: this place is quarantined already (a manager died in the middle of adoption). */
int fence_has(const struct manager *manager, uint64_t place);

/*
 * The same for a read of this incarnation that nobody waits for any more: only a successor needs to know of its slab, and
 * it is counted as a load in flight already. 0 or -ENOSPC. fence_forget: it landed; before the slab goes to another.
 */
int fence_remember(struct manager *manager, uint64_t place, uint64_t bytes);
void fence_forget(struct manager *manager, uint64_t place);

/* What another ring of this process must hold, too, before it reads into memory that clients map; -1: there is no fence. */
int fence_hold_fd(const struct manager *manager);

/* Stores every fence that the store has not. */
void fence_persist(struct manager *manager);

/* Says in the log how many slabs no fence will free: their incarnation had none (R20). After adoption. */
void fence_tell_unwatched(const struct manager *manager);

uint32_t fence_quarantined(const struct manager *manager); /* slabs now */

#endif
