/* SPDX-License-Identifier: Apache-2.0 */
/* The file, its lines and their numbers; see trace_reader.h. */
#include "tools/sim/trace_reader.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/message.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_NS (100 * CNRE_NS_PER_MS)
#define ROOM_BYTES (256u << 10)

_Static_assert(ROOM_BYTES > SIM_LINE_BYTES_MAX, "a whole line lies in the buffer");

int sim_refuse(struct sim_reader *reader, const char *format, ...)
{
	uint64_t place = reader->line;
	char reason[512];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(reason, sizeof reason, format, arguments);
	va_end(arguments);
	if (reader->format == SIM_FORMAT_BINARY)
		place = reader->input.read_bytes - (reader->input.end - reader->input.at);
	if (place == 0) /* about the file as a whole */
		return cnre_message(reader->message, reader->message_bytes, -EINVAL, "%s: %s", reader->path, reason);
	if (reader->format == SIM_FORMAT_BINARY)
		return cnre_message(reader->message, reader->message_bytes, -EINVAL,
				    "%s: byte %llu: %s (read as binary)", reader->path, (unsigned long long)place,
				    reason);
	if (reader->format == SIM_FORMAT_AUTO)
		return cnre_message(reader->message, reader->message_bytes, -EINVAL, "%s:%llu: %s", reader->path,
				    (unsigned long long)place, reason);
	return cnre_message(reader->message, reader->message_bytes, -EINVAL, "%s:%llu: %s (read as %s)", reader->path,
			    (unsigned long long)place, reason, sim_format_name(reader->format));
}

int sim_refuse_error(struct sim_reader *reader, int error)
{
	return cnre_message(reader->message, reader->message_bytes, error, "%s: %s", reader->path,
			    error == -EINVAL ? "not a regular file: give the name of one" : strerror(-error));
}

int sim_input_open(struct sim_reader *reader)
{
	struct sim_input input = {.progress_ns = cnre_clock_now_ns(), .room = ROOM_BYTES};

	input.buffer = malloc(input.room);
	if (input.buffer == NULL)
		return sim_refuse_error(reader, -ENOMEM);
	input.fd = cnre_file_open(AT_FDCWD, reader->path, &input.file_bytes);
	if (input.fd < 0) {
		free(input.buffer);
		return sim_refuse_error(reader, input.fd);
	}
	reader->input = input;
	return 0;
}

void sim_input_close(struct sim_input *input)
{
	free(input->buffer);
	(void)close(input->fd);
	input->buffer = NULL;
}

static void tell_progress(struct sim_reader *reader)
{
	struct sim_input *input = &reader->input;
	int64_t now_ns;

	if (reader->load->progress == NULL)
		return;
	now_ns = cnre_clock_now_ns();
	if (now_ns - input->progress_ns < PROGRESS_NS)
		return;
	input->progress_ns = now_ns;
	reader->load->progress(reader->load->context, reader->path, input->read_bytes, input->file_bytes);
}

int sim_input_fill(struct sim_reader *reader)
{
	struct sim_input *input = &reader->input;
	int64_t got;

	if (input->at > 0) {
		memmove(input->buffer, input->buffer + input->at, input->end - input->at);
		input->end -= input->at;
		input->at = 0;
	}
	got = cnre_file_read(input->fd, input->buffer + input->end, input->room - input->end, input->read_bytes);
	if (got < 0)
		return sim_refuse_error(reader, (int)got);
	input->end += (size_t)got;
	input->read_bytes += (uint64_t)got;
	tell_progress(reader);
	return (int)got;
}

int sim_any_line(struct sim_reader *reader, struct sim_text *ret_line)
{
	struct sim_input *input = &reader->input;
	unsigned char *start, *end;
	size_t left;
	int got = 1;

	do {
		start = input->buffer + input->at;
		left = input->end - input->at;
		end = memchr(start, '\n', left);
	} while (end == NULL && left <= SIM_LINE_BYTES_MAX && (got = sim_input_fill(reader)) > 0);
	if (got < 0)
		return got;
	start = input->buffer + input->at; /* the buffer may have been moved to its start */
	left = input->end - input->at;
	if (end == NULL && left == 0)
		return 0;
	reader->line++;
	if ((end == NULL ? left : (size_t)(end - start)) > SIM_LINE_BYTES_MAX)
		return sim_refuse(reader, "a line of more than %u bytes: this is no trace", SIM_LINE_BYTES_MAX);
	input->at += end == NULL ? left : (size_t)(end - start) + 1;
	end = end == NULL ? start + left : end;
	if (end > start && end[-1] == '\r')
		end--;
	*ret_line = (struct sim_text){.at = (const char *)start, .end = (const char *)end};
	return 1;
}

static void skip_spaces(struct sim_text *text)
{
	while (text->at < text->end && (*text->at == ' ' || *text->at == '\t'))
		text->at++;
}

int sim_next_line(struct sim_reader *reader, struct sim_text *ret_line)
{
	struct sim_text line = {NULL, NULL}, look;
	int got;

	do {
		got = sim_any_line(reader, &line);
		if (got <= 0)
			return got;
		look = line;
	} while (sim_text_is_done(&look) || *look.at == '#');
	*ret_line = line;
	return 1;
}

int sim_text_number(struct sim_text *text, uint32_t max, uint32_t *ret_number)
{
	uint64_t value = 0;
	const char *start;

	skip_spaces(text);
	for (start = text->at; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++) {
		value = value * 10 + (uint64_t)(*text->at - '0');
		if (value > max)
			return -EINVAL;
	}
	if (text->at == start)
		return -EINVAL;
	*ret_number = (uint32_t)value;
	return 0;
}

int sim_text_take(struct sim_text *text, char c)
{
	if (text->at == text->end || *text->at != c)
		return 0;
	text->at++;
	return 1;
}

int sim_text_is_done(struct sim_text *text)
{
	skip_spaces(text);
	return text->at == text->end;
}

static size_t skip_digits(struct sim_text *text)
{
	const char *start = text->at;

	while (text->at < text->end && *text->at >= '0' && *text->at <= '9')
		text->at++;
	return (size_t)(text->at - start);
}

int sim_text_decimal(struct sim_text *text)
{
	size_t digits;

	(void)(sim_text_take(text, '-') || sim_text_take(text, '+'));
	digits = skip_digits(text);
	if (sim_text_take(text, '.'))
		digits += skip_digits(text);
	if (digits == 0)
		return -EINVAL;
	if (sim_text_take(text, 'e') || sim_text_take(text, 'E')) {
		(void)(sim_text_take(text, '-') || sim_text_take(text, '+'));
		if (skip_digits(text) == 0)
			return -EINVAL;
	}
	return 0;
}
