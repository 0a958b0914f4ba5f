/* SPDX-License-Identifier: Apache-2.0 */
/* This tier of a client as a whole: from attach to detach and fork, and what is said about it. */
#include "client/vram.h"

#include "base/clock.h"
#include "shm/word.h"

#include <stdlib.h>

/* ---- from attach to detach ---- */

static void init_table(struct cnre_vram_table *table, uint32_t number)
{
	table->number = number;
	table->exporter = -1;
	table->segment[0].fd = table->segment[1].fd = -1;
	(void)pthread_mutex_init(&table->lock, NULL); /* cannot fail for a default mutex */
}

static void init_device(struct cnre_vram_device *device)
{
	(void)pthread_mutex_init(&device->lock, NULL);
	(void)pthread_mutex_init(&device->import_lock, NULL);
}

int cnre_vram_init(struct cnre *client, uint32_t attach_flags)
{
	struct cnre_vram *vram;

	if ((attach_flags & (CNRE_WANT_VRAM | CNRE_VRAM_OR_RAM)) == 0)
		return 0;
	vram = calloc(1, sizeof *vram);
	if (vram == NULL)
		return -ENOMEM;
	vram->is_wanted = (attach_flags & CNRE_WANT_VRAM) != 0;
	vram->may_use_ram = (attach_flags & CNRE_VRAM_OR_RAM) != 0;
	(void)pthread_mutex_init(&vram->lock, NULL);
	for (uint32_t i = 0; i < CNRE_VRAM_DEVICES_MAX; i++)
		init_device(&vram->device[i]);
	for (uint32_t i = 0; i < CNRE_VRAM_TABLES_MAX; i++)
		init_table(&vram->table[i], i);
	cnre_points_init(&vram->points);
	client->vram = vram;
	return 0;
}

void cnre_vram_free(struct cnre *client)
{
	struct cnre_vram *vram = client->vram;

	if (vram == NULL)
		return;
	for (uint32_t i = 0; i < CNRE_VRAM_TABLES_MAX; i++)
		free((void *)vram->table[i].home); /* of a forked child; its segments did not come along */
	cnre_points_free(&vram->points);
	free(vram);
	client->vram = NULL;
}

int cnre_vram_is_busy(struct cnre *client)
{
	struct cnre_vram *vram = client->vram;

	if (vram == NULL)
		return 0;
	if (cnre_points_wait(&vram->points, cnre_clock_deadline_ns(CNRE_POINTS_DETACH_NS)) > 0)
		return 1;
	/* [VC1] relaxed: no other call runs. */
	return atomic_load_explicit(&vram->held, memory_order_relaxed) > 0;
}

void cnre_vram_close(struct cnre *client)
{
	struct cnre_vram *vram = client->vram;

	if (vram == NULL)
		return;
	cnre_points_stop(&vram->points);
	for (uint32_t i = 0; i < CNRE_VRAM_DEVICES_MAX; i++) {
		cnre_vram_table_drop(client, i);
		if (vram->device[i].import != NULL)
			vram->device[i].import = gpu_import_close(vram->device[i].import);
		(void)pthread_mutex_destroy(&vram->device[i].lock);
		(void)pthread_mutex_destroy(&vram->device[i].import_lock);
	}
	for (uint32_t i = 0; i < CNRE_VRAM_TABLES_MAX; i++)
		(void)pthread_mutex_destroy(&vram->table[i].lock);
	(void)pthread_mutex_destroy(&vram->lock);
}

void cnre_vram_close_in_child(struct cnre *client)
{
	for (uint32_t i = 0; client->vram != NULL && i < CNRE_VRAM_TABLES_MAX; i++)
		cnre_vram_table_close_exporter(&client->vram->table[i]);
}

/* ---- what is said about it ---- */

int cnre_vram_is_offered(const struct cnre *client)
{
	const struct cnre_vram *vram = client->vram;

	/* [VC2] relaxed: a mark; set when the manager has refused, and of no other one. */
	return vram != NULL && vram->is_wanted && cnre_vram_is_served(client) &&
	       atomic_load_explicit(&vram->refused, memory_order_relaxed) != (uint64_t)cnre_client_epoch(client) + 1;
}

int cnre_vram_is_served(const struct cnre *client)
{
	/* [VC3] relaxed: a number of the manager's, current when it was read. */
	return atomic_load_explicit(&client->page->vram_devices, memory_order_relaxed) > 0;
}

static void add_table(const struct cnre *client, const struct cnre_vram_table *table, struct cnre_vram_sum *sum)
{
	for (uint32_t i = 0; i < client->object_count; i++) {
		/* [VC4] relaxed: counts. */
		uint64_t word = atomic_load_explicit(&table->ledger->word[i], memory_order_relaxed);

		sum->accesses += CNRE_LEDGER_ACCESSES(word);
		if (CNRE_LEDGER_LEASES(word) != 0)
			sum->leased_bytes += client->shape[client->object[i].shape].payload_bytes;
	}
}

struct cnre_vram_sum cnre_vram_sum(struct cnre *client)
{
	struct cnre_vram_sum sum = {0};

	if (client->vram == NULL)
		return sum;
	/* [VC5] relaxed: a count; before the tables, so that none is counted twice. */
	sum.accesses = atomic_load_explicit(&client->vram->retired, memory_order_relaxed);
	for (uint32_t i = 0; i < CNRE_VRAM_TABLES_MAX; i++) {
		struct cnre_vram_table *table = cnre_vram_table_ref(client, i);

		if (table == NULL)
			continue;
		add_table(client, table, &sum);
		cnre_vram_table_unref(client, table, 1);
	}
	return sum;
}

void cnre_vram_find_tiers(struct cnre *client, uint32_t layer, const uint32_t *experts, uint32_t count, uint8_t *tiers)
{
	for (uint32_t i = 0; client->vram != NULL && i < CNRE_VRAM_DEVICES_MAX; i++) {
		struct cnre_vram_table *table = cnre_vram_table_find(client, i);

		for (uint32_t j = 0; table != NULL && j < count; j++) {
			const struct cnre_entry *entry = &table->directory->entry[client->layer[layer].first_object + experts[j]];

			/* [VC6] relaxed: a look without a lease. */
			if (cnre_word_state(atomic_load_explicit(&entry->state, memory_order_relaxed)) == CNRE_STATE_READY)
				tiers[j] = CNRE_VRAM;
		}
		if (table != NULL)
			cnre_vram_table_unref(client, table, 1);
	}
}
