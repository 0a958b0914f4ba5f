/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ctl/options.c: options stand anywhere, and what is wrong is said. */
#include "tools/ctl/options.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct options options;
static char message[CTL_MESSAGE_BYTES];

/* Splits a line at spaces and parses it. */
static int parse(const char *line)
{
	static char copy[256];
	char *argv[32] = {"cnrectl"};
	int argc = 1;

	snprintf(copy, sizeof copy, "%s", line);
	for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	message[0] = '\0';
	return options_parse(argc, argv, &options, message);
}

Test(ctl_options, options_may_follow_the_verb)
{
	cr_assert_eq(parse("--socket /a.sock set ram 80G --json"), 0);
	cr_expect_str_eq(options.socket, "/a.sock");
	cr_expect(options.as_json);
	cr_expect_eq(options.word_count, 3);
	cr_expect_str_eq(options.word[2], "80G");
	cr_expect(!options.watches);
}

Test(ctl_options, watch_takes_a_number_but_never_the_verb)
{
	cr_assert_eq(parse("--watch stats"), 0);
	cr_expect(options.watches);
	cr_expect_eq(options.interval_s, OPTIONS_INTERVAL_S);
	cr_expect_eq(options.word_count, 1);
	cr_assert_eq(parse("--watch 0.5 stats"), 0);
	cr_expect_eq(options.interval_s, 0.5);
	cr_assert_eq(parse("stats --watch=3"), 0);
	cr_expect_eq(options.interval_s, 3.0);
	cr_expect_eq(options.word_count, 1);
	cr_assert_eq(parse("stats --watch"), 0);
}

Test(ctl_options, wrong_lines_are_einval_with_a_reason)
{
	static const char *const bad[] = {
		"--sockets x", "--socket",    "--socket=",  "--watch=0", "--watch 1x stats",  "--watch=-1",
		"--watch=nan", "--watch=1e9", "--json=yes", "-j",        "a b c d e f g h i",
	};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		cr_expect_eq(parse(bad[i]), -EINVAL, "accepted: %s", bad[i]);
		cr_expect_neq(message[0], '\0', "no reason: %s", bad[i]);
	}
}

Test(ctl_options, two_dashes_end_the_options)
{
	cr_assert_eq(parse("-- --json"), 0);
	cr_expect(!options.as_json);
	cr_expect_str_eq(options.word[0], "--json");
}

Test(ctl_options, set_refuses_what_is_no_size_before_anybody_is_asked)
{
	static char *const bad[][4] = {
		{"set", NULL},
		{"set", "ram", NULL},
		{"set", "ram", "80X", NULL},
		{"set", "ram", "-1", NULL},
		{"set", "swap", "1G", NULL},
	};
	json_t *request = NULL;

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		int argc = 0;

		while (bad[i][argc] != NULL)
			argc++;
		cr_expect_eq(verb_find("set")->request(argc, bad[i], &request, message), -EINVAL, "case %zu", i);
		cr_expect_null(request);
	}
}

Test(ctl_options, bare_verbs_refuse_arguments)
{
	char *words[] = {"status", "now", NULL};
	json_t *request = NULL;

	cr_expect_eq(verb_find("status")->request(2, words, &request, message), -EINVAL);
	cr_expect_null(request);
	cr_expect_null(verb_find("statuses"));
}

/* Orders are refused with --watch. */
Test(ctl_options, only_questions_may_be_repeated)
{
	static const struct {
		char *words[4];
		int argc, is_order;
	} cases[] = {
		{{"status", NULL}, 1, 0},
		{{"stats", NULL}, 1, 0},
		{{"clients", NULL}, 1, 0},
		{{"layers", NULL}, 1, 0},
		{{"trace", "status", NULL}, 2, 0},
		{{"trace", "stop", NULL}, 2, 1},
		{{"trace", "record", "file", NULL}, 3, 1},
		{{"policy", "lru", NULL}, 2, 1},
		{{"set", "ram", "1G", NULL}, 3, 1},
		{{"reset", NULL}, 1, 1},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const struct verb *verb = verb_find(cases[i].words[0]);

		cr_expect_eq(verb->is_order != NULL && verb->is_order(cases[i].argc, cases[i].words), cases[i].is_order,
			     "case %zu", i);
	}
}

/* The words were there before the dashes were. */
Test(ctl_options, a_recording_takes_its_size_and_model_as_options_or_as_words)
{
	char *dashes[] = {"trace", "record", "f", "--max", "1M", "--model", "m", NULL};
	char *bare[] = {"trace", "record", "f", "max", "1M", "model", "m", NULL};
	const struct verb *verb = verb_find("trace");
	json_t *first = NULL, *second = NULL;

	cr_expect(verb->takes_option(3, dashes, "--max") && verb->takes_option(5, dashes, "--model"));
	cr_expect_not(verb->takes_option(3, dashes, "--min"));
	cr_expect_not(verb->takes_option(2, dashes, "--max"), "its file comes first");
	cr_assert_eq(verb->request(7, dashes, &first, message), 0, "%s", message);
	cr_assert_eq(verb->request(7, bare, &second, message), 0, "%s", message);
	cr_expect_eq(json_integer_value(json_object_get(first, "bytes_max")), 1 << 20);
	cr_expect_str_eq(json_string_value(json_object_get(first, "model")), "m");
	cr_expect(json_equal(first, second));
	json_decref(first);
	json_decref(second);
}
