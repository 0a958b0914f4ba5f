/* SPDX-License-Identifier: Apache-2.0 */
/* Residents at the start; see residents.h. */
#include "tools/sim/residents.h"

#include "base/message.h"
#include "tools/sim/trace_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct residents {
	const struct sim_geometry *geometry;
	struct sim_reader *reader; /* its text and messages */
	unsigned char *seen;       /* [object_count] */
	uint32_t *object, count;   /* room for all objects */
};

static int take(struct residents *residents, uint32_t number, uint32_t expert)
{
	const struct sim_geometry *geometry = residents->geometry;
	uint32_t i, object;

	for (i = 0; i < geometry->layer_count && geometry->number[i] != number; i++)
		;
	if (i == geometry->layer_count)
		return sim_refuse(residents->reader, "layer %u: the traces have no such layer: name layers of theirs",
				  number);
	if (expert >= geometry->experts[i])
		return sim_refuse(residents->reader,
				  "expert %u of layer %u: it has %u: name one below, or say how many there are", expert,
				  number, geometry->experts[i]);
	object = geometry->first_object[i] + expert;
	if (residents->seen[object])
		return sim_refuse(residents->reader, "expert %u of layer %u twice: name each once", expert, number);
	residents->seen[object] = 1;
	residents->object[residents->count++] = object;
	return 0;
}

static int read_pair(struct sim_text *text, char between, uint32_t *ret_layer, uint32_t *ret_expert)
{
	if (sim_text_number(text, SIM_LAYERS_MAX - 1, ret_layer) < 0 || !sim_text_take(text, between))
		return -EINVAL;
	return sim_text_number(text, SIM_EXPERTS_MAX - 1, ret_expert);
}

static int read_list(struct residents *residents, const char *list)
{
	struct sim_text text = {.at = list, .end = list + strlen(list)};
	uint32_t layer = 0, expert = 0;
	int result = 0;

	residents->reader->line = 1;
	do {
		if (read_pair(&text, ':', &layer, &expert) < 0 || (text.at < text.end && *text.at != ','))
			return sim_refuse(residents->reader, "expected layer:expert,layer:expert,...");
		result = take(residents, layer, expert);
	} while (result == 0 && sim_text_take(&text, ','));
	return result;
}

static int read_lines(struct residents *residents)
{
	struct sim_reader *reader = residents->reader;
	uint32_t layer = 0, expert = 0;
	struct sim_text line;
	int got, result = 0;

	while (result == 0 && (got = sim_next_line(reader, &line)) != 0) {
		if (got < 0)
			return got;
		if (read_pair(&line, ' ', &layer, &expert) < 0 || !sim_text_is_done(&line))
			return sim_refuse(reader, "expected `layer expert`: write the line anew");
		result = take(residents, layer, expert);
	}
	return result;
}

/* Of nothing but digits, colons and commas, with a colon: no one names a file so. */
static int is_list(const char *text)
{
	return strchr(text, ':') != NULL && text[strspn(text, "0123456789:,")] == '\0';
}

static int read_either(struct residents *residents, const char *text)
{
	int result;

	if (is_list(text))
		return read_list(residents, text);
	result = sim_input_open(residents->reader);
	if (result < 0)
		return result;
	result = read_lines(residents);
	sim_input_close(&residents->reader->input);
	return result;
}

int sim_residents_open(uint32_t **ret_object, uint32_t *ret_count, const char *text,
		       const struct sim_geometry *geometry, char *message, size_t message_bytes)
{
	static const struct sim_load no_load = {0};
	struct residents residents = {
		.geometry = geometry,
		.reader = calloc(1, sizeof *residents.reader),
		.seen = calloc(geometry->object_count, 1),
		.object = calloc(geometry->object_count, sizeof residents.object[0]),
	};
	int result = -ENOMEM;

	if (residents.reader != NULL && residents.seen != NULL && residents.object != NULL) {
		residents.reader->path = is_list(text) ? "residents" : text;
		residents.reader->load = &no_load;
		residents.reader->message = message;
		residents.reader->message_bytes = message_bytes;
		result = read_either(&residents, text);
	} else {
		(void)cnre_message(message, message_bytes, result, "no memory for residents");
	}
	free(residents.reader);
	free(residents.seen);
	if (result < 0) {
		free(residents.object);
		return result;
	}
	*ret_object = residents.object;
	*ret_count = residents.count;
	return 0;
}
