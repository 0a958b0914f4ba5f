/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frequency before recency, as a Colibri engine scores experts: count << 8 | max(0, 255 - age). Counts are kept for all
 * objects, resident or not, and never forgotten, which wins on one prompt and loses over many. Age is in visits of the
 * object's own layer, so there is one order a layer even in a global pool: within a layer all ages grow together, and
 * the order of two objects changes only when one of them is used. So it is exact without a search: ascending by count,
 * then by the last use (which also orders those whose age has reached the end of the scale).
 */
#include "policy/frequency.h"
#include "policy/ops.h"

#include <errno.h>
#include <stdlib.h>

#define AGE_MAX 255u

struct use {
	uint64_t count;
	uint64_t at;                 /* visit of its layer */
};

struct lfru {
	struct policy policy;
	struct policy_frequency frequency; /* of residents, and as `use` has it */
	struct use *use;             /* [object_count] */
};

static struct lfru *lfru_of(struct policy *policy)
{
	return (struct lfru *)policy;
}

static int lfru_init(struct policy *policy, const struct policy_setup *setup, const struct policy_tuning *tuning)
{
	struct lfru *lfru = lfru_of(policy);

	(void)setup;
	(void)tuning;
	lfru->use = calloc(policy->object_count, sizeof *lfru->use);
	if (lfru->use == NULL)
		return -ENOMEM;
	return policy_frequency_init(&lfru->frequency, policy->object_count, policy->order_count);
}

static void lfru_fini(struct policy *policy)
{
	policy_frequency_fini(&lfru_of(policy)->frequency);
	free(lfru_of(policy)->use);
}

static uint64_t visit_of(const struct policy *policy, uint32_t object)
{
	return policy->layer[policy->layer_of[object]].visits;
}

static void lfru_access(struct policy *policy, uint32_t object)
{
	struct lfru *lfru = lfru_of(policy);

	lfru->use[object].count++;
	lfru->use[object].at = visit_of(policy, object);
	if (policy->resident[object])
		policy_frequency_raise(&lfru->frequency, object);
}

/* What is loaded counts as fresh, also when nobody asked for it; as used only when somebody did. */
static void lfru_add(struct policy *policy, uint32_t object)
{
	struct lfru *lfru = lfru_of(policy);

	lfru->use[object].at = visit_of(policy, object);
	policy_frequency_add(&lfru->frequency, policy_order_of(policy, object), object, lfru->use[object].count);
}

static void lfru_remove(struct policy *policy, uint32_t object)
{
	policy_frequency_remove(&lfru_of(policy)->frequency, object);
}

static uint32_t lfru_worst(struct policy *policy, uint32_t order)
{
	return policy_frequency_worst(&lfru_of(policy)->frequency, order);
}

static uint32_t lfru_after(struct policy *policy, uint32_t object)
{
	return policy_frequency_after(&lfru_of(policy)->frequency, object);
}

static uint64_t score(const struct policy *policy, uint32_t object)
{
	const struct use *use = &((const struct lfru *)policy)->use[object];
	uint64_t age = policy_age(policy, object, use->at);

	return use->count << 8 | (age < AGE_MAX ? AGE_MAX - age : 0);
}

static int lfru_goes_first(const struct policy *policy, uint32_t a, uint32_t b)
{
	uint64_t a_score = score(policy, a), b_score = score(policy, b);

	return a_score != b_score ? a_score < b_score : policy_ran_later(policy, a, b);
}

static double lfru_worth(const struct policy *policy, uint32_t object)
{
	return (double)score(policy, object);
}

static uint32_t lfru_describe(const struct policy *policy, uint32_t object, struct policy_fact ret_fact[POLICY_FACTS_MAX])
{
	const struct use *use = &((const struct lfru *)policy)->use[object];

	ret_fact[0] = (struct policy_fact){"uses", (double)use->count};
	ret_fact[1] = (struct policy_fact){"idle_visits", (double)policy_age(policy, object, use->at)};
	return 2;
}

const struct policy_ops policy_lfru = {
	.name = "lfru",
	.bytes = sizeof(struct lfru),
	.pool = POLICY_POOL_GLOBAL,
	.orders_by_layer = 1,
	.init = lfru_init,
	.fini = lfru_fini,
	.access = lfru_access,
	.add = lfru_add,
	.remove = lfru_remove,
	.worst = lfru_worst,
	.after = lfru_after,
	.goes_first = lfru_goes_first,
	.worth = lfru_worth,
	.describe = lfru_describe,
};
