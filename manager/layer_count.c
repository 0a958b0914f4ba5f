/* SPDX-License-Identifier: Apache-2.0 */
/* Counts by layer; see layer_count.h. */
#include "manager/layer_count.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>

static uint64_t payload_of_all(const struct model_catalog *catalog, uint32_t layer)
{
	const struct model_layer *of = &catalog->layer[layer];
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < of->expert_count; i++) {
		uint64_t payload_bytes = catalog->shape[catalog->object[of->first_object + i].shape].payload_bytes;

		if (i > 0 && payload_bytes != bytes)
			return 0;
		bytes = payload_bytes;
	}
	return bytes;
}

int layer_counts_open(struct manager *manager)
{
	struct layer_counts *counts = calloc(1, sizeof *counts);

	if (counts == NULL)
		return -ENOMEM;
	manager->layer_counts = counts;
	for (uint32_t i = 0; i < manager->model_count; i++)
		counts->count += manager->model[i].catalog->layer_count;
	counts->layer = calloc(counts->count, sizeof *counts->layer);
	counts->ended = calloc(counts->count, sizeof *counts->ended);
	if (counts->layer == NULL || counts->ended == NULL) {
		layer_counts_close(manager);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < manager->model_count; i++)
		for (uint32_t layer = 0; layer < manager->model[i].catalog->layer_count; layer++)
			counts->layer[manager->model[i].first_layer + layer].payload_bytes =
				payload_of_all(manager->model[i].catalog, layer);
	return 0;
}

void layer_counts_close(struct manager *manager)
{
	if (manager->layer_counts == NULL)
		return;
	free(manager->layer_counts->layer);
	free(manager->layer_counts->ended);
	free(manager->layer_counts);
	manager->layer_counts = NULL;
}

struct layer_count *layer_count_of(struct manager *manager, uint32_t owner)
{
	uint32_t i = manager->model_count - 1;
	const struct served_model *model;

	CNRE_CHECK(manager->layer_counts != NULL && owner < manager->owner_count);
	while (manager->model[i].first_owner > owner)
		i--;
	model = &manager->model[i];
	return &manager->layer_counts->layer[model->first_layer + model->catalog->object[owner - model->first_owner].layer];
}

void session_totals_add(struct session_totals *to, const struct session_totals *from)
{
	to->accesses += from->accesses;
	to->misses += from->misses;
	to->joins += from->joins;
	to->failures += from->failures;
	to->wait_ns += from->wait_ns;
	to->bytes += from->bytes;
	to->vram_hits += from->vram_hits;
	to->vram_bytes += from->vram_bytes;
}

void layer_counts_ended(struct manager *manager, const struct served_model *model, const struct session_totals *totals)
{
	if (manager->layer_counts == NULL || totals == NULL)
		return;
	for (uint32_t layer = 0; layer < model->catalog->layer_count; layer++)
		session_totals_add(&manager->layer_counts->ended[model->first_layer + layer], &totals[layer]);
}

void layer_counts_adopted(struct manager *manager)
{
	manager->layer_counts->before = (struct layer_before){
		.ended = manager->sessions->retired,
		.loads = cnre_counter_get(&manager->counters->loads),
		.evictions = cnre_counter_get(&manager->counters->evictions),
		.bytes_read = cnre_counter_get(&manager->counters->bytes_read),
		.prefetches = cnre_counter_get(&manager->counters->prefetches_issued),
	};
}
