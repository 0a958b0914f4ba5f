/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies where in one shard of a checkpoint: its header, the experts, and everything between them, which engines read
 * themselves. Pure but for memory.
 */
#ifndef CNRE_TOOLS_INSPECT_RANGE_MAP_H
#define CNRE_TOOLS_INSPECT_RANGE_MAP_H

#include <stdint.h>

enum range_kind { RANGE_HEADER, RANGE_EXPERT, RANGE_DENSE, RANGE_KINDS };

struct range {                            /* of one expert; its neighbours in the file that are its own are one with it */
	uint64_t begin, bytes;
	uint32_t object;                  /* of the catalog */
};

struct range_map {
	uint64_t header_bytes;
	struct range *range;              /* sorted, apart from each other */
	uint32_t count, room;
};

struct range_piece {
	enum range_kind kind;
	uint32_t object;                  /* of RANGE_EXPERT */
	uint64_t bytes;
};

int range_map_add(struct range_map *map, const struct range *range); /* 0, -EINVAL, -ENOMEM */
void range_map_sort(struct range_map *map);                          /* after the last one; joins what touches */
void range_map_done(struct range_map *map);

/* The first stretch of [off, off + bytes) that is of one kind and object; bytes is not 0. Past the end it is RANGE_DENSE. */
struct range_piece range_map_cut(const struct range_map *map, uint64_t off, uint64_t bytes);

#endif
