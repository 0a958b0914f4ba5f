/* SPDX-License-Identifier: Apache-2.0 */
/* policy_describe: what people are told of an object is what the policy decides by, and asking changes nothing. */
#include "policy/policy.h"
#include "tests/support/replay.h"

#include <criterion/criterion.h>
#include <string.h>

/* -1: the policy does not tell it. */
static double fact_of(const struct policy *policy, uint32_t object, const char *name)
{
	struct policy_fact fact[POLICY_FACTS_MAX];
	uint32_t count = policy_describe(policy, object, fact);

	cr_assert_leq(count, POLICY_FACTS_MAX);
	for (uint32_t i = 0; i < count; i++)
		if (strcmp(fact[i].name, name) == 0)
			return fact[i].value;
	return -1;
}

Test(policy_describe, lru_tells_the_visits_since_the_last_use_of_residents_only)
{
	struct policy *policy = replay_open("lru", 1, POLICY_POOL_GLOBAL, 8);

	policy_visit(policy, 0, 1);
	policy_add(policy, 3);
	cr_expect_eq(fact_of(policy, 3, "idle_visits"), 0);
	policy_visit(policy, 0, 1);
	policy_visit(policy, 0, 1);
	cr_expect_eq(fact_of(policy, 3, "idle_visits"), 2);
	policy_access(policy, 3);
	cr_expect_eq(fact_of(policy, 3, "idle_visits"), 0);
	cr_expect_eq(fact_of(policy, 2, "idle_visits"), -1);
	policy_destroy(policy);
}

Test(policy_describe, lfu_and_lfru_tell_uses)
{
	struct policy *lfu = replay_open("lfu", 1, POLICY_POOL_GLOBAL, 8), *lfru = replay_open("lfru", 1, POLICY_POOL_GLOBAL, 8);

	policy_add(lfu, 1);
	policy_access(lfu, 1);
	cr_expect_eq(fact_of(lfu, 1, "uses"), 2, "becoming resident is one");
	cr_expect_eq(fact_of(lfu, 0, "uses"), -1);
	policy_access(lfru, 1);
	policy_access(lfru, 1);
	cr_expect_eq(fact_of(lfru, 1, "uses"), 2, "of what is not resident, too");
	policy_destroy(lfu);
	policy_destroy(lfru);
}

Test(policy_describe, cost_tells_rates_and_what_a_miss_costs)
{
	struct policy *policy = replay_open("cost", 1, POLICY_POOL_GLOBAL, 8);

	policy_set_miss_us(policy, 0, 250);
	policy_visit(policy, 0, 1);
	policy_access(policy, 2);
	cr_expect_gt(fact_of(policy, 2, "use_rate_1"), fact_of(policy, 2, "use_rate_3"), "the shortest memory learns fastest");
	cr_expect_eq(fact_of(policy, 5, "use_rate_1"), 0);
	cr_expect_eq(fact_of(policy, 2, "miss_us"), 250);
	cr_expect_eq(fact_of(policy, 2, "history_weight"), 0, "there is none");
	policy_visit(policy, 0, 1);
	policy_visit(policy, 0, 1);
	policy_add(policy, 2);
	cr_expect_eq(fact_of(policy, 2, "idle_visits"), 0, "it has just come");
	policy_destroy(policy);
}

Test(policy_describe, asking_every_policy_leaves_its_order_alone)
{
	for (unsigned i = 0; policy_name_at(i) != NULL; i++) {
		struct policy *policy = replay_open(policy_name_at(i), 1, POLICY_POOL_DEFAULT, 6);
		uint32_t before[6], count = 0, victim;

		replay_add(policy, 0, 6);
		policy_visit(policy, 0, 1);
		policy_access(policy, 4);
		policy_access(policy, 1);
		policy_seek(policy, POLICY_NONE);
		while ((victim = policy_next(policy)) != POLICY_NONE)
			before[count++] = victim;
		for (uint32_t object = 0; object < 6; object++)
			(void)fact_of(policy, object, "nothing");
		policy_seek(policy, POLICY_NONE);
		for (uint32_t n = 0; n < count; n++)
			cr_expect_eq(policy_next(policy), before[n], "%s", policy_name_at(i));
		policy_destroy(policy);
	}
}
