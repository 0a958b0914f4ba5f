/* SPDX-License-Identifier: Apache-2.0 */
/* Colibri's history of expert uses; see usage.h. The text is read twice: once to check all of it, once to add it. */
#include "model/usage.h"

#include "base/message.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS 3u
#define FIELD_MAX UINT32_MAX         /* of either sign */
#define FORMAT_VERSION 1

enum { HEADER_DIMENSIONS = -1, HEADER_ENGINE = -2 };

uint32_t usage_engine(const char *name)
{
	uint32_t hash = 2166136261u;

	for (; *name != '\0'; name++)
		hash = (hash ^ (unsigned char)*name) * 16777619u;
	return hash;
}

int usage_open(struct usage *ret_usage, uint32_t layers, uint32_t experts, uint32_t engine)
{
	uint32_t *count = calloc((size_t)layers * experts, sizeof *count); /* two of 32 bits: no overflow */

	if (count == NULL)
		return -ENOMEM;
	*ret_usage = (struct usage){
		.layers = layers, .experts = experts, .own_layers = layers, .engine = engine, .count = count};
	return 0;
}

void usage_close(struct usage *usage)
{
	free(usage->count);
	*usage = (struct usage){0};
}

void usage_count(struct usage *usage, uint32_t layer, uint32_t expert, uint32_t uses)
{
	uint32_t *count = &usage->count[(size_t)layer * usage->experts + expert];

	*count = uses > UINT32_MAX - *count ? UINT32_MAX : *count + uses;
}

/* ---- reading ---- */

struct reader {
	struct usage *usage;
	const char *at, *end;
	unsigned long line;          /* from 1 */
	int adds;                    /* 0: only checks */
	char *message;
	size_t message_bytes;
};

__attribute__((format(printf, 3, 4))) static int refuse(const struct reader *reader, int error, const char *format, ...)
{
	char reason[160];
	va_list arguments;

	va_start(arguments, format);
	(void)cnre_message_list(reason, sizeof reason, error, format, arguments);
	va_end(arguments);
	return cnre_message(reader->message, reader->message_bytes, error, "line %lu: %s", reader->line, reason);
}

static void skip_blanks(struct reader *reader)
{
	while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\t'))
		reader->at++;
}

/* One integer and the blanks around it; -EINVAL: none here, or beyond FIELD_MAX. */
static int take_field(struct reader *reader, int64_t *ret_value)
{
	int negative, digits = 0;
	int64_t value = 0;

	skip_blanks(reader);
	negative = reader->at < reader->end && *reader->at == '-';
	for (reader->at += negative; reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9'; digits++) {
		value = value * 10 + (*reader->at++ - '0');
		if (value > (int64_t)FIELD_MAX)
			return refuse(reader, -EINVAL, "a number beyond %" PRIu32, FIELD_MAX);
	}
	if (digits == 0)
		return refuse(reader, -EINVAL, "not three integers");
	skip_blanks(reader);
	*ret_value = negative ? -value : value;
	return 0;
}

/* The end of the line, also as the C library of Windows writes it, or of the text. */
static int take_line_end(struct reader *reader)
{
	if (reader->at < reader->end && *reader->at == '\r')
		reader->at++;
	if (reader->at == reader->end)
		return reader->at[-1] == '\r' ? refuse(reader, -EINVAL, "not three integers") : 0;
	return *reader->at++ == '\n' ? 0 : refuse(reader, -EINVAL, "not three integers");
}

static int check_engine(const struct reader *reader, const int64_t field[FIELDS])
{
	struct usage *usage = reader->usage;

	if (field[1] != FORMAT_VERSION)
		return refuse(reader, -EINVAL, "format version %" PRId64 ", known is %d", field[1], FORMAT_VERSION);
	if (usage->engine != 0 && field[2] != usage->engine)
		return refuse(reader, -EXDEV, "engine %" PRId64 ", this is %" PRIu32, field[2], usage->engine);
	if (reader->adds)
		usage->writer = (uint32_t)field[2];
	return 0;
}

static int check_header(const struct reader *reader, const int64_t field[FIELDS])
{
	const struct usage *usage = reader->usage;

	if (field[1] < 0 || field[2] < 0)
		return refuse(reader, -EINVAL, "a negative number in a header");
	switch (field[0]) {
	case HEADER_DIMENSIONS:
		if (field[1] == usage->own_layers && field[2] == usage->experts)
			return 0;
		return refuse(reader, -ESTALE,
			      "%" PRId64 " layers of %" PRId64 " experts, the model has %" PRIu32 " of %" PRIu32,
			      field[1], field[2], usage->own_layers, usage->experts);
	case HEADER_ENGINE:
		return check_engine(reader, field);
	default:
		return 0;
	}
}

static int take_count(const struct reader *reader, const int64_t field[FIELDS])
{
	struct usage *usage = reader->usage;

	if (field[0] >= usage->layers && field[0] > usage->own_layers)
		return refuse(reader, -EINVAL, "layer %" PRId64 " of %" PRIu32, field[0], usage->layers);
	if (field[1] < 0 || field[1] >= usage->experts)
		return refuse(reader, -EINVAL, "expert %" PRId64 " of %" PRIu32, field[1], usage->experts);
	if (field[2] < 0)
		return refuse(reader, -EINVAL, "a count of %" PRId64, field[2]);
	if (reader->adds && field[0] < usage->layers)
		usage_count(usage, (uint32_t)field[0], (uint32_t)field[1], (uint32_t)field[2]);
	return 0;
}

static int take_lines(struct reader *reader)
{
	int64_t field[FIELDS];

	for (reader->line = 1; reader->at < reader->end; reader->line++) {
		int r = 0;

		for (unsigned i = 0; r == 0 && i < FIELDS; i++)
			r = take_field(reader, &field[i]);
		if (r == 0)
			r = take_line_end(reader);
		if (r == 0)
			r = field[0] < 0 ? check_header(reader, field) : take_count(reader, field);
		if (r < 0)
			return r;
	}
	return 0;
}

int usage_read_text(struct usage *usage, const char *text, size_t bytes, char *message, size_t message_bytes)
{
	struct reader reader = {.usage = usage, .message = message, .message_bytes = message_bytes};
	int r = 0;

	if (bytes > USAGE_BYTES_MAX)
		return cnre_message(message, message_bytes, -EINVAL, "%zu bytes, %u at most", bytes, USAGE_BYTES_MAX);
	for (int adds = 0; r == 0 && adds < 2; adds++) {
		reader.at = text;
		reader.end = text + bytes;
		reader.adds = adds;
		r = take_lines(&reader);
	}
	return r;
}

int usage_read(struct usage *usage, const void *data, size_t bytes, char *message, size_t message_bytes)
{
	return usage_is_binary(data, bytes) ? usage_read_binary(usage, data, bytes, message, message_bytes)
					    : usage_read_text(usage, data, bytes, message, message_bytes);
}

/* ---- writing ---- */

static int is_empty(const struct usage *usage)
{
	for (size_t i = 0; i < (size_t)usage->layers * usage->experts; i++)
		if (usage->count[i] != 0)
			return 0;
	return 1;
}

static void write_lines(const struct usage *usage, FILE *to)
{
	(void)fprintf(to, "%d %" PRIu32 " %" PRIu32 "\n", HEADER_DIMENSIONS, usage->own_layers, usage->experts);
	if (usage->engine != 0)
		(void)fprintf(to, "%d %d %" PRIu32 "\n", HEADER_ENGINE, FORMAT_VERSION, usage->engine);
	for (uint32_t layer = 0; layer < usage->layers; layer++) {
		const uint32_t *count = &usage->count[(size_t)layer * usage->experts];

		for (uint32_t expert = 0; expert < usage->experts; expert++)
			if (count[expert] != 0)
				(void)fprintf(to, "%" PRIu32 " %" PRIu32 " %" PRIu32 "\n", layer, expert,
					      count[expert]);
	}
}

int usage_write_text(const struct usage *usage, char **ret_text, size_t *ret_bytes)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&text, &bytes);
	int failed;

	if (to == NULL)
		return -ENOMEM;
	if (!is_empty(usage))
		write_lines(usage, to);
	failed = ferror(to); /* of memory, the one thing that can run out here */
	if (fclose(to) != 0 || failed) {
		free(text);
		return -ENOMEM;
	}
	*ret_text = text;
	*ret_bytes = bytes;
	return 0;
}
