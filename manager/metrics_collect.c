/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core's numbers for a scrape, in one go: some hundred loads from tables that are in use anyway. Nothing is formatted
 * here, and no more than METRICS_LAYERS_MAX layers are looked at one by one into places of their own.
 */
#include "manager/metrics_inner.h"

#include "base/check.h"
#include "base/clock.h"
#include "manager/drive_inner.h"
#include "manager/feed.h"
#include "manager/kv.h"
#include "manager/pool.h"
#include "manager/residency.h"
#include "manager/stall.h"
#include "manager/vram.h"
#include "model/view.h"
#include "policy/policy.h"

#include <stdio.h>
#include <string.h>

_Static_assert(DRIVE_ERRORS == CNRE_COUNT_OF(((struct metrics_drive *)0)->errors), "each kind of error has a place");

static void take_counters(const struct manager *manager, struct metrics_snapshot *snapshot)
{
	CNRE_CHECK(cnre_counter_count == METRICS_COUNTERS);
	for (size_t i = 0; i < cnre_counter_count; i++)
		snapshot->counter[i] = cnre_counter_get((const void *)((const char *)manager->counters + cnre_counter_table[i].offset));
}

/* ---- models ---- */

/* Two directories may have one name; two series may not. */
static void tell_apart(struct metrics_snapshot *snapshot, uint32_t number)
{
	struct metrics_model *model = &snapshot->model[number];
	char end[16];
	size_t length;

	for (uint32_t i = 0; i < number; i++)
		if (strcmp(snapshot->model[i].name, model->name) == 0 && strcmp(snapshot->model[i].view, model->view) == 0) {
			length = (size_t)snprintf(end, sizeof end, "#%u", number);
			if (strlen(model->name) + length >= sizeof model->name)
				model->name[sizeof model->name - 1 - length] = '\0';
			(void)strcat(model->name, end);
			return;
		}
}

static void add_distances(struct curve_distances *to, const struct curve_distances *from)
{
	to->first_uses += from->first_uses;
	to->sum += from->sum;
	for (uint32_t i = 0; i < CURVE_DISTANCES; i++)
		to->bucket[i] += from->bucket[i];
}

static void add_layers(const struct manager *manager, const struct served_model *model, struct metrics_model *to)
{
	for (uint32_t layer = 0; layer < model->catalog->layer_count; layer++) {
		const struct layer_count *count = &manager->layer_counts->layer[model->first_layer + layer];
		struct feed_layer seen;

		feed_get_layer(manager, model, layer, &seen);
		add_distances(&to->distances, seen.distances);
		to->rejections += count->rejections;
		to->prefetches += count->prefetches;
		to->prefetches_unused += count->prefetches;
		for (int end = 0; end < PREFETCH_ENDS; end++) {
			to->prefetches_ended[end] += count->prefetches_ended[end];
			to->prefetches_unused -= count->prefetches_ended[end];
		}
	}
}

static void take_model(struct manager *manager, const struct served_model *model, struct metrics_snapshot *snapshot)
{
	const struct model_catalog *catalog = model->catalog;
	struct metrics_model *to = &snapshot->model[model->number];

	*to = (struct metrics_model){
		.objects = catalog->object_count,
		.resident_objects = residency_objects(manager, model),
		.resident_bytes = residency_bytes(manager, model),
		.payload_bytes = catalog->payload_bytes_total,
		.service = manager->metrics->service[model->number],
		.wait = manager->metrics->wait[model->number],
	};
	(void)snprintf(to->name, sizeof to->name, "%s", catalog->view != NULL ? catalog->source->name : catalog->name);
	(void)snprintf(to->view, sizeof to->view, "%s", catalog->view != NULL ? catalog->view->name : "");
	tell_apart(snapshot, model->number);
	add_layers(manager, model, to);
}

/* ---- layers ---- */

static struct metrics_layer layer_now(const struct manager *manager, const struct served_model *model, uint32_t layer)
{
	const struct layer_count *count = &manager->layer_counts->layer[model->first_layer + layer];
	const struct session_totals *all = survey_layers(manager);
	const struct session_totals totals = all == NULL ? (struct session_totals){0} : all[model->first_layer + layer];
	struct policy_layer bounds;

	policy_get_layer(residency_policy(manager), model->first_layer + layer, &bounds);
	return (struct metrics_layer){
		.model = model->number,
		.layer = layer,
		.experts = model->catalog->layer[layer].expert_count,
		.resident = bounds.resident,
		.capacity = bounds.capacity == POLICY_NONE ? 0 : bounds.capacity,
		.accesses = totals.accesses,
		.hits = totals.accesses - totals.misses,
		.misses = totals.misses,
		.joins = totals.joins,
		.physical_misses = totals.misses - totals.joins,
		.wait_ns = totals.wait_ns,
		.bytes_looked_up = totals.bytes,
		.loads = count->loads,
		.service_ns = count->service.sum_ns,
		.bytes_read = count->bytes_read,
		.evictions = count->evictions,
	};
}

static void add_layer(struct metrics_layer *sum, const struct metrics_layer *layer)
{
	sum->experts += layer->experts;
	sum->resident += layer->resident;
	sum->capacity += layer->capacity;
	sum->accesses += layer->accesses;
	sum->hits += layer->hits;
	sum->misses += layer->misses;
	sum->joins += layer->joins;
	sum->physical_misses += layer->physical_misses;
	sum->wait_ns += layer->wait_ns;
	sum->bytes_looked_up += layer->bytes_looked_up;
	sum->loads += layer->loads;
	sum->service_ns += layer->service_ns;
	sum->bytes_read += layer->bytes_read;
	sum->evictions += layer->evictions;
}

/* Places are for the models in turn; a layer keeps its place, since neither models nor layers come or go. */
static void take_layers(const struct manager *manager, const struct served_model *model, struct metrics_snapshot *snapshot,
			uint32_t *places_left)
{
	struct metrics_layer other = {.model = model->number, .layer = METRICS_LAYER_OTHER};

	for (uint32_t layer = 0; layer < model->catalog->layer_count; layer++) {
		struct metrics_layer now;

		if (model->catalog->layer[layer].expert_count == 0)
			continue;
		now = layer_now(manager, model, layer);
		if (*places_left > 0) {
			snapshot->layer[snapshot->layer_count++] = now;
			--*places_left;
		} else {
			add_layer(&other, &now);
		}
	}
	if (other.experts > 0)
		snapshot->layer[snapshot->layer_count++] = other;
}

/* ---- drives ---- */

static enum metrics_drive_state state_of(const struct manager *manager, uint32_t number)
{
	if (residency_stalls(manager)->drive[number].reads > 0)
		return METRICS_DRIVE_HANGS;
	return manager->drives->drive[number].health.is_degraded ? METRICS_DRIVE_DEGRADED : METRICS_DRIVE_OK;
}

static void take_drive(const struct manager *manager, uint32_t number, struct metrics_drive *to)
{
	const struct drive *drive = &manager->drives->drive[number];
	struct loader_drive_status status;

	loader_get_drive(manager->loader, number, &status);
	*to = (struct metrics_drive){
		.device = status.device,
		.bytes = drive->bytes,
		.reads = drive->reads,
		.read_ns = (uint64_t)drive->read_ns,
		.in_flight = status.reads,
		.failovers = drive->left,
		.weight = drive->is_replicated ? drive->weight : 0,
		.speed = drive->speed,
		.state = state_of(manager, number),
	};
	memcpy(to->errors, drive->errors, sizeof to->errors);
	to->read = manager->metrics->read[number];
}

static void take_drives(const struct manager *manager, struct metrics_snapshot *snapshot)
{
	snapshot->drive_count = loader_drives(manager->loader);
	for (uint32_t i = 0; i < snapshot->drive_count; i++)
		take_drive(manager, i, &snapshot->drive[i]);
	snapshot->read_before_bytes = manager->drives->bytes_before;
}

void metrics_collect(struct manager *manager, struct metrics_snapshot *snapshot)
{
	uint32_t places_left = METRICS_LAYERS_MAX;
	struct pool_status pool;

	take_counters(manager, snapshot);
	pool_get_status(manager->pool, &pool);
	memcpy(snapshot->backing_bytes, pool.bytes_by_backing, sizeof snapshot->backing_bytes);
	snapshot->kv_file_bytes = kv_file_bytes(manager);
	(void)snprintf(snapshot->policy, sizeof snapshot->policy, "%s", residency_policy_name(manager));
	snapshot->model_count = manager->model_count;
	snapshot->layer_count = 0;
	for (uint32_t i = 0; i < manager->model_count; i++) {
		take_model(manager, &manager->model[i], snapshot);
		take_layers(manager, &manager->model[i], snapshot, &places_left);
	}
	take_drives(manager, snapshot);
	vram_collect(manager, snapshot);
	snapshot->started_unix_ns = manager->metrics->started_unix_ns;
	snapshot->made_ns = cnre_clock_now_ns();
}
