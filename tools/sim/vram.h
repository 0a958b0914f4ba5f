/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VRAM in a replay: policy/tier.c, the very code that places experts in VRAM in the manager, told the same in the same
 * order; and what its hits and moves cost. As in the manager a copy in VRAM serves though RAM has lost its own, and what it
 * serves is no access for RAM's policy, so that RAM loses it.
 */
#ifndef CNRE_SIM_VRAM_H
#define CNRE_SIM_VRAM_H

#include "policy/tier.h"
#include "tools/sim/counts.h"
#include "tools/sim/manifest.h"
#include "tools/sim/trace.h"

struct sim_vram_setup {
	uint32_t device_count;
	uint64_t budget_bytes[TIER_DEVICES_MAX];
	struct moves_limits limits;
	struct policy_tuning tuning;
};

struct sim_vram;

/* 0, -EINVAL or -ENOMEM. prior_of as in struct policy_setup, or NULL. */
int sim_vram_open(struct sim_vram **ret_vram, const struct sim_vram_setup *setup, const struct sim_geometry *geometry,
		  const struct sim_manifest *manifest, const uint32_t *prior_of);
struct sim_vram *sim_vram_close(struct sim_vram *vram); /* NULL is fine; returns NULL */

void sim_vram_visit(struct sim_vram *vram, uint32_t layer, uint32_t tokens);
void sim_vram_tokens(struct sim_vram *vram, uint32_t tokens);
/* Looked up: 1 if it is in VRAM. */
int sim_vram_look_up(struct sim_vram *vram, uint32_t object);

/*
 * The moves that pay now, made at once. resident [object_count]: not 0 for what is in RAM; mark [object_count]: `leased`
 * (not 0) for what may not go. Their costs are added to the counts.
 */
void sim_vram_move(struct sim_vram *vram, const unsigned char *resident, const uint32_t *mark, uint32_t leased,
		   struct sim_counts *counts);

#endif
