/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segmented LRU: a stack of LRU lists, each with a share of the slots. A newcomer enters the lowest with room, a use moves
 * an object one segment up, and a segment that is too full passes its oldest one down. Victims come from the bottom, so
 * what was used once cannot displace what was used often, and what is used no more sinks.
 */
#include "policy/list.h"
#include "policy/ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct segment {
	struct policy_list list;
	uint32_t slots;              /* not a bound of the lowest, which takes what has no room elsewhere */
};

struct slru {
	struct policy policy;
	uint32_t segments;           /* of each order */
	float split[POLICY_SEGMENTS_MAX];
	struct segment *segment;     /* [order_count * segments] lowest first */
	struct policy_link *link;    /* [object_count] */
	unsigned char *level;        /* [object_count] its segment, 0: the lowest */
	uint64_t *entered_at;        /* [object_count] visit of its layer when it came where it stands: merges orders */
};

static struct slru *slru_of(struct policy *policy)
{
	return (struct slru *)policy;
}

static struct segment *segments_of(struct slru *slru, uint32_t order)
{
	return slru->segment + (size_t)order * slru->segments;
}

/* Shares are rounded where they end, so that none of the slots is lost between two segments. */
static void share_slots(struct slru *slru, uint32_t order)
{
	uint32_t slots = policy_order_slots(&slru->policy, order), given = 0;
	double sum = 0, end = 0;

	for (uint32_t i = 0; i < slru->segments; i++)
		sum += (double)slru->split[i];
	for (uint32_t i = 0; i < slru->segments; i++) {
		uint32_t upto;

		end += (double)slru->split[i];
		upto = i + 1 == slru->segments ? slots : (uint32_t)(end / sum * slots);
		segments_of(slru, order)[i].slots = upto - given;
		given = upto;
	}
}

static int slru_init(struct policy *policy, const struct policy_setup *setup, const struct policy_tuning *tuning)
{
	struct slru *slru = slru_of(policy);
	size_t count = (size_t)policy->order_count * tuning->slru_segments;

	(void)setup;
	slru->segments = tuning->slru_segments;
	memcpy(slru->split, tuning->slru_split, sizeof slru->split);
	slru->segment = calloc(count, sizeof *slru->segment);
	slru->link = calloc(policy->object_count, sizeof *slru->link);
	slru->level = calloc(policy->object_count, sizeof *slru->level);
	slru->entered_at = calloc(policy->object_count, sizeof *slru->entered_at);
	if (slru->segment == NULL || slru->link == NULL || slru->level == NULL || slru->entered_at == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		policy_list_init(&slru->segment[i].list);
	for (uint32_t order = 0; order < policy->order_count; order++)
		share_slots(slru, order);
	return 0;
}

static void slru_fini(struct policy *policy)
{
	struct slru *slru = slru_of(policy);

	free(slru->segment);
	free(slru->link);
	free(slru->level);
	free(slru->entered_at);
}

static void enter(struct slru *slru, uint32_t order, uint32_t level, uint32_t object)
{
	slru->level[object] = (unsigned char)level;
	slru->entered_at[object] = slru->policy.layer[slru->policy.layer_of[object]].visits;
	policy_list_push(&segments_of(slru, order)[level].list, slru->link, object);
}

static void leave(struct slru *slru, uint32_t order, uint32_t object)
{
	policy_list_unlink(&segments_of(slru, order)[slru->level[object]].list, slru->link, object);
}

/* From this segment downwards, each passes on what it has no slots for. */
static void cool(struct slru *slru, uint32_t order, uint32_t level)
{
	for (; level > 0; level--) {
		struct segment *segment = &segments_of(slru, order)[level];

		while (segment->list.count > segment->slots) {
			uint32_t object = segment->list.oldest;

			leave(slru, order, object);
			enter(slru, order, level - 1, object);
		}
	}
}

static void slru_access(struct policy *policy, uint32_t object)
{
	struct slru *slru = slru_of(policy);
	uint32_t order = policy_order_of(policy, object), level = slru->level[object];

	if (!policy->resident[object])
		return;
	leave(slru, order, object);
	if (level + 1 < slru->segments)
		level++;
	enter(slru, order, level, object);
	cool(slru, order, level);
}

static void slru_add(struct policy *policy, uint32_t object)
{
	struct slru *slru = slru_of(policy);
	uint32_t order = policy_order_of(policy, object), level = 0;
	struct segment *segment = segments_of(slru, order);

	while (level < slru->segments && segment[level].list.count >= segment[level].slots)
		level++;
	enter(slru, order, level < slru->segments ? level : 0, object);
}

static void slru_remove(struct policy *policy, uint32_t object)
{
	leave(slru_of(policy), policy_order_of(policy, object), object);
}

/* The oldest one at this level or above it. */
static uint32_t oldest_from(struct slru *slru, uint32_t order, uint32_t level)
{
	for (; level < slru->segments; level++)
		if (segments_of(slru, order)[level].list.count > 0)
			return segments_of(slru, order)[level].list.oldest;
	return POLICY_NONE;
}

static uint32_t slru_worst(struct policy *policy, uint32_t order)
{
	return oldest_from(slru_of(policy), order, 0);
}

static uint32_t slru_after(struct policy *policy, uint32_t object)
{
	struct slru *slru = slru_of(policy);
	uint32_t newer = slru->link[object].newer;

	return newer != POLICY_NONE ? newer : oldest_from(slru, policy_order_of(policy, object), slru->level[object] + 1u);
}

static int slru_goes_first(const struct policy *policy, uint32_t a, uint32_t b)
{
	const struct slru *slru = (const struct slru *)policy;
	uint64_t a_age = policy_age(policy, a, slru->entered_at[a]), b_age = policy_age(policy, b, slru->entered_at[b]);

	if (slru->level[a] != slru->level[b])
		return slru->level[a] < slru->level[b];
	return a_age != b_age ? a_age > b_age : policy_ran_later(policy, a, b);
}

static void slru_resize(struct policy *policy)
{
	struct slru *slru = slru_of(policy);

	for (uint32_t order = 0; order < policy->order_count; order++) {
		share_slots(slru, order);
		cool(slru, order, slru->segments - 1);
	}
}

const struct policy_ops policy_slru = {
	.name = "slru",
	.bytes = sizeof(struct slru),
	.pool = POLICY_POOL_GLOBAL,
	.init = slru_init,
	.fini = slru_fini,
	.access = slru_access,
	.add = slru_add,
	.remove = slru_remove,
	.worst = slru_worst,
	.after = slru_after,
	.goes_first = slru_goes_first,
	.resize = slru_resize,
};
