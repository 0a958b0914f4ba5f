/* SPDX-License-Identifier: Apache-2.0 */
/* See conversation.h. The last token of a turn has no row yet: it is run by the next turn, or never. */
#include "engine/conversation.h"

#include "engine/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int conversation_init(struct conversation *conversation, const struct kv_store *store, uint32_t positions)
{
	struct conversation fresh = {.positions = positions, .token = calloc(positions, sizeof *fresh.token)};

	if (!fresh.token)
		return -ENOMEM;
	if (kv_prefix_init(&fresh.prefix, store, positions) < 0) {
		free(fresh.token);
		return -ENOMEM;
	}
	*conversation = fresh;
	return 0;
}

void conversation_done(struct conversation *conversation)
{
	conversation_drop_rows(conversation);
	kv_prefix_done(&conversation->prefix);
	free(conversation->token);
	*conversation = (struct conversation){0};
}

void conversation_drop_rows(struct conversation *conversation)
{
	kv_cache_done(&conversation->cache);
	kv_prefix_forget(&conversation->prefix);
}

static int check(const struct conversation *conversation, const struct turn *turn)
{
	if (turn->steps == 0 || (turn->count == 0 && conversation->count == 0))
		return -EINVAL;
	return (uint64_t)conversation->count + turn->count + turn->steps > conversation->positions ? -E2BIG : 0;
}

/* Runs count tokens behind the rows and publishes what they complete. ret_next NULL: what comes next is not asked. */
static int compute(struct conversation *conversation, struct forward *forward, uint32_t count, uint32_t *ret_next)
{
	const struct kv_span span = {conversation->cache.count, count};
	const uint32_t *tokens = conversation->token + span.first;
	const uint64_t start_ns = clock_now_ns();
	int error = ret_next ? forward_run(forward, tokens, count, ret_next) : forward_append(forward, tokens, count);

	if (error < 0)
		return error;
	kv_prefix_note_cost(&conversation->prefix, span, clock_now_ns() - start_ns);
	kv_prefix_publish(&conversation->prefix, conversation->token, &conversation->cache);
	return 0;
}

/* All tokens without rows, in pieces, so that others can have the first ones before the last are computed. */
static int prefill(struct conversation *conversation, struct forward *forward, uint32_t *ret_next)
{
	uint32_t left = conversation->count - conversation->cache.count;
	int error = 0;

	for (; left > FORWARD_ROWS_MAX && error == 0; left -= FORWARD_ROWS_MAX)
		error = compute(conversation, forward, FORWARD_ROWS_MAX, NULL);
	return error < 0 ? error : compute(conversation, forward, left, ret_next);
}

static void say(struct conversation *conversation, const struct turn *turn, uint32_t token)
{
	conversation->token[conversation->count++] = token;
	if (turn->on_token)
		turn->on_token(turn->context, token);
}

static int take_turn(struct conversation *conversation, struct forward *forward, const struct turn *turn,
		     struct turn_result *result)
{
	const uint64_t start_ns = clock_now_ns();
	uint32_t next = 0;
	int error;

	if (turn->count > 0)
		memcpy(conversation->token + conversation->count, turn->tokens, turn->count * sizeof *turn->tokens);
	conversation->count += turn->count;
	conversation->prefix.published_blocks = 0;
	if (conversation->cache.count == 0) /* one token must remain to be computed */
		result->matched_tokens = kv_prefix_copy(&conversation->prefix, conversation->token,
							conversation->count - 1, &conversation->cache);
	result->computed_tokens = conversation->count - conversation->cache.count;
	error = prefill(conversation, forward, &next);
	result->first_ns = clock_now_ns() - start_ns;
	for (uint32_t step = 1; step < turn->steps && error == 0; step++) {
		say(conversation, turn, next);
		error = compute(conversation, forward, 1, &next);
	}
	if (error < 0)
		return error;
	say(conversation, turn, next);
	result->total_ns = clock_now_ns() - start_ns;
	return 0;
}

/* What was published stays: it is the rows of tokens, whoever says them. */
static void take_back(struct conversation *conversation, uint32_t count)
{
	const uint32_t rows = count > 0 ? count - 1 : 0;

	conversation->count = count;
	if (conversation->cache.count > rows)
		conversation->cache.count = rows;
	kv_prefix_forget(&conversation->prefix);
}

int conversation_run(struct conversation *conversation, struct forward *forward, const struct turn *turn,
		     struct turn_result *ret_result)
{
	const uint32_t before = conversation->count;
	struct turn_result result = {0};
	int error = check(conversation, turn);

	if (error == 0 && conversation->cache.positions == 0)
		error = kv_cache_init(&conversation->cache, forward->config, conversation->positions);
	if (error < 0)
		return error;
	forward->cache = &conversation->cache;
	error = take_turn(conversation, forward, turn, &result);
	if (error < 0) {
		take_back(conversation, before);
		return error;
	}
	result.skipped_blocks = kv_prefix_finish(&conversation->prefix, conversation->token, &conversation->cache);
	result.published_blocks = conversation->prefix.published_blocks;
	result.tokens = conversation->token + conversation->count - turn->steps;
	*ret_result = result;
	return 0;
}
