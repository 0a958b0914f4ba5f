/* SPDX-License-Identifier: Apache-2.0 */
/* See load_table.h. */
#include "tools/inspect/load_table.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#define EXPERTS_FIRST 1024u

int load_table_open(struct load_table *table)
{
	*table = (struct load_table){.expert_room = EXPERTS_FIRST};
	table->entry = calloc(LOAD_TABLE_ROOM, sizeof table->entry[0]);
	table->reading = calloc(LOAD_TABLE_ROOM, sizeof table->reading[0]);
	table->expert = calloc(table->expert_room, sizeof table->expert[0]);
	if (table->entry != NULL && table->reading != NULL && table->expert != NULL)
		return 0;
	load_table_close(table);
	return -ENOMEM;
}

void load_table_close(struct load_table *table)
{
	free(table->entry);
	free(table->reading);
	free(table->expert);
	*table = (struct load_table){.entry = NULL};
}

/* ---- experts ---- */

static int is_same(const struct load_name *a, const struct load_name *b)
{
	return a->model == b->model && a->layer == b->layer && a->expert == b->expert;
}

/* The expert's place, or the free one where it would be: one is always free. */
static struct load_expert *place_of(struct load_expert *expert, uint32_t room, const struct load_name *name)
{
	uint64_t hash = ((uint64_t)name->model << 40 ^ (uint64_t)name->layer << 20 ^ name->expert) * 0x9e3779b97f4a7c15u;
	uint32_t at = (uint32_t)(hash >> 32) & (room - 1);

	while (expert[at].is_used && !is_same(&expert[at].name, name))
		at = (at + 1) & (room - 1);
	return &expert[at];
}

static int grow(struct load_table *table)
{
	uint32_t room = table->expert_room * 2;
	struct load_expert *grown = room > LOAD_EXPERTS_MAX * 2 ? NULL : calloc(room, sizeof *grown);

	if (grown == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < table->expert_room; i++)
		if (table->expert[i].is_used)
			*place_of(grown, room, &table->expert[i].name) = table->expert[i];
	free(table->expert);
	table->expert = grown;
	table->expert_room = room;
	return 0;
}

static void note_stages(struct load_table *table, const struct load_entry *entry)
{
	struct load_expert *expert = place_of(table->expert, table->expert_room, &entry->name);

	if (!expert->is_used) {
		if (table->expert_count >= table->expert_room / 2 && grow(table) < 0) {
			table->forgotten++;
			return;
		}
		expert = place_of(table->expert, table->expert_room, &entry->name);
		table->expert_count++;
		expert->is_used = 1;
		expert->name = entry->name;
	}
	if (entry->number != expert->number[0] || expert->stages[0].start_ns == 0)
		for (uint32_t i = LOAD_STAGES_KEPT - 1; i > 0; i--) {
			expert->number[i] = expert->number[i - 1];
			expert->stages[i] = expert->stages[i - 1];
		}
	expert->number[0] = entry->number;
	expert->stages[0] = (struct cause_stages){
		.start_ns = entry->start_ns, .done_ns = entry->done_ns, .publish_ns = entry->publish_ns};
}

const struct cause_stages *load_table_stages(const struct load_table *table, const struct load_name *name, uint64_t at_ns)
{
	const struct load_expert *expert = place_of(table->expert, table->expert_room, name);

	for (uint32_t i = 0; expert->is_used && i < LOAD_STAGES_KEPT; i++)
		if (expert->stages[i].start_ns != 0 && expert->stages[i].start_ns <= at_ns)
			return &expert->stages[i];
	return NULL;
}

/* ---- loads ---- */

struct load_entry *load_table_find(struct load_table *table, uint32_t number)
{
	struct load_entry *entry = &table->entry[number % LOAD_TABLE_ROOM];

	return entry->is_used && entry->number == number ? entry : NULL;
}

struct load_entry *load_table_last(struct load_table *table, const struct load_name *name)
{
	const struct load_expert *expert = place_of(table->expert, table->expert_room, name);
	struct load_entry *entry = expert->is_used ? load_table_find(table, expert->number[0]) : NULL;

	return entry != NULL && is_same(&entry->name, name) ? entry : NULL;
}

static void end_reading(struct load_table *table, struct load_entry *entry)
{
	uint32_t place = (uint32_t)(entry - table->entry);

	if (!entry->is_reading)
		return;
	entry->is_reading = 0;
	for (uint32_t i = 0; i < table->reading_count; i++)
		if (table->reading[i] == place) {
			table->reading[i] = table->reading[--table->reading_count];
			return;
		}
}

struct load_entry *load_table_start(struct load_table *table, uint32_t number, const struct load_entry *filled)
{
	uint32_t place = number % LOAD_TABLE_ROOM;
	struct load_entry *entry = &table->entry[place];

	table->forgotten += (uint64_t)(entry->is_reading != 0);
	end_reading(table, entry);
	*entry = *filled;
	entry->number = number;
	entry->is_used = entry->is_reading = 1;
	entry->chunk_count = entry->chunks_beyond = 0;
	table->reading[table->reading_count++] = place;
	note_stages(table, entry);
	return entry;
}

void load_table_chunk(struct load_table *table, uint32_t number, const struct load_chunk *chunk)
{
	struct load_entry *entry = load_table_find(table, number);

	if (entry == NULL)
		return;
	if (!entry->is_reading) { /* again, from another replica */
		entry->is_reading = 1;
		table->reading[table->reading_count++] = (uint32_t)(entry - table->entry);
	}
	if (entry->chunk_count == LOAD_CHUNKS_MAX)
		entry->chunks_beyond++;
	else
		entry->chunk[entry->chunk_count++] = *chunk;
}

struct load_entry *load_table_done(struct load_table *table, uint32_t number, const struct load_entry *filled)
{
	struct load_entry *entry = load_table_find(table, number);

	if (entry == NULL)
		return NULL;
	end_reading(table, entry);
	entry->done_ns = filled->done_ns;
	entry->status = filled->status;
	entry->bytes_read = filled->bytes_read;
	entry->service_ns = filled->service_ns;
	note_stages(table, entry);
	return entry;
}

struct load_entry *load_table_publish(struct load_table *table, uint32_t number, uint64_t at_ns)
{
	struct load_entry *entry = load_table_find(table, number);

	if (entry == NULL)
		return NULL;
	end_reading(table, entry);
	entry->publish_ns = at_ns;
	note_stages(table, entry);
	return entry;
}

const struct load_entry *load_table_reader(const struct load_table *table, uint64_t device, uint64_t inode, uint64_t off,
					   uint64_t *ret_bytes)
{
	for (uint32_t i = 0; i < table->reading_count; i++) {
		const struct load_entry *entry = &table->entry[table->reading[i]];

		for (uint32_t k = 0; k < entry->chunk_count; k++) {
			const struct load_chunk *chunk = &entry->chunk[k];

			if (chunk->device != device || chunk->inode != inode || off < chunk->file_off ||
			    off - chunk->file_off >= chunk->bytes)
				continue;
			*ret_bytes = chunk->bytes - (off - chunk->file_off);
			return entry;
		}
	}
	return NULL;
}

int load_table_is_near(const struct load_table *table, uint64_t device, uint64_t inode, uint64_t off, uint64_t within)
{
	for (uint32_t i = 0; i < table->reading_count; i++) {
		const struct load_entry *entry = &table->entry[table->reading[i]];

		for (uint32_t k = 0; k < entry->chunk_count; k++) {
			const struct load_chunk *chunk = &entry->chunk[k];

			if (chunk->device == device && chunk->inode == inode && off + within >= chunk->file_off &&
			    off < chunk->file_off + chunk->bytes + within)
				return 1;
		}
	}
	return 0;
}
