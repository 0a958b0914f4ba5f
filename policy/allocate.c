/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capacities from cost curves; see allocate.h. A curve need not be convex: four slots may save what three do not. So each
 * layer is taken along the lower convex hull of its points, whose segments cross a plateau whole, and segments of all
 * layers are bought in the order of what they save a byte. Were fractions for sale, this would be the best that can be
 * had. They are not, and the first segment that no longer fits is all that can be lost.
 */
#include "policy/allocate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* From one point of a layer to the next one of its hull. */
struct segment {
	uint32_t layer, from, to;    /* points */
	uint32_t number;             /* in its layer */
	double slope;                /* cost saved a byte; > 0, and does not rise along a hull */
};

static double slope_between(const struct allocate_point *from, const struct allocate_point *to)
{
	return (from->cost - to->cost) / (double)(to->bytes - from->bytes);
}

/* ---- hulls ---- */

struct indexed {
	const struct allocate_point *point;
	uint32_t index;
};

static int by_bytes(const void *left, const void *right)
{
	const struct indexed *a = left, *b = right;

	if (a->point->bytes != b->point->bytes)
		return a->point->bytes < b->point->bytes ? -1 : 1;
	if (a->point->cost != b->point->cost)
		return a->point->cost < b->point->cost ? -1 : 1;
	return a->index < b->index ? -1 : a->index > b->index;
}

/* Sorts the layer's points and leaves those of the hull, from 0 bytes on; their number, or -EINVAL. */
static long find_hull(const struct allocate_layer *layer, struct indexed *hull)
{
	long count = 0;

	for (uint32_t i = 0; i < layer->point_count; i++) {
		if (!isfinite(layer->point[i].cost))
			return -EINVAL;
		hull[i] = (struct indexed){&layer->point[i], i};
	}
	qsort(hull, layer->point_count, sizeof *hull, by_bytes);
	if (layer->point_count == 0 || hull[0].point->bytes != 0)
		return -EINVAL;
	for (uint32_t i = 0; i < layer->point_count; i++) {
		struct indexed next = hull[i];

		if (count > 0 && hull[count - 1].point->cost <= next.point->cost)
			continue; /* more bytes for nothing */
		/* Points on the line between others stay: what is bought in two steps may fit in one. */
		while (count > 1 && slope_between(hull[count - 1].point, next.point) >
					    slope_between(hull[count - 2].point, hull[count - 1].point))
			count--;
		hull[count++] = next;
	}
	return count;
}

/* ---- water-filling ---- */

struct allocation {
	const struct allocate_layer *layer;
	uint32_t layer_count;
	uint64_t left_bytes;
	uint32_t *choice;            /* [layer_count] */
	struct segment *segment;
	size_t segment_count;
};

static const struct allocate_point *chosen(const struct allocation *allocation, uint32_t layer)
{
	return &allocation->layer[layer].point[allocation->choice[layer]];
}

static int add_layer(struct allocation *allocation, uint32_t layer, struct indexed *hull)
{
	long count = find_hull(&allocation->layer[layer], hull);

	if (count < 0)
		return (int)count;
	allocation->choice[layer] = hull[0].index;
	for (uint32_t i = 1; i < (uint32_t)count; i++)
		allocation->segment[allocation->segment_count++] = (struct segment){
			.layer = layer, .from = hull[i - 1].index, .to = hull[i].index, .number = i,
			.slope = slope_between(hull[i - 1].point, hull[i].point)};
	return 0;
}

static int by_slope(const void *left, const void *right)
{
	const struct segment *a = left, *b = right;

	if (a->slope != b->slope)
		return a->slope > b->slope ? -1 : 1;
	if (a->layer != b->layer)
		return a->layer < b->layer ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

/* The layer's choice becomes that point, if the bytes are there. */
static void buy(struct allocation *allocation, uint32_t layer, uint32_t point)
{
	uint64_t bytes = allocation->layer[layer].point[point].bytes - chosen(allocation, layer)->bytes;

	if (bytes > allocation->left_bytes)
		return;
	allocation->left_bytes -= bytes;
	allocation->choice[layer] = point;
}

static void buy_segments(struct allocation *allocation)
{
	qsort(allocation->segment, allocation->segment_count, sizeof *allocation->segment, by_slope);
	for (size_t i = 0; i < allocation->segment_count; i++) {
		const struct segment *segment = &allocation->segment[i];

		/* Otherwise one before it did not fit. */
		if (allocation->choice[segment->layer] == segment->from)
			buy(allocation, segment->layer, segment->to);
	}
}

/* What fits into the bytes left and saves most a byte, on a hull or not. 0: nothing fits that saves anything. */
static int find_filling(const struct allocation *allocation, struct segment *ret_best)
{
	struct segment best = {.slope = 0};

	for (uint32_t layer = 0; layer < allocation->layer_count; layer++) {
		const struct allocate_point *from = chosen(allocation, layer), *point = allocation->layer[layer].point;

		for (uint32_t i = 0; i < allocation->layer[layer].point_count; i++) {
			double slope;

			if (point[i].bytes <= from->bytes || point[i].bytes - from->bytes > allocation->left_bytes)
				continue;
			slope = slope_between(from, &point[i]);
			if (slope > best.slope)
				best = (struct segment){.layer = layer, .to = i, .slope = slope};
		}
	}
	*ret_best = best;
	return best.slope > 0;
}

static void tell(const struct allocation *allocation, uint64_t budget_bytes, struct allocate_result *ret_result)
{
	struct allocate_result result = {
		.used_bytes = budget_bytes - allocation->left_bytes, .unused_bytes = allocation->left_bytes};

	for (uint32_t layer = 0; layer < allocation->layer_count; layer++)
		result.cost += chosen(allocation, layer)->cost;
	*ret_result = result;
}

static int run(struct allocation *allocation, struct indexed *hull)
{
	struct segment filling;

	for (uint32_t layer = 0; layer < allocation->layer_count; layer++) {
		int r = add_layer(allocation, layer, hull);

		if (r < 0)
			return r;
	}
	buy_segments(allocation);
	while (find_filling(allocation, &filling)) /* each time, fewer bytes are left */
		buy(allocation, filling.layer, filling.to);
	return 0;
}

int allocate(const struct allocate_layer *layer, uint32_t layer_count, uint64_t budget_bytes, uint32_t *ret_choice,
	     struct allocate_result *ret_result)
{
	struct allocation allocation = {.layer = layer, .layer_count = layer_count, .left_bytes = budget_bytes};
	struct indexed *hull;
	size_t points = 0, most = 0;
	int r = -ENOMEM;

	for (uint32_t i = 0; i < layer_count; i++) {
		points += layer[i].point_count;
		most = most > layer[i].point_count ? most : layer[i].point_count;
	}
	/* One more than needed: none is no request for no memory. */
	hull = calloc(most + 1, sizeof *hull);
	allocation.segment = calloc(points + 1, sizeof *allocation.segment);
	allocation.choice = calloc((size_t)layer_count + 1, sizeof *allocation.choice);
	if (hull != NULL && allocation.segment != NULL && allocation.choice != NULL)
		r = run(&allocation, hull);
	if (r == 0) {
		for (uint32_t i = 0; i < layer_count; i++)
			ret_choice[i] = allocation.choice[i];
		tell(&allocation, budget_bytes, ret_result);
	}
	free(allocation.choice);
	free(allocation.segment);
	free(hull);
	return r;
}
