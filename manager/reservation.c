/* SPDX-License-Identifier: Apache-2.0 */
/* Granting of reservations; see reservation.h. */
#include "manager/reservation.h"

#include "base/log.h"
#include "base/size.h"
#include "manager/fence.h"
#include "manager/peer.h"
#include "manager/pool.h"
#include "manager/session.h"
#include "shm/ledger.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

uint32_t reservation_needed(const struct manager *manager)
{
	return manager->sessions->reserved_slabs + manager->loads_max + fence_quarantined(manager);
}

uint32_t reservation_least(const struct manager *manager)
{
	uint32_t top_k = 0;

	for (uint32_t i = 0; i < manager->model_count; i++)
		if (top_k < manager->model[i].catalog->top_k)
			top_k = manager->model[i].catalog->top_k;
	return top_k + 1;
}

uint32_t reservation_loads(const struct manager *manager, uint64_t windows)
{
	uint64_t client = reservation_least(manager), share = windows / RESERVATION_LOADS_SHARE,
		 loads = manager->loads_most;

	if (loads > share)
		loads = share;
	if (loads < manager->drives_most)
		loads = manager->drives_most; /* one that hangs leaves the others theirs (R16) */
	if (loads > manager->loads_most)
		loads = manager->loads_most;
	if (windows <= client)
		loads = 1;
	else if (loads > windows - client)
		loads = windows - client;
	return loads > 0 ? (uint32_t)loads : 1;
}

static uint32_t free_slabs(const struct manager *manager, const struct pool_status *status)
{
	uint32_t needed = reservation_needed(manager);

	return status->windows > needed ? status->windows - needed : 0;
}

/* When every object of every model has room, nobody ever waits for a slab and any reservation is safe. */
static int everything_fits(const struct manager *manager, const struct pool_status *status)
{
	return status->windows >= manager->owner_count; /* windows, not bytes: the ends of segments hold nothing */
}

static uint32_t elastic_share(const struct served_model *model, uint32_t free)
{
	uint32_t least = model->catalog->top_k + 1, wanted = RESERVATION_DEFAULT_SLABS + model->catalog->top_k;
	uint32_t share = free / 2 > least ? free / 2 : least;

	return share < wanted ? share : wanted;
}

static uint32_t reserved_by(const struct session_table *table, uid_t uid)
{
	uint32_t slabs = 0;

	for (uint32_t i = 0; i < table->active_count; i++)
		slabs += table->active[i]->peer.uid == uid ? table->active[i]->reserve_slabs : 0;
	return slabs;
}

/* R27: however many clients one user starts, another user's can still attach. In the smallest pools there is only one. */
static uint32_t free_for(const struct manager *manager, const struct peer *peer, uint32_t free)
{
	uint32_t least = reservation_least(manager), mine, most;

	if (peer_may_administer(peer))
		return free;
	mine = reserved_by(manager->sessions, peer->uid);
	most = free + manager->sessions->reserved_slabs; /* of all clients together */
	most = most > 2 * least ? most - least : least;
	if (mine >= most)
		return 0;
	return free < most - mine ? free : most - mine;
}

int reservation_grant(struct manager *manager, const struct peer *peer, const struct served_model *model,
		      uint64_t reserve_bytes, uint32_t *ret_slabs, char *message, size_t message_bytes)
{
	struct pool_status status;
	uint64_t slabs;
	uint32_t free;

	pool_get_status(manager->pool, &status);
	free = free_for(manager, peer, free_slabs(manager, &status));
	slabs = reserve_bytes == 0 ? elastic_share(model, free) : (reserve_bytes - 1) / manager->window_bytes + 1;
	if (slabs > model->catalog->object_count)
		slabs = model->catalog->object_count; /* more than all there are changes nothing */
	if (slabs > free && !everything_fits(manager, &status)) {
		char window[16];

		(void)snprintf(
			message, message_bytes,
			"no room for a reservation of %llu slabs of %s: the pool has %u, %u are reserved by clients and %u by reads in flight, "
			"%u are left for user %u; raise --ram or ask for less",
			(unsigned long long)slabs, cnre_size_format(manager->window_bytes, window, sizeof window),
			status.windows, manager->sessions->reserved_slabs, manager->loads_max, free, peer->uid);
		return -ENOSPC;
	}
	*ret_slabs = (uint32_t)slabs;
	return 0;
}

void reservation_apply(struct manager *manager)
{
	struct pool_status status;
	uint32_t needed = reservation_needed(manager);

	pool_get_status(manager->pool, &status);
	/* Fewer windows than needed is right only while everything fits; growing can fail only for a moment, while
	 * leased objects lie across borders, and the next change tries again, or the next demand that finds no room. */
	(void)pool_set_guaranteed(manager->pool, needed < status.windows ? needed : status.windows);
	cnre_counter_set(&manager->counters->reserved_slabs, manager->sessions->reserved_slabs);
}

/*
 * Objects that the client held for sure: an acquire changes the word, so a word with a lease that is the same in two
 * looks was leased between them, all such words at one time. A single look could count one lease here and, after it
 * moved, there, and an honest client would seem to hold too much.
 */
static uint32_t surely_held(const struct session *session, uint64_t *seen)
{
	uint32_t count = session->model->catalog->object_count, held = 0;

	for (uint32_t i = 0; i < count; i++)
		seen[i] = cnre_ledger_scan(&session->ledger->word[i]);
	for (uint32_t i = 0; i < count; i++)
		held += CNRE_LEDGER_LEASES(seen[i]) > 0 && cnre_ledger_scan(&session->ledger->word[i]) == seen[i];
	return held;
}

void reservation_enforce(struct manager *manager)
{
	struct session_table *table = manager->sessions;
	uint64_t *seen = calloc(manager->owner_count, sizeof *seen);

	if (seen == NULL)
		return; /* the caller looks again */
	for (uint32_t i = table->active_count;
	     i-- > 0;) { /* downwards: the last one takes the place of one that ends */
		struct session *session = table->active[i];
		uint32_t held = surely_held(session, seen);

		if (held <= session->reserve_slabs)
			continue;
		cnre_log(CNRE_LOG_WARNING,
			 "%s (pid %d, uid %u) leases %u experts, more than its reservation of %u: its session is ended",
			 session->name, (int)session->peer.pid, session->peer.uid, held, session->reserve_slabs);
		session_end(session, 1);
	}
	free(seen);
}
