/* SPDX-License-Identifier: Apache-2.0 */
/* engine/lines.c, request.c, conversations.c and server.c: good and hostile lines, and what conversations keep. */
#include "engine/lines.h"
#include "engine/server.h"
#include "tests/standin/fake_kv_store.h"
#include "tests/support/tiny_engine.h"
#include "tests/support/tiny_olmoe.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { POSITIONS = 300, VOCAB = TINY_VOCAB };

/* ---- lines ---- */

/* What is written comes out as lines, however long the pieces are that are read. */
static int next_line(struct lines *lines, int fd, char **ret_line)
{
	int taken;

	while ((taken = lines_take(lines, ret_line)) == 0)
		if (lines_read(lines, fd) <= 0)
			return lines_take(lines, ret_line);
	return taken;
}

static int feed(const void *bytes, size_t count)
{
	int ends[2];

	cr_assert_eq(pipe(ends), 0);
	cr_assert_eq(write(ends[1], bytes, count), (ssize_t)count);
	close(ends[1]);
	return ends[0];
}

Test(engine_server, lines_come_whole_and_too_long_ones_once_as_an_error)
{
	char text[20000];
	struct lines lines;
	char *line;
	int fd;

	memset(text, 'x', sizeof text);
	memcpy(text, "one\n\ntwo\n", 9);
	text[sizeof text - 6] = '\n';
	memcpy(text + sizeof text - 5, "last\0", 5); /* no newline: the end ends it */
	fd = feed(text, sizeof text - 1);
	lines_init(&lines, 100);
	cr_assert_eq(next_line(&lines, fd, &line), 1);
	cr_expect_str_eq(line, "one");
	cr_assert_eq(next_line(&lines, fd, &line), 1);
	cr_expect_str_eq(line, "");
	cr_assert_eq(next_line(&lines, fd, &line), 1);
	cr_expect_str_eq(line, "two");
	line = NULL;
	cr_expect_eq(next_line(&lines, fd, &line), -E2BIG);
	cr_expect_null(line);
	cr_assert_eq(next_line(&lines, fd, &line), 1);
	cr_expect_str_eq(line, "last");
	cr_expect_eq(next_line(&lines, fd, &line), 0);
	cr_expect_leq(lines.room, 32768, "what is discarded takes no memory: %zu", lines.room);
	lines_done(&lines);
	close(fd);
}

Test(engine_server, a_line_of_the_largest_length_is_one_and_zero_bytes_hide_nothing)
{
	char text[202];
	struct lines lines;
	char *line;
	int fd;

	memset(text, 'x', sizeof text);
	text[100] = '\n';
	text[201] = '\n';
	text[50] = '\0';
	fd = feed(text, sizeof text);
	lines_init(&lines, 100);
	cr_assert_eq(next_line(&lines, fd, &line), 1);
	cr_expect_eq(strlen(line), 100);
	cr_expect_eq(line[50], '?');
	cr_assert_eq(next_line(&lines, fd, &line), 1);
	lines_done(&lines);
	close(fd);
}

/* ---- requests ---- */

static struct request request;
static uint32_t tokens[POSITIONS];

static int parse(const char *text)
{
	static char line[8192], message[ENGINE_MESSAGE_BYTES];
	const struct request_bounds bounds = {.vocab = VOCAB, .positions = POSITIONS, .tokens = tokens};

	snprintf(line, sizeof line, "%s", text);
	return request_parse(&request, line, &bounds, message);
}

Test(engine_server, requests_are_read)
{
	cr_assert_eq(parse("generate a-B_9.z 12 0 39\t7\r"), 0);
	cr_expect_eq(request.verb, REQUEST_GENERATE);
	cr_expect_str_eq(request.id, "a-B_9.z");
	cr_expect_eq(request.steps, 12);
	cr_expect_eq(request.count, 3);
	cr_expect_eq(request.tokens[1], 39);
	cr_assert_eq(parse("  append x 300"), 0);
	cr_expect_eq(request.verb, REQUEST_APPEND);
	cr_expect_eq(request.count, 0);
	cr_assert_eq(parse("end x"), 0);
	cr_expect_eq(request.verb, REQUEST_END);
	cr_assert_eq(parse("identity"), 0);
	cr_expect_eq(request.verb, REQUEST_IDENTITY);
	cr_assert_eq(parse("quit"), 0);
	cr_expect_eq(request.verb, REQUEST_QUIT);
}

Test(engine_server, bad_requests_are_refused_and_touch_nothing)
{
	static const char *const bad[] = {
		"",
		"   ",
		"Generate a 1 1",
		"generate",
		"generate a",
		"generate a 1",
		"generate a 0 1",
		"generate a 301 1",
		"generate a -1 1",
		"generate a 1x 1",
		"generate a 99999999999999999999 1",
		"generate a 1 40",
		"generate a 1 -1",
		"generate a 1 1,2",
		"generate a 1 18446744073709551617",
		"generate a/b 1 1",
		"generate a\"b 1 1",
		"generate \xc3\xa9 1 1",
		"generate 01234567890123456789012345678901234567890123456789012345678901234 1 1",
		"append a",
		"append",
		"end",
		"end a b",
		"quit now",
		"identity x",
	};
	char many[8192] = "generate a 1";

	request.steps = 77;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		cr_expect_eq(parse(bad[i]), -EINVAL, "\"%s\"", bad[i]);
	for (int i = 0; i <= POSITIONS; i++)
		strcat(many, " 1");
	cr_expect_eq(parse(many), -EINVAL, "more tokens than there is room for");
	cr_expect_eq(request.steps, 77);
}

/* ---- the server ---- */

static struct tiny_engine engine;
static struct server server;

static void open_server(const struct kv_store *store, uint32_t conversations)
{
	const struct server_bounds bounds = {.conversations = conversations, .positions = POSITIONS};

	tiny_engine_open(&engine, POSITIONS);
	cr_assert_eq(server_init(&server, &engine.forward, store, &bounds), 0);
}

static void close_server(void)
{
	server_done(&server);
	tiny_engine_close(&engine);
}

static json_t *ask(const char *text)
{
	char line[8192];
	bool is_quit = false;
	char *answer;
	json_t *result;

	snprintf(line, sizeof line, "%s", text);
	answer = server_answer(&server, line, &is_quit);
	cr_assert_not_null(answer);
	cr_expect_eq(strchr(answer, '\n'), answer + strlen(answer) - 1, "not one line: %s", answer);
	cr_expect_eq(is_quit, strcmp(text, "quit") == 0);
	result = json_loads(answer, 0, NULL);
	cr_assert_not_null(result, "not JSON: %s", answer);
	free(answer);
	return result;
}

static int number(const json_t *result, const char *key)
{
	cr_expect(json_is_integer(json_object_get(result, key)), "no number: %s", key);
	return (int)json_integer_value(json_object_get(result, key));
}

/* An error names what to do, and its conversation where the line had a good id. */
static void expect_error(const char *line, const char *id, const char *part)
{
	json_t *result = ask(line);
	const char *error = json_string_value(json_object_get(result, "error"));

	cr_expect(error && strstr(error, part), "%s: %s", line, error ? error : "no error");
	if (id)
		cr_expect_str_eq(json_string_value(json_object_get(result, "id")), id);
	else
		cr_expect_null(json_object_get(result, "id"));
	json_decref(result);
}

Test(engine_server, errors_are_one_line_and_say_what_to_do)
{
	open_server(NULL, 2);
	expect_error("nonsense", NULL, "send one of: generate");
	expect_error("generate a 1 40", NULL, "from 0 to 39");
	expect_error("append a 1 1", "a", "begin it with generate");
	expect_error("end a", "a", "no such conversation");
	expect_error("generate a 300 1", "a", "raise --positions");
	json_decref(ask("generate a 290 1"));
	expect_error("append a 10 1", "a", "for the 9 left");
	json_decref(ask("quit"));
	close_server();
}

static void expect_same_tokens(const json_t *result, const json_t *expected)
{
	cr_expect(json_is_array(json_object_get(expected, "tokens")));
	cr_expect(json_equal(json_object_get(result, "tokens"), json_object_get(expected, "tokens")));
}

/* a's rows are dropped for those of b and c; it goes on as if they had not been. */
Test(engine_server, more_conversations_than_have_rows_all_go_on)
{
	json_t *kept, *dropped;

	open_server(NULL, 2);
	json_decref(ask("generate a 5 1 2 3"));
	kept = ask("append a 6 4 5");
	cr_expect_eq(number(kept, "computed_tokens"), 3);
	json_decref(ask("generate a 5 1 2 3"));
	json_decref(ask("generate b 5 1 2 3"));
	json_decref(ask("generate c 5 9 9 9"));
	dropped = ask("append a 6 4 5");
	cr_expect_eq(number(dropped, "computed_tokens"), 10);
	expect_same_tokens(dropped, kept);
	json_decref(dropped);
	dropped = ask("append c 1");
	cr_expect_eq(number(dropped, "computed_tokens"), 1, "the one used last but one kept its rows");
	json_decref(dropped);
	dropped = ask("append b 1");
	cr_expect_eq(number(dropped, "computed_tokens"), 8, "the one used before did not");
	json_decref(dropped);
	json_decref(kept);
	close_server();
}

Test(engine_server, with_a_store_a_dropped_conversation_comes_back_by_matching)
{
	struct kv_store store;
	json_t *kept, *dropped;

	fake_kv_store_reset();
	open_server(NULL, 1);
	json_decref(ask("generate a 5 1 2 3"));
	kept = ask("append a 6 4 5");
	server_done(&server);
	cr_assert_eq(kv_store_open(&store, NULL, &engine.config, NULL, NULL), 0);
	cr_assert_eq(server_init(&server, &engine.forward, &store,
				 &(struct server_bounds){.conversations = 1, .positions = POSITIONS}),
		     0);
	json_decref(ask("generate a 5 1 2 3"));
	json_decref(ask("generate b 5 7"));
	dropped = ask("append a 6 4 5");
	cr_expect_eq(number(dropped, "matched_tokens"), 7);
	cr_expect_eq(number(dropped, "computed_tokens"), 3);
	expect_same_tokens(dropped, kept);
	json_decref(dropped);
	json_decref(kept);
	close_server();
	kv_store_close(&store);
	cr_expect_eq(fake_kv_store.open_chains, 0);
	fake_kv_store_reset();
}

Test(engine_server, generate_begins_anew_and_end_forgets)
{
	json_t *first, *second;

	open_server(NULL, 4);
	first = ask("generate a 5 1 2 3");
	second = ask("generate a 5 1 2 3");
	expect_same_tokens(second, first);
	json_decref(ask("end a"));
	expect_error("append a 1 1", "a", "begin it with generate");
	json_decref(first);
	json_decref(second);
	close_server();
}

Test(engine_server, of_too_many_conversations_the_oldest_is_forgotten)
{
	char line[64];

	open_server(NULL, 1);
	for (uint32_t i = 0; i <= CONVERSATIONS_KNOWN_MAX; i++) {
		snprintf(line, sizeof line, "generate c%u 1 1", i);
		json_decref(ask(line));
	}
	cr_expect_eq(server.conversations.count, CONVERSATIONS_KNOWN_MAX);
	expect_error("append c0 1", "c0", "no such conversation");
	json_decref(ask("append c1 1"));
	close_server();
}

Test(engine_server, the_identity_is_what_the_store_was_opened_with)
{
	struct kv_store store;
	json_t *result;

	fake_kv_store_reset();
	open_server(NULL, 1);
	cr_assert_eq(kv_store_open(&store, NULL, &engine.config, NULL, NULL), 0);
	server.name = "left";
	result = ask("identity");
	cr_expect_str_eq(json_string_value(json_object_get(result, "name")), "left");
	cr_expect_str_eq(json_string_value(json_object_get(result, "representation")), fake_kv_store.representation);
	cr_expect_str_eq(json_string_value(json_object_get(result, "position")), fake_kv_store.position);
	cr_expect_eq(number(result, "block_tokens"), 64);
	cr_expect_eq(number(result, "version"), 1);
	json_decref(result);
	kv_store_close(&store);
	close_server();
}
