/* SPDX-License-Identifier: Apache-2.0 */
/* Moves between tiers: each limit alone, and that 0 turns it off. */
#include "policy/moves.h"

#include <criterion/criterion.h>

enum { OBJECTS = 8 };

/* Two layers of four objects of 100 bytes, by the cost policy: it has a measure of worth. */
static struct policy *policy;

static struct moves *opened(const struct moves_limits *limits)
{
	static const uint32_t layer_of[OBJECTS] = {0, 0, 0, 0, 1, 1, 1, 1};
	static const uint64_t bytes_of[OBJECTS] = {100, 100, 100, 100, 100, 100, 100, 100};
	struct policy_setup setup = {.object_count = OBJECTS, .layer_count = 2, .layer_of = layer_of, .bytes_of = bytes_of,
				     .budget_bytes = 400};
	struct moves *moves = NULL;

	cr_assert_eq(policy_create(&policy, "cost", &setup), 0);
	cr_assert_eq(moves_create(&moves, policy, OBJECTS, limits), 0);
	return moves;
}

static void closed(struct moves *moves)
{
	cr_assert_null(moves_destroy(moves));
	policy = policy_destroy(policy);
}

static void visit(uint32_t layer, int times)
{
	while (times-- > 0)
		policy_visit(policy, layer, 1);
}

Test(policy_moves, without_limits_everything_may_move_at_once)
{
	struct moves *moves = opened(&(struct moves_limits){0});

	for (int i = 0; i < 100; i++) {
		cr_assert_eq(moves_ask(moves, 0, 1, UINT64_MAX), MOVES_ALLOWED);
		moves_done(moves, 0, 1, UINT64_MAX);
		cr_assert_eq(moves_ask(moves, 1, 0, 100), MOVES_ALLOWED);
		moves_done(moves, 1, 0, 100);
	}
	closed(moves);
}

Test(policy_moves, hysteresis_alone_asks_for_so_much_more_worth)
{
	struct moves *moves = opened(&(struct moves_limits){.hysteresis = 0.25f});

	for (int i = 0; i < 8; i++) {
		policy_visit(policy, 0, 1);
		policy_access(policy, 0);
		if (i != 3)
			policy_access(policy, 1);
		if (i % 2 == 0)
			policy_access(policy, 2);
	}
	cr_assert_eq(moves_ask(moves, 0, 2, 100), MOVES_ALLOWED);
	cr_assert_eq(moves_ask(moves, 2, 0, 100), MOVES_NOT_WORTH);
	cr_assert_eq(moves_ask(moves, 0, 1, 100), MOVES_NOT_WORTH, "more, but not by a quarter");
	cr_assert_eq(moves_ask(moves, 3, 2, 100), MOVES_NOT_WORTH);
	cr_assert_eq(moves_ask(moves, 3, POLICY_NONE, 100), MOVES_ALLOWED, "where there is room, nobody must be beaten");
	closed(moves);
}

Test(policy_moves, least_age_alone_spares_a_victim_that_has_just_come)
{
	struct moves *moves = opened(&(struct moves_limits){.min_age_visits = 3});

	visit(0, 5);
	cr_assert_eq(moves_ask(moves, 1, 0, 100), MOVES_ALLOWED, "it was there from the start");
	moves_done(moves, 0, POLICY_NONE, 100);
	cr_assert_eq(moves_ask(moves, 1, 0, 100), MOVES_TOO_YOUNG);
	cr_assert_eq(moves_ask(moves, 0, POLICY_NONE, 100), MOVES_ALLOWED);
	visit(0, 2);
	visit(1, 50); /* another layer's clock */
	cr_assert_eq(moves_ask(moves, 1, 0, 100), MOVES_TOO_YOUNG);
	visit(0, 1);
	cr_assert_eq(moves_ask(moves, 1, 0, 100), MOVES_ALLOWED);
	closed(moves);
}

Test(policy_moves, least_interval_alone_stops_what_comes_and_goes)
{
	struct moves *moves = opened(&(struct moves_limits){.min_interval_visits = 4});

	moves_done(moves, 0, 1, 100);
	cr_assert_eq(moves_ask(moves, 1, 0, 100), MOVES_TOO_SOON, "it has just gone");
	cr_assert_eq(moves_ask(moves, 2, 0, 100), MOVES_ALLOWED);
	visit(0, 3);
	cr_assert_eq(moves_ask(moves, 1, 0, 100), MOVES_TOO_SOON);
	visit(0, 1);
	cr_assert_eq(moves_ask(moves, 1, 0, 100), MOVES_ALLOWED);
	closed(moves);
}

Test(policy_moves, bytes_a_token_alone_hold_in_the_mean)
{
	struct moves *moves = opened(&(struct moves_limits){.bytes_per_token = 30});
	uint64_t moved = 0;

	cr_assert_eq(moves_ask(moves, 0, 1, 100), MOVES_NO_BYTES, "no token yet");
	cr_assert_eq(moves_ask(moves, 0, 1, 0), MOVES_ALLOWED);
	for (int token = 0; token < 1000; token++) {
		moves_tokens(moves, 1);
		while (moves_ask(moves, 0, 1, 100) == MOVES_ALLOWED) {
			moves_done(moves, 0, 1, 100);
			moved += 100;
		}
	}
	cr_assert(moved <= 1000 * 30 + 100 && moved >= 1000 * 30 - 100, "%llu bytes", (unsigned long long)moved);
	closed(moves);
}

Test(policy_moves, of_unused_bytes_one_token_s_are_kept)
{
	struct moves *moves = opened(&(struct moves_limits){.bytes_per_token = 30});
	int count = 0;

	for (int token = 0; token < 50; token++)
		moves_tokens(moves, 1);
	for (; moves_ask(moves, 0, 1, 10) == MOVES_ALLOWED; count++)
		moves_done(moves, 0, 1, 10);
	cr_assert_eq(count, 6);
	moves_tokens(moves, 4); /* a batch of four: their bytes, all at once */
	for (count = 0; moves_ask(moves, 0, 1, 10) == MOVES_ALLOWED; count++)
		moves_done(moves, 0, 1, 10);
	cr_assert_eq(count, 12);
	closed(moves);
}

Test(policy_moves, sums_of_bytes_stay_at_the_top)
{
	struct moves *moves = opened(&(struct moves_limits){.bytes_per_token = UINT64_MAX / 2});

	moves_tokens(moves, UINT32_MAX);
	moves_tokens(moves, UINT32_MAX);
	moves_done(moves, 0, 1, UINT64_MAX);
	cr_assert_eq(moves_ask(moves, 0, 1, 1), MOVES_NO_BYTES);
	moves_done(moves, 0, 1, UINT64_MAX);
	moves_done(moves, 0, 1, UINT64_MAX);
	moves_tokens(moves, 1);
	cr_assert_eq(moves_ask(moves, 0, 1, 1), MOVES_NO_BYTES);
	moves_tokens(moves, 5);
	cr_assert_eq(moves_ask(moves, 0, 1, 1), MOVES_ALLOWED);
	closed(moves);
}

Test(policy_moves, moves_of_one_pass_alone_are_counted)
{
	struct moves *moves = opened(&(struct moves_limits){.moves_per_pass = 2});

	for (int pass = 0; pass < 3; pass++) {
		moves_pass(moves);
		for (int i = 0; i < 2; i++) {
			cr_assert_eq(moves_ask(moves, 0, 1, 100), MOVES_ALLOWED);
			moves_done(moves, 0, 1, 100);
		}
		cr_assert_eq(moves_ask(moves, 0, 1, 100), MOVES_NO_MORE);
	}
	closed(moves);
}

Test(policy_moves, asking_changes_nothing)
{
	struct moves *moves = opened(&(struct moves_limits){.moves_per_pass = 1, .bytes_per_token = 10, .min_interval_visits = 9});

	moves_tokens(moves, 1);
	for (int i = 0; i < 10; i++)
		cr_assert_eq(moves_ask(moves, 0, 1, 10), MOVES_ALLOWED);
	closed(moves);
}

Test(policy_moves, who_went_alone_waits_for_the_interval_and_charges_nothing)
{
	struct moves *moves = opened(&(struct moves_limits){.min_interval_visits = 2, .moves_per_pass = 1, .bytes_per_token = 1});

	moves_tokens(moves, 1);
	visit(0, 3);
	moves_gone(moves, 0);
	cr_assert_eq(moves_ask(moves, 0, POLICY_NONE, 1), MOVES_TOO_SOON);
	cr_assert_eq(moves_ask(moves, 1, POLICY_NONE, 1), MOVES_ALLOWED);
	visit(0, 2);
	cr_assert_eq(moves_ask(moves, 0, POLICY_NONE, 1), MOVES_ALLOWED);
	closed(moves);
}
