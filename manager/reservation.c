/* SPDX-License-Identifier: Apache-2.0 */
/* Granting of reservations; see reservation.h. */
#include "manager/reservation.h"

#include "base/size.h"
#include "manager/pool.h"
#include "manager/session.h"

#include <errno.h>
#include <stdio.h>

uint32_t reservation_needed(const struct manager *manager)
{
	return manager->sessions->reserved_slabs + manager->loads_max;
}

static uint32_t free_slabs(const struct manager *manager, const struct pool_status *status)
{
	uint32_t needed = reservation_needed(manager);

	return status->windows > needed ? status->windows - needed : 0;
}

/* When every object of every model has room, nobody ever waits for a slab and any reservation is safe. */
static int everything_fits(const struct manager *manager, const struct pool_status *status)
{
	return status->budget_bytes >= manager->slab_bytes_total && status->backed_bytes >= manager->slab_bytes_total;
}

static uint32_t elastic_share(const struct served_model *model, uint32_t free)
{
	uint32_t least = model->catalog->top_k + 1, wanted = RESERVATION_DEFAULT_SLABS + model->catalog->top_k;
	uint32_t share = free / 2 > least ? free / 2 : least;

	return share < wanted ? share : wanted;
}

int reservation_grant(struct manager *manager, const struct served_model *model, uint64_t reserve_bytes,
		      uint32_t *ret_slabs, char *message, size_t message_bytes)
{
	struct pool_status status;
	uint64_t slabs;
	uint32_t free;

	pool_get_status(manager->pool, &status);
	free = free_slabs(manager, &status);
	slabs = reserve_bytes == 0 ? elastic_share(model, free) : (reserve_bytes - 1) / manager->window_bytes + 1;
	if (slabs > free && !everything_fits(manager, &status)) {
		char window[16];

		(void)snprintf(message, message_bytes,
			       "no room for a reservation of %llu slabs of %s: the pool has %u, %u are reserved by clients and %u by reads in flight; "
			       "raise --ram or ask for less",
			       (unsigned long long)slabs, cnre_size_format(manager->window_bytes, window, sizeof window), status.windows,
			       manager->sessions->reserved_slabs, manager->loads_max);
		return -ENOSPC;
	}
	if (slabs > CNRE_OBJECTS_MAX)
		slabs = CNRE_OBJECTS_MAX; /* more than objects there are changes nothing */
	*ret_slabs = (uint32_t)slabs;
	return 0;
}

void reservation_apply(struct manager *manager)
{
	struct pool_status status;
	uint32_t needed = reservation_needed(manager);

	pool_get_status(manager->pool, &status);
	/* Fewer windows than needed is right only while everything fits; growing can fail only for a moment, while
	 * leased objects lie across borders, and the next change tries again. */
	(void)pool_set_guaranteed(manager->pool, needed < status.windows ? needed : status.windows);
	cnre_counter_set(&manager->counters->reserved_slabs, manager->sessions->reserved_slabs);
}
