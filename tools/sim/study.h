/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all verbs begin with: traces and their geometry, costs, what was learned, who is resident before the first
 * access. Read-only once open, so that any number of threads replays it.
 */
#ifndef CNRE_SIM_STUDY_H
#define CNRE_SIM_STUDY_H

#include "tools/sim/belady.h"
#include "tools/sim/options.h"
#include "tools/sim/shuffle.h"
#include "tools/sim/train.h"

struct sim_study {
	const struct sim_options *options;
	struct sim_geometry *geometry;
	struct sim_trace *trace;     /* [trace_count] evaluated, then [train_count] learned from */
	uint32_t trace_count, train_count;
	struct sim_manifest manifest;
	struct sim_train train;      /* zero without --train */
	uint32_t *seed, seed_count;  /* of --seed-residents */
	struct sim_future *future;   /* [trace_count] after sim_study_foresee */
	struct sim_shuffled *shuffled; /* [trace_count] after sim_study_shuffle */
	struct sim_future *shuffled_future; /* [trace_count] */
};

/*
 * 0; -EEXIST (a trace is both learned from and evaluated) and -EDOM (a budget in bytes, and nothing says what an expert
 * has) are the command line's fault; -EINVAL or another error; message: one line.
 */
int sim_study_open(struct sim_study *ret_study, const struct sim_options *options, char *message, size_t message_bytes);
void sim_study_close(struct sim_study *study); /* zeroed is fine */

/* What belady needs, and the nulls; futures of the nulls too. 0 or -errno. Again: nothing. */
int sim_study_foresee(struct sim_study *study);
int sim_study_shuffle(struct sim_study *study);

enum sim_start { SIM_START_GIVEN, SIM_START_COLD, SIM_START_PRELOADED }; /* given: as the options say */

/* An arm and what it points to: not to be moved. */
struct sim_study_arm {
	struct sim_arm arm;
	struct sim_model model;
	int on_null;                 /* 1: replays the shuffled traces */
	uint32_t *capacity;
	unsigned char *compressed;
	float *miss_us;
	struct policy_tuning tuning;
	struct sim_vram_setup vram;
};

/* manifest: the study's, or one with other costs. 0 or -errno. */
int sim_study_arm_open(struct sim_study_arm *ret_arm, const struct sim_study *study,
		       const struct sim_manifest *manifest, const char *policy, struct sim_capacity capacity,
		       enum sim_start start);
void sim_study_arm_close(struct sim_study_arm *arm);

/* What the option means for this study. 0, or -EINVAL: less than one object. */
int sim_study_capacity(const struct sim_study *study, const struct sim_capacity_option *option,
		       struct sim_capacity *ret_capacity);

/*
 * sim_study_replay - every arm on every trace
 *
 * @ret_cells  [arms * trace_count], arm by arm; free with sim_study_free_cells
 */
int sim_study_replay(const struct sim_study *study, const struct sim_study_arm *arm, uint32_t arms,
		     struct sim_counts **ret_cells);
void sim_study_free_cells(struct sim_counts *cells, uint32_t count);
/* The sum of one arm's cells, finished. 0 or -ENOMEM. */
int sim_study_sum(const struct sim_study *study, const struct sim_counts *cells, uint32_t arm,
		  struct sim_counts *ret_counts);

#endif
