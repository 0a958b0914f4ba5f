/* SPDX-License-Identifier: Apache-2.0 */
/* What an arm of a comparison comes to for a model: names, sizes, pools. See replay.h; sim_arm_setup is in arm.h. */
#include "tools/sim/arm.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char belady_name[] = "belady", belady_bypass_name[] = "belady-bypass";

int sim_policy_is_belady(const char *policy)
{
	return strcmp(policy, belady_name) == 0 || strcmp(policy, belady_bypass_name) == 0;
}

int sim_policy_bypasses(const char *policy)
{
	return strcmp(policy, belady_bypass_name) == 0;
}

int sim_policy_is_known(const char *policy)
{
	for (unsigned i = 0; policy_name_at(i) != NULL; i++)
		if (strcmp(policy_name_at(i), policy) == 0)
			return 1;
	return sim_policy_is_belady(policy);
}

/* ---- sizes ---- */

uint64_t sim_arm_object_bytes(const struct sim_arm *arm, const struct sim_model *model, uint32_t layer)
{
	uint64_t bytes = model->manifest->layer[layer].resident_bytes;

	if (arm->capacity.unit != SIM_BYTES)
		return 1;
	if (arm->compressed == NULL || !arm->compressed[layer])
		return bytes;
	return (uint64_t)fmax(1, ceil((double)bytes / arm->compressed_ratio));
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t sim_arm_budget(const struct sim_arm *arm, const struct sim_model *model)
{
	uint64_t slots = 0;

	if (arm->capacity.unit != SIM_SLOTS_PER_LAYER)
		return arm->capacity.amount;
	for (uint32_t i = 0; i < model->geometry->layer_count; i++)
		slots += smaller(arm->capacity.amount, model->geometry->experts[i]);
	return slots;
}

static enum policy_pool pool_for(const struct sim_arm *arm)
{
	if (strcmp(arm->policy, "engine-lru") == 0)
		return POLICY_POOL_LAYER;
	if (arm->pool != POLICY_POOL_DEFAULT)
		return arm->pool;
	if (arm->capacity.unit == SIM_SLOTS_PER_LAYER || arm->capacity_of_layer != NULL)
		return POLICY_POOL_LAYER;
	return POLICY_POOL_DEFAULT;
}

/* ---- capacities that are not the policy's own ---- */

static int has_bound(const struct sim_model *model)
{
	for (uint32_t i = 0; i < model->geometry->layer_count; i++)
		if (model->manifest->layer[i].max_experts < model->geometry->experts[i])
			return 1;
	return 0;
}

static void bound_by_manifest(const struct sim_model *model, uint32_t *capacity)
{
	for (uint32_t i = 0; i < model->geometry->layer_count; i++)
		capacity[i] = (uint32_t)smaller(capacity[i], model->manifest->layer[i].max_experts);
}

/* The ceilings of a soft pool, as policy.c makes them of equal shares. */
static void raise_to_ceilings(const struct sim_model *model, const struct policy_setup *setup, uint32_t *capacity)
{
	for (uint32_t i = 0; i < model->geometry->layer_count; i++) {
		double ceiling = ceil(capacity[i] * (double)setup->tuning->soft_ceiling);

		capacity[i] = (uint32_t)fmin(fmax(ceiling, setup->floor_slots), model->geometry->experts[i]);
	}
}

static int fill_capacities(struct sim_arm_setup *made, const struct sim_arm *arm, const struct sim_model *model)
{
	struct policy_setup *setup = &made->setup;
	uint64_t left_bytes;
	int r = 0;

	if (arm->capacity_of_layer != NULL) {
		memcpy(made->capacity, arm->capacity_of_layer, model->geometry->layer_count * sizeof *made->capacity);
	} else if (arm->capacity.unit == SIM_SLOTS_PER_LAYER && setup->pool == POLICY_POOL_LAYER) {
		for (uint32_t i = 0; i < model->geometry->layer_count; i++)
			made->capacity[i] = (uint32_t)smaller(arm->capacity.amount, model->geometry->experts[i]);
	} else if (has_bound(model) && (setup->pool == POLICY_POOL_LAYER || setup->pool == POLICY_POOL_SOFT)) {
		r = policy_equal_capacities(setup, made->capacity, &left_bytes);
		if (setup->pool == POLICY_POOL_SOFT)
			raise_to_ceilings(model, setup, made->capacity);
	} else {
		return 0;
	}
	bound_by_manifest(model, made->capacity);
	setup->capacity_of_layer = made->capacity;
	return r;
}

/* ---- the setup ---- */

int sim_arm_setup_open(struct sim_arm_setup *ret_made, const struct sim_arm *arm, const struct sim_model *model)
{
	const struct sim_geometry *geometry = model->geometry;
	struct sim_arm_setup made = {0};
	int r;

	policy_tuning_default(&made.tuning);
	if (arm->tuning != NULL)
		made.tuning = *arm->tuning;
	made.bytes_of = calloc(geometry->object_count, sizeof *made.bytes_of);
	made.capacity = calloc(geometry->layer_count, sizeof *made.capacity);
	if (made.bytes_of == NULL || made.capacity == NULL) {
		sim_arm_setup_close(&made);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < geometry->object_count; i++)
		made.bytes_of[i] = sim_arm_object_bytes(arm, model, geometry->layer_of[i]);
	made.setup = (struct policy_setup){
		.object_count = geometry->object_count,
		.layer_count = geometry->layer_count,
		.layer_of = geometry->layer_of,
		.bytes_of = made.bytes_of,
		.budget_bytes = sim_arm_budget(arm, model),
		.pool = pool_for(arm),
		.floor_slots = geometry->top_k,
		.prior_of = arm->prior_of,
		.miss_us_of_layer = arm->miss_us_of_layer,
	};
	*ret_made = made;
	ret_made->setup.tuning = &ret_made->tuning;
	r = fill_capacities(ret_made, arm, model);
	if (r < 0)
		sim_arm_setup_close(ret_made);
	return r;
}

void sim_arm_setup_close(struct sim_arm_setup *made)
{
	free(made->bytes_of);
	free(made->capacity);
	*made = (struct sim_arm_setup){0};
}

/* ---- a pool that holds no token ---- */

/* Ages on one clock make the layer that runs next the oldest; `cost` counts in visits of the layer itself. */
static int has_own_layer_clock(const char *policy)
{
	return strcmp(policy, "cost") == 0 || sim_policy_is_belady(policy);
}

static int is_global(const struct sim_arm *arm, const struct sim_model *model)
{
	struct sim_arm_setup made;
	struct policy *policy = NULL;
	int global = 0;

	if (sim_arm_setup_open(&made, arm, model) < 0)
		return 0;
	if (policy_create(&policy, arm->policy, &made.setup) == 0)
		global = policy_pool_of(policy) == POLICY_POOL_GLOBAL;
	(void)policy_destroy(policy);
	sim_arm_setup_close(&made);
	return global;
}

int sim_arm_is_below_cycle(const struct sim_arm *arm, const struct sim_model *model)
{
	uint64_t cycle = 0;

	if (has_own_layer_clock(arm->policy) || arm->frozen)
		return 0;
	for (uint32_t i = 0; i < model->geometry->layer_count; i++)
		cycle += model->geometry->top_k * sim_arm_object_bytes(arm, model, i);
	return sim_arm_budget(arm, model) < cycle && is_global(arm, model);
}
