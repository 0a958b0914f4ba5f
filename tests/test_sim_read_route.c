/* SPDX-License-Identifier: Apache-2.0 */
/* ROUTE_TRACE of Colibri's engines: tokens of sweeps, and each thing that is no such trace. */
#include "tests/support/traces.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(sim_read_route, .timeout = 60);

Test(sim_read_route, rows_of_a_sweep_are_tokens_and_a_new_sweep_has_new_ones)
{
	struct traces traces;
	char text[1024];

	traces_make(&traces);
	traces_add_text(
		&traces, "t",
		"0 0 2 6:0.5 9:0.25\n0 1 2 1:0.5 2:0.5\n1 0 3 0:1 3:0\n1 1 3 4:0 5:0\n2 0 2 0:0 1:0\n3 0 3 1:0 0:0\n");
	cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
	traces_describe(&traces, 0, text, sizeof text);
	cr_expect_str_eq(text, "0 2/0[1]:6,9;0 2/1[1]:1,2;1 3/0[1]:0,3;1 3/1[1]:4,5;2 2/2[1]:0,1;3 3/2[1]:1,0;");
	cr_expect_eq(traces.trace->format, SIM_FORMAT_ROUTE);
	cr_expect_eq(traces.trace->token_count, 3);
	cr_expect_eq(traces.trace->access_count, 12);
	cr_expect_eq(traces.geometry->layer_count, 2);
	cr_expect_eq(traces.geometry->top_k, 2);
	cr_expect_eq(traces.geometry->experts[0], 10);
	cr_expect_eq(traces.geometry->experts[1], 6);
	cr_expect_eq(traces.geometry->object_count, 16);
	cr_expect_eq(traces.geometry->layer_of[9], 0);
	cr_expect_eq(traces.geometry->layer_of[10], 1);
	traces_remove(&traces);
}

Test(sim_read_route, a_layer_that_comes_again_at_once_is_a_new_sweep)
{
	struct traces traces;
	char text[256];

	traces_make(&traces);
	traces_add_text(&traces, "t", "7 0 5 1:0\n8 0 5 2:0\n8 1 5 3:0\n9 0 5 1:0\n");
	cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
	traces_describe(&traces, 0, text, sizeof text);
	cr_expect_str_eq(text, "0 5/0[1]:1;1 5/1[1]:2;1 5/2[1]:3;2 5/3[1]:1;");
	traces_remove(&traces);
}

Test(sim_read_route, a_line_without_its_end_and_one_with_a_carriage_return_count)
{
	struct traces traces;
	char text[256];

	traces_make(&traces);
	traces_add_text(&traces, "t", "\n# a comment\n0 0 0 1:-0.5\r\n1 0 1 2:1e-3");
	cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
	traces_describe(&traces, 0, text, sizeof text);
	cr_expect_str_eq(text, "0 0/0[1]:1;1 1/0[1]:2;");
	traces_remove(&traces);
}

Test(sim_read_route, what_is_no_route_trace_is_refused_with_line_and_reason)
{
	static const struct {
		const char *text, *expected;
	} wrong[] = {
		{"0 0 2 6:0.5\n0 2 2 1:0.5\n", ":2: row 2 of call 0 in layer 2 after row 0: a repetition or a gap"},
		{"0 0 2 6:0.5\n0 0 2 6:0.5\n", ":2: row 0 of call 0 in layer 2 after row 0"},
		{"0 1 2 6:0.5\n", ":1: call 0 begins with row 1"},
		{"5 1 2 6:0.5\n", ":1: call 5 begins with row 1"},
		{"0 0 2 6:0.5\n2 0 2 1:0.5\n", ":2: call 2 after call 0: lines are missing"},
		{"1 0 2 6:0.5\n0 0 2 1:0.5\n", ":2: call 0 after call 1"},
		{"0 0 2 6:0.5\n1 1 2 1:0.5\n", ":2: call 1 begins with row 1"},
		{"0 0 2 6:0.5\n0 0 1 1:0.5\n", ":2: call 0 goes back from layer 2 to 1"},
		{"0 0 2 6:0.5 6:0.5\n", ":1: expert 6 twice in a row"},
		{"0 0 2 6:0.5 7:0.5\n1 0 3 6:0.5\n", ":2: 1 experts in the row that ends here, 2 in those before"},
		{"0 0 2\n", ":1: a row without experts"},
		{"0 0 2 6\n", ":1: expected expert:gate"},
		{"0 0 2 6:\n", ":1: expected expert:gate"},
		{"0 0 2 6:nan\n", ":1: expected expert:gate"},
		{"0 0 2 6:0.5,7:0.5\n", ":1: expected expert:gate"},
		{"0 0 2 65536:0.5\n", ":1: expected expert:gate, experts below 65536"},
		{"0 0 4096 6:0.5\n", ":1: expected `call row layer expert:gate ...`, layers below 4096"},
		{"0 0 -1 6:0.5\n", ":1: expected `call row layer"},
		{"0 99999999999999999999 1 6:0.5\n", ":1: expected `call row layer"},
		{"x\n", ":1: expected `call row layer"},
		{"", "/t: no lookups"},
	};
	char message[512];
	size_t i;

	for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		cr_expect(traces_refuses(SIM_FORMAT_ROUTE, wrong[i].text, wrong[i].expected, message), "%zu: %s", i,
			  message);
}

Test(sim_read_route, a_repeated_call_of_an_engine_that_never_advances_it_is_refused_when_detected_too)
{
	char message[512];

	cr_expect(
		traces_refuses(SIM_FORMAT_AUTO, "0 0 1 2:0.5\n0 0 2 2:0.5\n0 0 1 3:0.5\n", "(read as route)", message),
		"%s", message);
}

static void expect_vector(const char *name, uint64_t accesses, uint32_t layers, uint32_t top_k)
{
	const char *directory = getenv("CNRE_VECTORS");
	char path[128];
	struct traces traces;

	(void)snprintf(path, sizeof path, "%s/%s/route.trace", directory != NULL ? directory : "../shared/vectors",
		       name);
	if (access(path, R_OK) < 0)
		cr_skip("no reference vectors at %s (set CNRE_VECTORS)", path);
	traces_make(&traces);
	traces_add_path(&traces, path);
	cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
	cr_expect_eq(traces.trace->access_count, accesses);
	cr_expect_eq(traces.geometry->layer_count, layers);
	cr_expect_eq(traces.geometry->top_k, top_k);
	traces_remove(&traces);
}

/* The OLMoE engine's own counts: 6 rows of the prompt and 23 tokens, in 4 or 6 layers. */
Test(sim_read_route, real_traces_have_the_lookups_that_their_engines_counted)
{
	expect_vector("olmoe-a", 464, 4, 4);
	expect_vector("olmoe-b", 1044, 6, 6);
	expect_vector("glm-tiny", 3440, 4, 4);
}

/* Colibri's GLM engine looks up the union of a call's rows: of 3,440 choices it counted 3,241 lookups. */
Test(sim_read_route, the_unions_of_calls_are_what_an_engine_of_blocks_counted)
{
	const char *directory = getenv("CNRE_VECTORS");
	uint64_t i, k, lookups = 0;
	const struct sim_row *row;
	struct traces traces;
	uint32_t *call_of;
	char path[128];

	(void)snprintf(path, sizeof path, "%s/glm-tiny/route.trace",
		       directory != NULL ? directory : "../shared/vectors");
	if (access(path, R_OK) < 0)
		cr_skip("no reference vectors at %s (set CNRE_VECTORS)", path);
	traces_make(&traces);
	traces_add_path(&traces, path);
	cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
	call_of = calloc(traces.geometry->object_count, sizeof *call_of);
	for (i = 0; i < traces.trace->row_count; i++) {
		row = &traces.trace->row[i];
		for (k = row->first; k < row->first + row->count; k++) {
			lookups += call_of[traces.trace->object[k]] != row->call + 1;
			call_of[traces.trace->object[k]] = row->call + 1;
		}
	}
	cr_expect_eq(lookups, 3241);
	free(call_of);
	traces_remove(&traces);
}
