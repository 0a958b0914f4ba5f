/* SPDX-License-Identifier: Apache-2.0 */
/* See forward.h. */
#include "engine/forward.h"

#include "engine/stop.h"
#include "engine/vector.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t rows_max(uint32_t positions)
{
	return positions < FORWARD_ROWS_MAX ? positions : FORWARD_ROWS_MAX;
}

uint64_t forward_bytes(const struct config *config, uint32_t positions)
{
	const uint64_t row =
		3 * (uint64_t)config->hidden + 4 * (uint64_t)config->heads * config->head_dim + config->experts;

	return sizeof(float) * (row * rows_max(positions) + (uint64_t)config->heads * positions + config->vocab);
}

int forward_init(struct forward *forward, uint32_t positions)
{
	const struct config *config = forward->config;
	const uint32_t rows = rows_max(positions);
	const size_t hidden = config->hidden * sizeof(float);
	int error = attention_scratch_init(&forward->attention, config, rows, positions);

	forward->positions = positions;
	forward->x = calloc(rows, hidden);
	forward->normed = calloc(rows, hidden);
	forward->added = calloc(rows, hidden);
	forward->router = calloc(rows, config->experts * sizeof(float));
	forward->middle = calloc(config->intermediate, sizeof(float));
	forward->output = calloc(1, hidden);
	forward->logits = calloc(config->vocab, sizeof(float));
	if (!forward->x || !forward->normed || !forward->added || !forward->router || !forward->middle ||
	    !forward->output || !forward->logits)
		return -ENOMEM;
	return error;
}

void forward_done(struct forward *forward)
{
	attention_scratch_done(&forward->attention);
	free(forward->x);
	free(forward->normed);
	free(forward->added);
	free(forward->router);
	free(forward->middle);
	free(forward->output);
	free(forward->logits);
}

static void embed(struct forward *forward, const uint32_t *tokens, uint32_t count)
{
	const uint32_t hidden = forward->config->hidden;

	for (uint32_t s = 0; s < count; s++)
		for (uint32_t i = 0; i < hidden; i++)
			forward->x[(size_t)s * hidden + i] =
				kernel_element(&forward->weights->embedding, (size_t)tokens[s] * hidden + i);
}

static void norm_rows(struct forward *forward, const float *weight, uint32_t count)
{
	const uint32_t hidden = forward->config->hidden;

	for (size_t s = 0; s < count; s++)
		vector_rms_norm(forward->normed + s * hidden, forward->x + s * hidden, weight, hidden,
				forward->config->rms_norm_eps);
}

static void add_rows(struct forward *forward, uint32_t count)
{
	for (size_t i = 0; i < (size_t)count * forward->config->hidden; i++)
		forward->x[i] += forward->added[i];
}

/* y += gate * expert(x) for each expert of the route, in its order. */
static int run_experts(struct forward *forward, uint32_t layer, const struct route *route, const float *x, float *y)
{
	struct expert_source *source = forward->source;
	const struct config *config = forward->config;
	struct operand operand = {.x = x};
	int error = source->ops->begin(source, layer, route->expert, config->top_k);

	if (error < 0)
		return error;
	for (uint32_t i = 0; i < config->top_k; i++) {
		struct expert expert;

		error = stop_is_asked() ? -EINTR : source->ops->wait(source, i, &expert);
		if (error < 0)
			break;
		expert_compute(forward->compute, &expert, &operand, forward->middle, forward->output);
		source->ops->release(source, i);
		forward->compute->kernel->add_scaled(y, forward->output, route->gate[i], config->hidden);
	}
	source->ops->end(source);
	return error;
}

static int run_moe(struct forward *forward, uint32_t layer, uint32_t count)
{
	const struct config *config = forward->config;
	int error = 0;

	matmul(forward->compute, &forward->weights->layer[layer].router, forward->normed, count, forward->router);
	memset(forward->added, 0, (size_t)count * config->hidden * sizeof *forward->added);
	for (uint32_t s = 0; s < count && error == 0; s++) {
		struct route route;

		error = router_choose(config, forward->router + (size_t)s * config->experts, &route);
		if (error < 0)
			break;
		if (forward->on_route)
			forward->on_route(forward->route_context, forward->call_count, s, layer, &route, config->top_k);
		error = run_experts(forward, layer, &route, forward->normed + (size_t)s * config->hidden,
				    forward->added + (size_t)s * config->hidden);
	}
	forward->call_count++;
	return error;
}

static int run_layer(struct forward *forward, uint32_t layer, uint32_t count)
{
	const struct layer_weights *weights = &forward->weights->layer[layer];
	const struct attention attention = {forward->compute, forward->config, forward->cache, &forward->attention};
	int error;

	norm_rows(forward, weights->input_norm, count);
	attention_run(&attention, weights, layer, forward->cache->count, count, forward->normed, forward->added);
	add_rows(forward, count);
	norm_rows(forward, weights->post_norm, count);
	error = run_moe(forward, layer, count);
	if (error == 0)
		add_rows(forward, count);
	return error;
}

/* One piece of at most rows_max rows through all layers. */
static int run_piece(struct forward *forward, const uint32_t *tokens, uint32_t count)
{
	int error = 0;

	embed(forward, tokens, count);
	attention_set_positions(&forward->attention, forward->config, forward->cache->count, count);
	for (uint32_t layer = 0; layer < forward->config->layers && error == 0; layer++)
		error = run_layer(forward, layer, count);
	if (error < 0)
		return error;
	forward->cache->count += count;
	forward->last_row = count - 1;
	forward->source->ops->token_end(forward->source, count);
	return 0;
}

static uint32_t choose_next(struct forward *forward)
{
	const struct config *config = forward->config;

	vector_rms_norm(forward->normed, forward->x + (size_t)forward->last_row * config->hidden,
			forward->weights->final_norm, config->hidden, config->rms_norm_eps);
	matmul(forward->compute, &forward->weights->head, forward->normed, 1, forward->logits);
	return vector_argmax(forward->logits, config->vocab);
}

int forward_append(struct forward *forward, const uint32_t *tokens, uint32_t count)
{
	const uint32_t room = rows_max(forward->positions);
	uint32_t piece;

	if (count == 0 || forward->cache->positions > forward->positions ||
	    count > forward->cache->positions - forward->cache->count)
		return -EINVAL;
	for (uint32_t i = 0; i < count; i++)
		if (tokens[i] >= forward->config->vocab)
			return -EINVAL;
	for (uint32_t done = 0; done < count; done += piece) {
		int error;

		piece = count - done < room ? count - done : room;
		error = run_piece(forward, tokens + done, piece);
		if (error < 0)
			return error;
	}
	return 0;
}

int forward_run(struct forward *forward, const uint32_t *tokens, uint32_t count, uint32_t *ret_next)
{
	int error = forward_append(forward, tokens, count);

	if (error == 0)
		*ret_next = choose_next(forward);
	return error;
}
