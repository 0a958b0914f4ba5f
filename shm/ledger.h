/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases: the client's half and the manager's half of the Dekker pattern that makes eviction safe without a shared
 * reference count. The client raises its lease, then looks at the state; the manager stores EVICTING, then looks at
 * every ledger. All four accesses are seq_cst, so at least one side sees the other (doc/shared-memory.md, "Leases";
 * tests/model/lease.pml). On x86 the client pays for one locked add.
 *
 * Ordering map:
 *   [L1] [L8] seq_cst add lease (client) <-> [L4] seq_cst scan (manager)
 *   [L2] seq_cst load state (client)     <-> [L3] seq_cst exchange to EVICTING (manager), release READY carries the bytes
 *   [L5] [L9] release sub lease (client)  -> [L4] reads of the slab happen before it is reused
 */
#ifndef CNRE_SHM_LEDGER_H
#define CNRE_SHM_LEDGER_H

#include "shm/layout.h"

#include <errno.h>
#include <limits.h>

/* Client: raises a lease and counts an access; returns the ledger word before. */
static inline uint64_t cnre_ledger_add(_Atomic uint64_t *word)
{
	/* [L1] seq_cst, pairs with [L4]: the lease is visible before the state is read. */
	return atomic_fetch_add_explicit(word, CNRE_LEDGER_ACCESS | CNRE_LEDGER_LEASE, memory_order_seq_cst);
}

/*
 * Client: raises one more lease only where this client has one already, and counts an access. Returns 1, or 0 and
 * nothing is changed. The object then stays counted once in the client's reservation (R15 counts objects).
 */
static inline int cnre_ledger_add_shared(_Atomic uint64_t *word)
{
	/* [L7] relaxed: only a first guess for the exchange below. */
	uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);

	while (CNRE_LEDGER_LEASES(seen) != 0)
		/* [L8] seq_cst, pairs with [L4]: as [L1]. */
		if (atomic_compare_exchange_weak_explicit(word, &seen, seen + CNRE_LEDGER_ACCESS + CNRE_LEDGER_LEASE, memory_order_seq_cst, memory_order_relaxed))
			return 1;
	return 0;
}

/* Client: the state under a lease. READY here means the slab cannot be reused until cnre_ledger_sub. */
static inline uint32_t cnre_ledger_load_state(const struct cnre_entry *entry)
{
	/* [L2] seq_cst, pairs with [L3], with [D2] and [D5] in manager/residency.c, and with [X1] and [X10] in
	 * manager/kv_entry.c: after EVICTING is stored no lease raised later sees READY, and who sees READY sees the bytes. */
	return atomic_load_explicit(&entry->state, memory_order_seq_cst);
}

/*
 * Client: gives a lease back and returns how many this client has left of the object. Refuses (-EINVAL) when it holds none,
 * so that a double release cannot borrow below zero (R5); a bare subtraction could.
 */
static inline int cnre_ledger_drop(_Atomic uint64_t *word)
{
	/* [L6] relaxed: only a first guess for the exchange below. */
	uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);

	for (;;) {
		if (CNRE_LEDGER_LEASES(seen) == 0)
			return -EINVAL;
		/* [L5] release, pairs with [L4]: this process's reads of the slab come before its reuse. */
		if (atomic_compare_exchange_weak_explicit(word, &seen, seen - CNRE_LEDGER_LEASE, memory_order_release, memory_order_relaxed))
			break;
	}
	seen = CNRE_LEDGER_LEASES(seen - CNRE_LEDGER_LEASE);
	return seen > INT_MAX ? INT_MAX : (int)seen;
}

/* As cnre_ledger_drop, for who does not ask how many are left: 0 or -EINVAL. */
static inline int cnre_ledger_sub(_Atomic uint64_t *word)
{
	int left = cnre_ledger_drop(word);

	return left < 0 ? left : 0;
}

/*
 * Client: takes an access and its lease back in one step, where what it looked for was not there: it is counted where it is
 * served, or nowhere. As cnre_ledger_drop, how many leases are left, or -EINVAL: a copy of another lease was released twice,
 * and that took this one.
 */
static inline int cnre_ledger_undo(_Atomic uint64_t *word)
{
	/* [L10] relaxed: as [L6]. */
	uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);

	for (;;) {
		if (CNRE_LEDGER_LEASES(seen) == 0)
			return -EINVAL;
		/* [L9] release, pairs with [L4]: as [L5]. */
		if (atomic_compare_exchange_weak_explicit(word, &seen, seen - CNRE_LEDGER_ACCESS - CNRE_LEDGER_LEASE, memory_order_release, memory_order_relaxed))
			break;
	}
	seen = CNRE_LEDGER_LEASES(seen - CNRE_LEDGER_LEASE);
	return seen > INT_MAX ? INT_MAX : (int)seen;
}

/* Manager: publishes EVICTING before it scans. */
static inline void cnre_ledger_store_evicting(struct cnre_entry *entry, uint32_t word)
{
	/* A store would do by C's rules. But qemu's user mode on x86 lets the scan that follows pass aarch64's STLR, and then
	 * neither side sees the other; an exchange holds there too, and is what x86 makes of the store anyway. */
	/* [L3] seq_cst, pairs with [L2]: see [L1]. */
	(void)atomic_exchange_explicit(&entry->state, word, memory_order_seq_cst);
}

/* Manager: one ledger word. Input from a client: leases may be any number. */
static inline uint64_t cnre_ledger_scan(const _Atomic uint64_t *word)
{
	/* [L4] seq_cst, pairs with [L1], [L5], [L8] and [L9]: a lease raised before EVICTING was seen is seen here; after one was given
	 * back, its holder's reads of the slab are over. */
	return atomic_load_explicit(word, memory_order_seq_cst);
}

#endif
