/* SPDX-License-Identifier: Apache-2.0 */
/* Belady: against every possible sequence of decisions on small traces, and the counts of libCacheSim on a real one. */
#include "tools/sim/belady.h"

#include "tests/support/hand_trace.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

TestSuite(sim_belady, .timeout = 120);

Test(sim_belady, next_uses_are_lookups_and_unions_count_once)
{
	struct hand_trace hand;
	struct sim_future future;

	hand_trace_open(&hand, 1, 4, 2);
	HAND_ROW(&hand, 0, 0, 0, 1);
	HAND_ROW(&hand, 1, 0, 1, 2);
	hand_trace_join(&hand);
	HAND_ROW(&hand, 2, 0, 1, 0);
	cr_assert_eq(sim_future_open(&future, &hand.trace, &hand.geometry, 1, NULL), 0);
	cr_expect_eq(future.lookup_count, 5); /* 0 1 2, 1 0 */
	cr_expect_eq(future.next_use[0], 4);
	cr_expect_eq(future.next_use[1], 3);
	cr_expect_eq(future.next_use[2], BELADY_NEVER);
	cr_expect_eq(future.first_use[2], 2);
	cr_expect_eq(future.first_use[3], BELADY_NEVER);
	sim_future_close(&future);
	cr_assert_eq(sim_future_open(&future, &hand.trace, &hand.geometry, 0, NULL), 0);
	cr_expect_eq(future.lookup_count, 6); /* 0 1, 1 2, 1 0 */
	cr_expect_eq(future.next_use[1], 2);
	cr_expect_eq(future.next_use[2], 4);
	sim_future_close(&future);
	hand_trace_close(&hand);
}

/* ---- every sequence of decisions ---- */

struct search {
	const uint32_t *object;
	uint32_t count, slots;
	int may_bypass;
};

static unsigned fewest_misses(const struct search *search, uint32_t at, uint32_t residents)
{
	unsigned best = UINT32_MAX, misses;
	uint32_t object;

	if (at == search->count)
		return 0;
	object = search->object[at];
	if (residents >> object & 1)
		return fewest_misses(search, at + 1, residents);
	if ((uint32_t)__builtin_popcount(residents) < search->slots)
		best = fewest_misses(search, at + 1, residents | 1u << object);
	else
		for (uint32_t victim = 0; victim < 32; victim++) {
			if (!(residents >> victim & 1))
				continue;
			misses = fewest_misses(search, at + 1, (residents & ~(1u << victim)) | 1u << object);
			if (misses < best)
				best = misses;
		}
	if (search->may_bypass && (misses = fewest_misses(search, at + 1, residents)) < best)
		best = misses;
	return best + 1;
}

static uint64_t misses_of(const struct hand_trace *hand, const char *policy, uint64_t objects)
{
	struct sim_arm arm = {
		.policy = policy, .capacity = {SIM_OBJECTS, objects}, .semantics = SIM_ACCESS, .hysteresis = -1};
	struct sim_counts counts = hand_trace_replay(hand, &arm);
	uint64_t misses = counts.misses;

	sim_counts_close(&counts);
	return misses;
}

Test(sim_belady, no_sequence_of_decisions_misses_less)
{
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct hand_trace hand;
		struct search search;

		hand_trace_open(&hand, 1, 5, 1);
		hand_trace_fill(&hand, 11, 0.5, 0, seed);
		search = (struct search){.object = hand.object, .count = 11, .slots = 2};
		cr_expect_eq(misses_of(&hand, "belady", 2), fewest_misses(&search, 0, 0), "seed %lu", seed);
		search.may_bypass = 1;
		cr_expect_eq(misses_of(&hand, "belady-bypass", 2), fewest_misses(&search, 0, 0), "seed %lu with bypass",
			     seed);
		hand_trace_close(&hand);
	}
}

/* Whatever the rules and the pool: no policy of ours may do better. */
Test(sim_belady, no_policy_beats_it_in_the_same_pool)
{
	struct hand_trace hand;

	hand_trace_open(&hand, 4, 16, 3);
	hand_trace_fill(&hand, 200, 1, 0, 5);
	for (unsigned i = 0; policy_name_at(i) != NULL; i++)
		for (enum policy_pool pool = POLICY_POOL_GLOBAL; pool <= POLICY_POOL_LAYER; pool++) {
			struct sim_arm arm = {.policy = "belady-bypass",
					      .capacity = {SIM_OBJECTS, 24},
					      .pool = pool,
					      .hysteresis = -1};
			struct sim_counts best = hand_trace_replay(&hand, &arm), counts;

			arm.policy = policy_name_at(i);
			counts = hand_trace_replay(&hand, &arm);
			cr_expect_geq(counts.misses, best.misses, "%s in pool %d", arm.policy, pool);
			sim_counts_close(&best);
			sim_counts_close(&counts);
		}
	hand_trace_close(&hand);
}

/* An object that is resident before its first use goes by when that is. */
Test(sim_belady, seeds_that_are_never_used_go_first)
{
	struct hand_trace hand;
	const uint32_t seed[] = {3, 0};
	struct sim_arm arm = {.policy = "belady",
			      .capacity = {SIM_OBJECTS, 2},
			      .semantics = SIM_ACCESS,
			      .seed = seed,
			      .seed_count = 2,
			      .hysteresis = -1};
	struct sim_counts counts;

	hand_trace_open(&hand, 1, 4, 1);
	HAND_ROW(&hand, 0, 0, 1); /* for 3, not for 0 */
	HAND_ROW(&hand, 1, 0, 0);
	HAND_ROW(&hand, 2, 0, 1);
	counts = hand_trace_replay(&hand, &arm);
	cr_expect_eq(counts.misses, 1);
	cr_expect_eq(counts.seed_hits, 1);
	sim_counts_close(&counts);
	hand_trace_close(&hand);
}

/* ---- libCacheSim, commit aa0fc40, on the decode rows of a real trace: exact ---- */

static const struct {
	const char *policy;
	enum policy_pool pool;
	uint64_t objects, misses;
} oracle[] = {
	{"lru", POLICY_POOL_GLOBAL, 500, 20244},    {"lru", POLICY_POOL_GLOBAL, 1000, 12055},
	{"lru", POLICY_POOL_LAYER, 500, 20189},     {"lru", POLICY_POOL_LAYER, 1000, 12200},
	{"belady", POLICY_POOL_GLOBAL, 500, 11372}, {"belady", POLICY_POOL_GLOBAL, 1000, 6114},
	{"belady", POLICY_POOL_LAYER, 500, 12613},  {"belady", POLICY_POOL_LAYER, 1000, 6779},
};

Test(sim_belady, counts_are_those_of_libcachesim)
{
	const char *folder = getenv("CNRE_TRACES") != NULL ? getenv("CNRE_TRACES") : "../shared/traces";
	struct sim_load load = {.phases = SIM_PHASE_DECODE, .experts = 128};
	struct hand_trace hand = {0}; /* borrowed from the file */
	struct sim_manifest manifest;
	struct sim_geometry *geometry;
	struct sim_trace *trace;
	char text[4096], message[256] = "";
	const char *path = text;

	(void)snprintf(text, sizeof text, "%s/qwen3-30b.route.csv", folder);
	if (access(path, R_OK) != 0)
		cr_skip_test("%s is not here (CNRE_TRACES)", path);
	cr_assert_eq(sim_traces_open(&trace, &geometry, &path, 1, &load, message, sizeof message), 0, "%s", message);
	cr_assert_eq(sim_manifest_open(&manifest, NULL, geometry, 1, 1, 1000, message, sizeof message), 0, "%s",
		     message);
	hand.trace = *trace;
	hand.geometry = *geometry;
	hand.model = (struct sim_model){.geometry = geometry, .manifest = &manifest};
	for (unsigned i = 0; i < sizeof oracle / sizeof oracle[0]; i++) {
		struct sim_arm arm = {.policy = oracle[i].policy,
				      .capacity = {SIM_OBJECTS, oracle[i].objects},
				      .pool = oracle[i].pool,
				      .semantics = SIM_ACCESS,
				      .hysteresis = -1};
		struct sim_counts counts = hand_trace_replay(&hand, &arm);

		cr_expect_eq(counts.accesses, 36864);
		cr_expect_eq(counts.misses, oracle[i].misses, "%s %lu in pool %d: %lu", oracle[i].policy,
			     oracle[i].objects, oracle[i].pool, counts.misses);
		sim_counts_close(&counts);
	}
	sim_manifest_close(&manifest);
	sim_traces_close(trace, 1, geometry);
}
