/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Residency decisions, pure: no I/O, no clock, no allocation after creation, all inputs as arguments. The same object
 * files run in the manager and in the simulator. Objects are numbers below object_count; the caller owns what a number
 * means. A policy orders; it never evicts: the caller asks for victims in order, skips those that are leased, and says
 * which one it took.
 *
 * The life of a lookup. A client visits a layer: policy_visit. Each expert it looks up: policy_access (all of
 * a batch before anything is placed: the batch rule). For each miss that is to be placed: while policy_must_replace, or
 * while the caller has no room, policy_seek and policy_next name victims, of which the first that may go is taken:
 * policy_remove; then policy_add. The same calls in the same order give the same answers, everywhere.
 */
#ifndef CNRE_POLICY_POLICY_H
#define CNRE_POLICY_POLICY_H

#include <stdint.h>

#define POLICY_NONE UINT32_MAX
#define POLICY_SEGMENTS_MAX 8u       /* of slru */
#define POLICY_RATES 3u              /* of cost */

struct policy;

/* From whom room may be taken for an object. */
enum policy_pool {
	POLICY_POOL_DEFAULT,         /* what the policy was made for */
	POLICY_POOL_GLOBAL,          /* anybody */
	POLICY_POOL_LAYER,           /* its own layer, which has a fixed capacity */
	POLICY_POOL_SOFT             /* anybody above the floor of its layer; its own layer alone at the layer's ceiling */
};

/* What can be tuned, by the name of the policy that looks at it. policy_tuning_default fills all of it. */
struct policy_tuning {
	float slru_split[POLICY_SEGMENTS_MAX]; /* slru: shares of the segments, lowest first */
	uint32_t slru_segments;
	float window_share;          /* tinylfu: of all slots; at least POLICY_WINDOW_SLOTS_MIN of them */
	float protected_share;       /* tinylfu: of what is not window */
	float pin_share;             /* lru+pin: of all slots, kept for the most used of the history */
	float half_life[POLICY_RATES]; /* cost: in visits of the object's own layer */
	float rate_weight[POLICY_RATES];
	float prior_weight;          /* cost: of the history's use rate; 0 where the skew gate closes it */
	uint32_t min_age_visits;     /* cost: visits of its own layer before an object may go, where another can */
	float soft_ceiling;          /* soft pool: times the equal share */
};
#define POLICY_WINDOW_SLOTS_MIN 4u

struct policy_setup {
	uint32_t object_count;
	uint32_t layer_count;
	const uint32_t *layer_of;         /* [object_count]; ascending; read during creation only, as all of these */
	const uint64_t *bytes_of;         /* [object_count]; what each occupies */
	uint64_t budget_bytes;            /* capacities, segments and shares are derived from it */
	enum policy_pool pool;
	const uint32_t *capacity_of_layer; /* [layer_count] in objects, or NULL: equal, as policy_equal_capacities */
	uint32_t floor_slots;             /* soft pool: each layer keeps that many, or its equal share if that is less; top-k, 0: none */
	const uint32_t *prior_of;         /* [object_count] uses in a history, or NULL: lru+pin, cost */
	const float *miss_us_of_layer;    /* [layer_count] marginal felt cost of a miss in any one unit, or NULL: 1 each */
	const struct policy_tuning *tuning; /* NULL: policy_tuning_default */
};

void policy_tuning_default(struct policy_tuning *ret_tuning);

/* 0, -ENOENT (no policy of that name), -EINVAL (a setup or tuning that cannot be) or -ENOMEM. */
int policy_create(struct policy **ret_policy, const char *name, const struct policy_setup *setup);
struct policy *policy_destroy(struct policy *policy); /* NULL is fine; returns NULL */
const char *policy_name(const struct policy *policy);
/* The names known, in order; NULL behind the last. */
const char *policy_name_at(unsigned index);
/* 1: policy_create of that name, which is known, takes that pool. */
int policy_takes_pool(const char *name, enum policy_pool pool);
enum policy_pool policy_pool_of(const struct policy *policy); /* never POLICY_POOL_DEFAULT */

/* A layer visit of one client begins; it stands for token_count tokens. The clock of all policies (never wall time). */
void policy_visit(struct policy *policy, uint32_t layer, uint32_t token_count);

/* A client looked an object up: a hit, if it is resident. */
void policy_access(struct policy *policy, uint32_t object);

/* The object became resident (its room is taken: the load may still be on its way), or ceased to be. */
void policy_add(struct policy *policy, uint32_t object);
void policy_remove(struct policy *policy, uint32_t object);
int policy_is_resident(const struct policy *policy, uint32_t object);

/* 1: one victim of policy_seek must go before this object is added, whatever room there is: its layer is full. */
int policy_must_replace(const struct policy *policy, uint32_t object);

/*
 * Victims, worst first: seek begins, each next gives one more, POLICY_NONE ends. `object` is what room is made for, and
 * its pool decides who may go; POLICY_NONE: the budget shrinks, and anybody may. Valid until the next call that changes
 * the policy. No member of the list is resident twice, and none is `object`.
 */
void policy_seek(struct policy *policy, uint32_t object);
uint32_t policy_next(struct policy *policy);

/*
 * 1: the object is worth more than the victim by `hysteresis` (0.25: a quarter more) by the policy's own measure. What has
 * no such measure says 1. For moves that cost something of their own: prefetch, promotion to a smaller tier.
 */
int policy_prefers(const struct policy *policy, uint32_t object, uint32_t victim, float hysteresis);
/* The policy's measure of an object's worth, for people: higher stays longer; 0 where there is none. */
double policy_worth(const struct policy *policy, uint32_t object);

/* One number that a policy keeps of an object, under its name; the names are stable (doc/man/cnrectl.1). */
struct policy_fact {
	const char *name;
	double value;
};
#define POLICY_FACTS_MAX 8u
/* What its decisions about the object are made of, for people; how many facts. Changes nothing. */
uint32_t policy_describe(const struct policy *policy, uint32_t object, struct policy_fact ret_fact[POLICY_FACTS_MAX]);

/*
 * At run time. Capacities follow the budget; those given by hand (a layer pool's, or the ceilings of a soft one) in
 * proportion. 0 or -ENOMEM.
 */
void policy_set_budget(struct policy *policy, uint64_t budget_bytes);
int policy_set_capacities(struct policy *policy, const uint32_t *capacity); /* [layer_count], for the budget of now */
void policy_set_miss_us(struct policy *policy, uint32_t layer, float miss_us);

struct policy_layer {
	uint32_t resident, capacity; /* capacity: of the layer pool, or the soft ceiling; POLICY_NONE: no bound of its own */
	uint32_t floor;
	uint64_t visits;
};
void policy_get_layer(const struct policy *policy, uint32_t layer, struct policy_layer *ret_layer);

/*
 * Capacities of equal size in objects: as many for each layer as the budget holds for all, and one more for the first
 * layers while their bytes are left. Never more than a layer has. 0, -EINVAL or -ENOMEM.
 */
int policy_equal_capacities(const struct policy_setup *setup, uint32_t *ret_capacity, uint64_t *ret_left_bytes);

#endif
