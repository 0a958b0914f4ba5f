/* SPDX-License-Identifier: Apache-2.0 */
/* BigMoeOnEdge's CSV: phases, prompts layer by layer, slots in order. */
#include "tests/support/traces.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEADER "# route_trace v1\nturn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n"

TestSuite(sim_read_csv, .timeout = 60);

static const char small[] = HEADER "0,0,0,0,0,4,0.2,0,64\n0,0,0,0,1,1,0.19,0,0\n"
				   "0,0,1,0,0,2,0.2,0,64\n0,0,1,0,1,3,0.2,0,64\n"
				   "0,0,1,1,0,7,0.2,0,64\n0,0,1,1,1,6,0.2,0,64\n"
				   "0,1,2,0,0,2,0.2,0,64\n0,1,2,0,1,1,0.2,0,64\n"
				   "0,1,2,1,0,5,0.2,0,64\n0,1,2,1,1,1,0.2,0,64\n"
				   "0,1,3,0,0,3,0.2,0,64\n0,1,3,0,1,2,0.2,0,64\n";

static void expect_rows(unsigned phases, const char *expected)
{
	struct traces traces;
	char text[512];

	traces_make(&traces);
	traces.load.phases = phases;
	traces_add_text(&traces, "t.route.csv", small);
	cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
	traces_describe(&traces, 0, text, sizeof text);
	cr_expect_str_eq(text, expected);
	cr_expect_eq(traces.trace->format, SIM_FORMAT_CSV);
	cr_expect_eq(traces.geometry->top_k, 2);
	traces_remove(&traces);
}

#define PREFILL "0 0/0[1]:4,1;0 0/1[1]:2,3;1 1/1[1]:7,6;"

Test(sim_read_csv, the_rows_of_a_prompt_in_one_layer_are_one_visit)
{
	expect_rows(SIM_PHASE_ALL, PREFILL "2 0/2[1]:2,1;3 1/2[1]:5,1;4 0/3[1]:3,2;");
	expect_rows(0, PREFILL "2 0/2[1]:2,1;3 1/2[1]:5,1;4 0/3[1]:3,2;");
}

Test(sim_read_csv, a_phase_alone_is_numbered_from_0)
{
	expect_rows(SIM_PHASE_PREFILL, PREFILL);
	expect_rows(SIM_PHASE_DECODE, "0 0/0[1]:2,1;1 1/0[1]:5,1;2 0/1[1]:3,2;");
}

/* Rows have experts up to 7 in both layers. */
static void load_with_comments(struct traces *traces, const char *comments, int status)
{
	char text[1024];

	(void)snprintf(text, sizeof text, "%s%s", comments, small);
	traces_make(traces);
	traces_add_text(traces, "t.route.csv", text);
	cr_assert_eq(traces_load(traces), status, "%s", traces->message);
}

Test(sim_read_csv, comments_say_how_many_experts_there_are_and_how_large_they_are)
{
	static const char both[] = "# model=m n_layer=2 n_expert=16 n_expert_used=2\n"
				   "# layer=0 expert_bytes=640 dense_bytes=1\n# layer=1 expert_bytes=704 dense_bytes=1\n";
	struct traces traces;

	load_with_comments(&traces, both, 0);
	cr_expect_eq(traces.geometry->object_count, 2 * 16);
	cr_expect_eq(traces.geometry->resident_bytes[0], 640);
	cr_expect_eq(traces.geometry->read_bytes[1], 704);
	traces_remove(&traces);
	load_with_comments(&traces, "# n_expert=16\n# layer=0 expert_bytes=640\n", 0);
	cr_expect_eq(traces.geometry->object_count, 2 * 16);
	cr_expect_eq(traces.geometry->resident_bytes[0], 0, "nothing is known of layer 1");
	traces_remove(&traces);
	load_with_comments(&traces, "# n_expert=many n_expert_used=2\n# layer=0 expert_bytes=640\n", 0);
	cr_expect_eq(traces.geometry->object_count, 5 + 8);
	traces_remove(&traces);
	load_with_comments(&traces, "# n_expert=7\n", -EINVAL);
	cr_expect_not_null(strstr(traces.message, "expert 7 of layer 1: the comments say n_expert=7"), "%s",
			   traces.message);
	traces_remove(&traces);
}

Test(sim_read_csv, what_is_no_such_csv_is_refused_with_line_and_reason)
{
	static const struct {
		const char *text, *expected;
	} wrong[] = {
		{"0,0,0,0,0,4,0.2,0,64\n", ":1: expected the header"},
		{HEADER "0,0,0,0,1,4,0.2,0,64\n", ":3: slot 1 where 0 was due"},
		{HEADER "0,0,0,0,0,4,0.2,0,64\n0,0,0,0,0,5,0.2,0,64\n", ":4: slot 0 where 1 was due"},
		{HEADER "0,0,0,0,0,4,0.2,0,64\n0,0,0,0,1,4,0.2,0,64\n", ":4: expert 4 twice in a row"},
		{HEADER "0,2,0,0,0,4,0.2,0,64\n",
		 ":3: expected the phase (0 prefill, 1 decode), at most 1, as field 2"},
		{HEADER "0,0,0,4096,0,4,0.2,0,64\n", ":3: expected the layer"},
		{HEADER "0,0,0,0,0,65536,0.2,0,64\n", ":3: expected the expert"},
		{HEADER "0,0,0,0,0,4,0.2,0\n", ":3: expected weight,residency,bytes"},
		{HEADER "0,0,0,0,0,4,nan,0,64\n", ":3: expected weight"},
		{HEADER "0,0,0,0,0,4,0.2,0,64,9\n", ":3: expected weight"},
		{HEADER "1,0,0,0,0,4,0.2,0,64\n0,0,0,0,0,4,0.2,0,64\n", ":4: turn 0 after turn 1"},
		{HEADER "0,0,1,0,0,4,0.2,0,64\n0,0,0,0,0,4,0.2,0,64\n", ":4: step 0 of layer 0 after step 1"},
		{HEADER "0,0,1,0,0,4,0.2,0,64\n0,0,0,1,0,4,0.2,0,64\n",
		 ":4: step 0 in a sweep over layers that began with step 1"},
		{HEADER "0,1,1,3,0,4,0.2,0,64\n0,1,1,2,0,4,0.2,0,64\n", ":4: step 1, layer 2 after step 1, layer 3"},
		{HEADER "0,1,2,3,0,4,0.2,0,64\n0,1,1,4,0,4,0.2,0,64\n", ":4: step 1, layer 4 after step 2, layer 3"},
		{HEADER "0,1,2,3,0,4,0.2,0,64\n0,1,2,3,1,5,0.2,0,64\n0,1,3,3,0,4,0.2,0,64\n0,1,4,3,0,4,0.2,0,64\n",
		 ":6: 1 experts in the row that ends here, 2"},
		{HEADER, ":2: no lookups"},
	};
	char message[512];
	size_t i;

	for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		cr_expect(traces_refuses(SIM_FORMAT_CSV, wrong[i].text, wrong[i].expected, message), "%zu: %s", i,
			  message);
}

static void expect_qwen(unsigned phases, uint64_t accesses, uint64_t tokens)
{
	const char *directory = getenv("CNRE_TRACES");
	char path[128];
	struct traces traces;

	(void)snprintf(path, sizeof path, "%s/qwen3-30b.route.csv", directory != NULL ? directory : "../shared/traces");
	if (access(path, R_OK) < 0)
		cr_skip("no trace at %s (set CNRE_TRACES)", path);
	traces_make(&traces);
	traces.load.phases = phases;
	traces.load.experts = 128;
	traces_add_path(&traces, path);
	cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
	cr_expect_eq(traces.trace->access_count, accesses);
	cr_expect_eq(traces.trace->token_count, tokens);
	cr_expect_eq(traces.geometry->layer_count, 48);
	cr_expect_eq(traces.geometry->object_count, 48 * 128);
	cr_expect_eq(traces.geometry->top_k, 6);
	traces_remove(&traces);
}

/* A prompt of 28 tokens, of which the last layer sees one, and 128 tokens after it. */
Test(sim_read_csv, a_real_trace_has_the_lookups_that_its_publisher_counted)
{
	expect_qwen(SIM_PHASE_ALL, 44766, 28 + 128);
	expect_qwen(SIM_PHASE_DECODE, 36864, 128);
	expect_qwen(SIM_PHASE_PREFILL, 7902, 28);
}
