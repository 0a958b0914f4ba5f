/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/kv_prefix.c and conversation.c over a store in this process: tokens and logits do not depend on how much of a
 * prompt was copied, nor on what the store does; what is published is what a later conversation needs.
 */
#include "engine/conversation.h"
#include "tests/standin/fake_kv_store.h"
#include "tests/support/tiny_engine.h"
#include "tests/support/tiny_olmoe.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

enum { PROMPT = 300, STEPS = 70, POSITIONS = PROMPT + STEPS + 40 };

struct outcome {
	uint32_t token[STEPS];
	float logits[TINY_VOCAB]; /* after the last step */
};

static struct tiny_engine engine;
static struct kv_store store;
static uint32_t prompt[PROMPT];

static void begin(void)
{
	fake_kv_store_reset();
	tiny_engine_open(&engine, POSITIONS);
	tiny_engine_tokens(prompt, PROMPT, 1);
	cr_assert_eq(kv_store_open(&store, NULL, &engine.config, "team", "pepper"), 0);
}

static void finish(void)
{
	kv_store_close(&store);
	tiny_engine_close(&engine);
	fake_kv_store_reset();
}

/* One turn of a new conversation. */
static struct turn_result run(const struct kv_store *used, const uint32_t *tokens, uint32_t count, uint32_t steps,
			      struct outcome *ret_outcome)
{
	const struct turn turn = {.tokens = tokens, .count = count, .steps = steps};
	struct conversation conversation;
	struct turn_result result;

	cr_assert_eq(conversation_init(&conversation, used, POSITIONS), 0);
	cr_assert_eq(conversation_run(&conversation, &engine.forward, &turn, &result), 0);
	if (ret_outcome) {
		memcpy(ret_outcome->token, result.tokens, steps * sizeof *result.tokens);
		memcpy(ret_outcome->logits, engine.forward.logits, sizeof ret_outcome->logits);
	}
	conversation_done(&conversation);
	cr_expect_eq(fake_kv_store.open_chains, 0, "%d chains were never released", fake_kv_store.open_chains);
	cr_expect_eq(fake_kv_store.misuses, 0);
	result.tokens = NULL;
	return result;
}

static void expect_same(const struct outcome *outcome, const struct outcome *expected, const char *what)
{
	cr_expect_arr_eq(outcome->token, expected->token, sizeof expected->token, "%s: other tokens", what);
	cr_expect_arr_eq(outcome->logits, expected->logits, sizeof expected->logits, "%s: other logits", what);
}

TestSuite(engine_kv_prefix, .init = begin, .fini = finish, .timeout = 120);

Test(engine_kv_prefix, copied_beginnings_of_any_length_give_the_same_bits)
{
	static const uint32_t beginnings[] = {1, 63, 64, 65, 100, 128, 255, 256, 257, 299};
	struct outcome expected, outcome;

	(void)run(NULL, prompt, PROMPT, STEPS, &expected);
	for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++) {
		const uint32_t beginning = beginnings[i];
		struct turn_result result;

		fake_kv_store_forget_blocks();
		(void)run(&store, prompt, beginning, 1, NULL);
		result = run(&store, prompt, PROMPT, STEPS, &outcome);
		cr_expect_eq(result.matched_tokens, beginning, "%u were there, %u matched", beginning,
			     result.matched_tokens);
		cr_expect_eq(result.computed_tokens, PROMPT - beginning);
		expect_same(&outcome, &expected, "a copied beginning");
	}
}

Test(engine_kv_prefix, what_differs_in_the_middle_of_a_block_is_computed)
{
	uint32_t other[PROMPT];
	struct outcome expected, outcome;
	struct turn_result result;

	memcpy(other, prompt, sizeof other);
	other[150] = (other[150] + 1) % TINY_VOCAB;
	(void)run(NULL, other, PROMPT, STEPS, &expected);
	(void)run(&store, prompt, PROMPT, 1, NULL);
	result = run(&store, other, PROMPT, STEPS, &outcome);
	cr_expect_eq(result.matched_tokens, 150);
	expect_same(&outcome, &expected, "half a block");
}

Test(engine_kv_prefix, one_token_always_remains_to_be_computed)
{
	struct outcome expected, outcome;
	struct turn_result result;

	(void)run(NULL, prompt, 128, STEPS, &expected);
	(void)run(&store, prompt, PROMPT, 1, NULL);
	result = run(&store, prompt, 128, STEPS, &outcome);
	cr_expect_eq(result.matched_tokens, 127);
	cr_expect_eq(result.computed_tokens, 1);
	expect_same(&outcome, &expected, "all but one");
}

/* Rows of the prompt and of all tokens but the last: 300 + 69 = 5 blocks and 49 tokens. */
Test(engine_kv_prefix, whole_blocks_of_prompt_and_answer_and_the_rest_are_published)
{
	uint32_t again[PROMPT + STEPS];
	struct outcome outcome;
	struct turn_result result = run(&store, prompt, PROMPT, STEPS, &outcome);

	cr_expect_eq(result.published_blocks, 6);
	cr_expect_eq(result.skipped_blocks, 0);
	cr_expect_eq(fake_kv_store_block_count(), 6);
	cr_expect_gt(fake_kv_store.compute_ns, 0);
	memcpy(again, prompt, sizeof prompt);
	memcpy(again + PROMPT, outcome.token, sizeof outcome.token);
	result = run(&store, again, PROMPT + STEPS, 1, NULL);
	cr_expect_eq(result.matched_tokens, PROMPT + STEPS - 1);
	cr_expect_eq(result.published_blocks, 1, "the leaf grew by one token");
	cr_expect_eq(fake_kv_store_block_count(), 6, "and replaced the shorter one");
}

Test(engine_kv_prefix, the_same_again_publishes_nothing)
{
	struct turn_result result;

	(void)run(&store, prompt, PROMPT, STEPS, NULL);
	result = run(&store, prompt, PROMPT, STEPS, NULL);
	cr_expect_eq(result.matched_tokens, PROMPT - 1);
	cr_expect_eq(result.published_blocks, 0);
	cr_expect_eq(result.skipped_blocks, 0);
}

Test(engine_kv_prefix, a_block_that_does_not_come_is_computed_with_all_behind_it)
{
	struct outcome expected, outcome;
	struct turn_result result;

	(void)run(&store, prompt, PROMPT, STEPS, &expected);
	for (int index = 0; index < 4; index++) {
		fake_kv_store.block_fails_at = index;
		result = run(&store, prompt, PROMPT, STEPS, &outcome);
		cr_expect_eq(result.matched_tokens, 64 * index);
		expect_same(&outcome, &expected, "a block that failed");
		cr_expect_gt(fake_kv_store.last_timeout_ns, 0, "a copy waits a little");
		cr_expect_lt(fake_kv_store.last_timeout_ns, 60000000000, "and not for long");
	}
}

Test(engine_kv_prefix, a_block_of_impossible_size_is_not_read)
{
	struct outcome expected, outcome;
	struct turn_result result;

	(void)run(&store, prompt, PROMPT, STEPS, &expected);
	fake_kv_store.bad_bytes = 1;
	result = run(&store, prompt, PROMPT, STEPS, &outcome);
	cr_expect_eq(result.matched_tokens, 0);
	fake_kv_store.bad_bytes = 1 << 20;
	result = run(&store, prompt, PROMPT, STEPS, &outcome);
	cr_expect_eq(result.matched_tokens, 0);
	expect_same(&outcome, &expected, "bad bytes");
}

Test(engine_kv_prefix, without_room_to_stage_publishing_waits_for_the_next_block)
{
	struct turn_result result;

	fake_kv_store.stages_refused = 1; /* at the first piece of 256; the prompt's end completes no block */
	result = run(&store, prompt, PROMPT, 30, NULL);
	cr_expect_eq(result.published_blocks, 6, "the block at 320 brings all, and the end its rest");
	cr_expect_eq(result.skipped_blocks, 0);
	fake_kv_store_forget_blocks();
	fake_kv_store.stages = 0;
	fake_kv_store.stages_refused = 1000;
	result = run(&store, prompt, PROMPT, 30, NULL);
	cr_expect_eq(result.published_blocks, 0);
	cr_expect_eq(result.skipped_blocks, 6);
	cr_expect_eq(fake_kv_store.stages, 3, "one try each: after the piece, at 320, at the end");
}

Test(engine_kv_prefix, after_a_drop_the_missing_blocks_are_published_again)
{
	struct outcome expected, outcome;
	struct turn_result result;

	(void)run(NULL, prompt, PROMPT, STEPS, &expected);
	(void)run(&store, prompt, 200, 1, NULL);
	fake_kv_store.stages_stale = 1;
	result = run(&store, prompt, PROMPT, STEPS, &outcome);
	cr_expect_eq(result.matched_tokens, 200, "copied before they were dropped");
	expect_same(&outcome, &expected, "a stale chain");
	cr_expect_eq(fake_kv_store_block_count(), 6);
	result = run(&store, prompt, PROMPT, 1, NULL);
	cr_expect_eq(result.matched_tokens, PROMPT - 1);
}

/* There is one step that publishes, at the end: it matches again itself. */
Test(engine_kv_prefix, a_stale_chain_is_mended_in_the_same_step)
{
	struct turn_result result;

	fake_kv_store.stages_stale = 1;
	result = run(&store, prompt, 40, 1, NULL);
	cr_expect_eq(result.published_blocks, 1);
	cr_expect_eq(result.skipped_blocks, 0);
}

Test(engine_kv_prefix, after_an_unknown_error_the_chain_is_made_anew)
{
	struct turn_result result;

	fake_kv_store.stage_error = -EPIPE;
	result = run(&store, prompt, 40, 1, NULL);
	cr_expect_eq(result.skipped_blocks, 1);
	fake_kv_store.matches = 0;
	result = run(&store, prompt, PROMPT, 1, NULL); /* fails after the piece, and at the end */
	cr_expect_eq(fake_kv_store.matches, 2);
	cr_expect_eq(result.published_blocks, 0);
}

Test(engine_kv_prefix, a_store_that_refuses_everything_changes_nothing)
{
	struct outcome expected, outcome;
	struct turn_result result;

	(void)run(NULL, prompt, PROMPT, STEPS, &expected);
	fake_kv_store.match_error = -ENOTSUP;
	result = run(&store, prompt, PROMPT, STEPS, &outcome);
	expect_same(&outcome, &expected, "no match");
	cr_expect_eq(result.published_blocks, 0);
	fake_kv_store.match_error = 0;
	fake_kv_store.stages_stale = 1000;
	result = run(&store, prompt, PROMPT, STEPS, &outcome);
	expect_same(&outcome, &expected, "always stale");
	cr_expect_eq(result.published_blocks, 0);
}

Test(engine_kv_prefix, another_salt_or_namespace_shares_nothing)
{
	struct kv_store other;

	(void)run(&store, prompt, PROMPT, 1, NULL);
	cr_assert_eq(kv_store_open(&other, NULL, &engine.config, "team", "salt"), 0);
	cr_expect_eq(run(&other, prompt, PROMPT, 1, NULL).matched_tokens, 0);
	kv_store_close(&other);
	cr_assert_eq(kv_store_open(&other, NULL, &engine.config, NULL, "pepper"), 0);
	cr_expect_eq(run(&other, prompt, PROMPT, 1, NULL).matched_tokens, 0);
	kv_store_close(&other);
	cr_assert_eq(kv_store_open(&other, NULL, &engine.config, "team", "pepper"), 0);
	cr_expect_eq(run(&other, prompt, PROMPT, 1, NULL).matched_tokens, PROMPT - 1);
	kv_store_close(&other);
}

Test(engine_kv_prefix, a_store_that_cannot_be_opened_is_said_and_leaves_the_output)
{
	struct kv_store other = {.token_bytes = 7};

	fake_kv_store.open_error = -ENOTSUP;
	cr_expect_eq(kv_store_open(&other, NULL, &engine.config, NULL, NULL), -ENOTSUP);
	cr_expect_eq(other.token_bytes, 7);
}

/* ---- conversations of several turns ---- */

static void take(struct conversation *conversation, const uint32_t *tokens, uint32_t count, uint32_t steps,
		 struct turn_result *ret_result)
{
	const struct turn turn = {.tokens = tokens, .count = count, .steps = steps};

	cr_assert_eq(conversation_run(conversation, &engine.forward, &turn, ret_result), 0);
}

/* A chain that went on behind blocks of a turn that failed would publish rows under other tokens than theirs. */
Test(engine_kv_prefix, a_turn_that_failed_after_publishing_leaves_no_trace_in_what_follows)
{
	enum { FIRST = 70, SAID = FIRST + 1 + PROMPT };
	uint32_t bad[PROMPT], other[PROMPT], said[POSITIONS];
	struct conversation conversation;
	struct outcome expected, outcome;
	struct turn_result result;

	memcpy(bad, prompt, sizeof bad);
	bad[280] = TINY_VOCAB; /* in the second piece */
	tiny_engine_tokens(other, PROMPT, 2);
	cr_assert_eq(conversation_init(&conversation, &store, POSITIONS), 0);
	take(&conversation, prompt, FIRST, 1, &result);
	cr_expect_eq(conversation_run(&conversation, &engine.forward,
				      &(struct turn){.tokens = bad, .count = PROMPT, .steps = 1}, &result),
		     -EINVAL);
	cr_expect_gt(fake_kv_store_block_count(), 3, "it published before it failed");
	take(&conversation, other, PROMPT, 20, &result);
	memcpy(said, conversation.token, SAID * sizeof *said);
	conversation_done(&conversation);
	(void)run(NULL, said, SAID, 20, &expected);
	result = run(&store, said, SAID, 20, &outcome);
	cr_expect_eq(result.matched_tokens, SAID - 1);
	cr_expect_arr_eq(outcome.token, expected.token, 20 * sizeof *expected.token);
	cr_expect_arr_eq(outcome.logits, expected.logits, sizeof expected.logits);
}

/* The same three turns with rows kept, dropped between turns, and dropped with a store. */
Test(engine_kv_prefix, dropped_rows_come_back_computed_or_copied)
{
	float logits[3][TINY_VOCAB];
	uint32_t said[3][POSITIONS];

	for (int way = 0; way < 3; way++) {
		struct conversation conversation;
		struct turn_result result;

		cr_assert_eq(conversation_init(&conversation, way == 2 ? &store : NULL, POSITIONS), 0);
		take(&conversation, prompt, 90, 10, &result);
		for (int turn = 0; turn < 2; turn++) {
			const uint32_t before = conversation.count;

			if (way > 0)
				conversation_drop_rows(&conversation);
			take(&conversation, prompt + 200, 20 * (uint32_t)turn, 10, &result);
			cr_expect_eq(result.matched_tokens, way == 2 ? before - 1 : 0);
			cr_expect_eq(result.computed_tokens, (way == 1 ? before : 1) + 20 * (uint32_t)turn);
		}
		cr_assert_eq(conversation.count, 140);
		memcpy(said[way], conversation.token, conversation.count * sizeof *conversation.token);
		memcpy(logits[way], engine.forward.logits, sizeof logits[way]);
		cr_expect_arr_eq(said[way], said[0], 140 * sizeof said[0][0]);
		cr_expect_arr_eq(logits[way], logits[0], sizeof logits[0]);
		conversation_done(&conversation);
	}
}

Test(engine_kv_prefix, a_turn_that_does_not_fit_or_fails_leaves_the_conversation)
{
	struct conversation conversation;
	struct turn_result result = {.matched_tokens = 7};
	uint32_t bad[] = {3, TINY_VOCAB};
	struct outcome expected;

	(void)run(NULL, prompt, 100, STEPS, &expected);
	cr_assert_eq(conversation_init(&conversation, &store, POSITIONS), 0);
	cr_expect_eq(conversation_run(&conversation, &engine.forward, &(struct turn){.steps = 1}, &result), -EINVAL);
	cr_expect_eq(conversation_run(&conversation, &engine.forward,
				      &(struct turn){.tokens = prompt, .count = PROMPT, .steps = POSITIONS}, &result),
		     -E2BIG);
	cr_expect_eq(conversation_run(&conversation, &engine.forward,
				      &(struct turn){.tokens = bad, .count = 2, .steps = 1}, &result),
		     -EINVAL);
	cr_expect_eq(conversation.count, 0);
	cr_expect_eq(result.matched_tokens, 7);
	take(&conversation, prompt, 100, 5, &result);
	cr_expect_eq(conversation_run(&conversation, &engine.forward,
				      &(struct turn){.tokens = bad, .count = 2, .steps = 1}, &result),
		     -EINVAL);
	cr_expect_eq(conversation.count, 105);
	take(&conversation, NULL, 0, 65, &result);
	cr_expect_eq(result.computed_tokens, 1);
	cr_expect_arr_eq(conversation.token + 100, expected.token, sizeof expected.token);
	conversation_done(&conversation);
}
