/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl layers: what each layer has, what it misses, what a miss costs there, and what one slot more would save. */
#include "base/check.h"
#include "manager/feed.h"
#include "manager/layer_count.h"
#include "manager/report.h"
#include "manager/residency.h"
#include "manager/survey.h"
#include "policy/felt.h"
#include "policy/policy.h"

#include <jansson.h>
#include <math.h>

struct report_number {
	const char *name;
	uint64_t value;
};

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

static const struct layer_count *count_of(const struct manager *manager, const struct served_model *model, uint32_t layer)
{
	return &manager->layer_counts->layer[model->first_layer + layer];
}

/* Of ledgers and accounts; zeros where there was no memory to add them up. */
static struct session_totals totals_of(const struct manager *manager, const struct served_model *model, uint32_t layer)
{
	const struct session_totals *all = survey_layers(manager);

	return all == NULL ? (struct session_totals){0} : all[model->first_layer + layer];
}

static void add_numbers(json_t *to, const struct report_number *numbers, size_t count)
{
	for (size_t i = 0; i < count; i++)
		(void)json_object_set_new(to, numbers[i].name, json_integer((json_int_t)numbers[i].value));
}

static void add_lookups(json_t *to, const struct session_totals *totals)
{
	const struct report_number numbers[] = {
		{"accesses", totals->accesses}, {"hits", totals->accesses - totals->misses},
		{"misses", totals->misses},     {"joins", totals->joins},
		{"failures", totals->failures}, {"bytes_looked_up", totals->bytes},
	};

	add_numbers(to, numbers, CNRE_COUNT_OF(numbers));
	(void)json_object_set_new(to, "felt_wait_s", json_real((double)totals->wait_ns / 1e9));
}

static json_t *report_prefetches(const struct layer_count *count)
{
	const uint64_t *ended = count->prefetches_ended;
	const struct report_number numbers[] = {
		{"issued", count->prefetches},
		{"used", ended[PREFETCH_USED]},
		{"late", ended[PREFETCH_LATE]},
		{"wasted", ended[PREFETCH_WASTED]},
		{"failed", ended[PREFETCH_FAILED]},
		{"unused", count->prefetches - ended[PREFETCH_USED] - ended[PREFETCH_LATE] - ended[PREFETCH_WASTED] -
				   ended[PREFETCH_FAILED]},
	};
	json_t *json = json_object();

	add_numbers(json, numbers, CNRE_COUNT_OF(numbers));
	return json;
}

static void add_loads(json_t *to, const struct layer_count *count)
{
	const struct report_number numbers[] = {
		{"ready", count->resident},         {"adopted", count->adopted},       {"loads", count->loads},
		{"evictions", count->evictions},    {"rejections", count->rejections}, {"load_errors", count->load_errors},
		{"bytes_read", count->bytes_read},  {"bytes_loaded", count->bytes_loaded},
		{"bytes_evicted", count->bytes_evicted},
	};

	add_numbers(to, numbers, CNRE_COUNT_OF(numbers));
	(void)json_object_set_new(to, "service_s", json_real((double)count->service.sum_ns / 1e9));
	report_quantiles(to, "service", &count->service);
	report_quantiles(to, "felt", &count->wait);
	(void)json_object_set_new(to, "prefetches", report_prefetches(count));
}

static json_t *report_distances(const struct feed_layer *seen)
{
	json_t *buckets = json_array();

	for (uint32_t i = 0; i < CURVE_DISTANCES; i++)
		(void)json_array_append_new(buckets, json_integer((json_int_t)seen->distances->bucket[i]));
	return json_pack("{s:I, s:I, s:I, s:o}", "accesses", (json_int_t)seen->accesses, "first_uses",
			 (json_int_t)seen->distances->first_uses, "sum", (json_int_t)seen->distances->sum, "buckets", buckets);
}

static json_t *report_layer(const struct manager *manager, const struct served_model *model, uint32_t layer)
{
	const struct policy *policy = residency_policy(manager);
	struct session_totals totals = totals_of(manager, model, layer);
	uint32_t experts = model->catalog->layer[layer].expert_count;
	struct policy_layer bounds;
	struct feed_layer seen;
	double felt_miss_us;
	json_t *json;

	policy_get_layer(policy, model->first_layer + layer, &bounds);
	feed_get_layer(manager, model, layer, &seen);
	if (felt_per_miss_us((double)totals.wait_ns / 1e9, totals.misses - totals.joins, 1, &felt_miss_us) < 0)
		felt_miss_us = NAN; /* nobody has missed */
	json = json_pack("{s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "layer", (json_int_t)layer,
			 "experts", (json_int_t)experts, "resident", (json_int_t)bounds.resident, "capacity",
			 bounds.capacity == POLICY_NONE ? json_null() : json_integer(bounds.capacity), "floor",
			 (json_int_t)bounds.floor, "visits", (json_int_t)bounds.visits, "physical_misses",
			 (json_int_t)(totals.misses - totals.joins), "felt_miss_us", number(felt_miss_us), "marginal_miss_us",
			 number(seen.waits.miss_us > 0 ? seen.waits.miss_us : felt_miss_us), "miss_share_half",
			 number(miss_share_at(manager, model, layer, bounds.resident / 2.0)), "miss_share_now",
			 number(miss_share_at(manager, model, layer, bounds.resident)), "miss_share_double",
			 number(miss_share_at(manager, model, layer, bounds.resident * 2.0)), "next_slot_us",
			 number(next_slot_us(manager, model, layer, bounds.resident,
					     seen.waits.miss_us > 0 ? seen.waits.miss_us : felt_miss_us)),
			 "reuse", report_distances(&seen));
	if (json == NULL)
		return NULL;
	add_lookups(json, &totals);
	add_loads(json, count_of(manager, model, layer));
	return json;
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
	struct histogram service = {.count = 0}, wait = {.count = 0};
	json_t *list = json_array(), *json;
	uint64_t accesses = 0;

	for (uint32_t layer = 0; layer < model->catalog->layer_count; layer++) {
		if (model->catalog->layer[layer].expert_count == 0)
			continue;
		(void)json_array_append_new(list, report_layer(manager, model, layer));
		accesses += totals_of(manager, model, layer).accesses;
		histogram_merge(&service, &count_of(manager, model, layer)->service);
		histogram_merge(&wait, &count_of(manager, model, layer)->wait);
	}
	json = json_pack("{s:o, s:I, s:o, s:o, s:o}", "name", report_text(model->catalog->name), "accesses", (json_int_t)accesses,
			 "even_miss_share_now", number(even_miss_share(manager, model, 1)), "even_miss_share_double",
			 number(even_miss_share(manager, model, 2)), "layers", list);
	report_quantiles(json, "service", &service);
	report_quantiles(json, "felt", &wait);
	return json;
}

/* With it the sums over all layers are what `cnrectl stats` shows. */
static json_t *report_before(const struct layer_before *before)
{
	const struct report_number numbers[] = {
		{"loads", before->loads},
		{"evictions", before->evictions},
		{"bytes_read", before->bytes_read},
		{"prefetches", before->prefetches},
	};
	json_t *json = json_object();

	add_lookups(json, &before->ended);
	add_numbers(json, numbers, CNRE_COUNT_OF(numbers));
	return json;
}

json_t *report_layers(const struct manager *manager)
{
	static const char *const pools[] = {
		[POLICY_POOL_GLOBAL] = "global", [POLICY_POOL_LAYER] = "layer", [POLICY_POOL_SOFT] = "soft"};
	json_t *models = json_array();

	for (uint32_t i = 0; i < manager->model_count; i++)
		(void)json_array_append_new(models, report_model(manager, &manager->model[i]));
	return json_pack("{s:s, s:s, s:o, s:o}", "policy", residency_policy_name(manager), "pool",
			 pools[policy_pool_of(residency_policy(manager))], "before",
			 report_before(&manager->layer_counts->before), "models", models);
}
