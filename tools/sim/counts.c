/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and percentiles; see counts.h. */
#include "tools/sim/counts.h"

#include "base/check.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sim_counts_open(struct sim_counts *ret_counts, const struct sim_geometry *geometry)
{
	struct sim_layer_counts *layer = calloc(geometry->layer_count, sizeof *layer);

	if (layer == NULL)
		return -ENOMEM;
	*ret_counts = (struct sim_counts){.layer_count = geometry->layer_count, .layer = layer};
	return 0;
}

void sim_counts_close(struct sim_counts *counts)
{
	free(counts->layer);
	free(counts->step_us);
	*counts = (struct sim_counts){0};
}

struct felt_curve sim_felt_curve(const struct sim_layer_cost *cost)
{
	return (struct felt_curve){
		.miss_us = (1 - cost->page_cache) * cost->felt_miss_us + cost->page_cache * cost->page_cache_us,
		.hidden_us = cost->hidden_us,
	};
}

static struct sim_tier *tier_named(struct sim_counts *counts, const char *name)
{
	for (uint32_t i = 0; i < SIM_TIERS_MAX; i++) {
		struct sim_tier *tier = &counts->tier[i];

		if (tier->name[0] == '\0')
			(void)snprintf(tier->name, sizeof tier->name, "%s", name);
		if (strcmp(tier->name, name) == 0)
			return tier;
	}
	return NULL;
}

/* A sixth name counts with the fifth: a manifest has RAM, compressed RAM and what else there may be, and there is VRAM. */
static void add_tier(struct sim_counts *counts, const char *name, uint64_t hits)
{
	struct sim_tier *tier = tier_named(counts, name);

	if (tier == NULL)
		tier = &counts->tier[SIM_TIERS_MAX - 1];
	tier->hits += hits;
}

void sim_counts_tiers(struct sim_counts *counts, const struct sim_manifest *manifest, const unsigned char *compressed)
{
	for (uint32_t i = 0; i < counts->layer_count; i++)
		add_tier(counts, compressed != NULL && compressed[i] ? "compressed" : manifest->layer[i].tier,
			 counts->layer[i].accesses - counts->layer[i].misses - counts->layer[i].vram_hits);
	if (counts->vram_hits > 0)
		add_tier(counts, "vram", counts->vram_hits);
}

static int add_steps(struct sim_counts *counts, const struct sim_counts *other)
{
	uint32_t steps;
	double *step_us;

	if (__builtin_add_overflow(counts->step_count, other->step_count, &steps))
		return -ENOMEM;
	if (other->step_count == 0)
		return 0;
	step_us = realloc(counts->step_us, steps * sizeof *step_us);
	if (step_us == NULL)
		return -ENOMEM;
	memcpy(step_us + counts->step_count, other->step_us, other->step_count * sizeof *step_us);
	counts->step_us = step_us;
	counts->step_count = steps;
	return 0;
}

static void add_layer(struct sim_layer_counts *layer, const struct sim_layer_counts *other)
{
	layer->visits += other->visits;
	layer->accesses += other->accesses;
	layer->misses += other->misses;
	layer->vram_hits += other->vram_hits;
	layer->felt_us += other->felt_us;
	layer->capacity = other->capacity;
	layer->resident = other->resident;
}

int sim_counts_add(struct sim_counts *counts, const struct sim_counts *other)
{
	int r = add_steps(counts, other);

	CNRE_CHECK(counts->layer_count == other->layer_count);
	if (r < 0)
		return r;
	counts->accesses += other->accesses;
	counts->hits += other->hits;
	counts->misses += other->misses;
	counts->seed_hits += other->seed_hits;
	counts->admissions += other->admissions;
	counts->evictions += other->evictions;
	counts->bypasses += other->bypasses;
	counts->rejections += other->rejections;
	counts->visits += other->visits;
	counts->tokens += other->tokens;
	counts->seeds += other->seeds;
	counts->startup_bytes += other->startup_bytes;
	counts->read_bytes += other->read_bytes;
	counts->avoided_bytes += other->avoided_bytes;
	counts->migration_bytes += other->migration_bytes;
	counts->vram_hits += other->vram_hits;
	counts->promotions += other->promotions;
	counts->demotions += other->demotions;
	counts->upload_bytes += other->upload_bytes;
	counts->ram_hit_us += other->ram_hit_us;
	counts->upload_us += other->upload_us;
	counts->felt_us += other->felt_us;
	counts->critical_us += other->critical_us;
	for (uint32_t i = 0; i < SIM_TIERS_MAX && other->tier[i].name[0] != '\0'; i++)
		add_tier(counts, other->tier[i].name, other->tier[i].hits);
	for (uint32_t i = 0; i < counts->layer_count; i++)
		add_layer(&counts->layer[i], &other->layer[i]);
	return 0;
}

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

/* The smallest value that at least that share of the steps does not exceed. */
static double percentile(const struct sim_counts *counts, uint32_t percent)
{
	uint64_t rank = ((uint64_t)counts->step_count * percent + 99) / 100;

	return counts->step_count == 0 ? 0 : counts->step_us[rank == 0 ? 0 : rank - 1];
}

void sim_counts_finish(struct sim_counts *counts)
{
	if (counts->step_count > 0)
		qsort(counts->step_us, counts->step_count, sizeof *counts->step_us, compare);
	counts->token_mean_us = counts->tokens == 0 ? 0 : counts->felt_us / (double)counts->tokens;
	counts->token_p50_us = percentile(counts, 50);
	counts->token_p99_us = percentile(counts, 99);
}
