/* SPDX-License-Identifier: Apache-2.0 */
/* Dense weights with structure; the idea is in structure.h. */
#include "tools/gen/structure.h"

#include "tools/gen/random.h"

#include <math.h>
#include <string.h>

#define ROPE_THETA 10000.0
#define QUIET 0.02f    /* relative size of weights outside the structure: small, but every byte matters */
#define WINDOW_MAX 512 /* distances over which a window's weight is summed */
#define TOPICS_MAX 16u
#define TOPIC_TOKENS_MIN 128u
#define COMMON_SHARE 8u /* one token in so many has no topic */
#define TOPIC_GAIN 2.0f /* of the mean topic vector, which is short while a prompt mixes topics */
#define ACTIVATION 0.6f /* standard deviation of silu(x) * y for normal x, y */

/* Output matrix, in units of the random part's standard deviation. */
#define OUT_TOKEN 0.5f
#define OUT_RECENT 0.5f
#define OUT_NOISE 0.7f
#define OUT_COMMON 1.2f  /* towards tokens without topic */
#define OUT_TOPIC 4.0f   /* towards tokens of the topics so far */
#define OUT_REPEAT 3.5f  /* away from recent tokens */
#define OUT_POPULAR 0.3f /* some tokens are frequent */

static const struct gen_blend blends[] = {
	[GEN_UNIFORM] = {.popular = 0, .topic = 0.05f, .recent = 0.5f, .token = 1.3f, .noise = 0.1f},
	[GEN_GLM] = {.popular = 0.6f, .topic = 0.7f, .recent = 1.1f, .token = 1.2f, .noise = 0.4f},
	[GEN_OLMOE] = {.popular = 0.15f, .topic = 0.36f, .recent = 0.85f, .token = 0.52f, .noise = 0.55f},
};

/* ---- windows of layer 0 ---- */

struct window {                  /* a peak at distance 0, made of rotary cosines */
	double fastest, slowest; /* radians a token of the pairs it uses */
	float sharpness;
};

static const struct window recent_window = {.fastest = 0.6, .slowest = 0.02, .sharpness = 12}; /* 3 tokens */
static const struct window noise_window = {.fastest = 0.15, .slowest = 0.01, .sharpness = 10}; /* 12 tokens */

static int has(const struct gen_group *group, uint32_t channel)
{
	return channel - group->first < group->count; /* unsigned: below first wraps */
}

static double frequency(const struct gen_structure *structure, uint32_t pair)
{
	return pow(ROPE_THETA, -2.0 * pair / structure->head);
}

/*
 * Rotary pairs that a short window uses: faster ones would let it look back periodically, slower ones would make it wide.
 * At least one, whatever the head size.
 */
static struct gen_group window_pairs(const struct gen_structure *structure, const struct window *window)
{
	struct gen_group pairs = {0};

	while (pairs.first + 1 < structure->head / 2 && frequency(structure, pairs.first) > window->fastest)
		pairs.first++;
	while (pairs.first + pairs.count < structure->head / 2 &&
	       (pairs.count == 0 || frequency(structure, pairs.first + pairs.count) > window->slowest))
		pairs.count++;
	return pairs;
}

/* 1 / root of the sum of squared attention weights: what makes a mean of independent values unit variance again. */
static float window_gain(const struct gen_structure *structure, const struct window *window)
{
	struct gen_group pairs = window_pairs(structure, window);
	uint32_t distance, pair;
	double sum = 0, squares = 0, cosines, weight;

	for (distance = 0; distance < WINDOW_MAX; distance++) {
		cosines = 0;
		for (pair = pairs.first; pair < pairs.first + pairs.count; pair++)
			cosines += cos(frequency(structure, pair) * distance);
		weight = exp(window->sharpness * (cosines / pairs.count - 1));
		sum += weight;
		squares += weight * weight;
	}
	return (float)(sum / sqrt(squares));
}

/* ---- the plan ---- */

/* Sum of squares of the top_k probabilities of a softmax over normal logits: how strongly experts speak. */
static double routing_power(const struct gen_model *model, double deviation)
{
	double sum = 0, squares = 0, weight;
	uint32_t i;

	for (i = 0; i < model->experts; i++) {
		weight = exp(deviation * gen_quantile[(uint64_t)(2 * i + 1) * GEN_QUANTILES / (2 * model->experts)]);
		sum += weight;
		if (i >= model->experts - model->top_k)
			squares += weight * weight;
	}
	return squares / (sum * sum);
}

static float total_deviation(const struct gen_blend *blend)
{
	return sqrtf(blend->popular * blend->popular + blend->topic * blend->topic + blend->recent * blend->recent +
		     blend->token * blend->token + blend->noise * blend->noise);
}

static struct gen_group take_heads(const struct gen_structure *structure, uint32_t *head, uint32_t count)
{
	uint32_t left = structure->model->heads - *head;
	struct gen_group group = {.first = *head * structure->head};

	if (count > left)
		count = left;
	group.count = count * structure->head;
	*head += count;
	return group;
}

static void divide_channels(struct gen_structure *structure)
{
	uint32_t heads = structure->model->heads, quarter = heads < 4 ? 1 : heads / 4, used = 0, topic_count;

	structure->token = take_heads(structure, &used, quarter);
	structure->recent = take_heads(structure, &used, quarter);
	structure->topic = take_heads(structure, &used, quarter);
	structure->noise = take_heads(structure, &used, heads);
	topic_count = structure->token.count / 4;
	structure->token.first++; /* channel 0 is the constant */
	structure->token.count -= 1 + topic_count;
	structure->topic_of_token.first = structure->token.first + structure->token.count;
	structure->topic_of_token.count = topic_count;
}

/* Topics need room: a text that keeps to a handful of tokens soon runs in a circle. */
static uint32_t count_topics(const struct gen_structure *structure)
{
	uint32_t topics = structure->model->vocab / TOPIC_TOKENS_MIN;

	if (topics > structure->topic_of_token.count)
		topics = structure->topic_of_token.count;
	return topics < 1 ? 1 : topics < TOPICS_MAX ? topics : TOPICS_MAX;
}

void gen_structure_open(struct gen_structure *structure, const struct gen_model *model)
{
	double power;

	memset(structure, 0, sizeof *structure);
	structure->model = model;
	structure->blend = blends[model->popularity];
	structure->head = model->hidden / model->heads;
	structure->constant = sqrtf((float)model->hidden) / 4;
	divide_channels(structure);
	structure->topics = count_topics(structure);
	structure->rms = sqrtf((structure->constant * structure->constant + (float)structure->token.count +
				(float)structure->topic_of_token.count) /
			       (float)model->hidden);
	structure->recent_gain = window_gain(structure, &recent_window);
	structure->noise_gain = window_gain(structure, &noise_window);
	power = routing_power(model, total_deviation(&structure->blend));
	structure->down_scale = (float)(1 / (sqrt(power * model->layers * model->intermediate) * ACTIVATION));
}

float gen_structure_into(const struct gen_structure *structure)
{
	return 1 / sqrtf((float)structure->model->hidden);
}

float gen_structure_out_of(const struct gen_structure *structure, uint32_t channel)
{
	return has(&structure->noise, channel) || structure->noise.count == 0 ? structure->down_scale
									      : QUIET * structure->down_scale;
}

/* ---- rows ---- */

static void add_normal(uint64_t key, uint64_t first, const struct gen_group *group, float deviation, float *row)
{
	uint32_t i;

	for (i = 0; i < group->count; i++)
		row[group->first + i] += deviation * gen_quantile[gen_quantile_index(key, first + i)];
}

/*
 * Signs instead of normal deviates: rows of equal length, so that no token is preferred, or preferred always, because its
 * row is long. In few dimensions that matters: the text would circle among a handful of tokens.
 */
static float sign(uint64_t key, uint64_t index)
{
	return gen_quantile_index(key, index) < GEN_QUANTILES / 2 ? -1 : 1;
}

static void add_signs(uint64_t key, uint64_t first, const struct gen_group *group, float size, float *row)
{
	uint32_t i;

	for (i = 0; i < group->count; i++)
		row[group->first + i] += size * sign(key, first + i);
}

/* Deviation of one weight so that the group's unit-variance channels add up to `total`. */
static float share(const struct gen_group *group, float total)
{
	return group->count == 0 ? 0 : total / sqrtf((float)group->count);
}

#define NO_TOPIC UINT32_MAX

static uint32_t topic_of(const struct gen_structure *structure, uint32_t token)
{
	uint64_t word = gen_word(gen_key(structure->model->seed, "topic of token"), token);

	return word % COMMON_SHARE == 0 ? NO_TOPIC : (uint32_t)(word / COMMON_SHARE % structure->topics);
}

/* Element i of a token's vector. */
static float token_value(uint64_t key, const struct gen_structure *structure, uint32_t token, uint32_t i)
{
	return sign(key, (uint64_t)token * structure->token.count + i);
}

/* A Walsh function: topics are equally long and at right angles, so that none attracts more than another. */
static float topic_value(uint32_t topic, uint32_t i)
{
	if (topic == NO_TOPIC)
		return 0;
	return __builtin_parity((topic + 1) & i) ? -1 : 1;
}

static void fill_embed(const struct gen_structure *structure, uint32_t token, float *row)
{
	uint64_t tokens = gen_key(structure->model->seed, "tokens");
	uint32_t i, topic = topic_of(structure, token);

	row[0] = structure->constant;
	for (i = 0; i < structure->token.count; i++)
		row[structure->token.first + i] = token_value(tokens, structure, token, i);
	for (i = 0; i < structure->topic_of_token.count; i++)
		row[structure->topic_of_token.first + i] = topic_value(topic, i);
}

static void fill_lm_head(const struct gen_structure *structure, uint64_t key, uint32_t token, float *row)
{
	uint64_t tokens = gen_key(structure->model->seed, "tokens");
	uint64_t first = (uint64_t)token * structure->model->hidden;
	uint32_t i, source, topic = topic_of(structure, token);

	row[0] += (OUT_POPULAR * gen_quantile[gen_quantile_index(key, first)] + (topic == NO_TOPIC ? OUT_COMMON : 0)) /
		  structure->constant;
	add_signs(key, first + 1, &structure->token, share(&structure->token, OUT_TOKEN), row);
	add_signs(key, first + structure->recent.first, &structure->recent, share(&structure->recent, OUT_RECENT), row);
	add_signs(key, first + structure->noise.first, &structure->noise, share(&structure->noise, OUT_NOISE), row);
	for (i = 0; i < structure->recent.count; i++) {
		source = i % structure->token.count;
		row[structure->recent.first + i] -=
			OUT_REPEAT / (float)structure->recent.count * token_value(tokens, structure, token, source);
	}
	for (i = 0; i < structure->topic.count && structure->topic_of_token.count > 0; i++) {
		source = i % structure->topic_of_token.count;
		row[structure->topic.first + i] +=
			OUT_TOPIC / (float)structure->topic.count * topic_value(topic, source);
	}
}

static void fill_router(const struct gen_structure *structure, uint64_t key, uint32_t expert, float *row)
{
	const struct gen_blend *blend = &structure->blend;
	uint64_t first = (uint64_t)expert * structure->model->hidden;

	row[0] += blend->popular / structure->constant * gen_quantile[gen_quantile_index(key, first)];
	add_normal(key, first + structure->token.first, &structure->token, share(&structure->token, blend->token), row);
	add_normal(key, first + structure->recent.first, &structure->recent, share(&structure->recent, blend->recent),
		   row);
	add_normal(key, first + structure->topic.first, &structure->topic, share(&structure->topic, blend->topic), row);
	add_normal(key, first + structure->noise.first, &structure->noise, share(&structure->noise, blend->noise), row);
}

/* Layer 0's queries and keys before their norm: the constant, so that what counts is the norm's weights. */
static void fill_constant_projection(const struct gen_structure *structure, uint64_t key, uint32_t channel, float *row)
{
	gen_normal(key, (uint64_t)channel * structure->model->hidden, structure->model->hidden,
		   QUIET / sqrtf((float)structure->model->hidden), row);
	row[0] += 1;
}

/* Layer 0's norm of queries and keys: how much each rotary pair counts in each head. */
static void fill_window(const struct gen_structure *structure, const struct window *window,
			const struct gen_group *group, float *row)
{
	struct gen_group pairs = window_pairs(structure, window);
	float weight = sqrtf(window->sharpness * sqrtf((float)structure->head) / (float)pairs.count);
	uint32_t channel;

	for (channel = group->first; channel < group->first + group->count; channel++)
		if (has(&pairs, (channel - group->first) % structure->head))
			row[channel] = weight;
}

static void fill_windows(const struct gen_structure *structure, float *row)
{
	uint32_t channel;

	for (channel = 0; channel < structure->model->hidden; channel++)
		row[channel] = QUIET;
	fill_window(structure, &recent_window, &structure->recent, row);
	fill_window(structure, &noise_window, &structure->noise, row);
}

/* Layer 0's values: which channels each head takes the mean of. */
static void fill_first_values(const struct gen_structure *structure, uint64_t key, uint32_t channel, float *row)
{
	uint32_t hidden = structure->model->hidden;
	uint64_t first = (uint64_t)channel * hidden;
	uint32_t i = channel - structure->recent.first;

	gen_normal(key, first, hidden, QUIET / sqrtf((float)hidden), row);
	if (has(&structure->recent, channel))
		row[structure->token.first + i % structure->token.count] += structure->rms;
	else if (has(&structure->topic, channel) && structure->topic_of_token.count > 0)
		row[structure->topic_of_token.first +
		    (channel - structure->topic.first) % structure->topic_of_token.count] += structure->rms;
	else if (has(&structure->noise, channel))
		add_normal(key, first, &structure->token, share(&structure->token, structure->rms), row);
}

/* Layer 0's output: each head writes to the channels of its own number. */
static void fill_first_output(const struct gen_structure *structure, uint64_t key, uint32_t channel, float *row)
{
	uint32_t hidden = structure->model->hidden;

	gen_normal(key, (uint64_t)channel * hidden, hidden, QUIET / sqrtf((float)hidden), row);
	if (has(&structure->recent, channel))
		row[channel] += structure->recent_gain;
	else if (has(&structure->topic, channel))
		row[channel] += TOPIC_GAIN;
	else if (has(&structure->noise, channel))
		row[channel] += structure->noise_gain;
}

static void fill_output(const struct gen_structure *structure, uint64_t key, uint32_t channel, float *row)
{
	uint32_t hidden = structure->model->hidden;
	float deviation = 0.5f / sqrtf((float)hidden * (float)structure->model->layers);

	if (!has(&structure->noise, channel) && structure->noise.count > 0)
		deviation *= QUIET;
	gen_normal(key, (uint64_t)channel * hidden, hidden, deviation, row);
}

static void fill_near_one(uint64_t key, uint32_t count, float *row)
{
	uint32_t i;

	gen_normal(key, 0, count, QUIET, row);
	for (i = 0; i < count; i++)
		row[i] += 1;
}

static void fill_layer_row(const struct gen_structure *structure, const struct gen_tensor *tensor, uint64_t key,
			   uint32_t row, float *to)
{
	uint32_t hidden = structure->model->hidden;
	int first = tensor->layer == 0;

	switch (tensor->kind) {
	case GEN_Q:
	case GEN_K:
		if (first)
			fill_constant_projection(structure, key, row, to);
		else
			gen_normal(key, (uint64_t)row * hidden, hidden, 1 / sqrtf((float)hidden), to);
		break;
	case GEN_V:
		if (first)
			fill_first_values(structure, key, row, to);
		else
			gen_normal(key, (uint64_t)row * hidden, hidden, 1 / sqrtf((float)hidden), to);
		break;
	case GEN_O:
		(first ? fill_first_output : fill_output)(structure, key, row, to);
		break;
	default: /* GEN_Q_NORM, GEN_K_NORM */
		if (first)
			fill_windows(structure, to);
		else
			fill_near_one(key, hidden, to);
	}
}

void gen_structure_row(const struct gen_structure *structure, const struct gen_tensor *tensor, uint64_t key,
		       uint32_t row, float *to)
{
	uint32_t hidden = structure->model->hidden;

	switch (tensor->kind) {
	case GEN_EMBED:
		gen_normal(key, (uint64_t)row * hidden, hidden, QUIET, to);
		fill_embed(structure, row, to);
		break;
	case GEN_LM_HEAD:
		gen_normal(key, (uint64_t)row * hidden, hidden, QUIET / sqrtf((float)hidden), to);
		fill_lm_head(structure, key, row, to);
		break;
	case GEN_ROUTER:
		gen_normal(key, (uint64_t)row * hidden, hidden, QUIET / sqrtf((float)hidden), to);
		fill_router(structure, key, row, to);
		break;
	case GEN_NORM:
	case GEN_INPUT_NORM:
	case GEN_POST_NORM:
		fill_near_one(key, hidden, to);
		break;
	default:
		fill_layer_row(structure, tensor, key, row, to);
	}
}
