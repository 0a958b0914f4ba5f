/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few tokens of JSON that a safetensors header is made of, read from a buffer in one pass: no recursion, no
 * allocation, each byte looked at a bounded number of times. Strings are unescaped in place (the result is never
 * longer). Not a general JSON reader: config.json is read by jansson.
 */
#ifndef CNRE_MODEL_TEXT_H
#define CNRE_MODEL_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct model_text {
	char *start, *at, *end;
};

struct model_word {                       /* an unescaped string; text is NUL-terminated */
	char *text;
	size_t bytes;
};

/* 1: the bytes are well-formed UTF-8 (no overlong forms, no surrogates). */
int model_text_is_utf8(const char *bytes, size_t count);

/* Skips white space, then takes c if it is next. 1 taken, 0 something else is next. */
int model_text_take(struct model_text *text, char c);

/* Skips white space; 1: nothing follows. */
int model_text_is_done(struct model_text *text);

/* A string; 0, or -EBADMSG (no string here, not closed, a bad escape, or a NUL or control character in it). */
int model_text_string(struct model_text *text, struct model_word *ret_word);

/* A plain unsigned integer of at most 64 bits; 0, or -EBADMSG (none here, or with a sign or a leading zero). */
int model_text_number(struct model_text *text, uint64_t *ret_value);

int model_word_is(const struct model_word *word, const char *text);

#endif
