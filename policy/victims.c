/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may go, by the pool, and in what order: each policy orders a layer or everything, and where there are several orders
 * they are merged here. A soft pool has a miss choose among all layers, so this is what a simulator spends its time in.
 */
#include "base/check.h"
#include "policy/ops.h"

#include <errno.h>
#include <stdlib.h>

/* ---- the pool ---- */

static int is_full(const struct policy *policy, uint32_t layer)
{
	return policy_has_layer_bounds(policy) && policy->layer[layer].resident >= policy->layer[layer].capacity;
}

int policy_must_replace(const struct policy *policy, uint32_t object)
{
	return is_full(policy, policy->layer_of[object]);
}

/* A layer gives what it has above its floor; to itself, and to a shrinking budget, everything. */
static int may_give(const struct policy *policy, uint32_t layer)
{
	return policy->sought == POLICY_NONE || policy->pool != POLICY_POOL_SOFT ||
	       layer == policy->layer_of[policy->sought] || policy->layer[layer].resident > policy->layer[layer].floor;
}

/* ---- the merge ---- */

int policy_merge_init(struct policy_merge *merge, uint32_t order_count)
{
	uint32_t leaf_count = 1;

	while (leaf_count < order_count)
		leaf_count *= 2;
	merge->leaf_count = leaf_count;
	merge->winner = calloc((size_t)leaf_count * 2, sizeof *merge->winner);
	merge->cursor = calloc(order_count, sizeof *merge->cursor);
	merge->touched = calloc(order_count, sizeof *merge->touched);
	merge->is_touched = calloc(order_count, 1);
	if (merge->winner == NULL || merge->cursor == NULL || merge->touched == NULL || merge->is_touched == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < order_count; i++)
		merge->cursor[i] = POLICY_NONE;
	for (uint32_t i = 0; i < leaf_count; i++)
		merge->winner[leaf_count + i] = i < order_count ? i : POLICY_NONE;
	for (uint32_t i = leaf_count; i-- > 1;)
		merge->winner[i] = merge->winner[2 * i]; /* with nothing to give, the left one */
	return 0;
}

void policy_merge_fini(struct policy_merge *merge)
{
	free(merge->winner);
	free(merge->cursor);
	free(merge->touched);
	free(merge->is_touched);
}

void policy_merge_touch_all(struct policy *policy)
{
	for (uint32_t order = 0; order < policy->order_count; order++)
		policy_merge_touch(policy, order);
}

static uint32_t play(const struct policy *policy, uint32_t left, uint32_t right)
{
	uint32_t a = policy->merge.cursor[left], b;

	if (right == POLICY_NONE)
		return left;
	b = policy->merge.cursor[right];
	return b != POLICY_NONE && (a == POLICY_NONE || policy->ops->goes_first(policy, b, a)) ? right : left;
}

/* The matches of an order, up to the first whose winner is another and stays that: beyond it this order is unknown. */
static void replay(struct policy *policy, uint32_t order)
{
	uint32_t *winner = policy->merge.winner;

	for (uint32_t i = (policy->merge.leaf_count + order) / 2; i > 0; i /= 2) {
		uint32_t now = play(policy, winner[2 * i], winner[2 * i + 1]);

		if (winner[i] == now && now != order)
			return;
		winner[i] = now;
	}
}

/* All cursors first: a match may be between two that were touched. */
static void refresh(struct policy *policy)
{
	struct policy_merge *merge = &policy->merge;

	for (uint32_t i = 0; i < merge->touched_count; i++) {
		uint32_t order = merge->touched[i];

		merge->cursor[order] = may_give(policy, order) ? policy->ops->worst(policy, order) : POLICY_NONE;
		merge->is_touched[order] = 0;
	}
	for (uint32_t i = 0; i < merge->touched_count; i++)
		replay(policy, merge->touched[i]);
	merge->touched_count = 0;
}

/* What may be given depends on who asks, for its own layer; or for all, when it is nobody. */
static void touch_sought(struct policy *policy, uint32_t object)
{
	if (object == POLICY_NONE)
		policy_merge_touch_all(policy);
	else
		policy_merge_touch(policy, policy->layer_of[object]);
}

static void seek_among_all(struct policy *policy, uint32_t object)
{
	policy->sought_order = POLICY_NONE;
	touch_sought(policy, object);
	refresh(policy);
	touch_sought(policy, object);
}

static void seek_in(struct policy *policy, uint32_t order)
{
	policy->sought_order = order;
	policy->merge.cursor[order] = policy->ops->worst(policy, order);
	if (policy->order_count > 1)
		policy_merge_touch(policy, order);
}

void policy_seek(struct policy *policy, uint32_t object)
{
	CNRE_CHECK(object == POLICY_NONE || object < policy->object_count);
	policy->sought = object;
	policy->named = POLICY_NONE;
	if (policy->order_count == 1)
		seek_in(policy, 0);
	else if (object != POLICY_NONE && is_full(policy, policy->layer_of[object]))
		seek_in(policy, policy->layer_of[object]);
	else
		seek_among_all(policy, object);
}

/* The victim named last is passed over. Only now: mostly it is taken, and what stands after it may be work to find. */
static void pass_over(struct policy *policy)
{
	uint32_t order = policy_order_of(policy, policy->named);

	policy->merge.cursor[order] = policy->ops->after(policy, policy->named);
	if (policy->sought_order == POLICY_NONE) {
		replay(policy, order);
		policy_merge_touch(policy, order);
	}
}

static uint32_t take_next(struct policy *policy)
{
	uint32_t order;

	if (policy->named != POLICY_NONE)
		pass_over(policy);
	order = policy->sought_order != POLICY_NONE ? policy->sought_order : policy->merge.winner[1];
	policy->named = policy->merge.cursor[order];
	return policy->named;
}

uint32_t policy_next(struct policy *policy)
{
	uint32_t victim = take_next(policy);

	return victim != POLICY_NONE && victim == policy->sought ? take_next(policy) : victim;
}
