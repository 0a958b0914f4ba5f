/* SPDX-License-Identifier: Apache-2.0 */
/* The LFRU policy: Colibri's score, and that an order without a search is exactly that of the score. */
#include "tests/support/replay.h"

#include <criterion/criterion.h>

Test(policy_lfru, counts_before_age)
{
	struct policy *policy = replay_open("lfru", 1, POLICY_POOL_GLOBAL, 8);

	replay_access(policy, 0, 2);
	replay_access(policy, 1, 1);
	replay_add(policy, 0, 3);
	policy_visit(policy, 0, 1);
	EXPECT_VICTIMS(policy, POLICY_NONE, 2, 1, 0);
	cr_assert_eq(policy_worth(policy, 0), 2 << 8 | 254);
	replay_access(policy, 1, 2);
	EXPECT_VICTIMS(policy, POLICY_NONE, 2, 0, 1);
	cr_assert_eq(policy_worth(policy, 1), 3 << 8 | 255);
	policy_destroy(policy);
}

Test(policy_lfru, counts_are_kept_when_residence_ends_and_grow_in_absence)
{
	struct policy *policy = replay_open("lfru", 1, POLICY_POOL_GLOBAL, 8);

	replay_add(policy, 0, 2);
	replay_access(policy, 0, 3);
	replay_access(policy, 1, 4);
	policy_remove(policy, 0);
	policy_access(policy, 0);
	EXPECT_VICTIMS(policy, POLICY_NONE, 1);
	policy_access(policy, 0);
	policy_add(policy, 0);
	EXPECT_VICTIMS(policy, POLICY_NONE, 1, 0);
	policy_destroy(policy);
}

Test(policy_lfru, age_is_in_visits_of_the_own_layer_and_ends_at_255)
{
	struct policy *policy = replay_open("lfru", 2, POLICY_POOL_GLOBAL, 8);

	replay_add(policy, 0, 1);
	replay_add(policy, 8, 9);
	for (int i = 0; i < 300; i++)
		policy_visit(policy, 0, 1);
	cr_assert_eq(policy_worth(policy, 0), 0);
	cr_assert_eq(policy_worth(policy, 8), 255);
	EXPECT_VICTIMS(policy, POLICY_NONE, 0, 8);
	for (int i = 0; i < 256; i++)
		policy_visit(policy, 1, 1);
	EXPECT_VICTIMS(policy, POLICY_NONE, 8, 0); /* both at the end of the scale: layer 1 ran last */
	policy_destroy(policy);
}

Test(policy_lfru, what_is_loaded_unasked_is_fresh_but_not_used)
{
	struct policy *policy = replay_open("lfru", 1, POLICY_POOL_GLOBAL, 8);

	for (int i = 0; i < 3; i++)
		policy_visit(policy, 0, 1);
	policy_add(policy, 0);
	cr_assert_eq(policy_worth(policy, 0), 255);
	policy_visit(policy, 0, 1);
	policy_add(policy, 1);
	EXPECT_VICTIMS(policy, POLICY_NONE, 0, 1);
	policy_destroy(policy);
}

Test(policy_lfru, prefers_by_score)
{
	struct policy *policy = replay_open("lfru", 1, POLICY_POOL_GLOBAL, 8);

	replay_access(policy, 0, 2);
	replay_access(policy, 1, 4);
	policy_add(policy, 0);
	cr_assert(policy_prefers(policy, 1, 0, 0.25f));
	cr_assert_not(policy_prefers(policy, 1, 0, 1)); /* 4.99 is not twice 2.99 */
	cr_assert_not(policy_prefers(policy, 0, 1, 0));
	policy_destroy(policy);
}

/* ---- the order is that of the score, found by looking at all ---- */

#define LAYERS 5u
#define OBJECTS (LAYERS * 8u)

/* Every pair stands as its scores say; policy_worth is exact below 2^53. */
static void expect_ascending(struct policy *policy)
{
	double last = -1;
	uint32_t count = 0;

	policy_seek(policy, POLICY_NONE);
	for (uint32_t victim; (victim = policy_next(policy)) != POLICY_NONE; count++) {
		cr_assert_geq(policy_worth(policy, victim), last);
		last = policy_worth(policy, victim);
	}
	for (uint32_t i = 0; i < OBJECTS; i++)
		count -= (uint32_t)policy_is_resident(policy, i);
	cr_assert_eq(count, 0);
}

Test(policy_lfru, victims_ascend_by_score_whatever_happened)
{
	struct policy *policy = replay_open("lfru", LAYERS, POLICY_POOL_GLOBAL, OBJECTS);
	uint64_t state = 1;

	for (int i = 0; i < 20000; i++) {
		uint32_t what, object;

		state = state * 6364136223846793005u + 1442695040888963407u;
		what = (uint32_t)(state >> 33) % 16;
		object = (uint32_t)(state >> 40) % OBJECTS;
		if (what < 6)
			policy_access(policy, object % (1 + object % 7) * 5 % OBJECTS);
		else if (what < 12)
			policy_visit(policy, object % LAYERS, 1);
		else if (policy_is_resident(policy, object))
			policy_remove(policy, object);
		else
			policy_add(policy, object);
		expect_ascending(policy);
	}
	policy_destroy(policy);
}
