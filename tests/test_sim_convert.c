/* SPDX-License-Identifier: Apache-2.0 */
/* From one format to another and back: the same rows; and files that appear whole, and never in place of others. */
#include "tools/sim/convert.h"

#include "tests/support/traces.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_BYTES (16u << 20)

TestSuite(sim_convert, .timeout = 120, .init = cr_redirect_stderr);

static struct folder folder;

static const char *at(const char *name)
{
	static char path[4][128];
	static unsigned next;

	next = (next + 1) % 4;
	return folder_path(&folder, name, path[next], sizeof path[next]);
}

static int convert(const char *from, const char *to, const char *format, const char *more)
{
	char *argv[] = {"convert", "--trace",      (char *)from, "--out", (char *)to,
			"--to",    (char *)format, (char *)more, NULL};

	return sim_convert(more == NULL ? 7 : 8, argv);
}

static char *describe(const char *path)
{
	char *text = malloc(TEXT_BYTES);
	struct traces traces;

	traces_make(&traces);
	traces_add_path(&traces, path);
	cr_assert_eq(traces_load(&traces), 0, "%s", traces.message);
	traces_describe(&traces, 0, text, TEXT_BYTES);
	traces_remove(&traces);
	return text;
}

/* Of a prompt's last layer engines look at the last token only; a CSV says which that is, the others say "the first". */
static int ignores_tokens;

static void drop_tokens(char *text)
{
	char *to = text;
	int inside = 0;

	for (; *text != '\0'; text++) {
		inside = *text == '/' || (inside && *text != '[');
		if (!inside)
			*to++ = *text;
	}
	*to = '\0';
}

static void expect_same(const char *a, const char *b)
{
	char *of_a = describe(a), *of_b = describe(b);

	if (ignores_tokens) {
		drop_tokens(of_a);
		drop_tokens(of_b);
	}
	cr_expect(strcmp(of_a, of_b) == 0, "%s and %s differ", a, b);
	free(of_a);
	free(of_b);
}

static void expect_round_trip(const char *from, const char *text_format)
{
	cr_assert_eq(convert(from, at("b"), "binary", "--force"), 0);
	expect_same(from, at("b"));
	cr_assert_eq(convert(at("b"), at("x"), text_format, "--force"), 0);
	expect_same(from, at("x"));
	cr_assert_eq(convert(at("x"), at("y"), "binary", "--force"), 0);
	expect_same(from, at("y"));
}

Test(sim_convert, text_to_binary_to_text_keeps_rows_calls_and_tokens)
{
	static const char route[] =
		"0 0 2 6:0.5 9:0.25\n0 1 2 1:0.5 2:0.5\n1 0 3 0:1 3:0\n1 1 3 4:0 5:0\n2 0 2 0:0 1:0\n3 0 3 1:0 0:0\n";
	static const char group[] = "0 0 3 1\n0 5 2 0\n1 5 1 3\n2 6 0 2\n";

	folder_make(&folder);
	folder_write(&folder, "route", route, strlen(route));
	folder_write(&folder, "group", group, strlen(group));
	expect_round_trip(at("route"), "route");
	expect_round_trip(at("group"), "group");
	folder_remove(&folder);
}

Test(sim_convert, a_replay_trace_of_uneven_rows_goes_to_binary_and_back_to_nothing_else)
{
	static const char replay[] = "1 3\n1 4\n1 3\n1 5\n2 0\n2 1\n2 2\n1 3\n1 4\n";

	folder_make(&folder);
	folder_write(&folder, "replay", replay, strlen(replay));
	cr_assert_eq(convert(at("replay"), at("b"), "binary", NULL), 0);
	expect_same(at("replay"), at("b"));
	cr_expect_eq(convert(at("b"), at("g"), "group", NULL), 1);
	cr_expect_eq(convert(at("b"), at("r"), "route", NULL), 1);
	cr_expect_eq(access(at("g"), F_OK), -1, "nothing is left of a refusal");
	folder_remove(&folder);
}

Test(sim_convert, prompts_layer_by_layer_are_no_group_lines_but_their_decode_phase_is)
{
	static const char csv[] =
		"turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n0,0,0,0,0,4,0.2,0,64\n"
		"0,0,1,0,0,2,0.2,0,64\n0,0,0,1,0,7,0.2,0,64\n0,1,2,0,0,2,0.2,0,64\n0,1,2,1,0,2,0.2,0,64\n";

	folder_make(&folder);
	folder_write(&folder, "csv", csv, strlen(csv));
	cr_expect_eq(convert(at("csv"), at("g"), "group", NULL), 1);
	cr_expect_eq(convert(at("csv"), at("g"), "group", "--phase=decode"), 0);
	expect_round_trip(at("csv"), "route");
	folder_remove(&folder);
}

static void convert_vector(const char *variable, const char *directory, const char *name, const char *text_format)
{
	char path[128];

	(void)snprintf(path, sizeof path, "%s/%s", getenv(variable) != NULL ? getenv(variable) : directory, name);
	if (access(path, R_OK) < 0)
		cr_skip("no %s (set %s)", path, variable);
	expect_round_trip(path, text_format);
}

Test(sim_convert, real_traces_survive_the_round_trip)
{
	folder_make(&folder);
	convert_vector("CNRE_VECTORS", "../shared/vectors", "glm-tiny/route.trace", "route");
	convert_vector("CNRE_VECTORS", "../shared/vectors", "olmoe-b/route.trace", "route");
	ignores_tokens = 1;
	convert_vector("CNRE_TRACES", "../shared/traces", "qwen3-30b.route.csv", "route");
	folder_remove(&folder);
}

Test(sim_convert, a_file_that_is_there_is_replaced_only_by_force)
{
	char kept[8] = "";
	FILE *file;

	folder_make(&folder);
	folder_write(&folder, "g", "0 1 2\n", 6);
	folder_write(&folder, "out", "kept", 4);
	cr_expect_eq(convert(at("g"), at("out"), "binary", NULL), 1);
	file = fopen(at("out"), "r");
	cr_assert_not_null(file);
	cr_expect_eq(fread(kept, 1, sizeof kept, file), 4);
	(void)fclose(file);
	cr_expect_str_eq(kept, "kept");
	cr_expect_eq(convert(at("g"), at("out"), "binary", "--force"), 0);
	expect_same(at("g"), at("out"));
	folder_remove(&folder);
	cr_expect_eq(access(folder.path, F_OK), -1, "no temporary file was left in it");
}

Test(sim_convert, a_converted_file_has_the_permissions_of_the_mask)
{
	struct stat status;

	folder_make(&folder);
	folder_write(&folder, "g", "0 1 2\n", 6);
	(void)umask(027);
	cr_assert_eq(convert(at("g"), at("out"), "group", NULL), 0);
	cr_assert_eq(stat(at("out"), &status), 0);
	cr_expect_eq(status.st_mode & 0777, 0640);
	folder_remove(&folder);
}

Test(sim_convert, wrong_options_are_usage_and_wrong_files_failures)
{
	static char *const usage[][6] = {
		{"convert", NULL},
		{"convert", "--trace", "x", NULL},
		{"convert", "--out", "x", NULL},
		{"convert", "--trace", NULL},
		{"convert", "--nothing", NULL},
		{"convert", "--to", "csv", NULL},
		{"convert", "--phase", "both", NULL},
		{"convert", "--experts", "0", NULL},
		{"convert", "x", NULL},
	};
	size_t i;
	int argc;

	for (i = 0; i < sizeof usage / sizeof usage[0]; i++) {
		char *argv[6];

		memcpy(argv, usage[i], sizeof argv);
		for (argc = 0; argv[argc] != NULL; argc++)
			;
		cr_expect_eq(sim_convert(argc, argv), 2, "%zu", i);
	}
	folder_make(&folder);
	cr_expect_eq(convert(at("absent"), at("out"), "binary", NULL), 1);
	folder_write(&folder, "g", "0 1 2\n", 6);
	cr_expect_eq(convert(at("g"), at("no/such/directory"), "binary", NULL), 1);
	folder_remove(&folder);
}
