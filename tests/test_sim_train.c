/* SPDX-License-Identifier: Apache-2.0 */
/* What is learned from train traces: ranks, the skew gate, capacities. */
#include "tools/sim/train.h"

#include "tests/support/hand_trace.h"

#include <criterion/criterion.h>

TestSuite(sim_train, .timeout = 60);

Test(sim_train, visits_that_used_an_object_are_counted_and_ranked_most_used_last)
{
	struct hand_trace hand;
	struct sim_train train;

	hand_trace_open(&hand, 1, 4, 2);
	HAND_ROW(&hand, 0, 0, 2, 1);
	HAND_ROW(&hand, 1, 0, 2, 1);
	hand_trace_join(&hand); /* a union counts once */
	HAND_ROW(&hand, 2, 0, 2, 0);
	cr_assert_eq(sim_train_open(&train, &hand.trace, 1, &hand.geometry), 0);
	cr_expect_eq(train.use_count[2], 2);
	cr_expect_eq(train.use_count[1], 1);
	cr_assert_eq(train.ranked_count, 3);
	cr_expect_eq(train.ranked[2], 2);
	cr_expect_eq(train.ranked[1], 0); /* of equals the lower number ranks higher */
	cr_expect_eq(train.ranked[0], 1);
	sim_train_close(&train);
	hand_trace_close(&hand);
}

/* Uniform routing has counts too, and they say nothing about what comes. */
Test(sim_train, the_gate_opens_for_skewed_routing_and_not_for_uniform)
{
	for (int skewed = 0; skewed < 2; skewed++) {
		struct hand_trace hand;
		struct sim_train train;

		hand_trace_open(&hand, 4, 32, 4);
		hand_trace_fill(&hand, 200, skewed, 0, 3);
		cr_assert_eq(sim_train_open(&train, &hand.trace, 1, &hand.geometry), 0);
		cr_expect_eq(train.prior_holds, skewed, "%f and %f nats", train.log_loss, train.uniform_log_loss);
		sim_train_close(&train);
		hand_trace_close(&hand);
	}
}

/* The first half of the session uses the low experts, the second the high ones. */
Test(sim_train, the_gate_stays_shut_for_a_hot_set_that_does_not_hold)
{
	struct hand_trace hand;
	struct sim_train train;

	hand_trace_open(&hand, 2, 32, 4);
	hand_trace_fill(&hand, 100, 3, 0, 3);
	hand_trace_fill(&hand, 100, 3, 16, 4);
	cr_assert_eq(sim_train_open(&train, &hand.trace, 1, &hand.geometry), 0);
	cr_expect_not(train.prior_holds);
	sim_train_close(&train);
	hand_trace_close(&hand);
}

/* Layer 0 cycles through four experts, layer 1 needs one: LRU with fewer than four slots misses all of layer 0. */
Test(sim_train, capacities_go_half_way_to_where_they_save_misses_and_never_over_the_budget)
{
	struct hand_trace hand;
	struct sim_train train;
	struct sim_arm arm = {
		.policy = "lru", .capacity = {SIM_OBJECTS, 6}, .pool = POLICY_POOL_LAYER, .hysteresis = -1};
	uint32_t capacity[2];

	hand_trace_open(&hand, 2, 8, 1);
	for (uint32_t token = 0; token < 80; token++) {
		HAND_ROW(&hand, token, 0, (int)(token % 4));
		HAND_ROW(&hand, token, 1, 0);
	}
	cr_assert_eq(sim_train_open(&train, &hand.trace, 1, &hand.geometry), 0);
	cr_assert_eq(sim_train_equal(&arm, &hand.model, capacity), 0);
	cr_expect_eq(capacity[0], 3);
	cr_expect_eq(capacity[1], 3);
	cr_assert_eq(sim_train_capacities(&train, &arm, &hand.model, capacity), 0);
	cr_expect_eq(capacity[0], 4);
	cr_expect_leq(capacity[0] + capacity[1], 6);
	sim_train_close(&train);
	hand_trace_close(&hand);
}

/* Layer 0 needs four experts or nothing, and four fit only at half their size. */
Test(sim_train, a_layer_is_held_compressed_where_that_saves_more_than_its_hits_cost)
{
	struct hand_trace hand;
	struct sim_train train;
	struct sim_arm arm = {.policy = "lru",
			      .capacity = {SIM_BYTES, 12},
			      .pool = POLICY_POOL_LAYER,
			      .hysteresis = -1,
			      .compressed_ratio = 2,
			      .compressed_us = 10};
	unsigned char compressed[2];
	uint32_t capacity[2];

	hand_trace_open(&hand, 2, 8, 1);
	hand.manifest.layer[0].resident_bytes = hand.manifest.layer[1].resident_bytes = 4;
	for (uint32_t token = 0; token < 80; token++) {
		HAND_ROW(&hand, token, 0, (int)(token % 4));
		HAND_ROW(&hand, token, 1, 0);
	}
	cr_assert_eq(sim_train_open(&train, &hand.trace, 1, &hand.geometry), 0);
	cr_assert_eq(sim_train_represent(&train, &arm, &hand.model, capacity, compressed), 0);
	cr_expect(compressed[0] && !compressed[1]);
	cr_expect_eq(capacity[0], 4);
	cr_expect_eq(capacity[1], 1);
	arm.compressed_us = 1e6; /* a miss costs 1000 */
	cr_assert_eq(sim_train_represent(&train, &arm, &hand.model, capacity, compressed), 0);
	cr_expect(!compressed[0] && !compressed[1]);
	sim_train_close(&train);
	hand_trace_close(&hand);
}

/* All misses of a visit but the first cost the slope; where hardly any visit misses, one more may hide. */
Test(sim_train, marginals_are_at_the_misses_of_the_train_traces)
{
	struct hand_trace hand;
	struct sim_train train;
	struct sim_arm arm = {.policy = "lru", .capacity = {SIM_SLOTS_PER_LAYER, 2}, .hysteresis = -1};
	float miss_us[2];

	hand_trace_open(&hand, 2, 8, 2);
	hand.manifest.layer[0].hidden_us = hand.manifest.layer[1].hidden_us = 1000;
	for (uint32_t token = 0; token < 40; token++) {
		HAND_ROW(&hand, token, 0, (int)(token * 2 % 8), (int)(token * 2 % 8 + 1)); /* always two misses */
		HAND_ROW(&hand, token, 1, 0, 1);                                           /* never again */
	}
	cr_assert_eq(sim_train_open(&train, &hand.trace, 1, &hand.geometry), 0);
	cr_assert_eq(sim_train_marginals(&train, &arm, &hand.model, miss_us), 0);
	cr_expect_float_eq(miss_us[0], 1000, 1);
	cr_expect_lt(miss_us[1], 200);
	cr_expect_gt(miss_us[1], 0);
	cr_assert_eq(sim_train_marginals(NULL, &arm, &hand.model, miss_us), 0);
	cr_expect_float_eq(miss_us[1], 1000, 1); /* nothing known: the slope */
	sim_train_close(&train);
	hand_trace_close(&hand);
}
