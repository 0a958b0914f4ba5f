/* SPDX-License-Identifier: Apache-2.0 */
/* The LRU policy: order of victims, and that it holds exactly the residents. */
#include "policy/policy.h"

#include <criterion/criterion.h>
#include <errno.h>

static struct policy *open_lru(uint32_t objects)
{
	struct policy *policy = NULL;
	uint32_t layers[64] = {0};
	uint64_t bytes[64];
	struct policy_setup setup = {
		.object_count = objects, .layer_count = 1, .layer_of = layers, .bytes_of = bytes, .budget_bytes = objects};

	for (uint32_t i = 0; i < objects; i++)
		bytes[i] = 1;
	cr_assert_eq(policy_create(&policy, "lru", &setup), 0);
	return policy;
}

/* The whole order of victims is the one given, ended by POLICY_NONE. */
static void expect_victims(struct policy *policy, const uint32_t *expected)
{
	policy_seek(policy, POLICY_NONE);
	for (; *expected != POLICY_NONE; expected++)
		cr_assert_eq(policy_next(policy), *expected);
	cr_assert_eq(policy_next(policy), POLICY_NONE);
}
#define EXPECT_VICTIMS(policy, ...) expect_victims(policy, (const uint32_t[]){__VA_ARGS__})

Test(policy_lru, unknown_name_is_enoent_and_output_untouched)
{
	struct policy *policy = (struct policy *)&policy;
	struct policy *before = policy;
	struct policy_setup setup = {0};

	cr_assert_eq(policy_create(&policy, "no such policy", &setup), -ENOENT);
	cr_assert_eq(policy, before);
}

Test(policy_lru, victims_come_oldest_first_and_lookups_refresh)
{
	struct policy *policy = open_lru(8);

	for (uint32_t i = 0; i < 4; i++)
		policy_add(policy, i);
	policy_access(policy, 1);
	policy_access(policy, 7); /* not resident: changes nothing */
	EXPECT_VICTIMS(policy, 0, 2, 3, 1, POLICY_NONE);
	policy_destroy(policy);
}

Test(policy_lru, removed_objects_are_no_victims_and_can_return)
{
	struct policy *policy = open_lru(4);

	policy_add(policy, 3);
	policy_add(policy, 2);
	policy_remove(policy, 3);
	EXPECT_VICTIMS(policy, 2, POLICY_NONE);
	policy_remove(policy, 2);
	EXPECT_VICTIMS(policy, POLICY_NONE);
	policy_add(policy, 3);
	EXPECT_VICTIMS(policy, 3, POLICY_NONE);
	policy_destroy(policy);
}

/* Goal: the textbook miss counts. Method: the cyclic trace of capacity + 1 objects misses always, of capacity never again. */
Test(policy_lru, cyclic_sweep_larger_than_capacity_always_misses)
{
	struct policy *policy = open_lru(5);
	int resident[5] = {0}, used = 0, misses = 0;

	for (int i = 0; i < 100; i++) {
		uint32_t object = (uint32_t)i % 5;

		policy_access(policy, object);
		if (resident[object])
			continue;
		misses++;
		if (used == 4) {
			uint32_t victim;

			policy_seek(policy, object);
			victim = policy_next(policy);
			policy_remove(policy, victim);
			resident[victim] = 0;
			used--;
		}
		policy_add(policy, object);
		resident[object] = 1;
		used++;
	}
	cr_assert_eq(misses, 100);
	policy_destroy(policy);
}
