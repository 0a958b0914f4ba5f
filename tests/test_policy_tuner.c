/* SPDX-License-Identifier: Apache-2.0 */
/* What waits may do to a policy: layers that nobody measured, and layers of which somebody lies. */
#include "policy/tuner.h"

#include "policy/policy.h"

#include <criterion/criterion.h>
#include <math.h>

enum { LAYERS = 4, EXPERTS = 2, OBJECTS = LAYERS * EXPERTS };

#define LIE_US 60e6 /* what the feed believes at most of one visit */

struct bench {
	struct policy *policy;
	struct tuner *tuner;
};

static void open_bench(struct bench *bench)
{
	uint32_t layer_of[OBJECTS];
	uint64_t bytes_of[OBJECTS];
	struct policy_setup setup = {
		.object_count = OBJECTS, .layer_count = LAYERS, .layer_of = layer_of, .bytes_of = bytes_of, .budget_bytes = OBJECTS};

	for (uint32_t i = 0; i < OBJECTS; i++) {
		layer_of[i] = i / EXPERTS;
		bytes_of[i] = 1;
	}
	cr_assert_eq(policy_create(&bench->policy, "cost", &setup), 0);
	cr_assert_eq(tuner_create(&bench->tuner, LAYERS), 0);
	/* Every layer has one object, used alike: what is worth more is so by what its layer's misses are thought to cost. */
	for (uint32_t layer = 0; layer < LAYERS; layer++) {
		policy_visit(bench->policy, layer, 1);
		policy_access(bench->policy, layer * EXPERTS);
		policy_add(bench->policy, layer * EXPERTS);
	}
}

static void close_bench(struct bench *bench)
{
	(void)tuner_destroy(bench->tuner);
	(void)policy_destroy(bench->policy);
}

static void fit(struct bench *bench, uint32_t layer, double wait_us)
{
	for (uint32_t i = 0; i < TUNER_FIT_SAMPLES; i++)
		tuner_visit(bench->tuner, bench->policy, layer, i % 2, i % 2 == 1 ? wait_us : 0);
}

static double ratio(const struct bench *bench, uint32_t a, uint32_t b)
{
	return policy_worth(bench->policy, a * EXPERTS) / policy_worth(bench->policy, b * EXPERTS);
}

/* As when a second model is attached: its experts must not be worth nothing for the first 256 tokens. */
Test(policy_tuner, a_layer_that_nobody_has_measured_is_like_the_mean)
{
	struct bench bench;

	open_bench(&bench);
	fit(&bench, 0, 500);
	fit(&bench, 1, 500);
	cr_assert_float_eq(ratio(&bench, 0, 2), 1, 1e-6);
	close_bench(&bench);
}

Test(policy_tuner, no_lie_moves_a_layer_beyond_the_spread_while_others_are_not_fitted_again)
{
	struct bench bench;

	open_bench(&bench);
	for (uint32_t layer = 0; layer < LAYERS; layer++)
		fit(&bench, layer, 500);
	fit(&bench, 0, LIE_US);
	for (uint32_t layer = 1; layer < LAYERS; layer++)
		cr_assert_leq(ratio(&bench, 0, layer), TUNER_SPREAD_MAX * 1.001);
	for (uint32_t layer = 1; layer < LAYERS; layer++) {
		fit(&bench, layer, 500);
		cr_assert_leq(ratio(&bench, 0, layer), TUNER_SPREAD_MAX * TUNER_SPREAD_MAX * 1.001);
	}
	close_bench(&bench);
}

Test(policy_tuner, a_successor_of_the_policy_is_told_the_same)
{
	struct bench bench, next;

	open_bench(&bench);
	open_bench(&next);
	for (uint32_t layer = 0; layer < LAYERS; layer++)
		fit(&bench, layer, 500 + 100.0 * layer);
	tuner_apply(bench.tuner, next.policy);
	for (uint32_t layer = 1; layer < LAYERS; layer++)
		cr_assert_eq(ratio(&bench, 0, layer), ratio(&next, 0, layer));
	close_bench(&bench);
	close_bench(&next);
}
