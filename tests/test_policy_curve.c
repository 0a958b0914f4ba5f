/* SPDX-License-Identifier: Apache-2.0 */
/* Miss curves: LRU's own misses at every capacity, as a replay of the policy counts them. */
#include "policy/curve.h"
#include "policy/policy.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

enum { LAYERS = 3, EXPERTS = 24, OBJECTS = 60, ACCESSES = 4000 };

/* Of unequal sizes: 24, 20 and 16 objects. */
static const uint32_t layer_size[LAYERS] = {24, 20, 16};
static uint32_t layer_of[OBJECTS];

static void number_layers(void)
{
	uint32_t object = 0;

	for (uint32_t layer = 0; layer < LAYERS; layer++)
		for (uint32_t i = 0; i < layer_size[layer]; i++)
			layer_of[object++] = layer;
}

static struct curves *opened(void)
{
	struct curves *curves = NULL;

	number_layers();
	cr_assert_eq(curves_create(&curves, OBJECTS, LAYERS, layer_of), 0);
	return curves;
}

static uint32_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

/* Some objects often, a slowly moving few more often, and one in 200 for the first time late. */
static void generate(uint32_t *trace, uint64_t random)
{
	for (uint32_t i = 0; i < ACCESSES; i++) {
		uint32_t wide = next_random(&random) % OBJECTS, narrow = (i / 400 * 7 + next_random(&random) % 6) % OBJECTS;

		trace[i] = next_random(&random) % 3 == 0 ? wide : narrow;
		if (trace[i] % 10 == 9 && i < ACCESSES / 2)
			trace[i]--;
	}
}

static void replay(const uint32_t *trace, uint32_t slots, uint64_t *ret_misses)
{
	uint64_t bytes_of[OBJECTS];
	uint32_t capacity[LAYERS] = {slots, slots, slots};
	struct policy_setup setup = {.object_count = OBJECTS, .layer_count = LAYERS, .layer_of = layer_of, .bytes_of = bytes_of,
				     .budget_bytes = OBJECTS, .pool = POLICY_POOL_LAYER, .capacity_of_layer = capacity};
	struct policy *policy;

	for (uint32_t i = 0; i < OBJECTS; i++)
		bytes_of[i] = 1;
	cr_assert_eq(policy_create(&policy, "lru", &setup), 0);
	for (uint32_t i = 0; i < ACCESSES; i++) {
		uint32_t object = trace[i], victim = object;

		policy_visit(policy, layer_of[object], 1);
		policy_access(policy, object);
		if (policy_is_resident(policy, object))
			continue;
		ret_misses[layer_of[object]]++;
		if (policy_must_replace(policy, object)) {
			policy_seek(policy, object);
			victim = policy_next(policy);
			if (victim == POLICY_NONE)
				continue;
			policy_remove(policy, victim);
		}
		policy_add(policy, object);
	}
	policy_destroy(policy);
}

Test(policy_curve, misses_are_those_of_the_lru_policy_at_every_capacity)
{
	struct curves *curves;
	uint32_t trace[ACCESSES];

	for (uint64_t seed = 1; seed < 6; seed++) {
		curves = opened();
		generate(trace, seed);
		for (uint32_t i = 0; i < ACCESSES; i++)
			curves_access(curves, trace[i]);
		for (uint32_t slots = 0; slots <= EXPERTS + 1; slots++) {
			uint64_t misses[LAYERS] = {0};

			replay(trace, slots, misses);
			for (uint32_t layer = 0; layer < LAYERS; layer++)
				cr_assert_eq(curves_misses(curves, layer, slots), misses[layer], "%u slots in layer %u: %llu, %llu",
					     slots, layer, (unsigned long long)curves_misses(curves, layer, slots),
					     (unsigned long long)misses[layer]);
		}
		cr_assert_eq(curves_accesses(curves, 0) + curves_accesses(curves, 1) + curves_accesses(curves, 2), ACCESSES);
		cr_assert_null(curves_destroy(curves));
	}
}

Test(policy_curve, first_uses_miss_at_every_capacity_and_no_slots_miss_all)
{
	struct curves *curves = opened();

	for (uint32_t round = 0; round < 5; round++)
		for (uint32_t object = 44; object < 60; object++)
			curves_access(curves, object);
	cr_assert_eq(curves_misses(curves, 2, 0), 80);
	cr_assert_eq(curves_misses(curves, 2, 15), 80);
	cr_assert_eq(curves_misses(curves, 2, 16), 16);
	cr_assert_eq(curves_misses(curves, 2, UINT32_MAX), 16);
	cr_assert_eq(curves_accesses(curves, 2), 80);
	cr_assert_eq(curves_accesses(curves, 0), 0);
	cr_assert_eq(curves_misses(curves, 0, 3), 0);
	curves_destroy(curves);
}

Test(policy_curve, ageing_halves_the_counts_and_leaves_the_order_of_use)
{
	struct curves *curves = opened();

	for (uint32_t round = 0; round < 4; round++)
		for (uint32_t object = 0; object < 3; object++)
			curves_access(curves, object);
	/* 3 first uses, 9 with two others since */
	curves_age(curves);
	cr_assert_eq(curves_accesses(curves, 0), 5);
	cr_assert_eq(curves_misses(curves, 0, 0), 5);
	cr_assert_eq(curves_misses(curves, 0, 2), 5);
	cr_assert_eq(curves_misses(curves, 0, 3), 1);
	curves_access(curves, 1); /* the stack is 2, 1, 0 */
	cr_assert_eq(curves_misses(curves, 0, 1), 6);
	cr_assert_eq(curves_misses(curves, 0, 2), 5);
	for (int i = 0; i < 4; i++)
		curves_age(curves);
	cr_assert_eq(curves_accesses(curves, 0), 0);
	cr_assert_eq(curves_misses(curves, 0, 0), 0);
	curves_destroy(curves);
}

Test(policy_curve, layers_that_cannot_be_are_einval_and_the_output_is_untouched)
{
	static uint32_t many[65536];
	uint32_t falling[] = {1, 0}, outside[] = {0, 2};
	struct curves *curves = NULL;

	cr_assert_eq(curves_create(&curves, 2, 2, falling), -EINVAL);
	cr_assert_eq(curves_create(&curves, 2, 2, outside), -EINVAL);
	cr_assert_eq(curves_create(&curves, 0, 2, outside), -EINVAL);
	cr_assert_eq(curves_create(&curves, 65536, 1, many), -EINVAL);
	cr_assert_null(curves);
	cr_assert_null(curves_destroy(NULL));
	cr_assert_eq(curves_create(&curves, 65535, 1, many), 0);
	for (uint32_t round = 0; round < 2; round++)
		for (uint32_t object = 0; object < 65535; object += 13)
			curves_access(curves, object);
	cr_assert_eq(curves_misses(curves, 0, 5041), 10084);
	cr_assert_eq(curves_misses(curves, 0, 5042), 5042);
	curves_destroy(curves);
}

/* Goal: distances are counted once each, in the right bucket, and ageing leaves them. Method: a few known ones. */
Test(policy_curve, reuse_distances_are_counted_by_powers_of_two_and_do_not_age)
{
	enum { COUNT = 6 };
	const uint32_t of_layer[COUNT] = {0, 0, 0, 0, 0, 1};
	const uint32_t accesses[] = {0, 0, 1, 0, 2, 3, 4, 0, 5, 5};
	const uint64_t expected[CURVE_DISTANCES] = {1, 1, 1}; /* 0 again at once; behind 1; behind 2, 3 and 4 */
	struct curves *curves;

	cr_assert_eq(curves_create(&curves, COUNT, 2, of_layer), 0);
	for (size_t i = 0; i < sizeof accesses / sizeof accesses[0]; i++)
		curves_access(curves, accesses[i]);
	curves_age(curves);
	cr_expect_eq(curves_distances(curves, 0)->first_uses, 5);
	cr_expect_eq(curves_distances(curves, 0)->sum, 0 + 1 + 3);
	cr_expect_arr_eq(curves_distances(curves, 0)->bucket, expected, sizeof expected);
	cr_expect_eq(curves_distances(curves, 1)->first_uses, 1);
	cr_expect_eq(curves_distances(curves, 1)->bucket[0], 1);
	curves_destroy(curves);
}
