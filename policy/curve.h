/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Misses of LRU at every capacity at once, per layer, exactly (Mattson): each access costs a pass over the layer's ranks.
 * At 256 experts that is some tens of nanoseconds, so nothing is sampled.
 */
#ifndef CNRE_POLICY_CURVE_H
#define CNRE_POLICY_CURVE_H

#include <stdint.h>

struct curves;

/* 0, -EINVAL or -ENOMEM. layer_of: ascending, [object_count]; at most 65535 objects in a layer. */
int curves_create(struct curves **ret_curves, uint32_t object_count, uint32_t layer_count, const uint32_t *layer_of);
struct curves *curves_destroy(struct curves *curves); /* NULL is fine; returns NULL */

void curves_access(struct curves *curves, uint32_t object);
/* Halves every count; the stacks stay. */
void curves_age(struct curves *curves);

/* Accesses that would have missed with `slots` slots in that layer; with none: all. First uses miss at every capacity. */
uint64_t curves_misses(const struct curves *curves, uint32_t layer, uint32_t slots);
uint64_t curves_accesses(const struct curves *curves, uint32_t layer);

/*
 * Reuse distances since the beginning, which age does not touch: accesses by how many other objects of the layer were used
 * since the same object was. Bucket 0: none, 1: one, 2: two or three, and so on; bucket i ends with 2^i - 1.
 */
#define CURVE_DISTANCES 17u
struct curve_distances {
	uint64_t first_uses;         /* at no distance at all */
	uint64_t sum;                /* of all that are counted in buckets */
	uint64_t bucket[CURVE_DISTANCES];
};
const struct curve_distances *curves_distances(const struct curves *curves, uint32_t layer);

#endif
