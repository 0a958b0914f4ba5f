/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads on their way, as the manager's probes tell them: from load_start on, until the number is used again. And of each expert
 * the stages of its last loads. Pure but for memory.
 */
#ifndef CNRE_TOOLS_INSPECT_LOAD_TABLE_H
#define CNRE_TOOLS_INSPECT_LOAD_TABLE_H

#include "tools/inspect/causes.h"

#include <stdint.h>

#define LOAD_TABLE_ROOM 4096u             /* loads between load_start and publish; of more the oldest is forgotten */
#define LOAD_CHUNKS_MAX 32u               /* of one load that are remembered */
#define LOAD_EXPERTS_MAX (1u << 20)
#define LOAD_STAGES_KEPT 4u               /* of one expert: it may be loaded again before a wait for it is looked at */

enum load_kind { LOAD_DEMAND, LOAD_PREFETCH, LOAD_WARM };

struct load_name {
	uint32_t model, layer, expert;
};

struct load_chunk {
	uint32_t drive;
	uint64_t device, inode, file_off, bytes;
};

struct load_entry {
	uint32_t number;
	int is_used, is_reading;          /* is_reading: between load_start and load_done */
	struct load_name name;
	uint32_t session, kind;
	int32_t status;
	uint64_t slab_bytes, queued_ns, bytes_read, service_ns, verify_ns;
	uint64_t admit_ns, start_ns, done_ns, publish_ns;
	uint64_t used_ns;                 /* first lease since; 0: none */
	uint32_t chunk_count, chunks_beyond; /* beyond: not remembered */
	struct load_chunk chunk[LOAD_CHUNKS_MAX];
};

struct load_expert {                      /* of a hash by load_name */
	struct load_name name;
	int is_used;
	uint32_t number[LOAD_STAGES_KEPT]; /* of its last loads, latest first */
	struct cause_stages stages[LOAD_STAGES_KEPT];
};

struct load_table {
	struct load_entry *entry;         /* [LOAD_TABLE_ROOM], by number modulo it */
	uint32_t reading_count;
	uint32_t *reading;                /* places of entries that are reading, [LOAD_TABLE_ROOM] */
	struct load_expert *expert;       /* open addressing, a power of two */
	uint32_t expert_count, expert_room;
	uint64_t forgotten;               /* loads whose end was not seen, and experts beyond the bound */
};

int load_table_open(struct load_table *table); /* 0 or -ENOMEM */
void load_table_close(struct load_table *table);

/* Each takes the arguments of its probe. Entries are valid until the next load_start of a number modulo LOAD_TABLE_ROOM. */
struct load_entry *load_table_start(struct load_table *table, uint32_t number, const struct load_entry *filled);
void load_table_chunk(struct load_table *table, uint32_t number, const struct load_chunk *chunk);
struct load_entry *load_table_done(struct load_table *table, uint32_t number, const struct load_entry *filled);
struct load_entry *load_table_publish(struct load_table *table, uint32_t number, uint64_t at_ns);
struct load_entry *load_table_find(struct load_table *table, uint32_t number); /* NULL: its start was not seen */

/* The load that is reading this place of a file, in *ret_bytes how much of it from there on; NULL: none. */
const struct load_entry *load_table_reader(const struct load_table *table, uint64_t device, uint64_t inode, uint64_t off,
					   uint64_t *ret_bytes);

/* Whether some load is reading within so many bytes of this place. */
int load_table_is_near(const struct load_table *table, uint64_t device, uint64_t inode, uint64_t off, uint64_t within);

/* The expert's last load, if its number was not used again; NULL. */
struct load_entry *load_table_last(struct load_table *table, const struct load_name *name);

/* Stages of the expert's last load that had begun at that time; NULL: none was seen. */
const struct cause_stages *load_table_stages(const struct load_table *table, const struct load_name *name, uint64_t at_ns);

#endif
