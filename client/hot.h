/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pieces that every hit runs, where the compiler sees them as one: gauge, lease, pointers. Included by the files on
 * that path only. The words and the ordering map are in lease.h. Nothing here allocates, locks, or makes a system call,
 * but for the admission queue, which runs only when a batch waits.
 */
#ifndef CNRE_CLIENT_HOT_H
#define CNRE_CLIENT_HOT_H

#include "base/crash.h"
#include "base/probe.h"
#include "client/access.h"
#include "client/admission.h"
#include "client/map.h"
#include "shm/access_log.h"
#include "shm/ledger.h"
#include "shm/word.h"

static inline int cnre_gauge_exchange(struct cnre *client, uint32_t held, uint32_t words, int mark, uint64_t *ret_position)
{
	/* [G1] relaxed: a first guess for the exchange. */
	uint64_t old = atomic_load_explicit(&client->gauge, memory_order_relaxed);
	uint64_t wanted;
	int fits;

	/* An exchange, not an addition that is taken back: held is exact, so nobody fails for another's failure. */
	do {
		fits = (old & CNRE_GAUGE_HELD_MASK) + held <= client->reserve_slabs;
		if (!fits && !mark)
			return -ENOSPC;
		wanted = fits ? old + held + ((uint64_t)words << CNRE_GAUGE_LOG_SHIFT) : old | CNRE_GAUGE_WAITING;
		/* [G2] acquire, pairs with [G3] and [G7]: what was given back is out of the ledger. */
	} while (!atomic_compare_exchange_weak_explicit(&client->gauge, &old, wanted, memory_order_acquire,
							memory_order_relaxed));
	if (!fits)
		return -ENOSPC;
	*ret_position = old >> CNRE_GAUGE_LOG_SHIFT;
	return 0;
}

/* Counts `held` objects and takes `words` log positions in one step. 0, or -ENOSPC: they do not fit now. */
static inline int cnre_gauge_take(struct cnre *client, uint32_t held, uint32_t words, uint64_t *ret_position)
{
	return cnre_gauge_exchange(client, held, words, 0, ret_position);
}

/* Gives back; runs the admission queue when a batch waits. */
static inline void cnre_gauge_give(struct cnre *client, uint32_t held)
{
	/* [G3] release, pairs with [G2]: the ledger word came down first. */
	uint64_t old = atomic_fetch_sub_explicit(&client->gauge, held, memory_order_release);

	if ((old & CNRE_GAUGE_WAITING) != 0)
		cnre_admission_run(client);
}

/* Log positions only. */
static inline uint64_t cnre_gauge_log(struct cnre *client, uint32_t words)
{
	/* [G5] relaxed: a ticket. */
	return atomic_fetch_add_explicit(&client->gauge, (uint64_t)words << CNRE_GAUGE_LOG_SHIFT,
					 memory_order_relaxed) >>
	       CNRE_GAUGE_LOG_SHIFT;
}

/*
 * Raises one lease of an object and takes `words` log positions: the door of a single acquire.
 * Returns 0, or -ENOSPC: the object would be one more than the reservation.
 */
static inline int cnre_lease_raise(struct cnre *client, uint32_t object, uint32_t words, uint64_t *ret_position)
{
	_Atomic uint64_t *word = &client->ledger[object];
	int r;

	/* An object that this client leases already costs nothing more. */
	if (cnre_ledger_add_shared(word)) {
		*ret_position = cnre_gauge_log(client, words);
		return 0;
	}
	r = cnre_gauge_take(client, 1, words, ret_position);
	if (r < 0)
		return r;
	CNRE_CRASH_POINT("lease-counted");
	if (CNRE_LEDGER_LEASES(cnre_ledger_add(word)) != 0)
		cnre_gauge_give(client, 1); /* another thread raised the first lease in between: it pays */
	return 0;
}

/* Gives one lease of an object back. 0, or -EINVAL: this client holds none of it. */
static inline int cnre_lease_lower(struct cnre *client, uint32_t object)
{
	int left = cnre_ledger_drop(&client->ledger[object]);

	CNRE_CRASH_POINT("lease-lowered");
	if (left == 0)
		cnre_gauge_give(client, 1);
	return left < 0 ? left : 0;
}

/* The lease that the caller gets, and the object of one that it gives back. */
static inline int cnre_lease_name(struct cnre *client, uint32_t object, uint64_t position, uint64_t *ret_lease)
{
	if (client->cookies.slot != NULL)
		return cnre_cookies_make(&client->cookies, object, position, ret_lease);
	*ret_lease = (uint64_t)object + 1; /* never 0 */
	return 0;
}

static inline int cnre_lease_object(struct cnre *client, uint64_t lease, uint32_t *ret_object)
{
	if (client->cookies.slot != NULL)
		return (lease & CNRE_LEASE_IN_VRAM) != 0 ? -EINVAL : cnre_cookies_end(&client->cookies, lease, ret_object);
	if (lease > client->object_count)
		return -EINVAL;
	*ret_object = (uint32_t)(lease - 1);
	return 0;
}

/* The shape of an object, without touching the catalog's own line where it can be avoided. */
static inline uint32_t cnre_view_shape(const struct cnre *client, uint32_t object)
{
	return client->shape_count == 1 ? 0 : client->object[object].shape;
}

/*
 * The address of a READY, leased object; asks for its pool segment when that is new to this process.
 * 0, -ETIMEDOUT (not mapped in time), -EBADMSG, -EPIPE, -ENOMEM, …
 */
static inline int cnre_view_resolve(struct cnre *client, uint32_t object, int64_t timeout_ns, const char **ret_base)
{
	/* [V1] relaxed: written before LOADING; the READY that was seen under the lease carries it (R2). */
	uint64_t place = atomic_load_explicit(&client->entry[object].place, memory_order_relaxed);
	uint64_t slab_bytes = client->shape[cnre_view_shape(client, object)].slab_bytes;
	uint32_t segment = cnre_place_segment(place);
	const char *base;
	int r;

	if (segment >= CNRE_SEGMENTS_MAX)
		return -EBADMSG;
	/* [V2] acquire, pairs with [V3]: its size and its mapping. */
	base = atomic_load_explicit(&client->pool[segment].base, memory_order_acquire);
	if (base == NULL) {
		r = cnre_map_pool_segment(client, segment, timeout_ns, &base);
		if (r < 0)
			return r;
	}
	if (cnre_place_offset(place) > client->pool[segment].bytes || slab_bytes > client->pool[segment].bytes - cnre_place_offset(place))
		return -EBADMSG;
	*ret_base = base + cnre_place_offset(place);
	return 0;
}

/* The public view: the shape's, and pointers where there are bytes. base NULL: geometry only. */
static inline void cnre_view_fill(const struct cnre *client, uint32_t object, const char *base, struct cnre_expert *ret_expert)
{
	uint32_t shape = cnre_view_shape(client, object);
	const uint32_t *part_off = client->shape_part_off[shape] != NULL ? client->shape_part_off[shape] : client->object[object].part_off;

	const struct cnre_expert *view = &client->shape_view[shape];

	/* Field by field: one assignment of the whole struct compiles to a string move, which alone costs a locked add. */
	ret_expert->bytes = view->bytes;
	ret_expert->numa_node = view->numa_node;
	ret_expert->reserved0 = 0;
	ret_expert->reserved[0] = ret_expert->reserved[1] = 0;
	for (unsigned role = 0; role < CNRE_ROLES; role++) {
		struct cnre_part part = view->part[role];

		part.data = base != NULL && part.bytes != 0 ? base + part_off[role] : NULL;
		ret_expert->part[role] = part;
	}
}

/* Consecutive single acquires in one layer are one visit: only the first of them logs its beginning. */
static inline uint32_t cnre_visit_begins(const struct cnre *client, uint32_t layer)
{
	/* [A1] relaxed: statistics; two threads that both see a change log two visits. */
	return atomic_load_explicit(&client->last_layer, memory_order_relaxed) != layer;
}

static inline void cnre_visit_log(struct cnre *client, uint32_t layer, uint64_t position)
{
	/* [A2] relaxed: as [A1]. */
	atomic_store_explicit(&client->last_layer, layer, memory_order_relaxed);
	cnre_access_log_put(client->log, position, CNRE_LOG_VISIT, 1, layer);
}

/*
 * Hands a READY access at `base` to the caller; on failure its lease is given back and the outputs are untouched. Inlined
 * by force: with a probe in it the compiler would rather call it, which costs a hit an eighth more instructions.
 */
static inline __attribute__((always_inline)) int cnre_access_take(struct cnre *client, const struct cnre_access *access,
								  struct cnre_access_name name, uint32_t flags,
								  const char *base, struct cnre_expert *ret_expert)
{
	uint64_t lease;
	int r = cnre_lease_name(client, access->object, access->position, &lease);

	if (r < 0) {
		(void)cnre_lease_lower(client, access->object); /* it is up: raised by this access */
		return r;
	}
	cnre_view_fill(client, access->object, base, ret_expert);
	ret_expert->lease = lease;
	ret_expert->layer = name.layer;
	ret_expert->expert = name.expert;
	ret_expert->index = name.index;
	ret_expert->flags = flags;
	CNRE_PROBE(lease_taken, client->session, access->object, name.layer, name.expert, lease);
	return 0;
}

#endif
