/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing and cleaning of answers; see answer.h. */
#include "tools/ctl/answer.h"

#include <errno.h>

static int key_is_plain(const char *key)
{
	for (; *key != '\0'; key++)
		if (*key < 0x20 || *key > 0x7e)
			return 0;
	return 1;
}

/* Depth is checked before descending, so the recursion is bounded by ANSWER_DEPTH_MAX. */
static int check_value(json_t *value, int depth)
{
	const char *key;
	json_t *child;
	size_t index;

	if (!json_is_object(value) && !json_is_array(value))
		return 0;
	if (depth >= ANSWER_DEPTH_MAX)
		return -EBADMSG;
	json_object_foreach (value, key, child)
		if (!key_is_plain(key) || check_value(child, depth + 1) < 0)
			return -EBADMSG;
	json_array_foreach (value, index, child)
		if (check_value(child, depth + 1) < 0)
			return -EBADMSG;
	return 0;
}

int answer_parse(const char *text, size_t bytes, json_t **ret_answer)
{
	json_t *answer;

	if (bytes > ANSWER_BYTES_MAX)
		return -E2BIG;
	answer = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_object(answer) || check_value(answer, 0) < 0) {
		json_decref(answer);
		return -EBADMSG;
	}
	*ret_answer = answer;
	return 0;
}

char *answer_line(const json_t *answer)
{
	/* 15 digits are what a double keeps of any decimal: 0.1 stays 0.1, and 30 years keep their microseconds. */
	return json_dumps(answer, JSON_SORT_KEYS | JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15));
}

void answer_make_text_printable(char *text)
{
	unsigned char *at = (unsigned char *)text;

	for (; *at != '\0'; at++) {
		int is_c1 = at[0] == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f; /* U+0080..U+009F in UTF-8 */

		if (*at < 0x20 || *at == 0x7f || is_c1)
			*at = '?';
		if (is_c1)
			*++at = '?';
	}
}

void answer_make_printable(json_t *answer)
{
	const char *key;
	json_t *child;
	size_t index;

	/* In place: the length stays, and so does UTF-8, since a character becomes ASCII as a whole. */
	if (json_is_string(answer))
		answer_make_text_printable((char *)json_string_value(answer));
	json_object_foreach (answer, key, child)
		answer_make_printable(child);
	json_array_foreach (answer, index, child)
		answer_make_printable(child);
}
