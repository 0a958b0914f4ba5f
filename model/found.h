/* SPDX-License-Identifier: Apache-2.0 */
/* The expert tensors that were found in a checkpoint's shards, by layer, expert and name. Reads no file. */
#ifndef CNRE_MODEL_FOUND_H
#define CNRE_MODEL_FOUND_H

#include "model/extents.h"
#include "model/family.h"

#include <stdint.h>

#define FOUND_RANK_MAX 3u                 /* dimensions that are kept; none of ours has more */

struct found {
	uint64_t file_off, bytes;         /* from the start of the shard */
	uint32_t shard;
	uint32_t dimension[FOUND_RANK_MAX]; /* UINT32_MAX: at least as much */
	uint8_t is_there, dtype, stem;
	uint8_t rank;                     /* 0: a scalar, or more than FOUND_RANK_MAX */
	uint8_t is_shared;                /* holds all experts of the layer */
};

struct found_table {
	uint32_t rows, experts, names;    /* rows: layers and what may come after them */
	struct found *entry;              /* [row][expert, or experts: all of the row][name] */
	uint32_t *routed;                 /* [row]: experts that the row's router knows; 0: none was found */
};

/* 0 or -ENOMEM. */
int found_open(struct found_table *table, const struct family *family, const struct family_extents *extents);
void found_close(struct found_table *table); /* one that is all zero too */

/* expert may be table->experts: the tensor of all experts of the row. */
struct found *found_at(const struct found_table *table, uint32_t row, uint32_t expert, uint32_t name);

/* The tensor that an expert's bytes under a name lie in: its own, or the row's. NULL: neither was found. */
const struct found *found_of(const struct found_table *table, uint32_t row, uint32_t expert, uint32_t name);

/* Any tensor of the row, or NULL: a dense layer. */
const struct found *found_any(const struct found_table *table, uint32_t row);

#endif
