/* SPDX-License-Identifier: Apache-2.0 */
/* Reservation gauge and lease cookies, but for the parts that every hit runs (hot.h); see lease.h for words and ordering map. */
#include "client/lease.h"

#include "client/hot.h"

#include <stdlib.h>
#include <string.h>

#define SEQUENCE_MASK ((1ull << CNRE_COOKIE_SHIFT) - 1)

_Static_assert(CNRE_OBJECTS_MAX <= 1u << (64 - CNRE_COOKIE_SHIFT), "an object's index fits its cookie");
_Static_assert(CNRE_COOKIE_SLOTS_MAX <= 1u << (64 - CNRE_COOKIE_SHIFT), "a slot's index fits the lease");

int cnre_cookies_wanted(void)
{
	const char *check = getenv("CNRE_CHECK");

	return check != NULL && strcmp(check, "0") != 0 && check[0] != '\0';
}

/* The near part has four slots for each object of the reservation, so that searches stay short. */
int cnre_cookies_init(struct cnre_cookies *cookies, uint32_t reserve_slabs)
{
	uint32_t near = CNRE_COOKIE_NEAR_MIN;
	uint32_t count;

	while (near < CNRE_COOKIE_SLOTS_MAX / CNRE_COOKIE_SPARE && near / 4 < reserve_slabs)
		near *= 2;
	count = near * CNRE_COOKIE_SPARE;
	cookies->slot = calloc(count, sizeof *cookies->slot);
	cookies->near_mask = near - 1;
	cookies->mask = count - 1;
	return cookies->slot != NULL ? 0 : -ENOMEM;
}

void cnre_cookies_done(struct cnre_cookies *cookies)
{
	free(cookies->slot);
	cookies->slot = NULL;
}

int cnre_cookies_make(struct cnre_cookies *cookies, uint32_t object, uint64_t position, uint64_t *ret_lease)
{
	uint64_t sequence = position + 1;
	uint64_t word = (uint64_t)object << CNRE_COOKIE_SHIFT | sequence;

	for (uint32_t i = 0; i <= cookies->mask; i++) {
		uint32_t slot = (((uint32_t)position & cookies->near_mask) + i) & cookies->mask;
		uint64_t unused = 0;

		/* [K1] relaxed: a cheap look before the exchange. */
		if (atomic_load_explicit(&cookies->slot[slot], memory_order_relaxed) != 0)
			continue;
		/* [K2] acquire, pairs with [K4]: the slot's former lease is over. */
		if (!atomic_compare_exchange_strong_explicit(&cookies->slot[slot], &unused, word, memory_order_acquire,
							     memory_order_relaxed))
			continue;
		*ret_lease = (uint64_t)slot << CNRE_COOKIE_SHIFT | sequence;
		return 0;
	}
	return -ENOSPC;
}

int cnre_cookies_end(struct cnre_cookies *cookies, uint64_t lease, uint32_t *ret_object)
{
	uint64_t slot = lease >> CNRE_COOKIE_SHIFT;
	uint64_t word;

	if (slot > cookies->mask)
		return -EINVAL;
	/* [K3] relaxed: compared and then exchanged; a wrong sequence is never exchanged. */
	word = atomic_load_explicit(&cookies->slot[slot], memory_order_relaxed);
	if (((word ^ lease) & SEQUENCE_MASK) != 0 || word == 0)
		return -EINVAL;
	/* [K4] acq_rel, pairs with [K2]: of two releases of one copy exactly one gets here. */
	if (!atomic_compare_exchange_strong_explicit(&cookies->slot[slot], &word, 0, memory_order_acq_rel,
						     memory_order_relaxed))
		return -EINVAL;
	*ret_object = (uint32_t)(word >> CNRE_COOKIE_SHIFT);
	return 0;
}

int cnre_gauge_take_or_mark(struct cnre *client, uint32_t held, uint32_t words, uint64_t *ret_position)
{
	return cnre_gauge_exchange(client, held, words, 1, ret_position);
}

void cnre_gauge_unmark(struct cnre *client)
{
	/* [G4] relaxed: set and cleared under the admission lock; a stale mark costs one look at the queue. */
	(void)atomic_fetch_and_explicit(&client->gauge, ~CNRE_GAUGE_WAITING, memory_order_relaxed);
}

void cnre_gauge_give_locked(struct cnre *client, uint32_t held)
{
	/* [G7] release, pairs with [G2]: as [G3]. */
	(void)atomic_fetch_sub_explicit(&client->gauge, held, memory_order_release);
}

uint32_t cnre_gauge_held(const struct cnre *client)
{
	/* [G6] relaxed: a number for statistics, or read when no other call runs (detach). */
	return (uint32_t)(atomic_load_explicit(&client->gauge, memory_order_relaxed) & CNRE_GAUGE_HELD_MASK);
}
