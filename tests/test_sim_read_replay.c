/* SPDX-License-Identifier: Apache-2.0 */
/* V4_REPLAY_TRACE: lookups without rows, so rows are what follows one another. */
#include "tests/support/traces.h"

#include <criterion/criterion.h>

TestSuite(sim_read_replay, .timeout = 60);

Test(sim_read_replay, lookups_of_one_layer_are_a_row_and_going_back_is_a_new_token)
{
	struct traces traces;
	char text[512];

	traces_make(&traces);
	traces_add_text(&traces, "t", "0 3\n0 1\n2 5\n2 4\n0 1\n0 2\n2 5\n2 6\n");
	cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
	traces_describe(&traces, 0, text, sizeof text);
	cr_expect_str_eq(text, "0 0/0[1]:3,1;1 2/0[1]:5,4;2 0/1[1]:1,2;3 2/1[1]:5,6;");
	cr_expect_eq(traces.trace->format, SIM_FORMAT_REPLAY);
	cr_expect_eq(traces.geometry->top_k, 2);
	traces_remove(&traces);
}

Test(sim_read_replay, an_expert_that_comes_again_in_a_visit_is_the_next_tokens)
{
	struct traces traces;
	char text[512];

	traces_make(&traces);
	traces_add_text(&traces, "t", "1 3\n1 4\n1 3\n1 5\n2 0\n2 1\n2 2\n1 3\n1 4\n");
	cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
	traces_describe(&traces, 0, text, sizeof text);
	cr_expect_str_eq(text, "0 1/0[1]:3,4;0 1/1[1]:3,5;1 2/0[1]:0,1,2;2 1/2[1]:3,4;");
	cr_expect_eq(traces.geometry->top_k, 2, "the usual width is %u", traces.geometry->top_k);
	traces_remove(&traces);
}

Test(sim_read_replay, what_is_no_replay_trace_is_refused_with_line_and_reason)
{
	static const struct {
		const char *text, *expected;
	} wrong[] = {
		{"1 2\n1\n", ":2: expected `layer expert`"},
		{"1 2 3\n", ":1: expected `layer expert`"},
		{"1 2\n4096 2\n", ":2: expected `layer expert`, layers below 4096"},
		{"1 65536\n", ":1: expected `layer expert`"},
		{"1:2 2\n", ":1: expected `layer expert`"},
		{"1 2x\n", ":1: expected `layer expert`"},
		{"# nothing\n\n", ":2: no lookups"},
	};
	char message[512];
	size_t i;

	for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		cr_expect(traces_refuses(SIM_FORMAT_REPLAY, wrong[i].text, wrong[i].expected, message), "%zu: %s", i,
			  message);
}
