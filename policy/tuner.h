/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From measured waits to what a policy believes of a layer's misses: samples of visits a layer, a curve fitted from time
 * to time, and its slope at today's level given to the policy as a multiple of the mean of all. What few visits say of one
 * layer is drawn towards that mean. The manager and the simulator use it alike, so a recorded run tunes a replay as it tuned
 * the run.
 */
#ifndef CNRE_POLICY_TUNER_H
#define CNRE_POLICY_TUNER_H

#include "policy/felt.h"
#include "policy/policy.h"

#define TUNER_FIT_SAMPLES 256u       /* visits of a layer from one fit to the next */
#define TUNER_AGE_SAMPLES 4096u      /* then what was seen counts half */
#define TUNER_SHRINK_SAMPLES 64u     /* as many visits as the mean of all layers weighs */
#define TUNER_SPREAD_MAX 4.0         /* a layer's slope is within that factor of the mean */

struct tuner;

int tuner_create(struct tuner **ret_tuner, uint32_t layer_count); /* 0 or -ENOMEM */
struct tuner *tuner_destroy(struct tuner *tuner);

/* One visit was over: its physical misses, and how long the caller was blocked. */
void tuner_visit(struct tuner *tuner, struct policy *policy, uint32_t layer, uint32_t misses, double wait_us);

struct tuner_layer {
	struct felt_curve curve;     /* zeros: nothing was fitted yet */
	uint64_t visits, misses;     /* all of them, never aged: misses divide wait_us */
	double wait_us;
	double miss_us;              /* at the latest fit, drawn towards the mean and within its bounds; 0: there was none */
};
void tuner_get_layer(const struct tuner *tuner, uint32_t layer, struct tuner_layer *ret_layer);

/* What is known is told to another policy, that takes over. */
void tuner_apply(const struct tuner *tuner, struct policy *policy);

#endif
