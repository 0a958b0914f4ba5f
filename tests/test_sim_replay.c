/* SPDX-License-Identifier: Apache-2.0 */
/* Replays of traces whose counts can be worked out by hand, and what holds for every policy. */
#include "tools/sim/replay.h"

#include "tests/support/hand_trace.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

TestSuite(sim_replay, .timeout = 60);

static struct sim_arm slots(const char *policy, uint64_t amount, enum sim_semantics semantics)
{
	return (struct sim_arm){
		.policy = policy, .capacity = {SIM_SLOTS_PER_LAYER, amount}, .semantics = semantics, .hysteresis = -1};
}

static struct sim_arm objects(const char *policy, uint64_t amount)
{
	return (struct sim_arm){.policy = policy, .capacity = {SIM_OBJECTS, amount}, .hysteresis = -1};
}

static void expect(const struct hand_trace *hand, struct sim_arm arm, uint64_t hits, uint64_t misses,
		   uint64_t evictions, uint64_t bypasses)
{
	struct sim_counts counts = hand_trace_replay(hand, &arm);

	cr_expect_eq(counts.hits, hits, "%s: %lu hits", arm.policy, counts.hits);
	cr_expect_eq(counts.misses, misses, "%s: %lu misses", arm.policy, counts.misses);
	cr_expect_eq(counts.evictions, evictions, "%s: %lu evictions", arm.policy, counts.evictions);
	cr_expect_eq(counts.bypasses, bypasses, "%s: %lu bypasses", arm.policy, counts.bypasses);
	sim_counts_close(&counts);
}

/* {0,1} fills two slots. Of {2,0}, 0 is a hit if it is looked up before 2 is placed, and lost if not. */
Test(sim_replay, batch_looks_all_up_before_it_places_and_access_does_not)
{
	struct hand_trace hand;

	hand_trace_open(&hand, 1, 4, 2);
	HAND_ROW(&hand, 0, 0, 0, 1);
	HAND_ROW(&hand, 1, 0, 2, 0);
	expect(&hand, slots("lru", 2, SIM_BATCH), 1, 3, 1, 0);
	expect(&hand, slots("lru", 2, SIM_ACCESS), 0, 4, 2, 0);
	hand_trace_close(&hand);
}

Test(sim_replay, no_member_of_the_current_set_makes_room_for_another)
{
	struct hand_trace hand;

	hand_trace_open(&hand, 1, 4, 3);
	HAND_ROW(&hand, 0, 0, 0, 1, 2);
	HAND_ROW(&hand, 1, 0, 0, 1, 2); /* 2 was served and not placed */
	expect(&hand, slots("lru", 2, SIM_BATCH), 2, 4, 0, 2);
	hand_trace_close(&hand);
}

Test(sim_replay, rows_of_one_call_are_one_union_except_by_access)
{
	struct hand_trace hand;

	hand_trace_open(&hand, 1, 4, 2);
	HAND_ROW(&hand, 0, 0, 0, 1);
	HAND_ROW(&hand, 1, 0, 1, 2);
	hand_trace_join(&hand);
	expect(&hand, slots("lru", 4, SIM_BATCH), 0, 3, 0, 0);
	expect(&hand, slots("lru", 4, SIM_BLOCK64), 0, 3, 0, 0);
	expect(&hand, slots("lru", 4, SIM_ACCESS), 1, 3, 0, 0);
	hand_trace_close(&hand);
}

/* Of three misses and two slots 2 and then 1 are placed: 2 is the older, and goes for 3. */
Test(sim_replay, block64_places_the_last_misses_last_first)
{
	struct hand_trace hand;

	hand_trace_open(&hand, 1, 4, 3);
	HAND_ROW(&hand, 0, 0, 0, 1, 2);
	HAND_ROW(&hand, 1, 0, 3);
	HAND_ROW(&hand, 2, 0, 1);
	HAND_ROW(&hand, 3, 0, 2);
	expect(&hand, slots("engine-lru", 2, SIM_BLOCK64), 1, 5, 2, 1);
	hand_trace_close(&hand);
}

/* 66 experts in one visit: what the first block places, the second one's lookups do not find in this visit. */
Test(sim_replay, block64_ends_a_block_after_64)
{
	struct hand_trace hand;
	int all[67], last[3] = {64, 65, -1};

	hand_trace_open(&hand, 1, 66, 66);
	for (int i = 0; i < 66; i++)
		all[i] = i;
	all[66] = -1;
	hand_trace_add(&hand, 0, 0, all);
	hand_trace_add(&hand, 1, 0, last);
	/* Block 1 keeps 63 and 62 of 64, block 2 replaces both by 65 and 64. */
	expect(&hand, slots("engine-lru", 2, SIM_BLOCK64), 2, 66, 2, 62);
	hand_trace_close(&hand);
}

Test(sim_replay, seeds_are_charged_and_hits_of_them_are_told_apart)
{
	struct hand_trace hand;
	const uint32_t seed[] = {3, 0, 1};
	struct sim_arm arm = slots("lru", 2, SIM_BATCH);
	struct sim_counts counts;

	hand_trace_open(&hand, 1, 4, 1);
	hand.manifest.layer[0].read_bytes = 10;
	HAND_ROW(&hand, 0, 0, 0); /* seed: 3 did not fit beside the later ones */
	HAND_ROW(&hand, 1, 0, 3); /* goes in for 1 */
	HAND_ROW(&hand, 2, 0, 3);
	HAND_ROW(&hand, 3, 0, 0); /* still the seed */
	arm.seed = seed;
	arm.seed_count = 3;
	counts = hand_trace_replay(&hand, &arm);
	cr_expect_eq(counts.seeds, 2);
	cr_expect_eq(counts.startup_bytes, 20);
	cr_expect_eq(counts.hits, 3);
	cr_expect_eq(counts.seed_hits, 2);
	cr_expect_eq(counts.read_bytes, 10);
	cr_expect_eq(counts.avoided_bytes, 30);
	sim_counts_close(&counts);
	hand_trace_close(&hand);
}

Test(sim_replay, frozen_seeds_never_change)
{
	struct hand_trace hand;
	const uint32_t seed[] = {0};
	struct sim_arm arm = slots("lru", 2, SIM_BATCH);

	hand_trace_open(&hand, 1, 4, 1);
	HAND_ROW(&hand, 0, 0, 1);
	HAND_ROW(&hand, 1, 0, 1);
	HAND_ROW(&hand, 2, 0, 0);
	arm.seed = seed;
	arm.seed_count = 1;
	arm.frozen = 1;
	expect(&hand, arm, 1, 2, 0, 2);
	hand_trace_close(&hand);
}

/* Two layers, 300 us hidden in each. Token 0 waits 700 + 1700, token 1 only 700, token 2 not at all. */
Test(sim_replay, felt_wait_is_by_visit_and_summed_by_token)
{
	struct hand_trace hand;
	struct sim_arm arm = slots("lru", 4, SIM_BATCH);
	struct sim_counts counts;

	hand_trace_open(&hand, 2, 4, 2);
	hand.manifest.layer[0].hidden_us = hand.manifest.layer[1].hidden_us = 300;
	hand.manifest.token_us = 50;
	HAND_ROW(&hand, 0, 0, 0);
	HAND_ROW(&hand, 0, 1, 0, 1);
	HAND_ROW(&hand, 1, 0, 1);
	HAND_ROW(&hand, 1, 1, 0, 1);
	HAND_ROW(&hand, 2, 0, 0);
	HAND_ROW(&hand, 2, 1, 0, 1);
	counts = hand_trace_replay(&hand, &arm);
	cr_expect_float_eq(counts.felt_us, 3100, 1e-9);
	cr_expect_float_eq(counts.critical_us, 3250, 1e-9);
	cr_expect_float_eq(counts.token_mean_us, 3100. / 3, 1e-9);
	cr_expect_float_eq(counts.token_p50_us, 700, 1e-9);
	cr_expect_float_eq(counts.token_p99_us, 2400, 1e-9);
	cr_expect_float_eq(counts.layer[1].felt_us, 1700, 1e-9);
	sim_counts_close(&counts);
	hand_trace_close(&hand);
}

Test(sim_replay, a_budget_is_counted_in_bytes)
{
	struct hand_trace hand;
	struct sim_arm arm = {
		.policy = "lru", .capacity = {SIM_BYTES, 10}, .pool = POLICY_POOL_GLOBAL, .hysteresis = -1};

	hand_trace_open(&hand, 2, 4, 1);
	hand.manifest.layer[0].resident_bytes = 4;
	hand.manifest.layer[1].resident_bytes = 7;
	HAND_ROW(&hand, 0, 0, 0);
	HAND_ROW(&hand, 1, 0, 1); /* 8 of 10 */
	HAND_ROW(&hand, 2, 1, 0); /* 7: both go */
	HAND_ROW(&hand, 3, 0, 1); /* 4: 7 goes */
	HAND_ROW(&hand, 4, 0, 1);
	expect(&hand, arm, 1, 4, 3, 0);
	arm.capacity.amount = 6; /* layer 1 fits never */
	expect(&hand, arm, 2, 3, 1, 1);
	hand_trace_close(&hand);
}

Test(sim_replay, no_layer_holds_more_than_its_manifest_allows)
{
	struct hand_trace hand;
	struct sim_arm arm = objects("lru", 8);
	struct sim_counts counts;

	hand_trace_open(&hand, 2, 8, 2);
	hand.manifest.layer[0].max_experts = 3;
	hand_trace_fill(&hand, 50, 0, 0, 1);
	for (arm.pool = POLICY_POOL_LAYER; arm.pool <= POLICY_POOL_SOFT; arm.pool++) {
		counts = hand_trace_replay(&hand, &arm);
		cr_expect_leq(counts.layer[0].resident, 3);
		cr_expect_gt(counts.layer[1].resident, 3);
		sim_counts_close(&counts);
	}
	hand_trace_close(&hand);
}

static void check_sums(const struct hand_trace *hand, const struct sim_arm *arm)
{
	struct sim_counts counts = hand_trace_replay(hand, arm);
	uint64_t resident = 0, accesses = 0;
	double felt_us = 0, step_us = 0;

	for (uint32_t i = 0; i < counts.layer_count; i++) {
		resident += counts.layer[i].resident;
		accesses += counts.layer[i].accesses;
		felt_us += counts.layer[i].felt_us;
		if (counts.layer[i].capacity != POLICY_NONE)
			cr_expect_leq(counts.layer[i].resident, counts.layer[i].capacity, "%s", arm->policy);
	}
	for (uint32_t i = 0; i < counts.step_count; i++)
		step_us += counts.step_us[i];
	cr_expect_eq(counts.hits + counts.misses, counts.accesses, "%s", arm->policy);
	cr_expect_eq(accesses, counts.accesses, "%s", arm->policy);
	cr_expect_eq(counts.seeds + counts.admissions, counts.evictions + resident, "%s", arm->policy);
	cr_expect_eq(counts.admissions + counts.bypasses + counts.rejections, counts.misses, "%s", arm->policy);
	cr_expect_leq(resident, sim_arm_budget(arm, &hand->model), "%s", arm->policy);
	cr_expect_leq(counts.seed_hits, counts.hits, "%s", arm->policy);
	cr_expect_float_eq(felt_us, counts.felt_us, 1e-3, "%s", arm->policy);
	cr_expect_float_eq(step_us, counts.felt_us, 1e-3, "%s", arm->policy);
	sim_counts_close(&counts);
}

/* Those of policy/, then belady's. */
static const char *any_policy(unsigned index)
{
	unsigned known = 0;

	while (policy_name_at(known) != NULL)
		known++;
	if (index < known)
		return policy_name_at(index);
	return index == known ? "belady" : index == known + 1 ? "belady-bypass" : NULL;
}

/*
 * Goal: nothing is lost or counted twice, and no pool overflows, whatever the policy, the rules and the pool.
 * Method: every combination on one random trace with seeds; sums must match.
 */
Test(sim_replay, sums_match_for_every_policy_semantics_and_pool)
{
	uint32_t seed[12], prior[4 * 16] = {3, 1, 2};
	struct hand_trace hand;

	hand_trace_open(&hand, 4, 16, 3);
	hand_trace_fill(&hand, 120, 1, 0, 7);
	for (uint32_t i = 0; i < 12; i++)
		seed[i] = i * 5;
	for (unsigned i = 0; any_policy(i) != NULL; i++) {
		struct sim_arm arm = objects(any_policy(i), 20);

		arm.seed = seed;
		arm.seed_count = 12;
		arm.prior_of = prior;
		for (arm.semantics = SIM_BATCH; arm.semantics <= SIM_BLOCK64; arm.semantics++)
			for (arm.pool = POLICY_POOL_DEFAULT; arm.pool <= POLICY_POOL_SOFT; arm.pool++)
				check_sums(&hand, &arm);
	}
	hand_trace_close(&hand);
}

Test(sim_replay, hysteresis_rejects_what_is_worth_no_more_than_its_victim)
{
	struct hand_trace hand;
	struct sim_arm arm = slots("cost", 4, SIM_BATCH);
	struct sim_counts free_counts, strict;

	hand_trace_open(&hand, 2, 16, 2);
	hand_trace_fill(&hand, 300, 1, 0, 3);
	free_counts = hand_trace_replay(&hand, &arm);
	arm.hysteresis = 1;
	strict = hand_trace_replay(&hand, &arm);
	cr_expect_eq(free_counts.rejections, 0);
	cr_expect_gt(strict.rejections, 0);
	cr_expect_lt(strict.evictions, free_counts.evictions);
	sim_counts_close(&free_counts);
	sim_counts_close(&strict);
	hand_trace_close(&hand);
}

Test(sim_replay, limits_on_moves_bound_placements_a_visit_and_bytes_a_token)
{
	struct hand_trace hand;
	struct sim_arm arm = slots("lru", 4, SIM_BATCH);
	struct moves_limits one_a_visit = {.moves_per_pass = 1}, bytes = {.bytes_per_token = 3};
	struct sim_counts free_counts, counts;

	hand_trace_open(&hand, 2, 16, 2);
	hand.manifest.layer[0].resident_bytes = hand.manifest.layer[1].resident_bytes = 2;
	hand_trace_fill(&hand, 300, 1, 0, 3);
	free_counts = hand_trace_replay(&hand, &arm);
	cr_expect_gt(free_counts.admissions, free_counts.visits, "otherwise no limit is needed");
	arm.moves = &one_a_visit;
	counts = hand_trace_replay(&hand, &arm);
	cr_expect_leq(counts.admissions, counts.visits);
	cr_expect_gt(counts.rejections, 0);
	cr_expect_eq(counts.admissions + counts.rejections + counts.bypasses, counts.misses);
	sim_counts_close(&counts);
	arm.moves = &bytes;
	counts = hand_trace_replay(&hand, &arm);
	cr_expect_leq(counts.migration_bytes, 3 * counts.tokens + 2, "but for one object that was begun");
	cr_expect_gt(counts.migration_bytes, 2 * counts.tokens, "and most of what may move moves");
	sim_counts_close(&counts);
	sim_counts_close(&free_counts);
	hand_trace_close(&hand);
}

Test(sim_replay, a_compressed_layer_takes_fewer_bytes_and_its_hits_take_time)
{
	static const unsigned char compressed[2] = {1, 0};
	static const uint32_t capacity[2] = {4, 1};
	struct hand_trace hand;
	struct sim_arm arm = {.policy = "lru",
			      .capacity = {SIM_BYTES, 12},
			      .capacity_of_layer = capacity,
			      .hysteresis = -1,
			      .compressed = compressed,
			      .compressed_ratio = 2,
			      .compressed_us = 10};
	struct sim_counts counts;

	hand_trace_open(&hand, 2, 8, 1);
	hand.manifest.layer[0].resident_bytes = hand.manifest.layer[1].resident_bytes = 4;
	for (uint32_t token = 0; token < 80; token++) {
		HAND_ROW(&hand, token, 0, (int)(token % 4));
		HAND_ROW(&hand, token, 1, 0);
	}
	counts = hand_trace_replay(&hand, &arm);
	cr_expect_eq(counts.misses, 4 + 1, "four at two bytes, one at four");
	cr_expect_float_eq(counts.critical_us - counts.felt_us, 76 * 10, 1e-6);
	cr_expect_str_eq(counts.tier[0].name, "compressed");
	cr_expect_eq(counts.tier[0].hits, 76);
	cr_expect_eq(counts.tier[1].hits, 79);
	sim_counts_close(&counts);
	hand_trace_close(&hand);
}

/* Eight layers of top-2 in a cycle, the same experts each time, and one set's slots too few for a cycle. */
Test(sim_replay, lru_below_one_token_cycle_hits_nothing_and_is_warned_about_and_cost_hits)
{
	static const char *const recency[] = {"lru", "fifo", "slru"};
	struct hand_trace hand;
	struct sim_arm arm;
	struct sim_counts counts;

	hand_trace_open(&hand, 8, 4, 2);
	for (uint32_t token = 0; token < 40; token++)
		for (uint32_t layer = 0; layer < 8; layer++)
			HAND_ROW(&hand, token, layer, 0, 1);
	for (unsigned i = 0; i < 3; i++) {
		arm = objects(recency[i], 14);
		arm.pool = POLICY_POOL_GLOBAL;
		cr_expect(sim_arm_is_below_cycle(&arm, &hand.model), "%s", recency[i]);
	}
	arm = objects("lru", 14);
	arm.pool = POLICY_POOL_GLOBAL;
	expect(&hand, arm, 0, 640, 626, 0);
	arm.capacity.amount = 16;
	cr_expect_not(sim_arm_is_below_cycle(&arm, &hand.model));
	arm.capacity.amount = 14;
	arm.pool = POLICY_POOL_LAYER;
	cr_expect_not(sim_arm_is_below_cycle(&arm, &hand.model));
	arm = objects("cost", 14);
	cr_expect_not(sim_arm_is_below_cycle(&arm, &hand.model));
	counts = hand_trace_replay(&hand, &arm);
	cr_expect_gt(counts.hits, 0);
	sim_counts_close(&counts);
	hand_trace_close(&hand);
}

Test(sim_replay, unknown_policy_is_enoent_and_output_untouched)
{
	struct hand_trace hand;
	struct sim_arm arm = slots("no such policy", 2, SIM_BATCH);
	struct sim_counts counts = {.hits = 77};

	hand_trace_open(&hand, 1, 4, 2);
	HAND_ROW(&hand, 0, 0, 0, 1);
	cr_expect_eq(sim_replay(&arm, &hand.model, &hand.trace, NULL, &counts), -ENOENT);
	cr_expect_eq(counts.hits, 77);
	hand_trace_close(&hand);
}

/* ---- what Colibri's engines counted ---- */

struct vector {
	const char *file;
	enum sim_semantics semantics;
	uint32_t slots;
	uint64_t hits, misses;
};

static const struct vector vectors[] = {
	{"glm-tiny", SIM_BLOCK64, 4, 928, 2313},   {"glm-tiny", SIM_BLOCK64, 5, 1137, 2104},
	{"glm-tiny", SIM_BLOCK64, 6, 1338, 1903},  {"glm-tiny", SIM_BLOCK64, 8, 1732, 1509},
	{"glm-tiny", SIM_BLOCK64, 10, 2144, 1097}, {"glm-tiny", SIM_BLOCK64, 12, 2539, 702},
	{"olmoe-a", SIM_ACCESS, 4, 64, 400},       {"olmoe-a", SIM_ACCESS, 8, 196, 268},
	{"olmoe-a", SIM_ACCESS, 12, 326, 138},     {"olmoe-b", SIM_ACCESS, 4, 77, 967},
	{"olmoe-b", SIM_ACCESS, 8, 293, 751},      {"olmoe-b", SIM_ACCESS, 12, 485, 559},
};

static void replay_vector(const struct vector *vector, const char *path)
{
	struct hand_trace hand = {0}; /* borrowed from the file */
	struct sim_load load = {.phases = SIM_PHASE_ALL};
	struct sim_geometry *geometry;
	struct sim_trace *trace;
	struct sim_manifest manifest;
	char message[256] = "";
	struct sim_arm arm = slots("engine-lru", vector->slots, vector->semantics);
	struct sim_counts counts;

	cr_assert_eq(sim_traces_open(&trace, &geometry, &path, 1, &load, message, sizeof message), 0, "%s", message);
	cr_assert_eq(sim_manifest_open(&manifest, NULL, geometry, 1, 1, 1000, message, sizeof message), 0, "%s",
		     message);
	hand.trace = *trace;
	hand.model = (struct sim_model){.geometry = geometry, .manifest = &manifest};
	counts = hand_trace_replay(&hand, &arm);
	cr_expect_eq(counts.hits, vector->hits, "%s %u: %lu hits", vector->file, vector->slots, counts.hits);
	cr_expect_eq(counts.misses, vector->misses, "%s %u: %lu misses", vector->file, vector->slots, counts.misses);
	sim_counts_close(&counts);
	sim_manifest_close(&manifest);
	sim_traces_close(trace, 1, geometry);
}

Test(sim_replay, engine_lru_counts_what_colibris_engines_counted)
{
	const char *folder = getenv("CNRE_VECTORS") != NULL ? getenv("CNRE_VECTORS") : "../shared/vectors";
	char path[4096];

	for (unsigned i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
		(void)snprintf(path, sizeof path, "%s/%s/route.trace", folder, vectors[i].file);
		if (access(path, R_OK) != 0)
			cr_skip_test("%s is not here (CNRE_VECTORS)", path);
		replay_vector(&vectors[i], path);
	}
}
