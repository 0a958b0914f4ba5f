/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The private half of leases: how much this client holds against its reservation (R17), and, with CNRE_CHECK=1, a cookie
 * for every lease that was handed out, so that the second release of a copied view is an error and never takes another
 * holder's lease (R5). Without cookies a release is refused only when this process holds no lease of the object at all:
 * the cookies cost about a quarter of a hit (doc/design.md has the figures). The shared half is shm/ledger.h. Everything
 * here is in this process's own memory; nothing allocates or locks. What every hit runs is in hot.h.
 *
 * The gauge is one 64-bit word, log position:40 | waiting:1 | held:23:
 *   held      distinct objects that this client leases or waits for; never more than the reservation. It counts an
 *             object's ledger word going from 0 to 1, so duplicates in a batch and several threads with one expert
 *             cost one, which is what they pin.
 *   waiting   a batch waits for admission: whoever lowers held runs the queue (client/admission.h)
 *   position  next word of the access log; wraps after 2^40 words without a seam (a multiple of the ring's laps)
 *
 * Ordering map:
 *   [G3] [G7] release sub held -> [G2] acquire add held    the ledger word came down before another goes up: the
 *                                                     manager never counts more leased objects than the reservation
 *   [K4] acq_rel free a cookie slot -> [K2] acquire reuse it
 */
#ifndef CNRE_CLIENT_LEASE_H
#define CNRE_CLIENT_LEASE_H

#include "shm/layout.h"

#include <stdint.h>

struct cnre;

#define CNRE_GAUGE_HELD_MASK ((1ull << 23) - 1)
#define CNRE_GAUGE_WAITING (1ull << 23)
#define CNRE_GAUGE_LOG_SHIFT 24u
#define CNRE_HELD_MAX CNRE_GAUGE_HELD_MASK

/* A cookie, and the word of its slot: slot or object:22 | sequence:42. A sequence is a log position + 1, never 0. */
#define CNRE_COOKIE_SHIFT 42u
#define CNRE_COOKIE_NEAR_MIN 1024u
#define CNRE_LEASE_IN_VRAM (1ull << 41)   /* in a lease of either kind: of the other tier (client/vram.h) */
#define CNRE_COOKIE_SPARE 16u             /* leases of one object cost one of the reservation but a slot each */
#define CNRE_COOKIE_SLOTS_MAX (1u << 22)

struct cnre_cookies {
	_Atomic uint64_t *slot;           /* 0: free */
	uint32_t near_mask;               /* where a search begins: a part that stays in the cache */
	uint32_t mask;                    /* slots - 1 */
};

/* 1: CNRE_CHECK=1 in the environment asks for cookies (the tests do). */
int cnre_cookies_wanted(void);
int cnre_cookies_init(struct cnre_cookies *cookies, uint32_t reserve_slabs);
void cnre_cookies_done(struct cnre_cookies *cookies);

/*
 * Makes the cookie of one lease. `position` is the log position of its access, which no other lease has.
 * Returns 0, or -ENOSPC: more leases than slots are out at once (several leases of one object cost one of the
 * reservation, but a slot each).
 */
int cnre_cookies_make(struct cnre_cookies *cookies, uint32_t object, uint64_t position, uint64_t *ret_lease);

/* Ends a cookie: 0 and its object once, -EINVAL ever after and for what never was one. */
int cnre_cookies_end(struct cnre_cookies *cookies, uint64_t lease, uint32_t *ret_object);

/* As cnre_gauge_take (hot.h) for a batch that waits: where it does not fit, the next give will see the waiting mark. */
int cnre_gauge_take_or_mark(struct cnre *client, uint32_t held, uint32_t words, uint64_t *ret_position);
void cnre_gauge_unmark(struct cnre *client);

/* As cnre_gauge_give (hot.h) for who runs the queue anyhow. */
void cnre_gauge_give_locked(struct cnre *client, uint32_t held);

uint32_t cnre_gauge_held(const struct cnre *client);

#endif
