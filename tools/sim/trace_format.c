/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the formats, and which one a file has, by how it begins. */
#include "tools/sim/trace_reader.h"

#include "base/check.h"
#include "policy/record.h"

#include <errno.h>
#include <string.h>

static const char *const names[] = {
	[SIM_FORMAT_AUTO] = "auto", [SIM_FORMAT_ROUTE] = "route", [SIM_FORMAT_REPLAY] = "replay",
	[SIM_FORMAT_CSV] = "csv",   [SIM_FORMAT_GROUP] = "group", [SIM_FORMAT_BINARY] = "binary",
};

const char *sim_format_name(enum sim_format format)
{
	return names[format];
}

int sim_format_parse(const char *name, enum sim_format *ret_format)
{
	size_t i;

	for (i = 0; i < CNRE_COUNT_OF(names); i++)
		if (strcmp(name, names[i]) == 0) {
			*ret_format = (enum sim_format)i;
			return 0;
		}
	return -EINVAL;
}

/* Of numbers: three and a gate, two, or more. */
static int of_numbers(struct sim_text line, enum sim_format *ret_format)
{
	uint32_t number, count = 0;

	while (sim_text_number(&line, UINT32_MAX, &number) == 0) {
		count++;
		if (count == 4 && sim_text_take(&line, ':')) {
			*ret_format = SIM_FORMAT_ROUTE;
			return 0;
		}
	}
	if (!sim_text_is_done(&line) || count < 2)
		return -EINVAL;
	*ret_format = count == 2 ? SIM_FORMAT_REPLAY : SIM_FORMAT_GROUP;
	return 0;
}

static int of_first_line(struct sim_reader *reader, enum sim_format *ret_format)
{
	static const char header[] = "turn,phase,";
	struct sim_text line;
	int got = sim_next_line(reader, &line);

	if (got < 0)
		return got;
	if (got == 0)
		return sim_refuse(reader, "an empty file: record again");
	if ((size_t)(line.end - line.at) >= strlen(header) && memcmp(line.at, header, strlen(header)) == 0)
		*ret_format = SIM_FORMAT_CSV;
	else if (of_numbers(line, ret_format) < 0)
		return sim_refuse(reader, "no trace that is known: give a route, replay, csv, group or binary trace");
	return 0;
}

/* Looks only: what was taken from the buffer is given back. The first line lies in it whole, or else it is refused. */
int sim_detect(struct sim_reader *reader)
{
	struct sim_input *input = &reader->input;
	enum sim_format format = SIM_FORMAT_AUTO;
	int result = sim_input_fill(reader);

	if (result < 0)
		return result;
	if (input->end >= strlen(RECORD_MAGIC) && memcmp(input->buffer, RECORD_MAGIC, strlen(RECORD_MAGIC)) == 0) {
		reader->format = SIM_FORMAT_BINARY;
		return 0;
	}
	result = of_first_line(reader, &format);
	if (result < 0)
		return result;
	reader->format = format;
	reader->line = 0;
	input->at = input->end = 0;
	input->read_bytes = 0;
	return 0;
}
