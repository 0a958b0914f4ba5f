/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of the verbs that replay: run, sweep, gate, plot. One table; pure but for directories that it lists.
 */
#ifndef CNRE_SIM_OPTIONS_H
#define CNRE_SIM_OPTIONS_H

#include "tools/sim/replay.h"

#include <stdio.h>

#define SIM_MESSAGE_BYTES 512u
#define SIM_POLICIES_MAX 32u
#define SIM_CAPACITIES_MAX 64u
#define SIM_SCALES_MAX 16u
#define SIM_SENSITIVE_LAYERS_MAX 256u

enum sim_verb { SIM_RUN = 1, SIM_SWEEP = 2, SIM_GATE = 4, SIM_PLOT = 8, SIM_ANY_VERB = 15 };

struct sim_paths { uint32_t count; char **path; };

struct sim_capacity_option {
	struct sim_capacity capacity;
	double percent;              /* of all objects or of all their bytes, instead of the amount; 0: not so given */
};

struct sim_options {
	enum sim_verb verb;
	struct sim_paths trace, train; /* evaluated, learned from */
	uint32_t policy_count, capacity_count, scale_count, sensitive_count;
	const char *policy[SIM_POLICIES_MAX];
	char *policy_text;           /* what they point into */
	struct sim_capacity_option capacity[SIM_CAPACITIES_MAX];
	const char *baseline, *candidate; /* gate */
	double minimum_gain, maximum_regression, scale[SIM_SCALES_MAX];
	uint32_t sensitive_layer[SIM_SENSITIVE_LAYERS_MAX]; /* checkpoint numbers */
	enum policy_pool pool;
	enum sim_semantics semantics;
	enum sim_format format;
	unsigned phases;
	uint32_t experts;
	const char *manifest, *seed_residents, *temporary, *out;
	struct policy_tuning tuning;
	double hysteresis;           /* < 0: no admission control */
	struct moves_limits moves;   /* zeros: none of them; its hysteresis is not used */
	struct sim_vram_setup vram;  /* device_count 0: there is none */
	double vram_percent;         /* of all experts as charged, instead of the bytes of its one device; 0: not so given */
	double vram_hysteresis, upload_gbps;
	double compressed_ratio, compressed_us; /* ratio 0: nothing is held compressed */
	double read_gbps, felt_fraction, miss_us;
	int as_json, as_csv, wants_help, wants_progress, shows_arms, shows_null, preloads, is_cold, trains_capacities;
	uint32_t threads;
	uint64_t seed;
};

/*
 * argv[0] is the verb. 0, or -EINVAL with one line (an option that does not exist: the nearest that does), -ENOMEM, or
 * the error of a directory. ret_options is the caller's to close, on success only.
 */
int sim_options_parse(int argc, char **argv, enum sim_verb verb, struct sim_options *ret_options, char *message,
		      size_t message_bytes);
void sim_options_close(struct sim_options *options);

/* What the verb takes, a line each. */
void sim_options_describe(FILE *out, enum sim_verb verb);

#endif
