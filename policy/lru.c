/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Least recently used, the baseline that every other policy is measured against, and what is ordered the same way with
 * one thing changed: fifo (a use is no reason to stay) and engine-lru (what a Colibri engine does alone: a list for each
 * layer, of fixed capacity). An object counts as used when it is looked up and when it becomes resident, so a miss that
 * was placed is as recent as a hit.
 */
#include "base/check.h"
#include "policy/list.h"
#include "policy/ops.h"

#include <errno.h>
#include <stdlib.h>

struct lru {
	struct policy policy;
	struct policy_list *list;    /* [order_count] */
	struct policy_link *link;    /* [object_count] */
	uint64_t *used_at;           /* [object_count] visit of its layer at the last use: merges orders */
};

static struct lru *lru_of(struct policy *policy)
{
	return (struct lru *)policy;
}

static int lru_init(struct policy *policy, const struct policy_setup *setup, const struct policy_tuning *tuning)
{
	struct lru *lru = lru_of(policy);

	(void)setup;
	(void)tuning;
	lru->list = calloc(policy->order_count, sizeof *lru->list);
	lru->link = calloc(policy->object_count, sizeof *lru->link);
	lru->used_at = calloc(policy->object_count, sizeof *lru->used_at);
	if (lru->list == NULL || lru->link == NULL || lru->used_at == NULL)
		return -ENOMEM;
	for (uint32_t order = 0; order < policy->order_count; order++)
		policy_list_init(&lru->list[order]);
	return 0;
}

static void lru_fini(struct policy *policy)
{
	struct lru *lru = lru_of(policy);

	free(lru->list);
	free(lru->link);
	free(lru->used_at);
}

static void note_use(struct lru *lru, uint32_t object)
{
	lru->used_at[object] = lru->policy.layer[lru->policy.layer_of[object]].visits;
}

static void lru_access(struct policy *policy, uint32_t object)
{
	struct lru *lru = lru_of(policy);
	struct policy_list *list = &lru->list[policy_order_of(policy, object)];

	if (!policy->resident[object])
		return;
	note_use(lru, object);
	if (list->newest == object)
		return;
	policy_list_unlink(list, lru->link, object);
	policy_list_push(list, lru->link, object);
}

static void lru_add(struct policy *policy, uint32_t object)
{
	struct lru *lru = lru_of(policy);

	note_use(lru, object);
	policy_list_push(&lru->list[policy_order_of(policy, object)], lru->link, object);
}

static void lru_remove(struct policy *policy, uint32_t object)
{
	struct lru *lru = lru_of(policy);

	policy_list_unlink(&lru->list[policy_order_of(policy, object)], lru->link, object);
}

static uint32_t lru_worst(struct policy *policy, uint32_t order)
{
	return lru_of(policy)->list[order].oldest;
}

static uint32_t lru_after(struct policy *policy, uint32_t object)
{
	return lru_of(policy)->link[object].newer;
}

static int lru_goes_first(const struct policy *policy, uint32_t a, uint32_t b)
{
	const struct lru *lru = (const struct lru *)policy;
	uint64_t a_age = policy_age(policy, a, lru->used_at[a]), b_age = policy_age(policy, b, lru->used_at[b]);

	return a_age != b_age ? a_age > b_age : policy_ran_later(policy, a, b);
}

/* Of what is not resident nothing is kept. */
static uint32_t lru_describe(const struct policy *policy, uint32_t object, struct policy_fact ret_fact[POLICY_FACTS_MAX])
{
	const struct lru *lru = (const struct lru *)policy;

	if (!policy->resident[object])
		return 0;
	ret_fact[0] = (struct policy_fact){"idle_visits", (double)policy_age(policy, object, lru->used_at[object])};
	return 1;
}

const struct policy_ops policy_lru = {
	.name = "lru",
	.bytes = sizeof(struct lru),
	.pool = POLICY_POOL_GLOBAL,
	.init = lru_init,
	.fini = lru_fini,
	.access = lru_access,
	.add = lru_add,
	.remove = lru_remove,
	.worst = lru_worst,
	.after = lru_after,
	.goes_first = lru_goes_first,
	.describe = lru_describe,
};

const struct policy_ops policy_fifo = {
	.name = "fifo",
	.bytes = sizeof(struct lru),
	.pool = POLICY_POOL_GLOBAL,
	.init = lru_init,
	.fini = lru_fini,
	.add = lru_add,
	.remove = lru_remove,
	.worst = lru_worst,
	.after = lru_after,
	.goes_first = lru_goes_first,
	.describe = lru_describe,
};

const struct policy_ops policy_engine_lru = {
	.name = "engine-lru",
	.bytes = sizeof(struct lru),
	.pool = POLICY_POOL_LAYER,
	.forced_pool = 1,
	.init = lru_init,
	.fini = lru_fini,
	.access = lru_access,
	.add = lru_add,
	.remove = lru_remove,
	.worst = lru_worst,
	.after = lru_after,
	.goes_first = lru_goes_first,
	.describe = lru_describe,
};
