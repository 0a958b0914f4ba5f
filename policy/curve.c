/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Misses of LRU at every capacity; see curve.h. LRU with any number of slots holds the objects last used, so an access
 * would have hit with more slots than there are others used since (Mattson and others, 1970). That number is kept of each
 * object, as its rank: when an object is used, those before it step back by one, and it is at 0. No stack is walked and
 * none is moved: a layer's ranks are one short array, and the compiler makes vectors of the loop.
 */
#include "policy/curve.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define UNSEEN UINT16_MAX            /* the rank of what was not used yet */

struct curve_layer {
	uint32_t first, count;       /* its objects */
	uint64_t accesses;
	struct curve_distances distances;
};

struct curves {
	uint32_t object_count, layer_count;
	struct curve_layer *layer;   /* [layer_count] */
	uint32_t *layer_of;          /* [object_count] */
	uint16_t *rank;              /* [object_count] */
	uint64_t *hits;              /* [object_count], of a layer first + rank: accesses of objects with that rank */
};

static int fill(struct curves *curves, const uint32_t *layer_of)
{
	for (uint32_t i = 0; i < curves->object_count; i++) {
		struct curve_layer *layer;

		if (layer_of[i] >= curves->layer_count || (i > 0 && layer_of[i] < layer_of[i - 1]))
			return -EINVAL;
		layer = &curves->layer[layer_of[i]];
		if (layer->count++ == 0)
			layer->first = i;
		if (layer->count > UNSEEN)
			return -EINVAL;
		curves->layer_of[i] = layer_of[i];
		curves->rank[i] = UNSEEN;
	}
	return 0;
}

int curves_create(struct curves **ret_curves, uint32_t object_count, uint32_t layer_count, const uint32_t *layer_of)
{
	struct curves *curves;
	int r;

	if (object_count == 0 || layer_count == 0)
		return -EINVAL;
	curves = calloc(1, sizeof *curves);
	if (curves == NULL)
		return -ENOMEM;
	curves->object_count = object_count;
	curves->layer_count = layer_count;
	curves->layer = calloc(layer_count, sizeof *curves->layer);
	curves->layer_of = calloc(object_count, sizeof *curves->layer_of);
	curves->rank = calloc(object_count, sizeof *curves->rank);
	curves->hits = calloc(object_count, sizeof *curves->hits);
	r = curves->layer == NULL || curves->layer_of == NULL || curves->rank == NULL || curves->hits == NULL
		    ? -ENOMEM : fill(curves, layer_of);
	if (r < 0) {
		(void)curves_destroy(curves);
		return r;
	}
	*ret_curves = curves;
	return 0;
}

struct curves *curves_destroy(struct curves *curves)
{
	if (curves == NULL)
		return NULL;
	free(curves->layer);
	free(curves->layer_of);
	free(curves->rank);
	free(curves->hits);
	free(curves);
	return NULL;
}

/* Who stood before `rank` stands one further back. */
static void step_back(uint16_t *restrict ranks, uint32_t count, uint16_t rank)
{
	for (uint32_t i = 0; i < count; i++)
		ranks[i] = (uint16_t)(ranks[i] + (ranks[i] < rank));
}

static void count_distance(struct curve_distances *distances, uint16_t rank)
{
	if (rank == UNSEEN) {
		distances->first_uses++;
		return;
	}
	distances->sum += rank;
	distances->bucket[rank == 0 ? 0 : 32 - __builtin_clz(rank)]++;
}

void curves_access(struct curves *curves, uint32_t object)
{
	struct curve_layer *layer;
	uint16_t rank;

	CNRE_CHECK(object < curves->object_count);
	layer = &curves->layer[curves->layer_of[object]];
	rank = curves->rank[object];
	layer->accesses++;
	count_distance(&layer->distances, rank);
	if (rank != UNSEEN)
		curves->hits[layer->first + rank]++;
	if (rank == 0)
		return;
	step_back(curves->rank + layer->first, layer->count, rank);
	curves->rank[object] = 0;
}

static uint64_t sum_of(const uint64_t *hits, uint32_t count)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < count; i++)
		sum += hits[i];
	return sum;
}

void curves_age(struct curves *curves)
{
	for (uint32_t i = 0; i < curves->layer_count; i++) {
		struct curve_layer *layer = &curves->layer[i];
		uint64_t *hits = curves->hits + layer->first;
		uint64_t first_uses = layer->accesses - sum_of(hits, layer->count);

		for (uint32_t rank = 0; rank < layer->count; rank++)
			hits[rank] /= 2;
		layer->accesses = first_uses / 2 + sum_of(hits, layer->count);
	}
}

uint64_t curves_misses(const struct curves *curves, uint32_t layer, uint32_t slots)
{
	const struct curve_layer *curve = &curves->layer[layer];

	CNRE_CHECK(layer < curves->layer_count);
	return curve->accesses - sum_of(curves->hits + curve->first, slots < curve->count ? slots : curve->count);
}

uint64_t curves_accesses(const struct curves *curves, uint32_t layer)
{
	CNRE_CHECK(layer < curves->layer_count);
	return curves->layer[layer].accesses;
}

const struct curve_distances *curves_distances(const struct curves *curves, uint32_t layer)
{
	CNRE_CHECK(layer < curves->layer_count);
	return &curves->layer[layer].distances;
}
