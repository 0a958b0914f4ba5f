/* SPDX-License-Identifier: Apache-2.0 */
/* What all policies share: who is resident, what the capacities are, and the calls through the tables. */
#include "policy/policy.h"

#include "base/check.h"
#include "policy/ops.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const struct policy_ops *const policies[] = {
	&policy_lru,
	&policy_fifo,
	&policy_engine_lru,
	&policy_lru_pin,
	&policy_lfu,
	&policy_lfru,
	&policy_slru,
	&policy_tinylfu,
	&policy_cost,
};

/* ---- creation ---- */

void policy_tuning_default(struct policy_tuning *ret_tuning)
{
	*ret_tuning = (struct policy_tuning){
		.slru_split = {0.25f, 0.25f, 0.25f, 0.25f},
		.slru_segments = 4,
		.window_share = 0.2f, /* 1 % of some hundred slots is a window of nothing, which misses all the time */
		.protected_share = 0.8f,
		.pin_share = 0.5f,
		.half_life = {1, 16, 128},
		.rate_weight = {1, 2, 4}, /* chosen on traces that the published figures are not of: doc/experiments/policies.md */
		.prior_weight = 1,
		.min_age_visits = 1,
		.soft_ceiling = 3,
	};
}

static int is_share(float share)
{
	return share >= 0 && share <= 1;
}

static int check_tuning(const struct policy_tuning *tuning)
{
	if (tuning->slru_segments == 0 || tuning->slru_segments > POLICY_SEGMENTS_MAX || !is_share(tuning->window_share) ||
	    !is_share(tuning->protected_share) || !is_share(tuning->pin_share) || !(tuning->soft_ceiling >= 1) ||
	    !(tuning->prior_weight >= 0) || !isfinite(tuning->prior_weight))
		return -EINVAL;
	for (uint32_t i = 0; i < tuning->slru_segments; i++)
		if (!(tuning->slru_split[i] > 0) || !isfinite(tuning->slru_split[i]))
			return -EINVAL;
	for (uint32_t i = 0; i < POLICY_RATES; i++)
		if (!(tuning->half_life[i] > 0) || !(tuning->rate_weight[i] >= 0) || !isfinite(tuning->rate_weight[i]))
			return -EINVAL;
	return 0;
}

static int check_setup(const struct policy_setup *setup)
{
	if (setup->object_count == 0 || setup->object_count == POLICY_NONE || setup->layer_count == 0)
		return -EINVAL;
	for (uint32_t i = 0; i < setup->object_count; i++)
		if (setup->layer_of[i] >= setup->layer_count || setup->bytes_of[i] == 0 ||
		    (i > 0 && setup->layer_of[i] < setup->layer_of[i - 1]))
			return -EINVAL;
	return 0;
}

static void fill_layers(struct policy *policy, const struct policy_setup *setup)
{
	for (uint32_t i = policy->object_count; i-- > 0;) {
		struct policy_layer_state *layer = &policy->layer[setup->layer_of[i]];

		layer->first_object = i;
		layer->object_count++;
		if (layer->slot_bytes < setup->bytes_of[i])
			layer->slot_bytes = setup->bytes_of[i];
		policy->all_bytes += setup->bytes_of[i];
	}
}

static int fill_base(struct policy *policy, const struct policy_setup *setup)
{
	uint32_t objects = setup->object_count, layers = setup->layer_count;

	policy->object_count = objects;
	policy->layer_count = layers;
	policy->order_count = policy->pool == POLICY_POOL_GLOBAL && !policy->ops->orders_by_layer ? 1 : layers;
	policy->layer_of = calloc(objects, sizeof *policy->layer_of);
	policy->bytes_of = calloc(objects, sizeof *policy->bytes_of);
	policy->resident = calloc(objects, 1);
	policy->layer = calloc(layers, sizeof *policy->layer);
	if (setup->capacity_of_layer != NULL)
		policy->given_capacity = calloc(layers, sizeof *policy->given_capacity);
	if (policy->layer_of == NULL || policy->bytes_of == NULL || policy->resident == NULL || policy->layer == NULL ||
	    (setup->capacity_of_layer != NULL && policy->given_capacity == NULL))
		return -ENOMEM;
	memcpy(policy->layer_of, setup->layer_of, objects * sizeof *policy->layer_of);
	memcpy(policy->bytes_of, setup->bytes_of, objects * sizeof *policy->bytes_of);
	if (policy->given_capacity != NULL)
		memcpy(policy->given_capacity, setup->capacity_of_layer, layers * sizeof *policy->given_capacity);
	policy->given_budget_bytes = setup->budget_bytes;
	fill_layers(policy, setup);
	return policy_merge_init(&policy->merge, policy->order_count);
}

static void set_capacities(struct policy *policy, uint64_t budget_bytes);

static int takes_pool(const struct policy_ops *ops, enum policy_pool pool)
{
	return !ops->forced_pool || pool == POLICY_POOL_DEFAULT || pool == ops->pool;
}

static int create(struct policy **ret_policy, const struct policy_ops *ops, const struct policy_setup *setup,
		  const struct policy_tuning *tuning)
{
	enum policy_pool pool = setup->pool == POLICY_POOL_DEFAULT ? ops->pool : setup->pool;
	struct policy *policy;
	int r = check_tuning(tuning);

	if (r == 0)
		r = check_setup(setup);
	if (r < 0 || !takes_pool(ops, setup->pool))
		return -EINVAL;
	policy = calloc(1, ops->bytes);
	if (policy == NULL)
		return -ENOMEM;
	policy->ops = ops;
	policy->pool = pool;
	policy->soft_ceiling = tuning->soft_ceiling;
	policy->floor_slots = setup->floor_slots;
	r = fill_base(policy, setup);
	if (r == 0) {
		set_capacities(policy, setup->budget_bytes);
		r = ops->init(policy, setup, tuning);
	}
	if (r < 0) {
		(void)policy_destroy(policy);
		return r;
	}
	*ret_policy = policy;
	return 0;
}

int policy_create(struct policy **ret_policy, const char *name, const struct policy_setup *setup)
{
	struct policy_tuning standard;

	policy_tuning_default(&standard);
	for (unsigned i = 0; i < CNRE_COUNT_OF(policies); i++)
		if (strcmp(policies[i]->name, name) == 0)
			return create(ret_policy, policies[i], setup, setup->tuning != NULL ? setup->tuning : &standard);
	return -ENOENT;
}

struct policy *policy_destroy(struct policy *policy)
{
	if (policy == NULL)
		return NULL;
	policy->ops->fini(policy);
	policy_merge_fini(&policy->merge);
	free(policy->layer_of);
	free(policy->bytes_of);
	free(policy->given_capacity);
	free(policy->resident);
	free(policy->layer);
	free(policy);
	return NULL;
}

const char *policy_name(const struct policy *policy)
{
	return policy->ops->name;
}

const char *policy_name_at(unsigned index)
{
	return index < CNRE_COUNT_OF(policies) ? policies[index]->name : NULL;
}

int policy_takes_pool(const char *name, enum policy_pool pool)
{
	for (unsigned i = 0; i < CNRE_COUNT_OF(policies); i++)
		if (strcmp(policies[i]->name, name) == 0)
			return takes_pool(policies[i], pool);
	return 0;
}

enum policy_pool policy_pool_of(const struct policy *policy)
{
	return policy->pool;
}

/* ---- capacities ---- */

/* As policy_equal_capacities, into each layer's capacity. */
static uint64_t share_equally(struct policy_layer_state *layer, uint32_t layers, uint64_t budget_bytes)
{
	uint64_t row_bytes = 0, left_bytes = budget_bytes;

	for (uint32_t i = 0; i < layers; i++)
		row_bytes += layer[i].slot_bytes;
	for (uint32_t i = 0; i < layers; i++) {
		uint64_t slots = row_bytes == 0 ? 0 : budget_bytes / row_bytes;

		layer[i].capacity = slots < layer[i].object_count ? (uint32_t)slots : layer[i].object_count;
		left_bytes -= layer[i].capacity * layer[i].slot_bytes;
	}
	for (uint32_t i = 0; i < layers; i++) {
		if (layer[i].capacity < layer[i].object_count && layer[i].slot_bytes <= left_bytes) {
			layer[i].capacity++;
			left_bytes -= layer[i].slot_bytes;
		}
	}
	return left_bytes;
}

int policy_equal_capacities(const struct policy_setup *setup, uint32_t *ret_capacity, uint64_t *ret_left_bytes)
{
	struct policy scratch = {.object_count = setup->object_count};
	int r = check_setup(setup);

	if (r < 0)
		return r;
	scratch.layer = calloc(setup->layer_count, sizeof *scratch.layer);
	if (scratch.layer == NULL)
		return -ENOMEM;
	fill_layers(&scratch, setup);
	*ret_left_bytes = share_equally(scratch.layer, setup->layer_count, setup->budget_bytes);
	for (uint32_t i = 0; i < setup->layer_count; i++)
		ret_capacity[i] = scratch.layer[i].capacity;
	free(scratch.layer);
	return 0;
}

static void bound(struct policy_layer_state *layer, double slots)
{
	layer->capacity = slots < layer->object_count ? (uint32_t)slots : layer->object_count;
}

static void set_capacities(struct policy *policy, uint64_t budget_bytes)
{
	double scale = policy->given_budget_bytes == 0 ? 1 : (double)budget_bytes / (double)policy->given_budget_bytes;
	uint64_t mean_bytes = policy->all_bytes / policy->object_count, slots = budget_bytes / mean_bytes;

	policy->budget_bytes = budget_bytes;
	policy->slots = slots < policy->object_count ? (uint32_t)slots : policy->object_count;
	(void)share_equally(policy->layer, policy->layer_count, budget_bytes);
	for (uint32_t i = 0; i < policy->layer_count; i++) {
		struct policy_layer_state *layer = &policy->layer[i];

		layer->slots = layer->capacity;
		/* Floors beyond what there is would let the first layers starve the last ones. */
		layer->floor = layer->slots < policy->floor_slots ? layer->slots : policy->floor_slots;
		if (policy->given_capacity != NULL)
			bound(layer, floor(policy->given_capacity[i] * scale));
		else if (policy->pool == POLICY_POOL_SOFT)
			bound(layer, fmax(layer->floor, ceil(layer->capacity * (double)policy->soft_ceiling)));
		if (policy->pool == POLICY_POOL_LAYER || layer->slots > layer->capacity)
			layer->slots = layer->capacity;
	}
}

void policy_set_budget(struct policy *policy, uint64_t budget_bytes)
{
	set_capacities(policy, budget_bytes);
	if (policy->ops->resize != NULL)
		policy->ops->resize(policy);
	policy_merge_touch_all(policy);
}

int policy_set_capacities(struct policy *policy, const uint32_t *capacity)
{
	if (policy->given_capacity == NULL)
		policy->given_capacity = calloc(policy->layer_count, sizeof *policy->given_capacity);
	if (policy->given_capacity == NULL)
		return -ENOMEM;
	memcpy(policy->given_capacity, capacity, policy->layer_count * sizeof *capacity);
	policy->given_budget_bytes = policy->budget_bytes;
	policy_set_budget(policy, policy->budget_bytes);
	return 0;
}

void policy_set_miss_us(struct policy *policy, uint32_t layer, float miss_us)
{
	CNRE_CHECK(layer < policy->layer_count);
	if (policy->ops->set_miss_us != NULL)
		policy->ops->set_miss_us(policy, layer, miss_us);
	policy_merge_touch(policy, layer);
}

uint32_t policy_order_slots(const struct policy *policy, uint32_t order)
{
	if (policy->order_count == 1)
		return policy->slots;
	return policy->layer[order].slots;
}

void policy_get_layer(const struct policy *policy, uint32_t layer, struct policy_layer *ret_layer)
{
	const struct policy_layer_state *state = &policy->layer[layer];

	CNRE_CHECK(layer < policy->layer_count);
	*ret_layer = (struct policy_layer){
		.resident = state->resident,
		.capacity = policy_has_layer_bounds(policy) ? state->capacity : POLICY_NONE,
		.floor = policy->pool == POLICY_POOL_SOFT ? state->floor : 0,
		.visits = state->visits,
	};
}

/* ---- what happens ---- */

void policy_visit(struct policy *policy, uint32_t layer, uint32_t token_count)
{
	CNRE_CHECK(layer < policy->layer_count);
	policy->layer[layer].visits++;
	policy->layer[layer].visited_at = ++policy->visits;
	if (policy->ops->visit != NULL)
		policy->ops->visit(policy, layer, token_count);
	policy_merge_touch(policy, layer);
}

/* What the client found is its own affair: it may have looked before the latest change. Here, who is resident decides. */
void policy_access(struct policy *policy, uint32_t object)
{
	CNRE_CHECK(object < policy->object_count);
	if (policy->ops->access != NULL)
		policy->ops->access(policy, object);
	policy_merge_touch(policy, policy->layer_of[object]);
}

void policy_add(struct policy *policy, uint32_t object)
{
	CNRE_CHECK(object < policy->object_count && !policy->resident[object]);
	policy->resident[object] = 1;
	policy->layer[policy->layer_of[object]].resident++;
	policy->resident_count++;
	policy->ops->add(policy, object);
	policy_merge_touch(policy, policy->layer_of[object]);
}

void policy_remove(struct policy *policy, uint32_t object)
{
	CNRE_CHECK(object < policy->object_count && policy->resident[object]);
	policy->ops->remove(policy, object);
	policy->resident[object] = 0;
	policy->layer[policy->layer_of[object]].resident--;
	policy->resident_count--;
	policy_merge_touch(policy, policy->layer_of[object]);
}

int policy_is_resident(const struct policy *policy, uint32_t object)
{
	return policy->resident[object];
}

/* ---- worth ---- */

int policy_prefers(const struct policy *policy, uint32_t object, uint32_t victim, float hysteresis)
{
	return policy->ops->worth == NULL ||
	       policy->ops->worth(policy, object) > policy->ops->worth(policy, victim) * (1 + (double)hysteresis);
}

double policy_worth(const struct policy *policy, uint32_t object)
{
	return policy->ops->worth == NULL ? 0 : policy->ops->worth(policy, object);
}

uint32_t policy_describe(const struct policy *policy, uint32_t object, struct policy_fact ret_fact[POLICY_FACTS_MAX])
{
	CNRE_CHECK(object < policy->object_count);
	return policy->ops->describe == NULL ? 0 : policy->ops->describe(policy, object, ret_fact);
}
