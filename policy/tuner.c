/* SPDX-License-Identifier: Apache-2.0 */
/* Samples, fits, and slopes; see tuner.h. */
#include "policy/tuner.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>

struct layer {
	struct felt_samples samples;
	struct tuner_layer known;
	uint32_t since_fit, since_age;
	double level;                /* misses a visit, over the last visits */
	double share;                /* of the mean slope, as the policy has it; 0: never told, which is as the mean */
};

struct tuner {
	uint32_t layer_count;
	struct layer layer[];
};

#define LEVEL_SHARE (1.0 / 64)       /* of the newest visit in the level */

int tuner_create(struct tuner **ret_tuner, uint32_t layer_count)
{
	struct tuner *tuner = calloc(1, sizeof *tuner + layer_count * sizeof tuner->layer[0]);

	if (tuner == NULL)
		return -ENOMEM;
	tuner->layer_count = layer_count;
	*ret_tuner = tuner;
	return 0;
}

struct tuner *tuner_destroy(struct tuner *tuner)
{
	free(tuner);
	return NULL;
}

/* Of the layers that were fitted; 0: none was. */
static double mean_slope_us(const struct tuner *tuner)
{
	double sum_us = 0;
	uint32_t count = 0;

	for (uint32_t i = 0; i < tuner->layer_count; i++) {
		const struct layer *layer = &tuner->layer[i];

		if (layer->known.curve.miss_us > 0) {
			sum_us += felt_marginal_us(&layer->known.curve, layer->level);
			count++;
		}
	}
	return count == 0 ? 0 : sum_us / count;
}

static double within(double value, double low, double high)
{
	return value < low ? low : value > high ? high : value;
}

/*
 * The policy gets a layer's slope over the mean of that time, never microseconds: layers are fitted at different times, some
 * never, and one number of microseconds would be right beside another only if they were of one moment. A layer of which
 * nothing is known is like the mean, and no two layers are ever further apart than the spread allows.
 */
static void tell(const struct layer *layer, struct policy *policy, uint32_t index)
{
	policy_set_miss_us(policy, index, (float)layer->share);
}

static double slope_us(const struct layer *layer, double mean_us)
{
	double own_us = felt_marginal_us(&layer->known.curve, layer->level);
	double share = (double)layer->known.visits / (double)(layer->known.visits + TUNER_SHRINK_SAMPLES);

	return within(own_us * share + mean_us * (1 - share), mean_us / TUNER_SPREAD_MAX, mean_us * TUNER_SPREAD_MAX);
}

static void fit(struct tuner *tuner, struct policy *policy, uint32_t index)
{
	struct layer *layer = &tuner->layer[index];
	double mean_us;

	layer->since_fit = 0;
	if (felt_fit(&layer->samples, &layer->known.curve) < 0 && layer->known.curve.miss_us <= 0)
		return;
	mean_us = mean_slope_us(tuner);
	if (mean_us <= 0)
		return; /* nobody waits for anything: all layers are alike */
	layer->known.miss_us = slope_us(layer, mean_us);
	layer->share = layer->known.miss_us / mean_us;
	tell(layer, policy, index);
}

void tuner_visit(struct tuner *tuner, struct policy *policy, uint32_t layer_index, uint32_t misses, double wait_us)
{
	struct layer *layer = &tuner->layer[layer_index];

	CNRE_CHECK(layer_index < tuner->layer_count);
	felt_add(&layer->samples, misses, wait_us);
	layer->known.visits++;
	layer->known.misses += misses;
	layer->known.wait_us += wait_us;
	layer->level += (misses - layer->level) * LEVEL_SHARE;
	if (++layer->since_age >= TUNER_AGE_SAMPLES) {
		felt_age(&layer->samples);
		layer->since_age = 0;
	}
	if (++layer->since_fit >= TUNER_FIT_SAMPLES)
		fit(tuner, policy, layer_index);
}

void tuner_get_layer(const struct tuner *tuner, uint32_t layer, struct tuner_layer *ret_layer)
{
	CNRE_CHECK(layer < tuner->layer_count);
	*ret_layer = tuner->layer[layer].known;
}

void tuner_apply(const struct tuner *tuner, struct policy *policy)
{
	for (uint32_t i = 0; i < tuner->layer_count; i++)
		if (tuner->layer[i].share > 0)
			tell(&tuner->layer[i], policy, i);
}
