/* SPDX-License-Identifier: Apache-2.0 */
/* Files of one run together: detection, shared geometry, limits, and what is left of a failure: nothing. */
#include "tools/sim/trace.h"

#include "tests/support/traces.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

TestSuite(sim_trace, .timeout = 120);

Test(sim_trace, files_of_one_model_share_the_numbers_of_objects)
{
	struct traces traces;
	char text[256];

	traces_make(&traces);
	traces_add_text(&traces, "a", "0 0 1 2\n0 4 0 1\n");
	traces_add_text(&traces, "b", "0 0 0 5:1 7:0\n1 0 4 1:0 3:0\n");
	cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
	cr_expect_eq(traces.geometry->experts[0], 8);
	cr_expect_eq(traces.geometry->experts[1], 4);
	cr_expect_eq(traces.geometry->first_object[2], 12);
	traces_describe(&traces, 0, text, sizeof text);
	cr_expect_str_eq(text, "0 0/0[1]:1,2;1 4/0[1]:0,1;");
	traces_describe(&traces, 1, text, sizeof text);
	cr_expect_str_eq(text, "0 0/0[1]:5,7;1 4/0[1]:1,3;");
	cr_expect_eq(traces.trace[1].object[2], 8 + 1);
	cr_expect_eq(traces.trace[0].device, traces.trace[1].device);
	cr_expect_neq(traces.trace[0].inode, traces.trace[1].inode);
	traces_remove(&traces);
}

static void expect_mixed(const char *a, const char *b, const char *expected)
{
	struct traces traces;
	int result;

	traces_make(&traces);
	traces_add_text(&traces, "first", a);
	traces_add_text(&traces, "second", b);
	result = traces_load(&traces);
	cr_expect_eq(result, -EINVAL);
	cr_expect(strstr(traces.message, expected) != NULL && strstr(traces.message, "/first and ") != NULL &&
			  strstr(traces.message, "/second: mixed geometry") != NULL,
		  "%s", traces.message);
	cr_expect_null(traces.trace);
	traces_remove(&traces);
}

Test(sim_trace, files_of_two_models_are_refused_and_both_are_named)
{
	expect_mixed("0 0 1 2\n0 4 0 1\n", "0 0 1 2\n", "has layer 4");
	expect_mixed("0 0 1 2\n", "0 0 1 2\n0 4 0 1\n", "has layer 4");
	expect_mixed("0 0 1 2\n", "0 0 1 2 3\n", "2 experts in the rows of one, 3 in the other");
}

Test(sim_trace, formats_are_told_from_the_first_line)
{
	static const struct {
		const char *text;
		enum sim_format format;
	} begin[] = {
		{"0 0 1 2:0.5\n", SIM_FORMAT_ROUTE},
		{"1 2\n", SIM_FORMAT_REPLAY},
		{"# x\n\n0 1 2\n", SIM_FORMAT_GROUP},
		{"0 1 2 3\n", SIM_FORMAT_GROUP},
	};
	struct traces traces;
	char message[512];
	size_t i;

	for (i = 0; i < sizeof begin / sizeof begin[0]; i++) {
		traces_make(&traces);
		traces_add_text(&traces, "t", begin[i].text);
		cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
		cr_expect_eq(traces.trace->format, begin[i].format);
		traces_remove(&traces);
	}
	cr_expect(traces_refuses(SIM_FORMAT_AUTO, "hello\n", ":1: no trace that is known", message), "%s", message);
	cr_expect(traces_refuses(SIM_FORMAT_AUTO, "1\n", ":1: no trace that is known", message), "%s", message);
	cr_expect(traces_refuses(SIM_FORMAT_AUTO, "", "/t: an empty file", message), "%s", message);
	cr_expect(traces_refuses(SIM_FORMAT_AUTO, "1 2\n1 x\n", "(read as replay)", message), "%s", message);
}

Test(sim_trace, a_line_without_bound_is_refused)
{
	size_t bytes = 1 << 20;
	char *text = malloc(bytes + 1), message[512];

	memset(text, '1', bytes);
	text[bytes] = '\0';
	cr_expect(traces_refuses(SIM_FORMAT_AUTO, text, ":1: a line of more than", message), "%s", message);
	cr_expect(traces_refuses(SIM_FORMAT_ROUTE, text, ":1: a line of more than", message), "%s", message);
	free(text);
}

Test(sim_trace, a_phase_of_a_trace_that_marks_none_is_refused)
{
	struct traces traces;

	traces_make(&traces);
	traces.load.phases = SIM_PHASE_DECODE;
	traces_add_text(&traces, "t", "1 2\n");
	cr_expect_eq(traces_load(&traces), -EINVAL);
	cr_expect_not_null(strstr(traces.message, "no phases are marked"), "%s", traces.message);
	traces_remove(&traces);
}

Test(sim_trace, the_number_of_experts_may_be_given_and_then_bounds_them)
{
	struct traces traces;

	traces_make(&traces);
	traces.load.experts = 8;
	traces_add_text(&traces, "t", "1 2\n3 7\n");
	cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
	cr_expect_eq(traces.geometry->object_count, 16);
	traces_remove(&traces);
	traces_make(&traces);
	traces.load.experts = 7;
	traces_add_text(&traces, "t", "1 2\n3 7\n");
	cr_expect_eq(traces_load(&traces), -EINVAL);
	cr_expect_not_null(strstr(traces.message, ":2: expert 7 of layer 3: layers have 7"), "%s", traces.message);
	traces_remove(&traces);
}

Test(sim_trace, what_is_no_regular_file_is_refused)
{
	struct traces traces;

	traces_make(&traces);
	traces_add_path(&traces, traces.folder.path);
	cr_expect_eq(traces_load(&traces), -EINVAL);
	cr_expect_not_null(strstr(traces.message, "not a regular file"), "%s", traces.message);
	traces.name[0][0] = '\0';
	(void)snprintf(traces.name[0], sizeof traces.name[0], "%s/absent", traces.folder.path);
	cr_expect_eq(traces_load(&traces), -ENOENT);
	cr_expect_not_null(strstr(traces.message, "/absent: No such file"), "%s", traces.message);
	traces_remove(&traces);
}

static char *many_lines(uint32_t tokens)
{
	char *text = malloc((size_t)tokens * 32), *at = text;
	uint32_t i;

	for (i = 0; i < tokens; i++)
		at += sprintf(at, "%u 0 %u %u\n", i, i % 100, 100 + i % 77);
	return text;
}

static void count_progress(void *context, const char *path, uint64_t done_bytes, uint64_t all_bytes)
{
	cr_expect(done_bytes <= all_bytes && path[0] == '/');
	++*(unsigned *)context;
}

/* 3.6 MB of rows and lookups: several buffers of the store, and several of the text. */
Test(sim_trace, a_trace_larger_than_every_buffer_is_whole)
{
	char *text = many_lines(100000);
	unsigned told = 0;
	struct traces traces;
	uint64_t i, wrong = 0;

	traces_make(&traces);
	traces.load.progress = count_progress;
	traces.load.context = &told;
	traces_add_text(&traces, "t", text);
	cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
	cr_assert_eq(traces.trace->row_count, 100000);
	for (i = 0; i < 100000; i++)
		wrong += traces.trace->object[2 * i] != i % 100 || traces.trace->object[2 * i + 1] != 100 + i % 77 ||
			 traces.trace->row[i].token != i || traces.trace->row[i].first != 2 * i;
	cr_expect_eq(wrong, 0);
	cr_expect_leq(told, 600);
	traces_remove(&traces);
	free(text);
}

/* A limit on the size of files stands for a disk that is full. */
Test(sim_trace, a_full_disk_is_an_error_with_advice)
{
	struct rlimit limit = {1 << 20, RLIM_INFINITY};
	char *text = many_lines(100000);
	struct traces traces;

	traces_make(&traces);
	traces_add_text(&traces, "t", text);
	free(text);
	(void)signal(SIGXFSZ, SIG_IGN);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	cr_expect_eq(traces_load(&traces), -EFBIG);
	cr_expect_not_null(strstr(traces.message, "no room for its rows"), "%s", traces.message);
	cr_expect_null(traces.trace);
	limit.rlim_cur = RLIM_INFINITY;
	(void)setrlimit(RLIMIT_FSIZE, &limit);
	traces_remove(&traces);
}

Test(sim_trace, categories_are_from_names_of_sessions)
{
	static const char *const name[][2] = {
		{"eval_03_coding.grp", "coding"},   {"train_12_long_context.bin", "long_context"},
		{"eval_coding.grp", "eval_coding"}, {"plain", "plain"},
		{"eval_03_.grp", "eval_03_"},       {".hidden", ".hidden"},
	};
	struct traces traces;
	size_t i;

	for (i = 0; i < sizeof name / sizeof name[0]; i++) {
		traces_make(&traces);
		traces_add_text(&traces, name[i][0], "0 1 2\n");
		cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
		cr_expect_str_eq(traces.trace->category, name[i][1]);
		traces_remove(&traces);
	}
}

Test(sim_trace, names_of_formats_go_both_ways)
{
	enum sim_format format = SIM_FORMAT_AUTO;

	cr_expect_eq(sim_format_parse("csv", &format), 0);
	cr_expect_eq(format, SIM_FORMAT_CSV);
	cr_expect_str_eq(sim_format_name(SIM_FORMAT_REPLAY), "replay");
	cr_expect_eq(sim_format_parse("CSV", &format), -EINVAL);
	cr_expect_eq(format, SIM_FORMAT_CSV);
}
