/* SPDX-License-Identifier: Apache-2.0 */
/* VRAM in a replay; see vram.h. */
#include "tools/sim/vram.h"

#include <errno.h>
#include <stdlib.h>

struct sim_vram {
	struct tier *tier;
	const struct sim_geometry *geometry;
	const struct sim_manifest *manifest;
	const unsigned char *resident; /* these three during sim_vram_move */
	const uint32_t *mark;
	uint32_t leased;
};

static const struct sim_layer_cost *cost_of(const struct sim_vram *vram, uint32_t object)
{
	return &vram->manifest->layer[vram->geometry->layer_of[object]];
}

static int can_upload(void *context, uint32_t object)
{
	const struct sim_vram *vram = context;

	return vram->resident[object] != 0;
}

static int can_leave(void *context, uint32_t object)
{
	const struct sim_vram *vram = context;

	return vram->leased == 0 || vram->mark[object] != vram->leased;
}

/* Gains of all layers, or none: where no hit in RAM costs anything more, each is worth its bytes. */
static int create(struct sim_vram *vram, const struct sim_vram_setup *setup, const uint32_t *prior_of, uint64_t *bytes_of,
		  float *gain_us)
{
	const struct sim_geometry *geometry = vram->geometry;
	int has_gains = 0;

	for (uint32_t i = 0; i < geometry->object_count; i++)
		bytes_of[i] = cost_of(vram, i)->vram_bytes;
	for (uint32_t i = 0; i < geometry->layer_count; i++) {
		gain_us[i] = (float)vram->manifest->layer[i].ram_hit_us;
		has_gains |= gain_us[i] > 0;
	}
	return tier_create(&vram->tier, &(struct tier_setup){
						.object_count = geometry->object_count,
						.layer_count = geometry->layer_count,
						.layer_of = geometry->layer_of,
						.charged_bytes_of = bytes_of,
						.gain_us_of_layer = has_gains ? gain_us : NULL,
						.prior_of = prior_of,
						.top_k = geometry->top_k,
						.device_count = setup->device_count,
						.limits = &setup->limits,
						.tuning = &setup->tuning,
						.can_upload = can_upload,
						.can_leave = can_leave,
						.context = vram,
					});
}

int sim_vram_open(struct sim_vram **ret_vram, const struct sim_vram_setup *setup, const struct sim_geometry *geometry,
		  const struct sim_manifest *manifest, const uint32_t *prior_of)
{
	struct sim_vram *vram = calloc(1, sizeof *vram);
	uint64_t *bytes_of = calloc(geometry->object_count, sizeof *bytes_of);
	float *gain_us = calloc(geometry->layer_count, sizeof *gain_us);
	int r = -ENOMEM;

	if (vram != NULL && bytes_of != NULL && gain_us != NULL) {
		vram->geometry = geometry;
		vram->manifest = manifest;
		r = create(vram, setup, prior_of, bytes_of, gain_us);
	}
	free(bytes_of);
	free(gain_us);
	if (r < 0) {
		free(vram);
		return r;
	}
	for (uint32_t i = 0; i < setup->device_count; i++)
		tier_set_budget(vram->tier, i, setup->budget_bytes[i]);
	*ret_vram = vram;
	return 0;
}

struct sim_vram *sim_vram_close(struct sim_vram *vram)
{
	if (vram == NULL)
		return NULL;
	(void)tier_destroy(vram->tier);
	free(vram);
	return NULL;
}

void sim_vram_visit(struct sim_vram *vram, uint32_t layer, uint32_t tokens)
{
	tier_visit(vram->tier, layer, tokens);
}

void sim_vram_tokens(struct sim_vram *vram, uint32_t tokens)
{
	tier_tokens(vram->tier, tokens);
}

int sim_vram_look_up(struct sim_vram *vram, uint32_t object)
{
	tier_access(vram->tier, object);
	return tier_device_of(vram->tier, object) != TIER_NO_DEVICE;
}

void sim_vram_move(struct sim_vram *vram, const unsigned char *resident, const uint32_t *mark, uint32_t leased,
		   struct sim_counts *counts)
{
	struct tier_move move;

	vram->resident = resident;
	vram->mark = mark;
	vram->leased = leased;
	tier_pass(vram->tier);
	while (tier_next(vram->tier, &move)) {
		for (uint32_t i = 0; i < move.victim_count; i++)
			tier_removed(vram->tier, move.victim[i]);
		counts->demotions += move.victim_count;
		if (move.object == POLICY_NONE)
			continue;
		tier_added(vram->tier, move.object, move.device);
		counts->promotions++;
		counts->upload_bytes += cost_of(vram, move.object)->vram_bytes;
		counts->upload_us += cost_of(vram, move.object)->upload_us;
	}
}
