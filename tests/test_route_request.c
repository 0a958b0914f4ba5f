/* SPDX-License-Identifier: Apache-2.0 */
/* tools/route/: command lines, request lines, homes of conversations, and what the store is asked. */
#include "tests/standin/fake_kv_store.h"
#include "tools/route/homes.h"
#include "tools/route/options.h"
#include "tools/route/request.h"
#include "tools/route/store.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char message[ROUTE_MESSAGE_BYTES];

/* ---- options ---- */

static struct route_options options;

static int parse(const char *line)
{
	static char copy[1024];
	char *argv[32] = {"cnre-route"};
	int argc = 1;

	snprintf(copy, sizeof copy, "%s", line);
	for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	return route_options_parse(&options, argc, argv, message);
}

Test(route_request, engines_are_names_and_sockets)
{
	cr_assert_eq(parse("--model m --salt s left=/tmp/a=b right=/tmp/r --socket /s"), 0, "%s", message);
	cr_expect_eq(options.place_count, 2);
	cr_expect_str_eq(options.place[0].name, "left");
	cr_expect_str_eq(options.place[0].socket, "/tmp/a=b");
	cr_expect_str_eq(options.socket, "/s");
	cr_expect_str_eq(options.salt, "s");
	cr_assert_eq(parse("--model m lefty=/a left=/b"), 0, "a name that begins with another's");
}

Test(route_request, wrong_lines_are_einval_with_a_reason_and_touch_nothing)
{
	static const char *const bad[] = {
		"",
		"--model m",
		"a=/a",
		"--model m a",
		"--model m =/a",
		"--model m a=",
		"--model m a=/a a=/b",
		"--model m 01234567890123456789012345678901=/a",
		"--model m a=/1 b=/1 c=/1 d=/1 e=/1 f=/1 g=/1 h=/1 i=/1 j=/1 k=/1 l=/1 m=/1 n=/1 o=/1 p=/1 q=/1",
		"--model",
		"--nonsense",
	};

	options = (struct route_options){.place_count = 77};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		message[0] = '\0';
		cr_expect_eq(parse(bad[i]), -EINVAL, "%s", bad[i]);
		cr_expect_neq(message[0], '\0', "%s", bad[i]);
	}
	cr_expect_eq(options.place_count, 77);
}

/* ---- requests ---- */

static int32_t tokens[ROUTE_TOKENS_MAX];

static struct route_request read_line(const char *line)
{
	struct route_request request;

	route_request_read(&request, line, tokens);
	return request;
}

Test(route_request, what_the_way_depends_on_is_read)
{
	struct route_request request = read_line("generate a 5 1 22\t333\n");

	cr_expect_eq(request.verb, ROUTE_GENERATE);
	cr_expect_str_eq(request.id, "a");
	cr_assert_eq(request.token_count, 3);
	cr_expect_eq(tokens[2], 333);
	cr_expect_eq(read_line("append a 5 1\n").verb, ROUTE_CONTINUE);
	cr_expect_eq(read_line("end a\n").verb, ROUTE_CONTINUE);
	cr_expect_eq(read_line("quit\n").verb, ROUTE_QUIT);
	cr_expect_eq(read_line("identity\n").verb, ROUTE_OTHER);
}

Test(route_request, hostile_lines_are_others_or_have_fewer_tokens)
{
	cr_expect_eq(read_line("\n").verb, ROUTE_OTHER);
	cr_expect_eq(read_line("generatex a 1 1\n").verb, ROUTE_OTHER);
	cr_expect_eq(read_line("generate\n").token_count, 0);
	cr_expect_eq(read_line("generate a 1 1 x 2\n").token_count, 1);
	cr_expect_eq(read_line("generate a 1 1 2147483648\n").token_count, 1);
	cr_expect_eq(read_line("generate a 1 -1\n").token_count, 0);
	cr_expect_str_eq(read_line("end 01234567890123456789012345678901234567890123456789012345678901234\n").id, "");
}

/* ---- homes ---- */

Test(route_request, a_conversation_has_one_home_and_the_first_of_too_many_none)
{
	struct homes *homes = calloc(1, sizeof *homes);
	char id[ROUTE_ID_BYTES];

	homes_set(homes, "", 3);
	cr_expect_eq(homes_find(homes, ""), -ENOENT);
	homes_set(homes, "a", 1);
	homes_set(homes, "a", 2);
	cr_expect_eq(homes_find(homes, "a"), 2);
	for (uint32_t i = 1; i < HOMES_MAX; i++) {
		snprintf(id, sizeof id, "c%u", i);
		homes_set(homes, id, 0);
	}
	cr_expect_eq(homes_find(homes, "a"), 2);
	homes_set(homes, "one more", 5);
	cr_expect_eq(homes_find(homes, "a"), -ENOENT);
	cr_expect_eq(homes_find(homes, "c1"), 0);
	cr_expect_eq(homes_find(homes, "one more"), 5);
	free(homes);
}

/* ---- the store ---- */

static const char identity[] =
	"{\"name\":\"left\",\"position\":\"p\",\"representation\":\"r\",\"version\":1,\"block_tokens\":4,"
	"\"block_bytes_max\":64}";

static void publish(struct cnre_kv *kv, const int32_t *block)
{
	struct cnre_kv_chain *chain;
	void *buffer;

	cr_assert_eq(cnre_kv_match(kv, block, 0, NULL, 0, &chain), 0);
	cr_assert_eq(cnre_kv_stage(chain, block, 4, NULL, 0, 64, &buffer), 0);
	cr_assert_eq(cnre_kv_commit(chain, 1, 0), 0);
	cnre_kv_release(chain);
}

Test(route_request, the_store_is_the_engines_and_says_who_holds_a_prefix)
{
	const int32_t known[] = {1, 2, 3, 4, 5}, other[] = {9, 2, 3, 4, 5};
	char name[ROUTE_NAME_BYTES] = "?";
	struct store store = {0};

	fake_kv_store_reset();
	fake_kv_store.route_name = "right";
	options = (struct route_options){.salt = "pepper", .kv_namespace = "team"};
	cr_expect_eq(store_ask(&store, known, 5, name), 0, "no store");
	cr_assert_eq(store_open_prefixes(&store.kv, NULL, &options, identity), 0);
	cr_expect_str_eq(fake_kv_store.representation, "r");
	cr_expect_str_eq(fake_kv_store.position, "p");
	cr_expect_str_eq(fake_kv_store.salt, "pepper");
	cr_expect_str_eq(fake_kv_store.space, "team");
	publish(store.kv, known);
	cr_expect_eq(store_ask(&store, other, 5, name), 0);
	cr_expect_eq(store_ask(&store, known, 1, name), 0, "one token is computed in any case");
	cr_expect_str_eq(name, "?");
	cr_expect_eq(store_ask(&store, known, 5, name), 1);
	cr_expect_str_eq(name, "right");
	fake_kv_store.route_name = NULL;
	cr_expect_eq(store_ask(&store, known, 5, name), 0, "known, but nobody's");
	fake_kv_store.match_error = -ENOTSUP;
	cr_expect_eq(store_ask(&store, known, 5, name), 0);
	cnre_kv_close(store.kv);
	fake_kv_store_reset();
}

Test(route_request, an_identity_that_is_none_is_eproto)
{
	static const char *const bad[] = {
		"",
		"[]",
		"{}",
		"{\"error\":\"x\"}",
		"{\"position\":1,\"representation\":\"r\",\"version\":1,\"block_tokens\":4,\"block_bytes_max\":64}",
		"{\"position\":\"p\",\"representation\":\"r\",\"version\":-1,\"block_tokens\":4,\"block_bytes_max\":64}",
		"{\"position\":\"p\",\"representation\":\"r\",\"version\":1,\"block_tokens\":4294967296,"
		"\"block_bytes_max\":64}",
		"{\"position\":\"p\",\"representation\":\"r\",\"version\":1,\"block_tokens\":4,\"block_bytes_max\":-1}",
	};
	struct cnre_kv *kv = NULL;

	options = (struct route_options){0};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		cr_expect_eq(store_open_prefixes(&kv, NULL, &options, bad[i]), -EPROTO, "%s", bad[i]);
	cr_expect_null(kv);
}

Test(route_request, engines_must_be_alike_and_called_as_they_are_given)
{
	static const char other[] = "{\"name\":\"right\",\"position\":\"p\",\"representation\":\"R\",\"version\":1}";
	static const char nameless[] = "{\"name\":null,\"position\":\"p\",\"representation\":\"r\",\"version\":1}";

	cr_expect_eq(store_check_identity(identity, identity, "left", message), 0);
	cr_expect_eq(store_check_identity(identity, identity, "right", message), -EINVAL);
	cr_expect_not_null(strstr(message, "--name right"), "%s", message);
	cr_expect_eq(store_check_identity(identity, other, "right", message), -EINVAL);
	cr_expect_not_null(strstr(message, "share nothing"), "%s", message);
	cr_expect_eq(store_check_identity(identity, nameless, "left", message), -EINVAL);
	cr_expect_eq(store_check_identity(identity, "no JSON", "left", message), -EINVAL);
}
