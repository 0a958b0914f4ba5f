/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl layers: what each layer has, what it misses, what a miss costs there, and what one slot more would save. */
#include "manager/feed.h"
#include "manager/report.h"
#include "manager/residency.h"
#include "policy/felt.h"
#include "policy/policy.h"

#include <jansson.h>
#include <math.h>

static json_t *number(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

/* Slots beside those it has now; below none there is none. */
static double miss_share_at(const struct manager *manager, const struct served_model *model, uint32_t layer, double slots)
{
	uint32_t experts = model->catalog->layer[layer].expert_count;

	return feed_miss_share(manager, model, layer, slots > experts ? experts : (uint32_t)slots);
}

/* Microseconds of felt wait that one slot more would save in a thousand accesses, if LRU had it. */
static double next_slot_us(const struct manager *manager, const struct served_model *model, uint32_t layer,
			   uint32_t resident, double miss_us)
{
	double saved = miss_share_at(manager, model, layer, resident) - miss_share_at(manager, model, layer, resident + 1.0);

	return saved * 1000 * miss_us;
}

static json_t *report_layer(const struct manager *manager, const struct served_model *model, uint32_t layer)
{
	const struct policy *policy = residency_policy(manager);
	uint32_t experts = model->catalog->layer[layer].expert_count;
	struct policy_layer bounds;
	struct feed_layer seen;
	double felt_miss_us;

	policy_get_layer(policy, model->first_layer + layer, &bounds);
	feed_get_layer(manager, model, layer, &seen);
	if (felt_per_miss_us(seen.waits.wait_us / 1e6, seen.waits.misses, 1, &felt_miss_us) < 0)
		felt_miss_us = NAN; /* nobody has missed */
	return json_pack("{s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:o, s:o, s:o}", "layer",
			 (json_int_t)layer, "experts", (json_int_t)experts, "resident", (json_int_t)bounds.resident,
			 "capacity", bounds.capacity == POLICY_NONE ? json_null() : json_integer(bounds.capacity),
			 "floor", (json_int_t)bounds.floor, "visits", (json_int_t)bounds.visits, "accesses",
			 (json_int_t)seen.accesses, "misses", (json_int_t)seen.misses, "physical_misses",
			 (json_int_t)seen.waits.misses, "felt_wait_s", seen.waits.wait_us / 1e6, "felt_miss_us",
			 number(felt_miss_us), "marginal_miss_us",
			 number(seen.waits.miss_us > 0 ? seen.waits.miss_us : felt_miss_us), "miss_share_half",
			 number(miss_share_at(manager, model, layer, bounds.resident / 2.0)), "miss_share_now",
			 number(miss_share_at(manager, model, layer, bounds.resident)), "miss_share_double",
			 number(miss_share_at(manager, model, layer, bounds.resident * 2.0)), "next_slot_us",
			 number(next_slot_us(manager, model, layer, bounds.resident,
					     seen.waits.miss_us > 0 ? seen.waits.miss_us : felt_miss_us)));
}

static uint64_t accesses_of(const struct manager *manager, const struct served_model *model, uint32_t layer)
{
	struct feed_layer seen;

	feed_get_layer(manager, model, layer, &seen);
	return seen.accesses;
}

/*
 * The share of the model's accesses that would miss with so many times its memory of now, were it divided evenly among its
 * layers and each LRU. A policy divides it unevenly, and more of it anew: what is twice of each layer's part of now says
 * nothing of that. NaN: nothing was seen.
 */
static double even_miss_share(const struct manager *manager, const struct served_model *model, uint32_t times)
{
	const struct model_catalog *catalog = model->catalog;
	double accesses = 0, misses = 0;
	uint32_t layers = 0;

	for (uint32_t layer = 0; layer < catalog->layer_count; layer++)
		layers += catalog->layer[layer].expert_count > 0;
	for (uint32_t layer = 0; layer < catalog->layer_count; layer++) {
		double count = (double)accesses_of(manager, model, layer);

		if (count <= 0)
			continue;
		accesses += count;
		misses += count * miss_share_at(manager, model, layer, (double)residency_objects(manager, model) * times / layers);
	}
	return misses / accesses;
}

static json_t *report_model(const struct manager *manager, const struct served_model *model)
{
	json_t *list = json_array();
	uint64_t accesses = 0;

	for (uint32_t layer = 0; layer < model->catalog->layer_count; layer++) {
		if (model->catalog->layer[layer].expert_count == 0)
			continue;
		(void)json_array_append_new(list, report_layer(manager, model, layer));
		accesses += accesses_of(manager, model, layer);
	}
	return json_pack("{s:o, s:I, s:o, s:o, s:o}", "name", report_text(model->catalog->name), "accesses", (json_int_t)accesses,
			 "even_miss_share_now", number(even_miss_share(manager, model, 1)), "even_miss_share_double",
			 number(even_miss_share(manager, model, 2)), "layers", list);
}

json_t *report_layers(const struct manager *manager)
{
	static const char *const pools[] = {
		[POLICY_POOL_GLOBAL] = "global", [POLICY_POOL_LAYER] = "layer", [POLICY_POOL_SOFT] = "soft"};
	json_t *models = json_array();

	for (uint32_t i = 0; i < manager->model_count; i++)
		(void)json_array_append_new(models, report_model(manager, &manager->model[i]));
	return json_pack("{s:s, s:s, s:o}", "policy", residency_policy_name(manager), "pool",
			 pools[policy_pool_of(residency_policy(manager))], "models", models);
}
