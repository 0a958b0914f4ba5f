/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pages of a shard a copy is compared in: the first and the last with payload, and of the experts in it one page in
 * every part; where that would be more than MIRROR_SAMPLE_BYTES_MAX over all models, one page of every expert, and where even
 * that is too much, of every second, third, … one. Where in a part is a hash of which part it is: the same at every start,
 * and not the same place in each. Pure.
 */
#ifndef CNRE_MANAGER_MIRROR_SAMPLE_H
#define CNRE_MANAGER_MIRROR_SAMPLE_H

#include "manager/mirror_check.h"
#include "model/catalog.h"

#define MIRROR_PAGE_BYTES 4096u
#define MIRROR_SAMPLE_BYTES_MAX (128ull << 20) /* of experts, in one mirror; without the first and last pages of shards */

struct mirror_density {
	int has_every_part;
	uint32_t every_object;            /* 1: each */
};

struct mirror_density mirror_sample_density(uint64_t parts, uint64_t objects, uint64_t bytes_max);

/*
 * The shards of a model that experts lie in, with their pages: an array of *ret_count, some of catalog->shard_count. 0 or
 * -ENOMEM. The caller gives each a number as `model`, and frees all by mirror_sample_free.
 */
int mirror_sample(const struct model_catalog *catalog, struct mirror_density density, struct mirror_shard **ret_shard,
		  uint32_t *ret_count);
void mirror_sample_free(struct mirror_shard *shard, uint32_t count);

uint64_t mirror_sample_parts(const struct model_catalog *catalog); /* of all experts */

#endif
