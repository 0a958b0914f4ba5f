/* SPDX-License-Identifier: Apache-2.0 */
/* cnre-sim generate: sessions to learn from and held-out ones, of a made-up router. */
#ifndef CNRE_SIM_GENERATE_H
#define CNRE_SIM_GENERATE_H

#include "tools/sim/synthetic.h"
#include "tools/sim/trace.h"

#define SIM_SESSIONS_MAX 1000u       /* of each split */
#define SIM_TOKENS_MAX (1u << 20)    /* of a session */
#define SIM_THREADS_MAX 64u

struct sim_generation {
	struct sim_synthetic_setup setup;
	const char *directory;
	uint32_t tokens, train_sessions, eval_sessions, threads;
	uint64_t expert_bytes;
	enum sim_format to;          /* binary or group */
	int force, wants_help;
};

/* argv[0] is the verb. 0, or -EINVAL and one line. */
int sim_generation_parse(int argc, char **argv, struct sim_generation *ret_generation, char *message, size_t message_bytes);

/* Writes train_NN_CATEGORY and eval_NN_CATEGORY and manifest.json. 0, or an error and one line. */
int sim_generation_write(const struct sim_generation *generation, char *message, size_t message_bytes);

/* argv[0] is the verb. Says on standard error what is wrong. Exit status: 0, 1 it failed, 2 usage. */
int sim_generate(int argc, char **argv);

#endif
