/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One replay: a trace against a policy with a pool of a size. The policy is the very code that runs in the manager, and
 * it is told what the manager tells it in the same order (policy/policy.h), so that both decide alike. Deterministic.
 */
#ifndef CNRE_SIM_REPLAY_H
#define CNRE_SIM_REPLAY_H

#include "policy/moves.h"
#include "policy/policy.h"
#include "tools/sim/belady.h"
#include "tools/sim/counts.h"
#include "tools/sim/manifest.h"
#include "tools/sim/trace.h"
#include "tools/sim/vram.h"

/* What of a visit is looked up before what is placed. */
enum sim_semantics {
	SIM_BATCH,                   /* the union, all of it; no member makes room for another: what the manager does */
	SIM_ACCESS,                  /* one by one, each placed at once: what an engine with a list a layer does */
	SIM_BLOCK64                  /* blocks of 64 of the union, the last misses of a block placed, last first */
};

enum sim_unit { SIM_SLOTS_PER_LAYER, SIM_OBJECTS, SIM_BYTES };
struct sim_capacity { enum sim_unit unit; uint64_t amount; };

/* What all replays of one model share, read-only. */
struct sim_model {
	const struct sim_geometry *geometry;
	const struct sim_manifest *manifest;
};

struct sim_arm {
	const char *policy;          /* of policy/, or "belady", "belady-bypass" */
	struct sim_capacity capacity;
	enum policy_pool pool;       /* default: of layers for slots per layer, else what the policy is made for */
	enum sim_semantics semantics;
	const uint32_t *seed;        /* resident before the first access, told in this order; the last fit in first */
	uint32_t seed_count;
	int takes_recorded;          /* 1: without seeds, those that a binary trace says were resident when it began */
	int tunes;                   /* 1: waits that a binary trace recorded tune the policy, as they tuned the manager's */
	const uint32_t *prior_of;    /* [object_count] or NULL; these four as in struct policy_setup */
	const float *miss_us_of_layer;
	const uint32_t *capacity_of_layer;
	const struct policy_tuning *tuning;
	float hysteresis;            /* a miss replaces a resident only if it is worth that much more; < 0: always */
	const struct moves_limits *moves; /* limits on placing a miss; NULL: none */
	const unsigned char *compressed; /* [layer_count] 1: the layer is held smaller; NULL: none is */
	double compressed_ratio, compressed_us; /* so much smaller, and what a hit then costs */
	const struct sim_vram_setup *vram; /* NULL: there is none */
	int frozen;                  /* 1: the seeds stay, nothing else is placed */
};

int sim_policy_is_belady(const char *policy);
/* 1: the policy or belady is known. */
int sim_policy_is_known(const char *policy);

/* Budget in units of sim_arm_object_bytes that the capacity stands for. */
uint64_t sim_arm_budget(const struct sim_arm *arm, const struct sim_model *model);
uint64_t sim_arm_object_bytes(const struct sim_arm *arm, const struct sim_model *model, uint32_t layer);

/*
 * 1: a pool for all layers, ordered by one clock for all, that does not hold one token's lookups: it hits next to
 * nothing.
 */
int sim_arm_is_below_cycle(const struct sim_arm *arm, const struct sim_model *model);

/*
 * sim_replay - replays one trace from the arm's seeds
 *
 * @future   for belady, of this trace and of the arm's semantics; otherwise NULL
 *
 * Returns: 0 (ret_counts is the caller's to close), -ENOENT (no such policy), -EINVAL (an arm that cannot be), -EFBIG
 *          (more tokens than steps can be told apart for), -ENOMEM.
 */
int sim_replay(const struct sim_arm *arm, const struct sim_model *model, const struct sim_trace *trace,
	       const struct sim_future *future, struct sim_counts *ret_counts);

#endif
