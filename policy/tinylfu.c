/* SPDX-License-Identifier: Apache-2.0 */
/*
 * W-TinyLFU ("TinyLFU: A Highly Efficient Cache Admission Policy"). A newcomer enters a small
 * LRU window; the oldest of a full window is the candidate for the main part, whose oldest is on probation; of these two
 * the one used less often has to go. The paper counts in a sketch; here each object has its count, for there are few.
 * Counts are halved once in a while, so they forget.
 *
 * A policy here does not evict, so the contest is the order of victims: the window's next against the main part's next.
 * When the candidate won, the room it needs is made in the main part, and the newcomer pushes it there.
 */
#include "policy/list.h"
#include "policy/ops.h"

#include <errno.h>
#include <stdlib.h>

#define ACCESSES_PER_SLOT 10u        /* between two halvings, as in the paper */

enum part { WINDOW, PROBATION, PROTECTED, PARTS };

struct order {
	struct policy_list list[PARTS];
	uint32_t window_slots, protected_slots; /* probation: the rest */
	uint64_t accesses;           /* since the counts were halved */
	uint32_t next_candidate, next_main; /* where a seek stands */
};

struct tinylfu {
	struct policy policy;
	float window_share, protected_share;
	struct order *order;         /* [order_count] */
	struct policy_link *link;    /* [object_count] */
	uint32_t *count;             /* [object_count] of accesses, resident or not */
	uint64_t *used_at;           /* [object_count] visit of its layer: merges orders */
	unsigned char *part;         /* [object_count] enum part of residents */
};

static struct tinylfu *tinylfu_of(struct policy *policy)
{
	return (struct tinylfu *)policy;
}

static struct order *order_of(struct tinylfu *tiny, uint32_t object)
{
	return &tiny->order[policy_order_of(&tiny->policy, object)];
}

/* A window of less than a few slots is full of the members of one batch, and nothing ever passes it. */
static void share_slots(struct tinylfu *tiny, uint32_t index)
{
	struct order *order = &tiny->order[index];
	uint32_t slots = policy_order_slots(&tiny->policy, index), window = (uint32_t)((double)tiny->window_share * slots);

	if (window < POLICY_WINDOW_SLOTS_MIN)
		window = POLICY_WINDOW_SLOTS_MIN;
	order->window_slots = window < slots ? window : slots;
	order->protected_slots = (uint32_t)((double)tiny->protected_share * (slots - order->window_slots));
}

static int tinylfu_init(struct policy *policy, const struct policy_setup *setup, const struct policy_tuning *tuning)
{
	struct tinylfu *tiny = tinylfu_of(policy);

	(void)setup;
	tiny->window_share = tuning->window_share;
	tiny->protected_share = tuning->protected_share;
	tiny->order = calloc(policy->order_count, sizeof *tiny->order);
	tiny->link = calloc(policy->object_count, sizeof *tiny->link);
	tiny->count = calloc(policy->object_count, sizeof *tiny->count);
	tiny->used_at = calloc(policy->object_count, sizeof *tiny->used_at);
	tiny->part = calloc(policy->object_count, sizeof *tiny->part);
	if (tiny->order == NULL || tiny->link == NULL || tiny->count == NULL || tiny->used_at == NULL || tiny->part == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < policy->order_count; i++) {
		for (int part = 0; part < PARTS; part++)
			policy_list_init(&tiny->order[i].list[part]);
		share_slots(tiny, i);
	}
	return 0;
}

static void tinylfu_fini(struct policy *policy)
{
	struct tinylfu *tiny = tinylfu_of(policy);

	free(tiny->order);
	free(tiny->link);
	free(tiny->count);
	free(tiny->used_at);
	free(tiny->part);
}

/* ---- uses ---- */

static void enter(struct tinylfu *tiny, enum part part, uint32_t object)
{
	tiny->part[object] = (unsigned char)part;
	policy_list_push(&order_of(tiny, object)->list[part], tiny->link, object);
}

static void leave(struct tinylfu *tiny, uint32_t object)
{
	policy_list_unlink(&order_of(tiny, object)->list[tiny->part[object]], tiny->link, object);
}

/* What has no slot in its part goes on probation, oldest first. */
static void spill(struct tinylfu *tiny, struct order *order, enum part part, uint32_t slots)
{
	while (order->list[part].count > slots) {
		uint32_t object = order->list[part].oldest;

		leave(tiny, object);
		enter(tiny, PROBATION, object);
	}
}

static void note_use(struct tinylfu *tiny, uint32_t object)
{
	tiny->used_at[object] = tiny->policy.layer[tiny->policy.layer_of[object]].visits;
}

static void halve_counts(struct tinylfu *tiny, uint32_t index)
{
	const struct policy *policy = &tiny->policy;
	uint32_t first = 0, count = policy->object_count;

	if (policy->order_count > 1) {
		first = policy->layer[index].first_object;
		count = policy->layer[index].object_count;
	}
	for (uint32_t i = 0; i < count; i++)
		tiny->count[first + i] /= 2;
}

static void count_use(struct tinylfu *tiny, uint32_t object)
{
	uint32_t index = policy_order_of(&tiny->policy, object);
	struct order *order = &tiny->order[index];

	tiny->count[object]++;
	if (++order->accesses < (uint64_t)ACCESSES_PER_SLOT * policy_order_slots(&tiny->policy, index))
		return;
	order->accesses = 0;
	halve_counts(tiny, index);
}

static void tinylfu_access(struct policy *policy, uint32_t object)
{
	struct tinylfu *tiny = tinylfu_of(policy);
	struct order *order = order_of(tiny, object);

	count_use(tiny, object);
	if (!policy->resident[object])
		return;
	note_use(tiny, object);
	leave(tiny, object);
	enter(tiny, tiny->part[object] == WINDOW ? WINDOW : PROTECTED, object);
	spill(tiny, order, PROTECTED, order->protected_slots);
}

static void tinylfu_add(struct policy *policy, uint32_t object)
{
	struct tinylfu *tiny = tinylfu_of(policy);
	struct order *order = order_of(tiny, object);

	note_use(tiny, object);
	enter(tiny, WINDOW, object);
	spill(tiny, order, WINDOW, order->window_slots);
}

static void tinylfu_remove(struct policy *policy, uint32_t object)
{
	leave(tinylfu_of(policy), object);
}

/* ---- victims ---- */

/*
 * The one used less often, of equals the candidate. A window that has room gives nothing before the main part: it would
 * only shrink, and it is the main part that has too much.
 */
static uint32_t loser(const struct tinylfu *tiny, const struct order *order)
{
	uint32_t candidate = order->next_candidate, main = order->next_main;

	if (candidate == POLICY_NONE || main == POLICY_NONE)
		return candidate == POLICY_NONE ? main : candidate;
	if (order->list[WINDOW].count < order->window_slots)
		return main;
	return tiny->count[candidate] <= tiny->count[main] ? candidate : main;
}

static uint32_t tinylfu_worst(struct policy *policy, uint32_t index)
{
	struct tinylfu *tiny = tinylfu_of(policy);
	struct order *order = &tiny->order[index];

	order->next_candidate = order->list[WINDOW].oldest;
	order->next_main = order->list[PROBATION].count > 0 ? order->list[PROBATION].oldest : order->list[PROTECTED].oldest;
	return loser(tiny, order);
}

static uint32_t tinylfu_after(struct policy *policy, uint32_t object)
{
	struct tinylfu *tiny = tinylfu_of(policy);
	struct order *order = order_of(tiny, object);
	uint32_t newer = tiny->link[object].newer;

	if (tiny->part[object] == WINDOW)
		order->next_candidate = newer;
	else if (newer == POLICY_NONE && tiny->part[object] == PROBATION)
		order->next_main = order->list[PROTECTED].oldest;
	else
		order->next_main = newer;
	return loser(tiny, order);
}

static int tinylfu_goes_first(const struct policy *policy, uint32_t a, uint32_t b)
{
	const struct tinylfu *tiny = (const struct tinylfu *)policy;
	uint64_t a_age = policy_age(policy, a, tiny->used_at[a]), b_age = policy_age(policy, b, tiny->used_at[b]);
	int a_protected = tiny->part[a] == PROTECTED, b_protected = tiny->part[b] == PROTECTED;

	if (a_protected != b_protected)
		return b_protected;
	if (tiny->count[a] != tiny->count[b])
		return tiny->count[a] < tiny->count[b];
	return a_age != b_age ? a_age > b_age : policy_ran_later(policy, a, b);
}

static double tinylfu_worth(const struct policy *policy, uint32_t object)
{
	return ((const struct tinylfu *)policy)->count[object];
}

static void tinylfu_resize(struct policy *policy)
{
	struct tinylfu *tiny = tinylfu_of(policy);

	for (uint32_t i = 0; i < policy->order_count; i++) {
		share_slots(tiny, i);
		spill(tiny, &tiny->order[i], PROTECTED, tiny->order[i].protected_slots);
		spill(tiny, &tiny->order[i], WINDOW, tiny->order[i].window_slots);
	}
}

const struct policy_ops policy_tinylfu = {
	.name = "tinylfu",
	.bytes = sizeof(struct tinylfu),
	.pool = POLICY_POOL_GLOBAL,
	.init = tinylfu_init,
	.fini = tinylfu_fini,
	.access = tinylfu_access,
	.add = tinylfu_add,
	.remove = tinylfu_remove,
	.worst = tinylfu_worst,
	.after = tinylfu_after,
	.goes_first = tinylfu_goes_first,
	.worth = tinylfu_worth,
	.resize = tinylfu_resize,
};
