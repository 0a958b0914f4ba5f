/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LRU with pins: a share of each order's slots is kept for the objects that a history used most, and a pinned resident
 * goes only when nothing else is left. Pins make nothing resident: they keep what was used once more. Without a history
 * nothing is pinned, and this is LRU.
 */
#include "policy/list.h"
#include "policy/ops.h"

#include <errno.h>
#include <stdlib.h>

struct use {
	uint64_t visit;              /* of its layer: merges orders */
	uint64_t turn;               /* among all uses: puts an order together again when its pins change */
};

struct lru_pin {
	struct policy policy;
	float pin_share;
	uint64_t turn;
	struct policy_list *plain, *pinned; /* [order_count] residents by use */
	struct policy_link *link;    /* [object_count] */
	struct use *use;             /* [object_count] the last one */
	uint32_t *rank;              /* [object_count] in its order, 0: most used; POLICY_NONE: never in the history */
	uint32_t *pin_count;         /* [order_count] the ranks below are pinned */
};

static struct lru_pin *lru_pin_of(struct policy *policy)
{
	return (struct lru_pin *)policy;
}

struct ranked {
	uint32_t order, uses, object;
};

static int by_order_and_uses(const void *left, const void *right)
{
	const struct ranked *a = left, *b = right;

	if (a->order != b->order)
		return a->order < b->order ? -1 : 1;
	if (a->uses != b->uses)
		return a->uses > b->uses ? -1 : 1;
	return a->object < b->object ? -1 : a->object > b->object;
}

static int rank_objects(struct lru_pin *lru, const uint32_t *prior_of)
{
	uint32_t objects = lru->policy.object_count, rank = 0;
	struct ranked *ranked = calloc(objects, sizeof *ranked);

	if (ranked == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < objects; i++)
		ranked[i] = (struct ranked){policy_order_of(&lru->policy, i), prior_of[i], i};
	qsort(ranked, objects, sizeof *ranked, by_order_and_uses);
	for (uint32_t i = 0; i < objects; i++, rank++) {
		if (i > 0 && ranked[i].order != ranked[i - 1].order)
			rank = 0;
		if (ranked[i].uses > 0)
			lru->rank[ranked[i].object] = rank;
	}
	free(ranked);
	return 0;
}

static void count_pins(struct lru_pin *lru)
{
	for (uint32_t order = 0; order < lru->policy.order_count; order++)
		lru->pin_count[order] = (uint32_t)((double)lru->pin_share * policy_order_slots(&lru->policy, order));
}

static int lru_pin_init(struct policy *policy, const struct policy_setup *setup, const struct policy_tuning *tuning)
{
	struct lru_pin *lru = lru_pin_of(policy);

	lru->pin_share = tuning->pin_share;
	lru->plain = calloc(policy->order_count, sizeof *lru->plain);
	lru->pinned = calloc(policy->order_count, sizeof *lru->pinned);
	lru->pin_count = calloc(policy->order_count, sizeof *lru->pin_count);
	lru->link = calloc(policy->object_count, sizeof *lru->link);
	lru->use = calloc(policy->object_count, sizeof *lru->use);
	lru->rank = calloc(policy->object_count, sizeof *lru->rank);
	if (lru->plain == NULL || lru->pinned == NULL || lru->pin_count == NULL || lru->link == NULL || lru->use == NULL ||
	    lru->rank == NULL)
		return -ENOMEM;
	for (uint32_t order = 0; order < policy->order_count; order++) {
		policy_list_init(&lru->plain[order]);
		policy_list_init(&lru->pinned[order]);
	}
	for (uint32_t i = 0; i < policy->object_count; i++)
		lru->rank[i] = POLICY_NONE;
	count_pins(lru);
	return setup->prior_of == NULL ? 0 : rank_objects(lru, setup->prior_of);
}

static void lru_pin_fini(struct policy *policy)
{
	struct lru_pin *lru = lru_pin_of(policy);

	free(lru->plain);
	free(lru->pinned);
	free(lru->pin_count);
	free(lru->link);
	free(lru->use);
	free(lru->rank);
}

static int is_pinned(const struct lru_pin *lru, uint32_t object)
{
	return lru->rank[object] < lru->pin_count[policy_order_of(&lru->policy, object)];
}

static struct policy_list *list_of(struct lru_pin *lru, uint32_t object)
{
	return (is_pinned(lru, object) ? lru->pinned : lru->plain) + policy_order_of(&lru->policy, object);
}

static void lru_pin_add(struct policy *policy, uint32_t object)
{
	struct lru_pin *lru = lru_pin_of(policy);

	lru->use[object] = (struct use){policy->layer[policy->layer_of[object]].visits, ++lru->turn};
	policy_list_push(list_of(lru, object), lru->link, object);
}

static void lru_pin_remove(struct policy *policy, uint32_t object)
{
	struct lru_pin *lru = lru_pin_of(policy);

	policy_list_unlink(list_of(lru, object), lru->link, object);
}

static void lru_pin_access(struct policy *policy, uint32_t object)
{
	if (!policy->resident[object])
		return;
	lru_pin_remove(policy, object);
	lru_pin_add(policy, object);
}

static uint32_t lru_pin_worst(struct policy *policy, uint32_t order)
{
	struct lru_pin *lru = lru_pin_of(policy);

	return lru->plain[order].count > 0 ? lru->plain[order].oldest : lru->pinned[order].oldest;
}

static uint32_t lru_pin_after(struct policy *policy, uint32_t object)
{
	struct lru_pin *lru = lru_pin_of(policy);
	uint32_t newer = lru->link[object].newer;

	return newer != POLICY_NONE || is_pinned(lru, object) ? newer : lru->pinned[policy_order_of(policy, object)].oldest;
}

static int lru_pin_goes_first(const struct policy *policy, uint32_t a, uint32_t b)
{
	const struct lru_pin *lru = (const struct lru_pin *)policy;
	uint64_t a_age = policy_age(policy, a, lru->use[a].visit), b_age = policy_age(policy, b, lru->use[b].visit);

	if (is_pinned(lru, a) != is_pinned(lru, b))
		return is_pinned(lru, b);
	return a_age != b_age ? a_age > b_age : policy_ran_later(policy, a, b);
}

/* Both lists, taken apart from their old ends in the order of use, fall into place by the new pins. */
static void sort_anew(struct lru_pin *lru, uint32_t order)
{
	uint32_t a = lru->plain[order].oldest, b = lru->pinned[order].oldest;

	policy_list_init(&lru->plain[order]);
	policy_list_init(&lru->pinned[order]);
	while (a != POLICY_NONE || b != POLICY_NONE) {
		int take_a = b == POLICY_NONE || (a != POLICY_NONE && lru->use[a].turn < lru->use[b].turn);
		uint32_t object = take_a ? a : b;

		*(take_a ? &a : &b) = lru->link[object].newer;
		policy_list_push(list_of(lru, object), lru->link, object);
	}
}

static void lru_pin_resize(struct policy *policy)
{
	struct lru_pin *lru = lru_pin_of(policy);

	count_pins(lru);
	for (uint32_t order = 0; order < policy->order_count; order++)
		sort_anew(lru, order);
}

const struct policy_ops policy_lru_pin = {
	.name = "lru+pin",
	.bytes = sizeof(struct lru_pin),
	.pool = POLICY_POOL_GLOBAL,
	.init = lru_pin_init,
	.fini = lru_pin_fini,
	.access = lru_pin_access,
	.add = lru_pin_add,
	.remove = lru_pin_remove,
	.worst = lru_pin_worst,
	.after = lru_pin_after,
	.goes_first = lru_pin_goes_first,
	.resize = lru_pin_resize,
};
