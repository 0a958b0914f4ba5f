/* SPDX-License-Identifier: Apache-2.0 */
/* Limits on moves between tiers; see moves.h. Counters of what was moved, and when on the clock of its layer. */
#include "policy/moves.h"

#include "base/check.h"
#include "policy/ops.h"

#include <errno.h>
#include <stdlib.h>

struct moves {
	const struct policy *policy;
	struct moves_limits limits;
	uint64_t left_bytes, owed_bytes; /* one of them is 0 */
	uint32_t moves_in_pass;
	uint32_t object_count;
	uint64_t *moved_at;          /* [object_count] visits of its layer so far, and 1; 0: never */
};

int moves_create(struct moves **ret_moves, const struct policy *policy, uint32_t object_count,
		 const struct moves_limits *limits)
{
	struct moves *moves = calloc(1, sizeof *moves);

	CNRE_CHECK(object_count <= policy->object_count);
	if (moves == NULL)
		return -ENOMEM;
	moves->moved_at = calloc((size_t)object_count + 1, sizeof *moves->moved_at);
	if (moves->moved_at == NULL) {
		free(moves);
		return -ENOMEM;
	}
	moves->policy = policy;
	moves->limits = *limits;
	moves->object_count = object_count;
	*ret_moves = moves;
	return 0;
}

struct moves *moves_destroy(struct moves *moves)
{
	if (moves == NULL)
		return NULL;
	free(moves->moved_at);
	free(moves);
	return NULL;
}

/* ---- bytes a token ---- */

static uint64_t add(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

void moves_tokens(struct moves *moves, uint32_t tokens)
{
	uint64_t each = moves->limits.bytes_per_token, granted;

	if (__builtin_mul_overflow(each, tokens, &granted))
		granted = UINT64_MAX;
	if (moves->owed_bytes > granted) {
		moves->owed_bytes -= granted;
		return;
	}
	if (moves->left_bytes > each)
		moves->left_bytes = each;
	moves->left_bytes = add(moves->left_bytes, granted - moves->owed_bytes);
	moves->owed_bytes = 0;
}

/* What is beyond the budget is owed: an object larger than a token's bytes must be able to move, too. */
static void spend(struct moves *moves, uint64_t bytes)
{
	if (bytes <= moves->left_bytes) {
		moves->left_bytes -= bytes;
		return;
	}
	moves->owed_bytes = add(moves->owed_bytes, bytes - moves->left_bytes);
	moves->left_bytes = 0;
}

void moves_pass(struct moves *moves)
{
	moves->moves_in_pass = 0;
}

/* ---- one move ---- */

static uint64_t visits_of(const struct moves *moves, uint32_t object)
{
	return moves->policy->layer[moves->policy->layer_of[object]].visits;
}

/* 1: the object moved less than so many visits of its layer ago. */
static int moved_within(const struct moves *moves, uint32_t object, uint32_t visits)
{
	return moves->moved_at[object] != 0 && visits_of(moves, object) + 1 - moves->moved_at[object] < visits;
}

enum moves_answer moves_ask(const struct moves *moves, uint32_t object, uint32_t victim, uint64_t bytes)
{
	const struct moves_limits *limits = &moves->limits;

	CNRE_CHECK(object < moves->object_count && (victim == POLICY_NONE || victim < moves->object_count));
	if (victim != POLICY_NONE && moved_within(moves, victim, limits->min_age_visits))
		return MOVES_TOO_YOUNG;
	if (moved_within(moves, object, limits->min_interval_visits))
		return MOVES_TOO_SOON;
	if (limits->hysteresis > 0 && victim != POLICY_NONE &&
	    !policy_prefers(moves->policy, object, victim, limits->hysteresis))
		return MOVES_NOT_WORTH;
	if (limits->bytes_per_token > 0 && bytes > 0 && moves->left_bytes == 0)
		return MOVES_NO_BYTES;
	if (limits->moves_per_pass > 0 && moves->moves_in_pass >= limits->moves_per_pass)
		return MOVES_NO_MORE;
	return MOVES_ALLOWED;
}

void moves_done(struct moves *moves, uint32_t object, uint32_t victim, uint64_t bytes)
{
	CNRE_CHECK(object < moves->object_count && (victim == POLICY_NONE || victim < moves->object_count));
	moves->moved_at[object] = visits_of(moves, object) + 1;
	if (victim != POLICY_NONE)
		moves->moved_at[victim] = visits_of(moves, victim) + 1;
	spend(moves, bytes);
	moves->moves_in_pass++;
}

void moves_gone(struct moves *moves, uint32_t object)
{
	CNRE_CHECK(object < moves->object_count);
	moves->moved_at[object] = visits_of(moves, object) + 1;
}
