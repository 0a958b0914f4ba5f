/* SPDX-License-Identifier: Apache-2.0 */
/* The shuffled null: what stays, what goes, and that it is the same again. */
#include "tools/sim/shuffle.h"

#include "tests/support/hand_trace.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(sim_shuffle, .timeout = 30);

static void open_filled(struct hand_trace *hand)
{
	hand_trace_open(hand, 3, 16, 2);
	hand_trace_fill(hand, 60, 1, 0, 9);
}

Test(sim_shuffle, every_row_is_still_in_its_layer_once)
{
	struct hand_trace hand;
	struct sim_shuffled shuffled;
	unsigned seen[3][3 * 60 * 2] = {{0}};

	open_filled(&hand);
	cr_assert_eq(sim_shuffled_open(&shuffled, &hand.trace, &hand.geometry, 4, NULL), 0);
	for (uint64_t i = 0; i < hand.trace.row_count; i++) {
		const struct sim_row *row = &shuffled.trace.row[i], *was = &hand.trace.row[i];

		cr_expect_eq(row->layer, was->layer);
		cr_expect_eq(row->call, was->call);
		cr_expect_eq(row->token, was->token);
		cr_expect_eq(hand.geometry.layer_of[hand.trace.object[row->first]], row->layer);
		seen[row->layer][row->first]++;
	}
	for (uint64_t i = 0; i < hand.trace.row_count; i++)
		cr_expect_eq(seen[hand.trace.row[i].layer][hand.trace.row[i].first], 1);
	sim_shuffled_close(&shuffled);
	hand_trace_close(&hand);
}

Test(sim_shuffle, a_seed_gives_the_same_order_again_and_another_another)
{
	struct hand_trace hand;
	struct sim_shuffled a, b, c;
	size_t bytes;

	open_filled(&hand);
	bytes = hand.trace.row_count * sizeof(struct sim_row);
	cr_assert_eq(sim_shuffled_open(&a, &hand.trace, &hand.geometry, 4, NULL), 0);
	cr_assert_eq(sim_shuffled_open(&b, &hand.trace, &hand.geometry, 4, NULL), 0);
	cr_assert_eq(sim_shuffled_open(&c, &hand.trace, &hand.geometry, 5, NULL), 0);
	cr_expect_eq(memcmp(a.trace.row, b.trace.row, bytes), 0);
	cr_expect_neq(memcmp(a.trace.row, c.trace.row, bytes), 0);
	cr_expect_neq(memcmp(a.trace.row, hand.trace.row, bytes), 0);
	sim_shuffled_close(&a);
	sim_shuffled_close(&b);
	sim_shuffled_close(&c);
	hand_trace_close(&hand);
}
