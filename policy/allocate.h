/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capacities of layers from their cost curves: water-filling on the lower convex hull of each, by cost saved a byte. Every
 * feasible capacity is a breakpoint, so a plateau before a drop is crossed in one step or not at all; what is left over
 * is filled with what still fits and still helps, and said. Deterministic: ties go to the lower layer.
 */
#ifndef CNRE_POLICY_ALLOCATE_H
#define CNRE_POLICY_ALLOCATE_H

#include <stdint.h>

/* One way to spend bytes on a layer: that many objects, in one representation (0 plain, 1 compressed). */
struct allocate_point {
	uint64_t bytes;
	double cost;                 /* of all the layer's accesses with that much: felt time, or misses */
	uint32_t objects;
	uint32_t representation;
};

struct allocate_layer {
	const struct allocate_point *point; /* any order; one of them with bytes 0 */
	uint32_t point_count;
};

struct allocate_result {
	uint64_t used_bytes, unused_bytes;
	double cost;
};

/*
 * allocate - the points to choose, one a layer
 *
 * @ret_choice   [layer_count] index into the layer's points
 *
 * Returns: 0, -EINVAL (a layer without a point of 0 bytes, a cost that is no number) or -ENOMEM. Never over budget. The
 *          cost is above the least possible by no more than what the first hull segment that did not fit would have
 *          saved; nothing is left that fits and saves.
 */
int allocate(const struct allocate_layer *layer, uint32_t layer_count, uint64_t budget_bytes, uint32_t *ret_choice,
	     struct allocate_result *ret_result);

#endif
