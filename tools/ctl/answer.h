/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the text that a manager sent to JSON that can be shown. The manager passes on words of its clients (names, paths
 * of models), so the text is input twice over: sizes and nesting are bounded, and no control character reaches a
 * terminal.
 */
#ifndef CNRE_TOOLS_CTL_ANSWER_H
#define CNRE_TOOLS_CTL_ANSWER_H

#include <jansson.h>
#include <stddef.h>

#define ANSWER_BYTES_MAX (16u << 20)
#define ANSWER_DEPTH_MAX 16

/*
 * answer_parse - check and parse one JSON object
 *
 * @ret_answer  a new reference, on success only
 *
 * Returns:  0, or -EBADMSG: no JSON object, duplicate keys, a number out of range, nesting beyond ANSWER_DEPTH_MAX, or
 *           a key with other characters than printable ASCII. -E2BIG beyond ANSWER_BYTES_MAX.
 */
int answer_parse(const char *text, size_t bytes, json_t **ret_answer);

/* One line with sorted keys, allocated; NULL: no memory. Control characters and all but ASCII are \u escapes. */
char *answer_line(const json_t *answer);

/* Replaces control characters in every string by '?', so that a client's name cannot move the cursor. */
void answer_make_printable(json_t *answer);

/* The same for plain text. */
void answer_make_text_printable(char *text);

#endif
