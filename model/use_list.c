/* SPDX-License-Identifier: Apache-2.0 */
/* Traces and lines of pairs, read here; histories, by usage.c; see use_list.h. */
#include "model/use_list.h"

#include "base/check.h"
#include "base/message.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_BYTES 24 /* of a line that is refused */

int use_list_open(struct use_list *ret_list, uint32_t layers, uint32_t own_layers, uint32_t experts, uint32_t engine)
{
	struct use_list list = {.first = calloc((size_t)layers * experts, sizeof *list.first)};
	int r = list.first == NULL ? -ENOMEM : usage_open(&list.usage, layers, experts, engine);

	if (r < 0) {
		free(list.first);
		return r;
	}
	list.usage.own_layers = own_layers;
	*ret_list = list;
	return 0;
}

void use_list_close(struct use_list *list)
{
	usage_close(&list->usage);
	free(list->first);
	*list = (struct use_list){0};
}

const char *use_list_kind_name(enum use_list_kind kind)
{
	static const char *const names[USE_LIST_KINDS] = {"history", "binary history", "routing trace", "list"};

	return names[kind];
}

/* ---- lines ---- */

struct line {
	const char *at, *end;        /* without the line end */
	unsigned long number;        /* from 1 */
	char *message;
	size_t message_bytes;
};

static int is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static void skip_blanks(struct line *line)
{
	while (line->at < line->end && is_blank(*line->at))
		line->at++;
}

/* Digits, then a blank, a colon or the end. 0 or -EINVAL. */
static int take_number(struct line *line, uint32_t *ret_value)
{
	uint64_t value = 0;
	const char *begin;

	skip_blanks(line);
	for (begin = line->at; line->at < line->end && *line->at >= '0' && *line->at <= '9'; line->at++) {
		value = value * 10 + (uint64_t)(*line->at - '0');
		if (value > UINT32_MAX)
			return -EINVAL;
	}
	if (line->at == begin || (line->at < line->end && !is_blank(*line->at) && *line->at != ':'))
		return -EINVAL;
	*ret_value = (uint32_t)value;
	return 0;
}

/* A gate: how much it weighs is of no use here, but it must be a number. */
static int take_gate(struct line *line)
{
	const char *begin;
	int points = 0;

	if (line->at == line->end || *line->at++ != ':')
		return -EINVAL;
	line->at += line->at < line->end && *line->at == '-';
	for (begin = line->at; line->at < line->end && !is_blank(*line->at); line->at++) {
		points += *line->at == '.';
		if (*line->at != '.' && (*line->at < '0' || *line->at > '9'))
			return -EINVAL;
	}
	return line->at - begin > points && points <= 1 ? 0 : -EINVAL;
}

static int refuse_form(const struct line *line, const char *begin, const char *expected)
{
	int shown = line->end - begin < SHOWN_BYTES ? (int)(line->end - begin) : SHOWN_BYTES;

	return cnre_message(line->message, line->message_bytes, -EINVAL, "line %lu: expected `%s`, not \"%.*s\"",
			    line->number, expected, shown, begin);
}

static int count(struct use_list *list, const struct line *line, uint32_t layer, uint32_t expert)
{
	struct usage *usage = &list->usage;
	uint32_t *first;

	if (layer >= usage->layers && layer > usage->own_layers)
		return cnre_message(line->message, line->message_bytes, -EINVAL, "line %lu: layer %" PRIu32 " of %" PRIu32,
				    line->number, layer, usage->layers);
	if (expert >= usage->experts)
		return cnre_message(line->message, line->message_bytes, -EINVAL, "line %lu: expert %" PRIu32 " of %" PRIu32,
				    line->number, expert, usage->experts);
	if (layer >= usage->layers)
		return 0; /* a row behind the last layer, which this checkpoint lacks */
	usage_count(usage, layer, expert, 1);
	first = &list->first[(size_t)layer * usage->experts + expert];
	if (*first == 0)
		*first = ++list->places;
	return 0;
}

static int take_pair(struct use_list *list, struct line *line)
{
	const char *begin = line->at;
	uint32_t layer, expert;

	if (take_number(line, &layer) < 0 || take_number(line, &expert) < 0)
		return refuse_form(line, begin, "layer expert");
	skip_blanks(line);
	return line->at < line->end ? refuse_form(line, begin, "layer expert") : count(list, line, layer, expert);
}

static int take_row(struct use_list *list, struct line *line)
{
	const char *begin = line->at;
	uint32_t call, row, layer, expert;
	int r = 0;

	if (take_number(line, &call) < 0 || take_number(line, &row) < 0 || take_number(line, &layer) < 0)
		return refuse_form(line, begin, "call row layer expert:gate ...");
	skip_blanks(line);
	if (line->at == line->end)
		return refuse_form(line, begin, "call row layer expert:gate ...");
	for (skip_blanks(line); r == 0 && line->at < line->end; skip_blanks(line)) {
		if (take_number(line, &expert) < 0 || take_gate(line) < 0)
			return refuse_form(line, begin, "call row layer expert:gate ...");
		r = count(list, line, layer, expert);
	}
	return r;
}

/* The next line; 0 at the end of the text. */
static int next_line(const char **at, const char *end, struct line *line)
{
	const char *newline;

	if (*at == end)
		return 0;
	newline = memchr(*at, '\n', (size_t)(end - *at));
	line->at = *at;
	line->end = newline == NULL ? end : newline;
	*at = newline == NULL ? end : newline + 1;
	if (line->end > line->at && line->end[-1] == '\r')
		line->end--;
	line->number++;
	return 1;
}

static int read_lines(struct use_list *list, const char *text, size_t bytes, char *message, size_t message_bytes)
{
	struct line line = {.message = message, .message_bytes = message_bytes};
	const char *at = text, *end = text + bytes;
	int r = 0;

	while (r == 0 && next_line(&at, end, &line))
		r = list->kind == USE_LIST_TRACE ? take_row(list, &line) : take_pair(list, &line);
	return r;
}

/* ---- the whole ---- */

/* By its first line: gates are a trace's, two words a list's, and anything else is for the reader of histories to judge. */
static enum use_list_kind find_kind(const void *data, size_t bytes)
{
	const char *at = data;
	struct line line = {.number = 0};
	uint32_t words = 0;

	if (usage_is_binary(data, bytes))
		return USE_LIST_BINARY;
	if (!next_line(&at, at + bytes, &line))
		return USE_LIST_HISTORY;
	if (memchr(line.at, ':', (size_t)(line.end - line.at)) != NULL)
		return USE_LIST_TRACE;
	for (skip_blanks(&line); line.at < line.end; skip_blanks(&line)) {
		words++;
		while (line.at < line.end && !is_blank(*line.at))
			line.at++;
	}
	return words == 2 ? USE_LIST_PAIRS : USE_LIST_HISTORY;
}

/* A history is in the order of layers, which is as good as any among equals. */
static void number_history(struct use_list *list)
{
	for (size_t i = 0; i < (size_t)list->usage.layers * list->usage.experts; i++)
		if (list->usage.count[i] > 0)
			list->first[i] = ++list->places;
}

int use_list_read(struct use_list *list, const void *data, size_t bytes, char *message, size_t message_bytes)
{
	int r;

	if (bytes > USE_LIST_BYTES_MAX)
		return cnre_message(message, message_bytes, -EINVAL, "%zu bytes, %u at most", bytes, USE_LIST_BYTES_MAX);
	list->kind = find_kind(data, bytes);
	if (list->kind == USE_LIST_TRACE || list->kind == USE_LIST_PAIRS)
		return read_lines(list, data, bytes, message, message_bytes);
	r = usage_read(&list->usage, data, bytes, message, message_bytes);
	if (r == 0)
		number_history(list);
	return r;
}
