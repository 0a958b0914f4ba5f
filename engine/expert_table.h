/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the experts lie in the shards, for the two cache modes that read them themselves, and how one is read: in
 * as few aligned reads as its parts allow. The cnre mode needs none of this: there the manager knows.
 */
#ifndef ENGINE_EXPERT_TABLE_H
#define ENGINE_EXPERT_TABLE_H

#include "engine/config.h"
#include "engine/expert.h"
#include "engine/shard.h"

#define EXPERT_READ_ALIGNMENT 4096u

struct expert_place {
	struct {
		uint64_t file_off, bytes;
		uint32_t shard;
		uint16_t dtype;
	} part[EXPERT_PARTS];             /* bytes 0: no such part */
	uint64_t bytes;                   /* of all parts */
};

struct expert_table {
	struct expert_place *place;       /* [layers * experts] */
	uint64_t bytes_max;               /* of the largest expert */
	uint64_t buffer_bytes;            /* room that expert_plan_make needs for any expert */
	uint32_t experts;
};

struct expert_run {                       /* one read; all but needed_bytes multiples of the alignment */
	uint64_t file_off, bytes, needed_bytes, buffer_off;
	uint32_t shard;
};

struct expert_plan {
	struct expert_run run[EXPERT_PARTS];
	uint64_t part_off[EXPERT_PARTS];  /* of each part in the buffer */
	uint64_t buffer_bytes;
	uint32_t run_count;
};

/* Returns 0, or -EBADMSG (an expert is missing or of the wrong shape; message says which), -ENOMEM. */
int expert_table_make(struct expert_table *ret_table, const struct config *config, const struct shard_set *shards,
		      char message[ENGINE_MESSAGE_BYTES]);
void expert_table_free(struct expert_table *table);

static inline const struct expert_place *expert_table_place(const struct expert_table *table, uint32_t layer,
							    uint32_t expert)
{
	return &table->place[(size_t)layer * table->experts + expert];
}

/* Pure; adjacent parts become one run. */
void expert_plan_make(const struct expert_place *place, struct expert_plan *ret_plan);

#endif
