/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Least frequently used, as textbooks have it: uses are counted while an object is resident and forgotten with it, and of
 * those used least often the one goes that was not touched for longest. What it can do and what it cannot is known
 * (it keeps yesterday's favourites and evicts every newcomer), so it is here to be compared with.
 */
#include "policy/frequency.h"
#include "policy/ops.h"

#include <errno.h>
#include <stdlib.h>

struct lfu {
	struct policy policy;
	struct policy_frequency frequency;
	uint64_t *used_at;           /* [object_count] visit of its layer at the last use: merges orders */
};

static struct lfu *lfu_of(struct policy *policy)
{
	return (struct lfu *)policy;
}

static int lfu_init(struct policy *policy, const struct policy_setup *setup, const struct policy_tuning *tuning)
{
	struct lfu *lfu = lfu_of(policy);

	(void)setup;
	(void)tuning;
	lfu->used_at = calloc(policy->object_count, sizeof *lfu->used_at);
	if (lfu->used_at == NULL)
		return -ENOMEM;
	return policy_frequency_init(&lfu->frequency, policy->object_count, policy->order_count);
}

static void lfu_fini(struct policy *policy)
{
	policy_frequency_fini(&lfu_of(policy)->frequency);
	free(lfu_of(policy)->used_at);
}

static void note_use(struct lfu *lfu, uint32_t object)
{
	lfu->used_at[object] = lfu->policy.layer[lfu->policy.layer_of[object]].visits;
}

static void lfu_access(struct policy *policy, uint32_t object)
{
	if (!policy->resident[object])
		return;
	note_use(lfu_of(policy), object);
	policy_frequency_raise(&lfu_of(policy)->frequency, object);
}

static void lfu_add(struct policy *policy, uint32_t object)
{
	note_use(lfu_of(policy), object);
	policy_frequency_add(&lfu_of(policy)->frequency, policy_order_of(policy, object), object, 1);
}

static void lfu_remove(struct policy *policy, uint32_t object)
{
	policy_frequency_remove(&lfu_of(policy)->frequency, object);
}

static uint32_t lfu_worst(struct policy *policy, uint32_t order)
{
	return policy_frequency_worst(&lfu_of(policy)->frequency, order);
}

static uint32_t lfu_after(struct policy *policy, uint32_t object)
{
	return policy_frequency_after(&lfu_of(policy)->frequency, object);
}

static int lfu_goes_first(const struct policy *policy, uint32_t a, uint32_t b)
{
	const struct lfu *lfu = (const struct lfu *)policy;
	uint64_t a_count = policy_frequency_of(&lfu->frequency, a), b_count = policy_frequency_of(&lfu->frequency, b);
	uint64_t a_age = policy_age(policy, a, lfu->used_at[a]), b_age = policy_age(policy, b, lfu->used_at[b]);

	if (a_count != b_count)
		return a_count < b_count;
	return a_age != b_age ? a_age > b_age : policy_ran_later(policy, a, b);
}

static uint32_t lfu_describe(const struct policy *policy, uint32_t object, struct policy_fact ret_fact[POLICY_FACTS_MAX])
{
	const struct lfu *lfu = (const struct lfu *)policy;

	if (!policy->resident[object])
		return 0;
	ret_fact[0] = (struct policy_fact){"uses", (double)policy_frequency_of(&lfu->frequency, object)};
	ret_fact[1] = (struct policy_fact){"idle_visits", (double)policy_age(policy, object, lfu->used_at[object])};
	return 2;
}

/* No worth: an object that is not resident has no count, and would never be preferred to one that is. */
const struct policy_ops policy_lfu = {
	.name = "lfu",
	.bytes = sizeof(struct lfu),
	.pool = POLICY_POOL_GLOBAL,
	.init = lfu_init,
	.fini = lfu_fini,
	.access = lfu_access,
	.add = lfu_add,
	.remove = lfu_remove,
	.worst = lfu_worst,
	.after = lfu_after,
	.goes_first = lfu_goes_first,
	.describe = lfu_describe,
};
