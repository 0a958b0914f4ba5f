/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dense weights that make a generated model behave, when it decodes greedily, like a trained one as far as a cache can
 * see: some experts are popular, neighbouring tokens share experts, prompts differ, and the text does not run in circles.
 *
 * The residual stream is divided into groups of channels, by attention heads (quarters of them):
 *
 *   0       a constant, the same for every token: the router's column for it is the stable popularity of each expert
 *   token   a random vector of the token, and one of its topic (each token belongs to one)
 *   recent  layer 0's second quarter of heads writes here the mean of the last few token vectors: locality
 *   topic   its third quarter writes the mean of all topic vectors so far: what this prompt is about
 *   noise   its last quarter mixes the last dozen tokens; experts and later attention write (nearly) only here
 *
 * Layer 0's queries and keys depend on the constant alone, so a score is a function of distance only: a sum of
 * rotary cosines whose peak at 0 is as wide as the frequencies chosen. RMS norm keeps the proportions of groups, and
 * since only noise grows, the structure reaches the last layer. A router logit is a sum of independent normal terms, one
 * a group, with the standard deviations of struct gen_blend; they were fitted to published statistics.
 * The output matrix prefers tokens of the topics at hand, dislikes recent ones, and for the rest is a hash of the state.
 */
#ifndef CNRE_TOOLS_GEN_STRUCTURE_H
#define CNRE_TOOLS_GEN_STRUCTURE_H

#include "tools/gen/model.h"
#include "tools/gen/tensor.h"

struct gen_group {
	uint32_t first, count;            /* channels */
};

struct gen_blend {
	float popular, topic, recent, token, noise; /* standard deviations of a router logit's terms */
};

struct gen_structure {
	const struct gen_model *model;
	struct gen_blend blend;
	struct gen_group token, topic_of_token, recent, topic, noise;
	uint32_t head, topics;
	float constant;                   /* value of channel 0 */
	float rms;                        /* of an embedding row */
	float recent_gain, noise_gain;    /* make the windows' means unit variance */
	float down_scale;                 /* standard deviation of weights of down rows that write noise */
};

void gen_structure_open(struct gen_structure *structure, const struct gen_model *model);

/* One row of a dense tensor, columns values. */
void gen_structure_row(const struct gen_structure *structure, const struct gen_tensor *tensor, uint64_t key, uint32_t row,
		       float *to);

/* Standard deviation of the weights in one row of an expert's gate or up, and of its down row for an output channel. */
float gen_structure_into(const struct gen_structure *structure);
float gen_structure_out_of(const struct gen_structure *structure, uint32_t channel);

#endif
