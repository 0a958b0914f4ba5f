/* SPDX-License-Identifier: Apache-2.0 */
/* Leases of this tier: up and down, their names, and the release that tells of a dead exporter (R29). */
#include "client/vram.h"

#include "base/probe.h"
#include "client/hot.h"

/* ---- the gauge: objects, as many as the reservation ---- */

static int take(struct cnre *client)
{
	/* [VG3] relaxed: a first guess for the exchange. */
	uint32_t held = atomic_load_explicit(&client->vram->held, memory_order_relaxed);

	do {
		if (held >= client->reserve_slabs)
			return -ENOSPC;
		/* [VG1] acquire, pairs with [VG2]: what was given back is out of the ledger. */
	} while (!atomic_compare_exchange_weak_explicit(&client->vram->held, &held, held + 1, memory_order_acquire, memory_order_relaxed));
	return 0;
}

static void give(struct cnre *client)
{
	/* [VG2] release, pairs with [VG1]: the ledger word came down first. */
	(void)atomic_fetch_sub_explicit(&client->vram->held, 1, memory_order_release);
}

/* ---- up and down ---- */

int cnre_vram_lease_raise(struct cnre *client, struct cnre_vram_table *table, uint32_t object)
{
	_Atomic uint64_t *word = &table->ledger->word[object];
	int r;

	if (cnre_ledger_add_shared(word))
		return 0;
	r = take(client);
	if (r < 0)
		return r;
	if (CNRE_LEDGER_LEASES(cnre_ledger_add(word)) != 0)
		give(client); /* another thread raised the first lease in between: it pays */
	return 0;
}

void cnre_vram_lease_undo(struct cnre *client, struct cnre_vram_table *table, uint32_t object)
{
	if (cnre_ledger_undo(&table->ledger->word[object]) == 0)
		give(client);
}

int cnre_vram_lease_lower(struct cnre *client, struct cnre_vram_table *table, uint32_t object)
{
	uint32_t arena = cnre_vram_arena_of(table, object);
	int left = cnre_ledger_drop(&table->ledger->word[object]);

	if (left < 0)
		return left;
	if (left == 0)
		give(client);
	cnre_vram_arena_lower(table, arena);
	return 0;
}

/* ---- names ---- */

int cnre_vram_lease_name(struct cnre *client, const struct cnre_vram_table *table, uint32_t object, uint64_t position, uint64_t *ret_lease)
{
	uint64_t name = CNRE_LEASE_IN_VRAM | (uint64_t)table->number << CNRE_VRAM_TABLE_SHIFT;

	/* The sequence of a cookie is the position that it is told, and one more. */
	if (client->cookies.slot != NULL)
		return cnre_cookies_make(&client->cookies, object, (name | (position & CNRE_VRAM_OBJECT_MASK)) - 1, ret_lease);
	*ret_lease = name | ((uint64_t)object + 1);
	return 0;
}

int cnre_vram_lease_object(struct cnre *client, uint64_t lease, uint32_t *ret_object)
{
	uint64_t object = (lease & CNRE_VRAM_OBJECT_MASK) - 1;

	if (client->cookies.slot != NULL)
		return cnre_cookies_end(&client->cookies, lease, ret_object);
	if (lease > (CNRE_LEASE_IN_VRAM << 1) - 1 || object >= client->object_count)
		return -EINVAL;
	*ret_object = (uint32_t)object;
	return 0;
}

/* ---- the end of one ---- */

int cnre_vram_release(struct cnre *client, struct cnre_expert *expert)
{
	uint64_t lease = expert->lease;
	uint32_t number = cnre_vram_lease_table(lease), object;
	struct cnre_vram_table *table;
	int r = client->vram == NULL ? -EINVAL : cnre_vram_lease_object(client, lease, &object);
	int is_dead;

	if (r < 0)
		return r;
	table = cnre_vram_table_ref(client, number);
	if (table == NULL)
		return -EINVAL;
	is_dead = cnre_vram_table_is_dead(table);
	r = cnre_vram_lease_lower(client, table, object);
	cnre_vram_table_unref(client, table, r < 0 ? 1 : 2);
	if (r < 0)
		return r;
	expert->lease = 0;
	CNRE_PROBE(lease_released, client->session, object, lease);
	return is_dead ? -EPIPE : 0;
}
