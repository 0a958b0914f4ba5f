/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a policy file provides; private to policy/. Adding a policy: one file with these functions, one line in policy.c.
 *
 * Residents stand in orders, worst first. There is one order in all where the pool is global, and one a layer otherwise,
 * or where the policy's clock is the layer's; policy.c merges them, knows who is resident, and what the pool allows.
 */
#ifndef CNRE_POLICY_OPS_H
#define CNRE_POLICY_OPS_H

#include "policy/policy.h"

#include <stddef.h>

struct policy_ops {
	const char *name;
	size_t bytes;                /* of the policy's own struct, whose first member is struct policy */
	enum policy_pool pool;       /* what POLICY_POOL_DEFAULT means here */
	int forced_pool;             /* 1: no other pool makes sense; create refuses it */
	int orders_by_layer;         /* 1: one order a layer even in a global pool */
	/* The struct is zeroed but for `base`, which is whole. fini is called also after an init that failed. */
	int (*init)(struct policy *policy, const struct policy_setup *setup, const struct policy_tuning *tuning);
	void (*fini)(struct policy *policy);
	void (*visit)(struct policy *policy, uint32_t layer, uint32_t token_count);  /* NULL: takes no notice */
	void (*access)(struct policy *policy, uint32_t object);                      /* NULL; policy_is_resident tells a hit */
	void (*add)(struct policy *policy, uint32_t object);
	void (*remove)(struct policy *policy, uint32_t object);
	uint32_t (*worst)(struct policy *policy, uint32_t order);                    /* POLICY_NONE: it is empty */
	uint32_t (*after)(struct policy *policy, uint32_t object);                   /* the next one of the same order */
	/*
	 * 1: a, the worst left of its order, goes before b, that of another. What either says or worst does may change with
	 * calls that name their own layers and with a resize, and with nothing else: the merge remembers what it was told.
	 */
	int (*goes_first)(const struct policy *policy, uint32_t a, uint32_t b);
	double (*worth)(const struct policy *policy, uint32_t object);               /* NULL: no such measure */
	uint32_t (*describe)(const struct policy *policy, uint32_t object, struct policy_fact ret_fact[POLICY_FACTS_MAX]); /* NULL */
	void (*resize)(struct policy *policy);                                       /* capacities changed; NULL */
	void (*set_miss_us)(struct policy *policy, uint32_t layer, float miss_us);   /* NULL */
};

struct policy_layer_state {
	uint32_t resident, capacity, floor;
	uint32_t slots;              /* its share of the budget: the capacity, but where that is a soft ceiling */
	uint32_t object_count, first_object;
	uint64_t visits;             /* of this layer */
	uint64_t visited_at;         /* all visits, at the latest of this one: who was just executed */
	uint64_t slot_bytes;         /* of its largest object */
};

/*
 * The orders in one: a tournament of their worst. What a call to policy.h may have changed is one order, of the layer it
 * names, so a seek plays only the matches of the orders that were touched since the one before.
 */
struct policy_merge {
	uint32_t leaf_count;         /* a power of two */
	uint32_t *winner;            /* [2 * leaf_count] order; 1 is the final, and the sides of i are 2 i and 2 i + 1 */
	uint32_t *cursor;            /* [order_count] the worst that is left, POLICY_NONE: none, or the order may not give */
	uint32_t *touched;           /* [order_count] the first touched_count: whose cursor may not be its worst */
	uint32_t touched_count;
	unsigned char *is_touched;   /* [order_count] */
};

/* First member of every policy's own struct. */
struct policy {
	const struct policy_ops *ops;
	enum policy_pool pool;
	uint32_t object_count, layer_count, order_count;
	uint32_t resident_count;
	uint32_t slots;              /* all together, in objects of mean size: what shares are taken of */
	uint64_t budget_bytes, all_bytes;
	uint64_t visits;
	float soft_ceiling;
	uint32_t floor_slots;        /* wanted; layers have as many of them as there is room for */
	uint32_t named;              /* what policy_next said last; POLICY_NONE: nothing since the seek, or no more */
	uint32_t sought;             /* policy_seek: for whom, */
	uint32_t sought_order;       /* and the one order that gives; POLICY_NONE: all that may, merged */
	struct policy_merge merge;
	uint32_t *layer_of;          /* [object_count] */
	uint64_t *bytes_of;          /* [object_count] */
	uint32_t *given_capacity;    /* [layer_count] by the setup or by hand, for given_budget_bytes; or NULL */
	uint64_t given_budget_bytes;
	unsigned char *resident;     /* [object_count] */
	struct policy_layer_state *layer; /* [layer_count] */
};

static inline uint32_t policy_order_of(const struct policy *policy, uint32_t object)
{
	return policy->order_count == 1 ? 0 : policy->layer_of[object];
}

static inline int policy_has_layer_bounds(const struct policy *policy)
{
	return policy->pool == POLICY_POOL_LAYER || policy->pool == POLICY_POOL_SOFT;
}

/* victims.c: the merge. 0 or -ENOMEM; fini follows in any case. */
int policy_merge_init(struct policy_merge *merge, uint32_t order_count);
void policy_merge_fini(struct policy_merge *merge);
void policy_merge_touch_all(struct policy *policy);

/* The order of this layer may have another worst now, or one that compares otherwise. */
static inline void policy_merge_touch(struct policy *policy, uint32_t layer)
{
	struct policy_merge *merge = &policy->merge;
	uint32_t order = policy->order_count == 1 ? 0 : layer;

	if (merge->is_touched[order])
		return;
	merge->is_touched[order] = 1;
	merge->touched[merge->touched_count++] = order;
}

/* Slots of one order: its layer's share, or all of them where there is one order. Not ceilings, which add up to more. */
uint32_t policy_order_slots(const struct policy *policy, uint32_t order);

/*
 * Age in visits of the object's own layer, given the visit at which it was last used. Ages on one clock for all layers
 * would make the layer that runs next always the oldest: a cyclic sweep then misses everything.
 */
static inline uint64_t policy_age(const struct policy *policy, uint32_t object, uint64_t used_at_visit)
{
	return policy->layer[policy->layer_of[object]].visits - used_at_visit;
}

/* Of two that are equal otherwise: the one whose layer ran last goes first, for its next use is the farthest. */
static inline int policy_ran_later(const struct policy *policy, uint32_t a, uint32_t b)
{
	uint64_t a_at = policy->layer[policy->layer_of[a]].visited_at, b_at = policy->layer[policy->layer_of[b]].visited_at;

	return a_at != b_at ? a_at > b_at : a < b;
}

extern const struct policy_ops policy_lru, policy_fifo, policy_engine_lru, policy_lru_pin, policy_lfu, policy_lfru, policy_slru,
	policy_tinylfu, policy_cost;

#endif
