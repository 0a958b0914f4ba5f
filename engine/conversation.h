/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A conversation: tokens that were said, the rows computed or copied for them, and its place in the store of prefixes. A
 * turn adds tokens and generates some; a run of cnre-olmoe is a conversation of one turn. Rows can be dropped between
 * turns; what a turn needs is then copied or computed again, to the same bits.
 */
#ifndef ENGINE_CONVERSATION_H
#define ENGINE_CONVERSATION_H

#include "engine/forward.h"
#include "engine/kv_prefix.h"

struct conversation {
	struct kv_cache cache;            /* positions 0: it has no rows; count is below the tokens' */
	struct kv_prefix prefix;
	uint32_t *token;                  /* [positions]: prompts and what was generated, in order */
	uint32_t count, positions;
};

/* store NULL: no prefixes are shared. Returns 0 or -ENOMEM. */
int conversation_init(struct conversation *conversation, const struct kv_store *store, uint32_t positions);
void conversation_done(struct conversation *conversation);

/* Gives the rows' memory back. The tokens stay. */
void conversation_drop_rows(struct conversation *conversation);

struct turn {
	const uint32_t *tokens;           /* below the vocabulary; may be none if the conversation has some */
	uint32_t count, steps;            /* steps: tokens to generate, at least 1 */
	void (*on_token)(void *context, uint32_t token); /* NULL: nobody listens */
	void *context;
};

struct turn_result {
	const uint32_t *tokens;           /* [steps], of the conversation: good until its next turn */
	uint32_t matched_tokens;          /* copied instead of computed */
	uint32_t computed_tokens;         /* before the first token came */
	uint32_t published_blocks, skipped_blocks;
	uint64_t first_ns, total_ns;      /* from the beginning to the first and to the last token */
};

/*
 * conversation_run - take a turn
 *
 * Returns:  0, -E2BIG (tokens and steps do not fit the positions), -EINVAL (no token, or no step), -ENOMEM, or an error of
 *           forward_run. The conversation is then as it was before. *ret_result is set on success only.
 */
int conversation_run(struct conversation *conversation, struct forward *forward, const struct turn *turn,
		     struct turn_result *ret_result);

#endif
