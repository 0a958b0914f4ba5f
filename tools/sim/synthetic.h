/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A made-up router whose choices are as uneven, as local in time and as different between topics as real ones:
 *
 *	logit of (layer, expert) at token t = base              how popular it is, always; early layers are flatter
 *	                                    + category          coding, chat, …
 *	                                    + session           of one prompt
 *	                                    + drift(t)          AR(1) within the prompt
 *	                                    + token             which word it is, of a Zipf vocabulary
 *	                                    + Gumbel noise
 *
 * and the k largest are chosen. Presets are fitted to published statistics of models; they are no traces of these.
 */
#ifndef CNRE_SIM_SYNTHETIC_H
#define CNRE_SIM_SYNTHETIC_H

#include <stdint.h>

#define SIM_SYNTHETIC_LAYERS_MAX 1024u
#define SIM_SYNTHETIC_EXPERTS_MAX 4096u
#define SIM_SYNTHETIC_TOP_K_MAX 256u
#define SIM_SYNTHETIC_VOCAB_MAX (1u << 20)
#define SIM_CATEGORIES 5u

extern const char *const sim_category[SIM_CATEGORIES];

struct sim_synthetic_setup {
	uint32_t layers, experts, top_k;
	uint32_t ramp_layers;        /* base, category and session begin at 1 - depth_ramp, and are whole after so many */
	uint32_t hot;                /* experts of each layer that hot_boost is added to */
	uint32_t vocab;              /* words that all share; each category has as many of its own */
	uint32_t switch_every;       /* tokens after which the topic changes; 0: never */
	double base_sigma, category_sigma, session_sigma, drift_sigma, token_sigma, noise;
	double depth_ramp, hot_boost, drift_tau, zipf;
	uint64_t seed;
};

struct sim_synthetic;                /* tables; read-only once made */

/* What generators begin with, and 0 or -ENOENT for the presets glm_a glm_b hot switch olmoe k3 uniform. */
void sim_synthetic_default(struct sim_synthetic_setup *ret_setup);
int sim_synthetic_preset(const char *name, struct sim_synthetic_setup *ret_setup);

/* 0, -EINVAL (numbers beyond the bounds or each other) or -ENOMEM. */
int sim_synthetic_open(struct sim_synthetic **ret_synthetic, const struct sim_synthetic_setup *setup);
struct sim_synthetic *sim_synthetic_close(struct sim_synthetic *synthetic);

/*
 * One prompt: calls `take` for each layer of each token, in order, with top_k experts, the likeliest first; it ends with the
 * first non-zero of these. Depends on its arguments alone. 0, what take said, or -ENOMEM.
 */
int sim_synthetic_session(const struct sim_synthetic *synthetic, int is_held_out, uint32_t number, uint32_t category,
			  uint32_t tokens,
			  int (*take)(void *context, uint32_t token, uint32_t layer, const uint32_t *expert),
			  void *context);

#endif
