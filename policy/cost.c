/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an object's absence costs: how often it is used, by what a miss of its layer costs, by its bytes. What is worth
 * least goes.
 *
 *	worth = (sum of weight * rate + prior weight * prior) * miss_us of the layer / bytes
 *
 * A rate is the share of its layer's visits in which an object is used, old visits fading with a half-life; three
 * half-lives, since one alone is either slow to follow a change of topic or quick to forget. They are kept of all objects,
 * so what returns is not a stranger. The clock is the layer's own visits: on one clock for all layers, the layer that
 * runs next would look the stalest.
 *
 * A layer's objects are neighbours, and all its rates fade in one plain loop when it is visited; a visit costs a fraction
 * of a microsecond, and an object's worth is always at hand. The same calls give the same bits in every process: no sum is
 * reordered or fused (Makefile), and what needs the mathematical library is done at creation.
 */
#include "base/check.h"
#include "policy/ops.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Below it a rate is nothing. Without an end, fading rates would crawl through denormals, which are slow, and stay there. */
#define RATE_MIN 1e-30f
#define PRIOR_VISITS 64.0            /* a history of that many visits is half believed */
#define GATE_HALF_LIFE 128.0         /* visits; of the evidence for and against the history */
#define GATE_TRUST_VISITS 16.0       /* at the start, the history's own evidence counts as that many */
#define YOUNG 0x7f000000             /* handicap of what has just come: beyond any value but the absurd, */
#define ABSENT INT32_MAX             /* and of what is not there */
#define BUCKETS 32u

/*
 * A key is a value with a handicap: values are not negative, and such floats stand in the order of their bits. To find the
 * least of a layer without looking at all, its objects are dealt out to buckets, and the least of each bucket is known.
 */
struct cost_layer {
	uint32_t first, count;       /* its objects */
	uint32_t young_count;        /* they stand in young[first...] */
	float miss_us;
	float evidence;              /* log-likelihood of recent uses by the history, less that by no history; > 0: believe it */
	float prior_weight;          /* since the latest visit, so that the values of the layer agree */
	uint32_t worst;              /* of the residents; valid only if worst_known, else to be looked for */
	int worst_known;
	uint32_t passed;             /* whom cost_after named last; POLICY_NONE: nobody since the layer changed */
	uint32_t later_count;        /* who comes after that one: a heap in later[first...], the worst at its root */
	int32_t least[BUCKETS];      /* key, of objects first + bucket, first + bucket + BUCKETS, ... */
};

struct cost {
	struct policy policy;
	float fade[POLICY_RATES], credit[POLICY_RATES], weight[POLICY_RATES];
	float prior_weight, gate_fade;
	uint32_t min_age_visits;
	double mean_bytes;
	struct cost_layer *layer;    /* [layer_count] */
	float *rate[POLICY_RATES];   /* each [object_count], as all below */
	float *prior;                /* use rate of the history */
	float *gain;                 /* what one use adds to the evidence */
	float *per_byte;             /* mean bytes over its own: near 1, where floats are at their best */
	float *value;                /* worth but for miss_us, and in objects of mean size */
	uint32_t *credited_at, *added_at; /* visit of its layer, the low 32 bits */
	int32_t *handicap;           /* 0, YOUNG or ABSENT */
	uint32_t *young, *later;
};

static struct cost *cost_of(struct policy *policy)
{
	return (struct cost *)policy;
}

static struct cost_layer *layer_of(struct cost *cost, uint32_t object)
{
	return &cost->layer[cost->policy.layer_of[object]];
}

/* ---- creation ---- */

/*
 * The history of one layer. Its counts are of single uses, so its visits are uses over top-k. Whether it says anything is
 * asked of it first: each use foretold by all the others, against an even guess. An even history loses.
 */
static void fill_prior(struct cost *cost, struct cost_layer *layer, const uint32_t *count, uint32_t top_k)
{
	double uses = 0, evidence = 0, experts = layer->count, k = top_k > 0 ? top_k : 1, visits;

	for (uint32_t i = 0; i < layer->count; i++)
		uses += count[i];
	if (uses == 0)
		return;
	visits = uses / k;
	for (uint32_t i = 0; i < layer->count; i++) {
		uint32_t object = layer->first + i;
		double rate = count[i] / visits;

		cost->prior[object] = (float)((rate < 1 ? rate : 1) * (visits / (visits + PRIOR_VISITS)));
		cost->gain[object] = (float)log((count[i] + 1.0) * experts / (uses + experts));
		if (count[i] > 0)
			evidence += count[i] * log(count[i] * experts / (uses - 1 + experts));
	}
	layer->evidence = (float)(evidence / uses * k * GATE_TRUST_VISITS);
}

static int is_cost(float us)
{
	return isfinite(us) && us >= 0;
}

static int fill(struct cost *cost, const struct policy_setup *setup, const struct policy_tuning *tuning)
{
	struct policy *policy = &cost->policy;

	for (uint32_t h = 0; h < POLICY_RATES; h++) {
		cost->fade[h] = (float)exp2(-1.0 / (double)tuning->half_life[h]);
		cost->credit[h] = 1 - cost->fade[h];
		cost->weight[h] = tuning->rate_weight[h];
	}
	cost->prior_weight = tuning->prior_weight;
	cost->gate_fade = (float)exp2(-1.0 / GATE_HALF_LIFE);
	cost->min_age_visits = tuning->min_age_visits;
	cost->mean_bytes = (double)policy->all_bytes / policy->object_count;
	for (uint32_t i = 0; i < policy->object_count; i++) {
		cost->per_byte[i] = (float)(cost->mean_bytes / (double)policy->bytes_of[i]);
		cost->handicap[i] = ABSENT;
	}
	/* The visit before the first. */
	memset(cost->credited_at, 0xff, policy->object_count * sizeof *cost->credited_at);
	for (uint32_t i = 0; i < policy->layer_count; i++) {
		struct cost_layer *layer = &cost->layer[i];

		layer->first = policy->layer[i].first_object;
		layer->count = policy->layer[i].object_count;
		layer->miss_us = setup->miss_us_of_layer != NULL ? setup->miss_us_of_layer[i] : 1;
		if (!is_cost(layer->miss_us))
			return -EINVAL;
		if (setup->prior_of != NULL)
			fill_prior(cost, layer, setup->prior_of + layer->first, setup->floor_slots);
	}
	return 0;
}

static void refresh_layer(struct cost *cost, struct cost_layer *layer);

static int cost_init(struct policy *policy, const struct policy_setup *setup, const struct policy_tuning *tuning)
{
	struct cost *cost = cost_of(policy);
	float **const floats[] = {&cost->rate[0], &cost->rate[1], &cost->rate[2], &cost->prior,
				  &cost->gain,    &cost->value,   &cost->per_byte};
	uint32_t **const numbers[] = {&cost->credited_at, &cost->added_at, &cost->young, &cost->later};
	int r;

	_Static_assert(POLICY_RATES == 3, "each rate is listed above");
	cost->layer = calloc(policy->layer_count, sizeof *cost->layer);
	cost->handicap = calloc(policy->object_count, sizeof *cost->handicap);
	if (cost->layer == NULL || cost->handicap == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < CNRE_COUNT_OF(floats); i++)
		if ((*floats[i] = calloc(policy->object_count, sizeof **floats[i])) == NULL)
			return -ENOMEM;
	for (size_t i = 0; i < CNRE_COUNT_OF(numbers); i++)
		if ((*numbers[i] = calloc(policy->object_count, sizeof **numbers[i])) == NULL)
			return -ENOMEM;
	r = fill(cost, setup, tuning);
	for (uint32_t i = 0; r == 0 && i < policy->layer_count; i++)
		refresh_layer(cost, &cost->layer[i]);
	return r;
}

static void cost_fini(struct policy *policy)
{
	struct cost *cost = cost_of(policy);

	for (uint32_t h = 0; h < POLICY_RATES; h++)
		free(cost->rate[h]);
	free(cost->prior);
	free(cost->gain);
	free(cost->value);
	free(cost->per_byte);
	free(cost->credited_at);
	free(cost->added_at);
	free(cost->handicap);
	free(cost->young);
	free(cost->later);
	free(cost->layer);
}

/* ---- rates ---- */

/* The same operations in the same order as in sum_up, for the same bits. */
static float value_of(const struct cost *cost, const struct cost_layer *layer, uint32_t object)
{
	float sum = layer->prior_weight * cost->prior[object];

	for (uint32_t h = 0; h < POLICY_RATES; h++)
		sum += cost->weight[h] * cost->rate[h][object];
	return sum * cost->per_byte[object];
}

static void fade(float *rate, float by, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		float faded = rate[i] * by;

		rate[i] = faded >= RATE_MIN ? faded : 0;
	}
}

/* All values of the layer. */
static void sum_up(const struct cost *cost, const struct cost_layer *layer, float *restrict value)
{
	const float *r0 = cost->rate[0] + layer->first, *r1 = cost->rate[1] + layer->first;
	const float *r2 = cost->rate[2] + layer->first;
	const float *prior = cost->prior + layer->first, *per_byte = cost->per_byte + layer->first;
	const float w0 = cost->weight[0], w1 = cost->weight[1], w2 = cost->weight[2], w = layer->prior_weight;

	for (uint32_t i = 0, count = layer->count; i < count; i++)
		value[i] = (w * prior[i] + w0 * r0[i] + w1 * r1[i] + w2 * r2[i]) * per_byte[i];
}

static int32_t key_of(float value, int32_t handicap)
{
	int32_t bits;

	memcpy(&bits, &value, sizeof bits);
	return bits | handicap;
}

/* One row: an object of each bucket, or of the first ones. */
static void find_least(int32_t *restrict least, const float *restrict value, const int32_t *restrict handicap,
		       uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		int32_t key = key_of(value[i], handicap[i]);

		least[i] = key < least[i] ? key : least[i];
	}
}

static void fill_buckets(const struct cost *cost, struct cost_layer *layer)
{
	for (uint32_t i = 0; i < BUCKETS; i++)
		layer->least[i] = ABSENT;
	for (uint32_t i = 0; i < layer->count; i += BUCKETS)
		find_least(layer->least, cost->value + layer->first + i, cost->handicap + layer->first + i,
			   layer->count - i < BUCKETS ? layer->count - i : BUCKETS);
}

/* The object's key is less than it was, or new. */
static void sink_key(const struct cost *cost, struct cost_layer *layer, uint32_t object)
{
	int32_t *least = &layer->least[(object - layer->first) % BUCKETS];
	int32_t key = key_of(cost->value[object], cost->handicap[object]);

	if (key < *least)
		*least = key;
}

/* The object's key is more than `before`, which it was. */
static void raise_key(const struct cost *cost, struct cost_layer *layer, uint32_t object, int32_t before)
{
	uint32_t bucket = (object - layer->first) % BUCKETS;
	int32_t least = ABSENT;

	if (before != layer->least[bucket])
		return;
	for (uint32_t i = layer->first + bucket; i < layer->first + layer->count; i += BUCKETS) {
		int32_t key = key_of(cost->value[i], cost->handicap[i]);

		least = key < least ? key : least;
	}
	layer->least[bucket] = least;
}

/* A visit: all rates of the layer fade, and its values follow. */
static void refresh_layer(struct cost *cost, struct cost_layer *layer)
{
	layer->worst_known = 0;
	layer->passed = POLICY_NONE;
	layer->prior_weight = layer->evidence > 0 ? cost->prior_weight : 0;
	for (uint32_t h = 0; h < POLICY_RATES; h++)
		fade(cost->rate[h] + layer->first, cost->fade[h], layer->count);
	sum_up(cost, layer, cost->value + layer->first);
	fill_buckets(cost, layer);
}

static uint32_t visits_of(const struct cost *cost, uint32_t object)
{
	return (uint32_t)cost->policy.layer[cost->policy.layer_of[object]].visits;
}

/* Those that have come of age are like all others from now on. */
static void grow_up(struct cost *cost, struct cost_layer *layer)
{
	uint32_t *young = cost->young + layer->first, still = 0;

	for (uint32_t i = 0; i < layer->young_count; i++) {
		if (visits_of(cost, young[i]) - cost->added_at[young[i]] < cost->min_age_visits)
			young[still++] = young[i];
		else
			cost->handicap[young[i]] = 0;
	}
	layer->young_count = still;
}

/* A union of many tokens is one visit, too: a prefill does not drown what decoding has learnt. */
static void cost_visit(struct policy *policy, uint32_t layer, uint32_t token_count)
{
	struct cost *cost = cost_of(policy);

	(void)token_count;
	cost->layer[layer].evidence *= cost->gate_fade;
	grow_up(cost, &cost->layer[layer]);
	refresh_layer(cost, &cost->layer[layer]);
}

/* An object is used or not in a visit; how often its members name it makes no difference. */
static void cost_access(struct policy *policy, uint32_t object)
{
	struct cost *cost = cost_of(policy);
	struct cost_layer *layer = layer_of(cost, object);
	uint32_t now = visits_of(cost, object);
	int32_t before = key_of(cost->value[object], cost->handicap[object]);

	if (cost->credited_at[object] == now)
		return;
	cost->credited_at[object] = now;
	for (uint32_t h = 0; h < POLICY_RATES; h++)
		cost->rate[h][object] += cost->credit[h];
	cost->value[object] = value_of(cost, layer, object);
	layer->evidence += cost->gain[object];
	if (!policy->resident[object])
		return;
	layer->passed = POLICY_NONE;
	raise_key(cost, layer, object, before);
	if (object == layer->worst)
		layer->worst_known = 0;
}

static void cost_set_miss_us(struct policy *policy, uint32_t layer, float miss_us)
{
	if (is_cost(miss_us)) /* a measurement that went wrong is no news */
		cost_of(policy)->layer[layer].miss_us = miss_us;
}

/* ---- order ---- */

/* Visits since it was used or became resident. */
static uint32_t idle_visits(const struct cost *cost, uint32_t object)
{
	uint32_t now = visits_of(cost, object);
	uint32_t used = now - cost->credited_at[object], added = now - cost->added_at[object];

	return used < added ? used : added;
}

/* Of one layer: 1: a goes before b. */
static int is_worse(const struct cost *cost, uint32_t a, uint32_t b)
{
	uint32_t a_idle, b_idle;

	if (cost->handicap[a] != cost->handicap[b])
		return cost->handicap[a] < cost->handicap[b];
	if (cost->value[a] != cost->value[b])
		return cost->value[a] < cost->value[b];
	a_idle = idle_visits(cost, a);
	b_idle = idle_visits(cost, b);
	return a_idle != b_idle ? a_idle > b_idle : a < b;
}

/* The worst resident of the layer; POLICY_NONE: there is none. */
static uint32_t scan(const struct cost *cost, const struct cost_layer *layer)
{
	uint32_t worst = POLICY_NONE;

	for (uint32_t object = layer->first; object < layer->first + layer->count; object++)
		if (cost->handicap[object] != ABSENT && (worst == POLICY_NONE || is_worse(cost, object, worst)))
			worst = object;
	return worst;
}

/* As scan, by the buckets. Where only the young are left, keys tell nothing. */
static uint32_t find_worst(const struct cost *cost, const struct cost_layer *layer)
{
	uint32_t worst = POLICY_NONE;
	int32_t key = ABSENT;

	for (uint32_t bucket = 0; bucket < BUCKETS; bucket++)
		key = layer->least[bucket] < key ? layer->least[bucket] : key;
	if (key >= YOUNG)
		return key == ABSENT ? POLICY_NONE : scan(cost, layer);
	for (uint32_t bucket = 0; bucket < BUCKETS; bucket++) {
		if (layer->least[bucket] != key)
			continue;
		for (uint32_t i = layer->first + bucket; i < layer->first + layer->count; i += BUCKETS)
			if (key_of(cost->value[i], cost->handicap[i]) == key &&
			    (worst == POLICY_NONE || is_worse(cost, i, worst)))
				worst = i;
	}
	return worst;
}

static uint32_t cost_worst(struct policy *policy, uint32_t order)
{
	struct cost *cost = cost_of(policy);
	struct cost_layer *layer = &cost->layer[order];

	if (!layer->worst_known) {
		layer->worst = find_worst(cost, layer);
		layer->worst_known = 1;
	}
	return layer->worst;
}

static void sift_down(const struct cost *cost, uint32_t *heap, uint32_t count, uint32_t i)
{
	uint32_t object = heap[i], child;

	while ((child = 2 * i + 1) < count) {
		if (child + 1 < count && is_worse(cost, heap[child + 1], heap[child]))
			child++;
		if (!is_worse(cost, heap[child], object))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = object;
}

/* All residents of the layer that come after the object, in a heap. */
static void collect_later(struct cost *cost, struct cost_layer *layer, uint32_t object)
{
	uint32_t *heap = cost->later + layer->first, count = 0;

	for (uint32_t i = layer->first; i < layer->first + layer->count; i++)
		if (cost->handicap[i] != ABSENT && is_worse(cost, object, i))
			heap[count++] = i;
	for (uint32_t i = count / 2; i-- > 0;)
		sift_down(cost, heap, count, i);
	layer->later_count = count;
}

/*
 * One after another, a whole layer may be passed over: all its objects are leased, or a successor is told of all. A look at
 * all for each of them was most of a second of 80,000 objects.
 */
static uint32_t cost_after(struct policy *policy, uint32_t object)
{
	struct cost *cost = cost_of(policy);
	struct cost_layer *layer = layer_of(cost, object);
	uint32_t *heap = cost->later + layer->first;

	if (layer->passed != object)
		collect_later(cost, layer, object);
	if (layer->later_count == 0)
		return layer->passed = POLICY_NONE;
	layer->passed = heap[0];
	heap[0] = heap[--layer->later_count];
	sift_down(cost, heap, layer->later_count, 0);
	return layer->passed;
}

static int cost_goes_first(const struct policy *policy, uint32_t a, uint32_t b)
{
	const struct cost *cost = (const struct cost *)policy;
	float a_worth = cost->value[a] * cost->layer[policy->layer_of[a]].miss_us;
	float b_worth = cost->value[b] * cost->layer[policy->layer_of[b]].miss_us;

	if (cost->handicap[a] != cost->handicap[b])
		return cost->handicap[a] < cost->handicap[b];
	if (a_worth == b_worth)
		return policy_ran_later(policy, a, b);
	return a_worth < b_worth; /* anybody's guess, so no branch */
}

static double cost_worth(const struct policy *policy, uint32_t object)
{
	const struct cost *cost = (const struct cost *)policy;

	return (double)cost->value[object] * (double)cost->layer[policy->layer_of[object]].miss_us / cost->mean_bytes;
}

static uint32_t cost_describe(const struct policy *policy, uint32_t object, struct policy_fact ret_fact[POLICY_FACTS_MAX])
{
	static const char *const rates[POLICY_RATES] = {"use_rate_1", "use_rate_2", "use_rate_3"};
	const struct cost *cost = (const struct cost *)policy;
	const struct cost_layer *layer = &cost->layer[policy->layer_of[object]];
	uint32_t count = 0;

	_Static_assert(POLICY_RATES + 5 <= POLICY_FACTS_MAX, "there is room for all");
	for (uint32_t h = 0; h < POLICY_RATES; h++)
		ret_fact[count++] = (struct policy_fact){rates[h], (double)cost->rate[h][object]};
	ret_fact[count++] = (struct policy_fact){"history_rate", (double)cost->prior[object]};
	ret_fact[count++] = (struct policy_fact){"history_weight", (double)layer->prior_weight};
	ret_fact[count++] = (struct policy_fact){"miss_us", (double)layer->miss_us};
	ret_fact[count++] = (struct policy_fact){"idle_visits", idle_visits(cost, object)};
	ret_fact[count++] = (struct policy_fact){"is_young", cost->handicap[object] == YOUNG};
	return count;
}

static void cost_add(struct policy *policy, uint32_t object)
{
	struct cost *cost = cost_of(policy);
	struct cost_layer *layer = layer_of(cost, object);

	layer->passed = POLICY_NONE;
	cost->added_at[object] = visits_of(cost, object);
	cost->handicap[object] = cost->min_age_visits > 0 ? YOUNG : 0;
	if (cost->min_age_visits > 0)
		cost->young[layer->first + layer->young_count++] = object;
	sink_key(cost, layer, object);
	if (layer->worst_known && (layer->worst == POLICY_NONE || is_worse(cost, object, layer->worst)))
		layer->worst = object;
}

static void cost_remove(struct policy *policy, uint32_t object)
{
	struct cost *cost = cost_of(policy);
	struct cost_layer *layer = layer_of(cost, object);
	uint32_t *young = cost->young + layer->first;
	int32_t before = key_of(cost->value[object], cost->handicap[object]);

	for (uint32_t i = 0; cost->handicap[object] == YOUNG && i < layer->young_count; i++) {
		if (young[i] == object) {
			young[i] = young[--layer->young_count];
			break;
		}
	}
	layer->passed = POLICY_NONE;
	cost->handicap[object] = ABSENT;
	raise_key(cost, layer, object, before);
	if (object == layer->worst)
		layer->worst_known = 0;
}

const struct policy_ops policy_cost = {
	.name = "cost",
	.bytes = sizeof(struct cost),
	.pool = POLICY_POOL_SOFT,
	.orders_by_layer = 1,
	.init = cost_init,
	.fini = cost_fini,
	.visit = cost_visit,
	.access = cost_access,
	.add = cost_add,
	.remove = cost_remove,
	.worst = cost_worst,
	.after = cost_after,
	.goes_first = cost_goes_first,
	.worth = cost_worth,
	.describe = cost_describe,
	.set_miss_us = cost_set_miss_us,
};
