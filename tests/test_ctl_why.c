/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ctl/why*.c, experts.c and place.c: words become requests, and answers sentences. */
#include "tests/support/fake_manager.h"
#include "tools/ctl/run.h"
#include "tools/ctl/why_words.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

TestSuite(ctl_why, .timeout = 20);

static char message[CTL_MESSAGE_BYTES];

/* The request as one line, or NULL with the error in *ret_status. */
static char *request_of(int argc, const char *const *words, int *ret_status)
{
	const struct verb *verb = verb_find(words[0]);
	json_t *request = NULL;
	char *line;

	*ret_status = verb->request(argc, (char *const *)words, &request, message);
	if (*ret_status < 0)
		return NULL;
	line = json_dumps(request, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(request);
	return line;
}

Test(ctl_why, words_become_requests)
{
	static const struct {
		int argc;
		const char *words[6], *line;
	} cases[] = {
		{1, {"experts"}, "{\"verb\":\"experts\"}"},
		{2, {"experts", "7"}, "{\"layer\":7,\"verb\":\"experts\"}"},
		{4, {"experts", "0", "--model", "a"}, "{\"layer\":0,\"model\":\"a\",\"verb\":\"experts\"}"},
		{5, {"why", "--model", "a", "3", "17"}, "{\"expert\":17,\"layer\":3,\"model\":\"a\",\"verb\":\"why\"}"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		int r;
		char *line = request_of(cases[i].argc, cases[i].words, &r);

		cr_expect_eq(r, 0);
		cr_expect_str_eq(line, cases[i].line);
		free(line);
	}
}

Test(ctl_why, wrong_words_are_usage_errors)
{
	static const struct {
		int argc;
		const char *words[6];
	} cases[] = {
		{1, {"why"}}, {2, {"why", "1"}}, {4, {"why", "1", "2", "3"}}, {3, {"why", "1", "-2"}}, {3, {"why", "x", "2"}},
		{2, {"experts", "99999999999"}}, {2, {"experts", "1x"}}, {3, {"experts", "1", "2"}}, {2, {"experts", "--model"}},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		int r;

		cr_expect_null(request_of(cases[i].argc, cases[i].words, &r), "%zu", i);
		cr_expect_eq(r, -EINVAL, "%zu", i);
	}
}

#define ANSWER(state, error, queued, uses, loads, holders, policy)                                                                 \
	"{\"model\":\"m\",\"layer\":3,\"expert\":17,\"state\":\"" state "\",\"error\":" error ",\"queued\":" queued               \
	",\"slab_bytes\":1048576,\"payload_bytes\":1000000,\"uses\":" uses ",\"loads\":" loads ",\"lost\":2,\"holder_count\":"    \
	holders ",\"holders\":[],\"budget_bytes\":1048576,\"resident_bytes\":1048576,\"last_load\":{\"drive\":\"259:1\","          \
	"\"ended_s_ago\":4.0,\"service_s\":0.002,\"read_bytes\":1048576,\"failed_attempts\":1,\"error\":null},\"policy\":{"        \
	"\"name\":\"cost\",\"worth\":0.25,\"facts\":{\"use_rate_1\":0.5}," policy "}}"
#define RANK(rank) "\"goes_after\":" rank ",\"must_replace\":false,\"rival\":null"
#define RIVAL(must)                                                                                                                \
	"\"goes_after\":null,\"must_replace\":" must ",\"rival\":{\"model\":\"m\",\"layer\":5,\"expert\":9,\"worth\":0.5,\"uses\":12}"

Test(ctl_why, one_sentence_says_why)
{
	static const struct {
		const char *answer, *part;
	} cases[] = {
		{ANSWER("ready", "null", "false", "5", "1", "2", RANK("0")), "held by 2 clients"},
		{ANSWER("ready", "null", "false", "5", "1", "0", RANK("0")), "the next to go"},
		{ANSWER("ready", "null", "false", "5", "1", "0", RANK("31")), "31 others are worth less"},
		{ANSWER("ready", "null", "false", "5", "1", "0", RANK("null")), "thousands of others"},
		{ANSWER("loading", "null", "false", "5", "1", "0", RANK("3")), "it is being read"},
		{ANSWER("absent", "null", "true", "5", "1", "0", RIVAL("false")), "waits for room or for its drive"},
		{ANSWER("absent", "\"unreadable on every replica\"", "false", "5", "1", "0", RIVAL("false")), "unreadable on every"},
		{ANSWER("absent", "null", "false", "0", "0", "0", RIVAL("false")), "nobody has used it"},
		{ANSWER("absent", "null", "false", "8", "0", "0", RIVAL("false")), "before this manager"},
		{ANSWER("absent", "null", "false", "8", "3", "0", RIVAL("true")), "layer 5 expert 9 would go for it, since its layer"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct fields fields = {.missing = NULL};
		json_t *answer = json_loads(cases[i].answer, 0, NULL);
		char words[WHY_WORDS_BYTES];

		cr_assert_not_null(answer, "%zu", i);
		cr_expect_not_null(strstr(why_words(&fields, answer, words), cases[i].part), "%zu: %s", i, words);
		cr_expect_null(fields.missing, "%s", fields.missing);
		json_decref(answer);
	}
}

/* Allocated, or NULL with message. */
static char *output_of(const char *verb, const char *text)
{
	struct fake_manager manager = {.text = text};
	struct run run = {.verb = verb_find(verb), .request = "{}", .stop_fd = -1};
	char *output = NULL;

	cr_assert_eq(fake_manager_start(&manager), 0);
	run.places.given = manager.path;
	(void)run_once(&run, &output, message);
	fake_manager_stop(&manager);
	return output;
}

Test(ctl_why, loads_attempts_and_what_the_policy_knows_are_shown)
{
	static const char *const parts[] = {"m, layer 3, expert 17: absent", "1.0 MiB from drive 259:1 in 2.0 ms",
					    "after 1 attempts that came to nothing", "cost: worth 0.25", "use_rate_1",
					    "rival      layer 5 expert 9: worth 0.5, 12 uses", "held       by nobody"};
	char *output = output_of("why", ANSWER("absent", "null", "false", "8", "3", "0", RIVAL("true")));

	cr_assert_not_null(output, "%s", message);
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		cr_expect_not_null(strstr(output, parts[i]), "no \"%s\" in:\n%s", parts[i], output);
	free(output);
}

Test(ctl_why, the_map_shows_who_is_there_and_who_should_be)
{
	char *output = output_of("experts", "{\"model\":\"m\",\"policy\":\"cost\",\"layers\":[{\"layer\":4,\"experts\":6,\"resident\":2,"
					    "\"state\":\"rr.l..\",\"heat\":\"0c0013\"},{\"layer\":5,\"experts\":9,\"resident\":1}]}");

	cr_assert_not_null(output, "%s", message);
	cr_expect_not_null(strstr(output, "    4        2        6  0c.*--\n"), "%s", output);
	cr_expect_not_null(strstr(output, "ask for this layer: experts 5"), "%s", output);
	free(output);
	cr_expect_null(output_of("experts", "{\"model\":\"m\",\"policy\":\"cost\",\"layers\":[{\"layer\":4,\"experts\":6,\"resident\":2,"
					    "\"state\":\"rr.l..\",\"heat\":\"0c\"}]}"), "strings of different lengths");
}

Test(ctl_why, a_layer_is_shown_expert_by_expert)
{
	char *output = output_of("experts", "{\"model\":\"m\",\"policy\":\"cost\",\"layer\":1,\"truncated\":true,\"experts\":["
					    "{\"expert\":0,\"state\":\"r\",\"uses\":1234,\"worth\":0.5,\"bytes\":1048576,\"leased\":true},"
					    "{\"expert\":1,\"state\":\".\",\"uses\":0,\"worth\":0,\"bytes\":1048576,\"leased\":null}]}");

	cr_assert_not_null(output, "%s", message);
	cr_expect_not_null(strstr(output, "ready             1,234          0.5    1.0 MiB  yes"), "%s", output);
	cr_expect_not_null(strstr(output, "more experts than one answer holds"), "%s", output);
	free(output);
}

Test(ctl_why, the_map_shows_what_gpus_have_by_letters_that_are_no_other_sign)
{
	char *output = output_of("experts", "{\"model\":\"m\",\"policy\":\"cost\",\"layers\":[{\"layer\":4,\"experts\":7,\"resident\":2,"
					    "\"state\":\"rr.l..r\",\"heat\":\"0c0013w\",\"vram\":\".0.1.A0\"},{\"layer\":5,\"experts\":9,"
					    "\"resident\":1}]}");

	cr_assert_not_null(output, "%s", message);
	cr_expect_not_null(strstr(output, "LAYER RESIDENT     VRAM       OF  EXPERTS\n"), "%s", output);
	cr_expect_not_null(strstr(output, "    4        2        4        7  0M.A-DZ\n"), "%s", output);
	cr_expect_not_null(strstr(output, "    5        1        ?        9  ask for"), "%s", output);
	cr_expect_not_null(strstr(output, "A never used"), "%s", output);
	free(output);
	cr_expect_null(output_of("experts", "{\"model\":\"m\",\"policy\":\"cost\",\"layers\":[{\"layer\":4,\"experts\":2,\"resident\":2,"
					    "\"state\":\"rr\",\"heat\":\"0c\",\"vram\":\".\"}]}"), "strings of different lengths");
}

Test(ctl_why, a_layer_says_which_gpu_has_an_expert_if_one_has)
{
	char *output = output_of("experts", "{\"model\":\"m\",\"policy\":\"cost\",\"layer\":1,\"truncated\":false,\"experts\":["
					    "{\"expert\":0,\"state\":\"r\",\"uses\":1234,\"worth\":0.5,\"bytes\":1048576,\"leased\":true,\"device\":3},"
					    "{\"expert\":1,\"state\":\".\",\"uses\":0,\"worth\":0,\"bytes\":1048576,\"leased\":null,\"device\":null}]}");

	cr_assert_not_null(output, "%s", message);
	cr_expect_not_null(strstr(output, "LEASED  VRAM\n"), "%s", output);
	cr_expect_not_null(strstr(output, "1.0 MiB  yes     GPU 3\n"), "%s", output);
	cr_expect_not_null(strstr(output, "1.0 MiB  ?       -\n"), "%s", output);
	free(output);
}
