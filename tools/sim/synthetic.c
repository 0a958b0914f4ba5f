/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The made-up router; see synthetic.h. Rows of normal and Gumbel deviates are slices of two tables, at places that a key or
 * the session's stream says: a row costs one look, and any can be made again. Built with -ffp-contract=off.
 */
#include "tools/sim/synthetic.h"

#include "base/check.h"
#include "tools/sim/sample.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define TABLE (1u << 19)
#define HELD_OUT 100000u /* sessions of the other split have other numbers */

const char *const sim_category[SIM_CATEGORIES] = {"coding", "chat", "reasoning", "multilingual", "longctx"};

enum key { KEY_NORMAL, KEY_GUMBEL, KEY_BASE, KEY_CATEGORY, KEY_SESSION, KEY_TOKEN, KEY_HOT, KEY_STREAM };

struct sim_synthetic {
	struct sim_synthetic_setup setup;
	float *normal, *gumbel; /* [TABLE] */
	float *base;            /* [layers][experts] */
	double *zipf;           /* [vocab] sums of weights */
	float ramp[SIM_SYNTHETIC_LAYERS_MAX];
	float rho, innovation; /* of the drift */
};

/* ---- setups ---- */

static const struct sim_synthetic_setup defaults = {
	.layers = 75,
	.experts = 256,
	.top_k = 8,
	.ramp_layers = 15,
	.vocab = 2000,
	.base_sigma = .6,
	.depth_ramp = .3,
	.category_sigma = .5,
	.session_sigma = .5,
	.drift_sigma = .5,
	.drift_tau = 12,
	.token_sigma = .5,
	.zipf = 1.1,
	.noise = 1,
};

void sim_synthetic_default(struct sim_synthetic_setup *ret_setup)
{
	*ret_setup = defaults;
}

#define COMMON .ramp_layers = 15, .depth_ramp = .3, .zipf = 1.1

static const struct {
	const char *name;
	struct sim_synthetic_setup setup;
} presets[] = {
	{"glm_a",
	 {.layers = 75,
	  .experts = 256,
	  .top_k = 8,
	  .base_sigma = .725,
	  .category_sigma = .775,
	  .session_sigma = .448,
	  .drift_sigma = 1.362,
	  .drift_tau = 3,
	  .token_sigma = 1.018,
	  .vocab = 1000,
	  .noise = .412,
	  COMMON}},
	{"glm_b",
	 {.layers = 75,
	  .experts = 256,
	  .top_k = 8,
	  .base_sigma = .854,
	  .category_sigma = .552,
	  .session_sigma = 1.431,
	  .drift_sigma = 1.38,
	  .drift_tau = 2,
	  .token_sigma = .673,
	  .vocab = 1000,
	  .noise = .874,
	  COMMON}},
	{"hot",
	 {.layers = 75,
	  .experts = 256,
	  .top_k = 8,
	  .base_sigma = .7,
	  .hot = 5,
	  .hot_boost = 4.5,
	  .category_sigma = .5,
	  .session_sigma = .4,
	  .drift_sigma = 1,
	  .drift_tau = 3,
	  .token_sigma = .8,
	  .vocab = 2000,
	  .noise = .8,
	  COMMON}},
	{"switch",
	 {.layers = 75,
	  .experts = 256,
	  .top_k = 8,
	  .base_sigma = .5,
	  .category_sigma = 1.1,
	  .session_sigma = .5,
	  .drift_sigma = 1.2,
	  .drift_tau = 3,
	  .token_sigma = .9,
	  .vocab = 1000,
	  .noise = .5,
	  .switch_every = 60,
	  COMMON}},
	{"olmoe",
	 {.layers = 16,
	  .experts = 64,
	  .top_k = 8,
	  .base_sigma = .1,
	  .category_sigma = .4,
	  .session_sigma = .64,
	  .drift_sigma = 1.085,
	  .drift_tau = 2,
	  .token_sigma = .181,
	  .vocab = 500,
	  .noise = .533,
	  COMMON}},
	/* A shape that is assumed. */
	{"k3",
	 {.layers = 92,
	  .experts = 896,
	  .top_k = 8,
	  .base_sigma = .725,
	  .category_sigma = .775,
	  .session_sigma = .448,
	  .drift_sigma = 1.362,
	  .drift_tau = 3,
	  .token_sigma = 1.018,
	  .vocab = 1000,
	  .noise = .412,
	  COMMON}},
	{"uniform", {.layers = 75, .experts = 256, .top_k = 8, .drift_tau = 12, .vocab = 2000, .noise = 1, COMMON}},
};

int sim_synthetic_preset(const char *name, struct sim_synthetic_setup *ret_setup)
{
	size_t i;

	for (i = 0; i < CNRE_COUNT_OF(presets); i++)
		if (strcmp(name, presets[i].name) == 0) {
			*ret_setup = presets[i].setup;
			return 0;
		}
	return -ENOENT;
}

/* Negated, so that what is no number fails, too. */
static int is_within(double value, double low, double high)
{
	return !(value < low) && !(value > high) && value == value;
}

static int check(const struct sim_synthetic_setup *setup)
{
	const double sigma[] = {setup->base_sigma,  setup->category_sigma, setup->session_sigma, setup->drift_sigma,
				setup->token_sigma, setup->noise,          setup->hot_boost};
	size_t i;

	for (i = 0; i < CNRE_COUNT_OF(sigma); i++)
		if (!is_within(sigma[i], 0, 1000))
			return -EINVAL;
	if (setup->layers == 0 || setup->layers > SIM_SYNTHETIC_LAYERS_MAX || setup->experts == 0 ||
	    setup->experts > SIM_SYNTHETIC_EXPERTS_MAX || setup->top_k == 0 || setup->top_k > SIM_SYNTHETIC_TOP_K_MAX ||
	    setup->top_k > setup->experts || setup->hot > setup->experts || setup->vocab == 0 ||
	    setup->vocab > SIM_SYNTHETIC_VOCAB_MAX)
		return -EINVAL;
	return is_within(setup->depth_ramp, 0, 1) && is_within(setup->drift_tau, .01, 1e6) &&
			       is_within(setup->zipf, 0, 10)
		       ? 0
		       : -EINVAL;
}

/* ---- tables ---- */

static const float *slice(const struct sim_synthetic *synthetic, const float *table, uint64_t word)
{
	return table + sim_below(word, TABLE - synthetic->setup.experts);
}

static const float *keyed(const struct sim_synthetic *synthetic, enum key kind, uint64_t a, uint64_t b)
{
	return slice(synthetic, synthetic->normal, sim_key(sim_key(sim_key(synthetic->setup.seed, kind), a), b));
}

static void fill_deviates(struct sim_synthetic *synthetic)
{
	uint64_t normal = sim_key(synthetic->setup.seed, KEY_NORMAL),
		 gumbel = sim_key(synthetic->setup.seed, KEY_GUMBEL);
	uint32_t i;

	for (i = 0; i < TABLE; i++) {
		synthetic->normal[i] = (float)sim_normal_quantile(sim_unit(sim_key(normal, i)));
		synthetic->gumbel[i] = (float)-sim_log(-sim_log(sim_unit(sim_key(gumbel, i))));
	}
}

/* Distinct experts: the first of a shuffle. */
static void boost_hot(const struct sim_synthetic *synthetic, uint32_t layer, float *base)
{
	const struct sim_synthetic_setup *setup = &synthetic->setup;
	struct sim_stream stream = {.key = sim_key(sim_key(setup->seed, KEY_HOT), layer)};
	uint32_t order[SIM_SYNTHETIC_EXPERTS_MAX], i, k, swap;

	for (i = 0; i < setup->experts; i++)
		order[i] = i;
	for (i = 0; i < setup->hot; i++) {
		k = i + sim_below(sim_stream_next(&stream), setup->experts - i);
		swap = order[i];
		order[i] = order[k];
		order[k] = swap;
		base[order[i]] += (float)setup->hot_boost * synthetic->ramp[layer];
	}
}

static void fill_base(struct sim_synthetic *synthetic)
{
	const struct sim_synthetic_setup *setup = &synthetic->setup;
	double rise, lack;
	const float *deviate;
	uint32_t layer, i;
	float *base;

	for (layer = 0; layer < setup->layers; layer++) {
		rise = (double)layer / (setup->ramp_layers > 0 ? setup->ramp_layers : 1);
		lack = rise < 1 ? 1 - rise : 0;
		synthetic->ramp[layer] = (float)(1 - setup->depth_ramp * lack);
		base = synthetic->base + (size_t)layer * setup->experts;
		deviate = keyed(synthetic, KEY_BASE, layer, 0);
		for (i = 0; i < setup->experts; i++)
			base[i] = (float)setup->base_sigma * synthetic->ramp[layer] * deviate[i];
		boost_hot(synthetic, layer, base);
	}
}

static void fill_vocabulary(struct sim_synthetic *synthetic)
{
	double sum = 0;
	uint32_t i;

	for (i = 0; i < synthetic->setup.vocab; i++) {
		sum += sim_exp(-synthetic->setup.zipf * sim_log(i + 1.0));
		synthetic->zipf[i] = sum;
	}
}

int sim_synthetic_open(struct sim_synthetic **ret_synthetic, const struct sim_synthetic_setup *setup)
{
	struct sim_synthetic *synthetic;
	double rho;

	if (check(setup) < 0)
		return -EINVAL;
	synthetic = calloc(1, sizeof *synthetic);
	if (synthetic == NULL)
		return -ENOMEM;
	synthetic->setup = *setup;
	synthetic->normal = malloc(TABLE * sizeof *synthetic->normal);
	synthetic->gumbel = malloc(TABLE * sizeof *synthetic->gumbel);
	synthetic->base = malloc((size_t)setup->layers * setup->experts * sizeof *synthetic->base);
	synthetic->zipf = malloc(setup->vocab * sizeof *synthetic->zipf);
	if (synthetic->normal == NULL || synthetic->gumbel == NULL || synthetic->base == NULL ||
	    synthetic->zipf == NULL) {
		(void)sim_synthetic_close(synthetic);
		return -ENOMEM;
	}
	rho = sim_exp(-1 / setup->drift_tau);
	synthetic->rho = (float)rho;
	synthetic->innovation = (float)sim_sqrt(1 - rho * rho);
	fill_deviates(synthetic);
	fill_base(synthetic);
	fill_vocabulary(synthetic);
	*ret_synthetic = synthetic;
	return 0;
}

struct sim_synthetic *sim_synthetic_close(struct sim_synthetic *synthetic)
{
	if (synthetic != NULL) {
		free(synthetic->normal);
		free(synthetic->gumbel);
		free(synthetic->base);
		free(synthetic->zipf);
	}
	free(synthetic);
	return NULL;
}

/* ---- sessions ---- */

struct session {
	const struct sim_synthetic *synthetic;
	struct sim_stream stream;
	uint32_t number, category;
	float *steady, *drift; /* [layers][experts] */
	float *logit;          /* [experts] */
	uint32_t expert[SIM_SYNTHETIC_TOP_K_MAX];
	float value[SIM_SYNTHETIC_TOP_K_MAX];
};

/* All that does not change while the topic stays. */
static void settle(struct session *session)
{
	const struct sim_synthetic *synthetic = session->synthetic;
	const struct sim_synthetic_setup *setup = &synthetic->setup;
	const float *of_category, *of_session, *base;
	float *steady, category_scale, session_scale;
	uint32_t layer, i;

	for (layer = 0; layer < setup->layers; layer++) {
		of_category = keyed(synthetic, KEY_CATEGORY, session->category, layer);
		of_session = keyed(synthetic, KEY_SESSION, session->number, layer);
		category_scale = (float)setup->category_sigma * synthetic->ramp[layer];
		session_scale = (float)setup->session_sigma * synthetic->ramp[layer];
		base = synthetic->base + (size_t)layer * setup->experts;
		steady = session->steady + (size_t)layer * setup->experts;
		for (i = 0; i < setup->experts; i++)
			steady[i] = base[i] + category_scale * of_category[i] + session_scale * of_session[i];
	}
}

static void begin_drift(struct session *session)
{
	const struct sim_synthetic_setup *setup = &session->synthetic->setup;
	uint32_t layer;

	for (layer = 0; layer < setup->layers; layer++)
		memcpy(session->drift + (size_t)layer * setup->experts,
		       slice(session->synthetic, session->synthetic->normal, sim_stream_next(&session->stream)),
		       setup->experts * sizeof session->drift[0]);
}

/* Six of ten words are of the vocabulary that all share. */
static uint32_t next_word(struct session *session)
{
	const struct sim_synthetic *synthetic = session->synthetic;
	uint32_t low = 0, high = synthetic->setup.vocab - 1, middle;
	double at = sim_unit(sim_stream_next(&session->stream)) * synthetic->zipf[high];

	while (low < high) {
		middle = low + (high - low) / 2;
		if (synthetic->zipf[middle] <= at)
			low = middle + 1;
		else
			high = middle;
	}
	if (sim_unit(sim_stream_next(&session->stream)) >= 0.6)
		low += synthetic->setup.vocab * (1 + session->category);
	return low;
}

static void add_drift(struct session *session, uint32_t layer)
{
	const struct sim_synthetic *synthetic = session->synthetic;
	const float *news = slice(synthetic, synthetic->normal, sim_stream_next(&session->stream));
	float *drift = session->drift + (size_t)layer * synthetic->setup.experts, *logit = session->logit;
	float sigma = (float)synthetic->setup.drift_sigma, rho = synthetic->rho, innovation = synthetic->innovation;
	uint32_t i;

	for (i = 0; i < synthetic->setup.experts; i++) {
		drift[i] = rho * drift[i] + innovation * news[i];
		logit[i] += sigma * drift[i];
	}
}

static void add_scaled(float *logit, const float *deviate, float scale, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		logit[i] += scale * deviate[i];
}

static void make_logits(struct session *session, uint32_t layer, uint32_t word)
{
	const struct sim_synthetic *synthetic = session->synthetic;
	const struct sim_synthetic_setup *setup = &synthetic->setup;

	memcpy(session->logit, session->steady + (size_t)layer * setup->experts,
	       setup->experts * sizeof session->logit[0]);
	if (setup->drift_sigma > 0)
		add_drift(session, layer);
	if (setup->token_sigma > 0)
		add_scaled(session->logit, keyed(synthetic, KEY_TOKEN, layer, word), (float)setup->token_sigma,
			   setup->experts);
	add_scaled(session->logit, slice(synthetic, synthetic->gumbel, sim_stream_next(&session->stream)),
		   (float)setup->noise, setup->experts);
}

/* The largest in descending order; of equal ones the lower number. */
static void choose(struct session *session)
{
	uint32_t top_k = session->synthetic->setup.top_k, count = 0, i, at;
	float value;

	for (i = 0; i < session->synthetic->setup.experts; i++) {
		value = session->logit[i];
		if (count == top_k && !(value > session->value[top_k - 1]))
			continue;
		if (count < top_k)
			count++;
		for (at = count - 1; at > 0 && value > session->value[at - 1]; at--) {
			session->value[at] = session->value[at - 1];
			session->expert[at] = session->expert[at - 1];
		}
		session->value[at] = value;
		session->expert[at] = i;
	}
}

static int run(struct session *session, uint32_t tokens, int (*take)(void *, uint32_t, uint32_t, const uint32_t *),
	       void *context)
{
	const struct sim_synthetic_setup *setup = &session->synthetic->setup;
	uint32_t token, layer, word;
	int result = 0;

	settle(session);
	if (setup->drift_sigma > 0)
		begin_drift(session);
	for (token = 0; token < tokens; token++) {
		if (setup->switch_every > 0 && token > 0 && token % setup->switch_every == 0) {
			session->category = sim_below(sim_stream_next(&session->stream), SIM_CATEGORIES);
			settle(session);
		}
		word = next_word(session);
		for (layer = 0; result == 0 && layer < setup->layers; layer++) {
			make_logits(session, layer, word);
			choose(session);
			result = take(context, token, layer, session->expert);
		}
		if (result != 0)
			return result;
	}
	return 0;
}

int sim_synthetic_session(const struct sim_synthetic *synthetic, int is_held_out, uint32_t number, uint32_t category,
			  uint32_t tokens,
			  int (*take)(void *context, uint32_t token, uint32_t layer, const uint32_t *expert),
			  void *context)
{
	size_t cells = (size_t)synthetic->setup.layers * synthetic->setup.experts;
	struct session *session = calloc(1, sizeof *session);
	int result = -ENOMEM;

	if (session == NULL)
		return -ENOMEM;
	session->synthetic = synthetic;
	session->number = number + (is_held_out ? HELD_OUT : 0);
	session->category = category;
	session->stream.key = sim_key(sim_key(synthetic->setup.seed, KEY_STREAM), session->number);
	session->steady = malloc(cells * sizeof *session->steady);
	session->drift = malloc(cells * sizeof *session->drift);
	session->logit = malloc(synthetic->setup.experts * sizeof *session->logit);
	if (session->steady != NULL && session->drift != NULL && session->logit != NULL)
		result = run(session, tokens, take, context);
	free(session->steady);
	free(session->drift);
	free(session->logit);
	free(session);
	return result;
}
