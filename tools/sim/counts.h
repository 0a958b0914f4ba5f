/* SPDX-License-Identifier: Apache-2.0 */
/* What one replay, or several summed up, counted; and what its misses cost on the critical path. */
#ifndef CNRE_SIM_COUNTS_H
#define CNRE_SIM_COUNTS_H

#include "policy/felt.h"
#include "tools/sim/manifest.h"
#include "tools/sim/trace.h"

#define SIM_TIERS_MAX 5u

struct sim_layer_counts {
	uint64_t visits, accesses, misses;
	uint64_t vram_hits;          /* of accesses - misses */
	uint32_t capacity, resident; /* capacity POLICY_NONE: no bound of its own; resident: at the end */
	double felt_us;
};

struct sim_tier { char name[16]; uint64_t hits; }; /* by the manifest's names */

struct sim_counts {
	uint64_t accesses, hits, misses; /* hits + misses = accesses */
	uint64_t seed_hits;          /* of hits: of what was resident before the first access and never left */
	uint64_t admissions, evictions;
	uint64_t bypasses;           /* misses served and not placed: nobody could go */
	uint64_t rejections;         /* and because they were worth no more than the victim */
	uint64_t visits, tokens;
	uint64_t seeds, startup_bytes; /* residents before the first access, and what reading them cost */
	uint64_t read_bytes, avoided_bytes, migration_bytes;
	uint64_t vram_hits;          /* of hits */
	uint64_t promotions, demotions, upload_bytes; /* to VRAM, and out of it */
	double felt_us;              /* waits of all visits */
	double critical_us;          /* and computation, remote hits and moves; and with VRAM the two below */
	double ram_hit_us;           /* what lookups not served from VRAM cost more than those that were */
	double upload_us;            /* all uploads, as if nothing hid them */
	double token_mean_us;        /* felt; of p50 and p99 the same: steps of one token, or of one prefill call */
	double token_p50_us, token_p99_us;
	struct sim_tier tier[SIM_TIERS_MAX]; /* in order of the layers; unused: no name */
	uint32_t layer_count, step_count;
	struct sim_layer_counts *layer; /* [layer_count] */
	double *step_us;             /* [step_count] felt wait of each */
};

/* 0 or -ENOMEM; everything zero. */
int sim_counts_open(struct sim_counts *ret_counts, const struct sim_geometry *geometry);
void sim_counts_close(struct sim_counts *counts); /* zeroed is fine */

/* Adds what another trace of the same model gave; capacities and residents become its own. 0 or -ENOMEM: unchanged. */
int sim_counts_add(struct sim_counts *counts, const struct sim_counts *other);
/* Means and percentiles from the steps: call after the last addition. */
void sim_counts_finish(struct sim_counts *counts);

/* What misses of a layer cost; the page cache's share of them at its own price. */
struct felt_curve sim_felt_curve(const struct sim_layer_cost *cost);

/* Hits go to "vram" where they were there, else to the tier that the manifest names for the layer, or to "compressed" (NULL: no layer is). */
void sim_counts_tiers(struct sim_counts *counts, const struct sim_manifest *manifest, const unsigned char *compressed);

#endif
