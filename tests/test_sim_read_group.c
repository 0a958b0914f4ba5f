/* SPDX-License-Identifier: Apache-2.0 */
/* Group lines: token, layer, experts. */
#include "tests/support/traces.h"

#include <criterion/criterion.h>

TestSuite(sim_read_group, .timeout = 60);

Test(sim_read_group, tokens_are_numbered_from_0_whatever_the_first_is)
{
	struct traces traces;
	char text[512];

	traces_make(&traces);
	traces_add_text(&traces, "eval_03_coding.grp", "240 0 3 1\n240 5 2 0\n241 0 1 3\n243 5 0 2\n");
	cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
	traces_describe(&traces, 0, text, sizeof text);
	cr_expect_str_eq(text, "0 0/0[1]:3,1;1 5/0[1]:2,0;2 0/1[1]:1,3;3 5/2[1]:0,2;");
	cr_expect_eq(traces.trace->format, SIM_FORMAT_GROUP);
	cr_expect_str_eq(traces.trace->category, "coding");
	traces_remove(&traces);
}

Test(sim_read_group, what_is_no_group_trace_is_refused_with_line_and_reason)
{
	static const struct {
		const char *text, *expected;
	} wrong[] = {
		{"0 1 2 3\n0 1 4 5\n", ":2: layer 1 of token 0 after layer 1"},
		{"0 1 2 3\n0 0 4 5\n", ":2: layer 0 of token 0 after layer 1"},
		{"1 1 2 3\n0 1 4 5\n", ":2: token 0 after token 1"},
		{"0 1 2 2\n", ":1: expert 2 twice in a row"},
		{"0 1 2 3\n0 2 4\n", ":2: 1 experts in the row that ends here, 2 in those before"},
		{"0 1 2 3\n0 2\n", ":2: a row without experts"},
		{"0 1 2 65536\n", ":1: expected experts below 65536"},
		{"0 1 2 3:0.5\n", ":1: expected experts"},
		{"0 4096 2 3\n", ":1: expected `token layer expert ...`"},
		{"4294967296 0 2 3\n", ":1: expected `token layer"},
		{"0 x 2 3\n", ":1: expected `token layer"},
	};
	char message[512];
	size_t i;

	for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		cr_expect(traces_refuses(SIM_FORMAT_GROUP, wrong[i].text, wrong[i].expected, message), "%zu: %s", i,
			  message);
}
