/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of a safetensors header; see text.h. */
#include "model/text.h"

#include <errno.h>
#include <string.h>

/* Length of the well-formed sequence at bytes, 0 if there is none (Unicode 15, table 3-7). */
static size_t utf8_sequence(const unsigned char *bytes, size_t left)
{
	static const unsigned char second_min[5] = {0x80, 0xa0, 0x80, 0x90, 0x80};
	static const unsigned char second_max[5] = {0xbf, 0xbf, 0x9f, 0xbf, 0x8f};
	unsigned char first = bytes[0];
	unsigned kind;
	size_t length, i;

	if (first < 0x80)
		return 1;
	length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
	if (first < 0xc2 || first > 0xf4 || length > left)
		return 0;
	kind = first == 0xe0 ? 1 : first == 0xed ? 2 : first == 0xf0 ? 3 : first == 0xf4 ? 4 : 0;
	if (bytes[1] < second_min[kind] || bytes[1] > second_max[kind])
		return 0;
	for (i = 2; i < length; i++)
		if ((bytes[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

int model_text_is_utf8(const char *bytes, size_t count)
{
	const unsigned char *at = (const unsigned char *)bytes;
	size_t done, n;

	for (done = 0; done < count; done += n) {
		n = utf8_sequence(at + done, count - done);
		if (n == 0)
			return 0;
	}
	return 1;
}

static void skip_space(struct model_text *text)
{
	while (text->at < text->end &&
	       (*text->at == ' ' || *text->at == '\n' || *text->at == '\r' || *text->at == '\t'))
		text->at++;
}

int model_text_take(struct model_text *text, char c)
{
	skip_space(text);
	if (text->at == text->end || *text->at != c)
		return 0;
	text->at++;
	return 1;
}

int model_text_is_done(struct model_text *text)
{
	skip_space(text);
	return text->at == text->end;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
		return (c | 0x20) - 'a' + 10;
	return -1;
}

/* The four digits of \uXXXX at text->at. */
static int take_code_unit(struct model_text *text, uint32_t *ret_unit)
{
	uint32_t unit = 0;
	int i, digit;

	if (text->end - text->at < 4)
		return -EBADMSG;
	for (i = 0; i < 4; i++) {
		digit = hex_digit(*text->at++);
		if (digit < 0)
			return -EBADMSG;
		unit = unit << 4 | (uint32_t)digit;
	}
	*ret_unit = unit;
	return 0;
}

/* After "\u": one character, from one unit or a surrogate pair. */
static int take_code_point(struct model_text *text, uint32_t *ret_point)
{
	uint32_t high, low;

	if (take_code_unit(text, &high) < 0 || high == 0)
		return -EBADMSG; /* a NUL would end the name early */
	if (high < 0xd800 || high > 0xdfff) {
		*ret_point = high;
		return 0;
	}
	if (high > 0xdbff || text->end - text->at < 2 || text->at[0] != '\\' || text->at[1] != 'u')
		return -EBADMSG;
	text->at += 2;
	if (take_code_unit(text, &low) < 0 || low < 0xdc00 || low > 0xdfff)
		return -EBADMSG;
	*ret_point = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
	return 0;
}

/* At most 4 bytes, never more than the escape had. */
static char *put_utf8(char *to, uint32_t point)
{
	if (point < 0x80) {
		*to++ = (char)point;
		return to;
	}
	if (point < 0x800) {
		*to++ = (char)(0xc0 | point >> 6);
	} else if (point < 0x10000) {
		*to++ = (char)(0xe0 | point >> 12);
		*to++ = (char)(0x80 | (point >> 6 & 0x3f));
	} else {
		*to++ = (char)(0xf0 | point >> 18);
		*to++ = (char)(0x80 | (point >> 12 & 0x3f));
		*to++ = (char)(0x80 | (point >> 6 & 0x3f));
	}
	*to++ = (char)(0x80 | (point & 0x3f));
	return to;
}

/* After a backslash. */
static int take_escape(struct model_text *text, char **to)
{
	static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
	const char *found;
	uint32_t point;
	char letter;

	if (text->at == text->end)
		return -EBADMSG;
	letter = *text->at++;
	if (letter == 'u') {
		if (take_code_point(text, &point) < 0)
			return -EBADMSG;
		*to = put_utf8(*to, point);
		return 0;
	}
	found = letter == '\0' ? NULL : strchr(letters, letter);
	if (found == NULL)
		return -EBADMSG;
	*(*to)++ = meanings[found - letters];
	return 0;
}

int model_text_string(struct model_text *text, struct model_word *ret_word)
{
	char *start, *to;
	char c;

	if (!model_text_take(text, '"'))
		return -EBADMSG;
	start = to = text->at;
	while (text->at < text->end) {
		c = *text->at++;
		if (c == '"') {
			*to = '\0'; /* to is at the closing quote or before it */
			ret_word->text = start;
			ret_word->bytes = (size_t)(to - start);
			return 0;
		}
		if ((unsigned char)c < 0x20)
			return -EBADMSG;
		if (c != '\\')
			*to++ = c;
		else if (take_escape(text, &to) < 0)
			return -EBADMSG;
	}
	return -EBADMSG;
}

static int is_digit(const struct model_text *text)
{
	return text->at < text->end && *text->at >= '0' && *text->at <= '9';
}

int model_text_number(struct model_text *text, uint64_t *ret_value)
{
	uint64_t value = 0;
	const char *first;

	skip_space(text);
	first = text->at;
	for (; is_digit(text); text->at++)
		if (__builtin_mul_overflow(value, 10u, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*text->at - '0'), &value))
			return -EBADMSG;
	if (text->at == first || (*first == '0' && text->at - first > 1))
		return -EBADMSG;
	*ret_value = value; /* a '.', 'e' or '-' is refused by whoever expects ',' or ']' next */
	return 0;
}

int model_word_is(const struct model_word *word, const char *text)
{
	return strlen(text) == word->bytes && memcmp(word->text, text, word->bytes) == 0;
}
