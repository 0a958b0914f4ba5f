/* SPDX-License-Identifier: Apache-2.0 */
/* Learning from train traces; see train.h. */
#include "tools/sim/train.h"

#include "policy/allocate.h"
#include "policy/felt.h"
#include "tools/sim/arm.h"
#include "tools/sim/prior.h"
#include "tools/sim/visit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* ---- counting ---- */

struct counting {
	struct sim_train *train;
	const struct sim_geometry *geometry;
	uint32_t *first_half; /* [object_count] */
	uint32_t *mark;       /* [object_count] visit that counted it */
	uint32_t visit;
	double loss, uniform_loss; /* sums over the second half */
	uint64_t second_uses;
	uint64_t *first_uses; /* [layer_count] */
};

static void count_use(struct counting *counting, uint32_t object)
{
	counting->train->use_count[object] += counting->train->use_count[object] < UINT32_MAX;
	curves_access(counting->train->curves, object);
}

/* Laplace's rule: an expert not seen yet is one that comes seldom, not one that never comes. */
static void lose(struct counting *counting, uint32_t layer, uint32_t object)
{
	double experts = counting->geometry->experts[layer];

	counting->loss -= log((counting->first_half[object] + 1.0) / ((double)counting->first_uses[layer] + experts));
	counting->uniform_loss += log(experts);
	counting->second_uses++;
}

static void count_visit(struct counting *counting, const struct sim_trace *trace, const struct sim_visit *visit,
			int second)
{
	counting->visit++;
	counting->train->visits[visit->layer]++;
	for (uint64_t i = visit->first_row; i < visit->end_row; i++) {
		for (uint32_t k = 0; k < trace->row[i].count; k++) {
			uint32_t object = trace->object[trace->row[i].first + k];

			if (counting->mark[object] == counting->visit)
				continue;
			counting->mark[object] = counting->visit;
			count_use(counting, object);
			if (second)
				lose(counting, visit->layer, object);
			else
				counting->first_half[object]++, counting->first_uses[visit->layer]++;
		}
	}
}

/* The first half of the rows of all traces teaches, the second examines. */
static void count_traces(struct counting *counting, const struct sim_trace *trace, uint32_t traces)
{
	uint64_t all = 0, done = 0;

	for (uint32_t i = 0; i < traces; i++)
		all += trace[i].row_count;
	for (uint32_t i = 0; i < traces; i++) {
		for (uint64_t row = 0; row < trace[i].row_count;) {
			struct sim_visit visit = sim_visit_at(&trace[i], row);

			count_visit(counting, &trace[i], &visit, done + row >= all / 2);
			row = visit.end_row;
		}
		done += trace[i].row_count;
	}
}

static int compare_ranks(const void *a, const void *b, void *context)
{
	const uint32_t *count = context, left = *(const uint32_t *)a, right = *(const uint32_t *)b;

	if (count[left] != count[right])
		return count[left] < count[right] ? -1 : 1;
	return left > right ? -1 : left < right; /* of equals the lower number ranks higher */
}

static void rank(struct sim_train *train, uint32_t objects)
{
	train->ranked_count = 0;
	for (uint32_t i = 0; i < objects; i++)
		if (train->use_count[i] > 0)
			train->ranked[train->ranked_count++] = i;
	qsort_r(train->ranked, train->ranked_count, sizeof *train->ranked, compare_ranks, train->use_count);
}

static int open_counts(struct sim_train *train, struct counting *counting)
{
	const struct sim_geometry *geometry = counting->geometry;

	train->use_count = calloc(geometry->object_count, sizeof *train->use_count);
	train->ranked = calloc(geometry->object_count, sizeof *train->ranked);
	train->visits = calloc(geometry->layer_count, sizeof *train->visits);
	counting->first_half = calloc(geometry->object_count, sizeof *counting->first_half);
	counting->mark = calloc(geometry->object_count, sizeof *counting->mark);
	counting->first_uses = calloc(geometry->layer_count, sizeof *counting->first_uses);
	if (train->use_count == NULL || train->ranked == NULL || train->visits == NULL ||
	    counting->first_half == NULL || counting->mark == NULL || counting->first_uses == NULL)
		return -ENOMEM;
	return curves_create(&train->curves, geometry->object_count, geometry->layer_count, geometry->layer_of);
}

int sim_train_open(struct sim_train *ret_train, const struct sim_trace *trace, uint32_t traces,
		   const struct sim_geometry *geometry)
{
	struct sim_train train = {0};
	struct counting counting = {.train = &train, .geometry = geometry};
	int r = open_counts(&train, &counting);

	if (r == 0) {
		count_traces(&counting, trace, traces);
		rank(&train, geometry->object_count);
		if (counting.second_uses > 0) {
			train.log_loss = counting.loss / (double)counting.second_uses;
			train.uniform_log_loss = counting.uniform_loss / (double)counting.second_uses;
		}
		train.prior_holds = train.log_loss < train.uniform_log_loss;
		*ret_train = train;
		train = (struct sim_train){0};
	}
	free(counting.first_half);
	free(counting.mark);
	free(counting.first_uses);
	sim_train_close(&train);
	return r;
}

int sim_train_add_usage(struct sim_train *train, const char *path, const struct sim_geometry *geometry, char *message,
			size_t message_bytes)
{
	int r = sim_prior_add_usage(train->use_count, path, geometry, message, message_bytes);

	if (r < 0)
		return r;
	if (train->uniform_log_loss == 0)
		train->prior_holds = 1;
	rank(train, geometry->object_count);
	return 0;
}

void sim_train_close(struct sim_train *train)
{
	free(train->use_count);
	free(train->ranked);
	free(train->visits);
	(void)curves_destroy(train->curves);
	*train = (struct sim_train){0};
}

/* ---- capacities ---- */

enum { PLAIN, COMPRESSED }; /* representations of a point */

int sim_train_equal(const struct sim_arm *arm, const struct sim_model *model, uint32_t *ret_capacity)
{
	struct sim_arm_setup made;
	uint64_t left_bytes;
	int r = sim_arm_setup_open(&made, arm, model);

	if (r < 0)
		return r;
	r = policy_equal_capacities(&made.setup, ret_capacity, &left_bytes);
	sim_arm_setup_close(&made);
	return r;
}

static uint32_t most_slots(const struct sim_model *model, uint32_t layer)
{
	uint32_t experts = model->geometry->experts[layer], bound = model->manifest->layer[layer].max_experts;

	return bound < experts ? bound : experts;
}

/* What a layer costs with so many slots, by the train curves: misses, and hits that have to be decompressed. */
static double layer_cost(const struct sim_train *train, const struct sim_arm *arm, const struct sim_model *model,
			 uint32_t layer, uint32_t slots, uint32_t representation)
{
	double misses = (double)curves_misses(train->curves, layer, slots);
	double hits = (double)curves_accesses(train->curves, layer) - misses;

	return misses * sim_felt_curve(&model->manifest->layer[layer]).miss_us +
	       (representation == COMPRESSED ? hits * arm->compressed_us : 0);
}

/* Every capacity of every layer is a point, in each representation: none that could be the useful one is left out. */
static void fill_points(const struct sim_train *train, const struct sim_arm *arm, const struct sim_model *model,
			struct allocate_point *point, struct allocate_layer *layer)
{
	uint32_t representations = arm->compressed_ratio > 0 ? 2 : 1;

	for (uint32_t i = 0; i < model->geometry->layer_count; i++) {
		uint32_t slots_most = most_slots(model, i);

		layer[i] = (struct allocate_layer){.point = point, .point_count = (slots_most + 1) * representations};
		for (uint32_t as = PLAIN; as < representations; as++) {
			double bytes = (double)sim_arm_object_bytes(arm, model, i) / (as == COMPRESSED ? arm->compressed_ratio : 1);

			for (uint32_t slots = 0; slots <= slots_most; slots++)
				*point++ = (struct allocate_point){
					.bytes = slots * (uint64_t)fmax(1, ceil(bytes)),
					.cost = layer_cost(train, arm, model, i, slots, as),
					.objects = slots,
					.representation = as,
				};
		}
	}
}

/* Half-way to equal, since train curves are noisy; what halving leaves over goes to those that were to get more. */
static void shrink(const struct sim_arm *arm, const struct sim_model *model, const uint32_t *wanted, uint32_t *capacity)
{
	uint64_t left_bytes = sim_arm_budget(arm, model);
	uint32_t layers = model->geometry->layer_count;

	for (uint32_t i = 0; i < layers; i++) {
		uint32_t half = (uint32_t)(((uint64_t)capacity[i] + wanted[i]) / 2), most = most_slots(model, i);

		capacity[i] = half < most ? half : most;
		left_bytes -= capacity[i] * sim_arm_object_bytes(arm, model, i);
	}
	for (uint32_t i = 0; i < layers; i++)
		if (wanted[i] > capacity[i] && sim_arm_object_bytes(arm, model, i) <= left_bytes) {
			capacity[i]++;
			left_bytes -= sim_arm_object_bytes(arm, model, i);
		}
}

/* ret_compressed: NULL where no layer may be. */
static int allocate_layers(const struct sim_train *train, const struct sim_arm *arm, const struct sim_model *model,
			   uint32_t *ret_wanted, unsigned char *ret_compressed)
{
	uint32_t layers = model->geometry->layer_count;
	struct allocate_layer *layer = calloc(layers, sizeof *layer);
	struct allocate_point *point = calloc(2 * ((size_t)model->geometry->object_count + layers), sizeof *point);
	struct allocate_result result;
	int r = -ENOMEM;

	if (layer != NULL && point != NULL) {
		fill_points(train, arm, model, point, layer);
		r = allocate(layer, layers, sim_arm_budget(arm, model), ret_wanted, &result);
		for (uint32_t i = 0; r == 0 && i < layers; i++) {
			const struct allocate_point *chosen = &layer[i].point[ret_wanted[i]];

			if (ret_compressed != NULL)
				ret_compressed[i] = chosen->representation == COMPRESSED;
			ret_wanted[i] = chosen->objects;
		}
	}
	free(layer);
	free(point);
	return r;
}

int sim_train_capacities(const struct sim_train *train, const struct sim_arm *arm, const struct sim_model *model,
			 uint32_t *ret_capacity)
{
	uint32_t *wanted = calloc(model->geometry->layer_count, sizeof *wanted);
	int r = wanted == NULL ? -ENOMEM : sim_train_equal(arm, model, ret_capacity);

	if (r == 0)
		r = allocate_layers(train, arm, model, wanted, NULL);
	if (r == 0)
		shrink(arm, model, wanted, ret_capacity);
	free(wanted);
	return r;
}

int sim_train_represent(const struct sim_train *train, const struct sim_arm *arm, const struct sim_model *model,
			uint32_t *ret_capacity, unsigned char *ret_compressed)
{
	return allocate_layers(train, arm, model, ret_capacity, ret_compressed);
}

/* ---- what a miss more costs ---- */

#define MARGINAL_LEAST 0.05 /* of the slope: a layer whose misses hide today is not free tomorrow */

int sim_train_marginals(const struct sim_train *train, const struct sim_arm *arm, const struct sim_model *model,
			float *ret_miss_us)
{
	uint32_t layers = model->geometry->layer_count, *capacity = calloc(layers, sizeof *capacity);
	int r = capacity == NULL ? -ENOMEM : sim_train_equal(arm, model, capacity);

	for (uint32_t i = 0; r == 0 && i < layers; i++) {
		struct felt_curve curve = sim_felt_curve(&model->manifest->layer[i]);
		double us = curve.miss_us;

		if (train != NULL && train->visits[i] > 0)
			us = felt_marginal_us(&curve, (double)curves_misses(train->curves, i, capacity[i]) /
							      (double)train->visits[i]);
		ret_miss_us[i] = (float)fmax(us, MARGINAL_LEAST * curve.miss_us);
	}
	free(capacity);
	return r;
}
