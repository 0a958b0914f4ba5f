/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ctl/answer.c: what is accepted as an answer, and what of it can reach a terminal. */
#include "tools/ctl/answer.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int parse(const char *text, json_t **ret_answer)
{
	return answer_parse(text, strlen(text), ret_answer);
}

Test(ctl_answer, anything_but_one_sound_object_is_ebadmsg_and_leaves_the_output)
{
	static const char *const bad[] = {
		"",
		"[]",
		"1",
		"null",
		"{",
		"{}{}",
		"{\"a\":1,\"a\":2}",
		"{\"a\":99999999999999999999}",
		"{\"a\":1e999}",
		"{\"a\\u001b[2J\":1}",
		"{\"a\":{\"k\\u007f\":1}}",
		"{\"\303\244\":1}",
		"{\"a\":\"\377\"}",
		"{\"a\":\"\\u0000\"}",
	};
	json_t *answer = NULL;

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		cr_expect_eq(parse(bad[i], &answer), -EBADMSG, "accepted: %s", bad[i]);
		cr_expect_null(answer);
	}
}

/* An object of `depth` arrays inside each other. */
static int parse_nested(int depth)
{
	char text[256] = "{\"a\":";
	json_t *answer = NULL;
	int r;

	memset(text + strlen(text), '[', (size_t)depth);
	memset(text + strlen(text), ']', (size_t)depth);
	strcat(text, "}");
	r = parse(text, &answer);
	json_decref(answer);
	return r;
}

Test(ctl_answer, nesting_is_bounded)
{
	cr_expect_eq(parse_nested(ANSWER_DEPTH_MAX - 1), 0);
	cr_expect_eq(parse_nested(ANSWER_DEPTH_MAX), -EBADMSG);
	cr_expect_eq(parse_nested(100), -EBADMSG);
}

Test(ctl_answer, length_beyond_the_bound_is_e2big_before_a_byte_is_read)
{
	json_t *answer = NULL;

	cr_expect_eq(answer_parse(NULL, ANSWER_BYTES_MAX + 1, &answer), -E2BIG);
	cr_expect_null(answer);
}

Test(ctl_answer, line_has_sorted_keys_and_no_newline)
{
	json_t *answer = NULL;
	char *line;

	cr_assert_eq(parse("{\"b\": 0.1, \"a\": [1, {\"d\": true, \"c\": \"x\\ny\"}]}", &answer), 0);
	line = answer_line(answer);
	cr_expect_str_eq(line, "{\"a\":[1,{\"c\":\"x\\ny\",\"d\":true}],\"b\":0.1}");
	free(line);
	json_decref(answer);
}

Test(ctl_answer, strings_lose_control_characters_and_keep_letters)
{
	json_t *answer = NULL;
	const json_t *name;

	cr_assert_eq(parse("{\"list\":[{\"name\":\"\\u001b]0;x\\u0007 \\u009b31m \\u00e4\\u007f\"}]}", &answer), 0);
	answer_make_printable(answer);
	name = json_object_get(json_array_get(json_object_get(answer, "list"), 0), "name");
	cr_expect_str_eq(json_string_value(name), "?]0;x? ??31m \303\244?");
	json_decref(answer);
}
