/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ROUTE_TRACE of Colibri's engines: a line for each row of each call of a layer, `call row layer expert:gate …`. Calls
 * count up, one a layer and forward pass; rows of a call are the tokens of its batch. A gap or a repetition means lost
 * lines or two runs in one file, and what a replay of that would say is worthless: refused.
 */
#include "tools/sim/trace_reader.h"

#include <errno.h>

struct place {
	uint32_t call, row, layer;
};

static int parse_place(struct sim_reader *reader, struct sim_text *line, struct place *ret_place)
{
	struct place place;

	if (sim_text_number(line, UINT32_MAX - 1, &place.call) < 0 ||
	    sim_text_number(line, UINT32_MAX - 1, &place.row) < 0 ||
	    sim_text_number(line, SIM_LAYERS_MAX - 1, &place.layer) < 0)
		return sim_refuse(reader, "expected `call row layer expert:gate ...`, layers below %u: record again",
				  SIM_LAYERS_MAX);
	*ret_place = place;
	return 0;
}

/* 1: `at` begins another visit than `before`; 0: it is the next row of that; or a refusal. */
static int check_order(struct sim_reader *reader, const struct place *before, const struct place *at)
{
	if (at->call == before->call && at->layer == before->layer) {
		if (at->row == before->row + 1)
			return 0;
		return sim_refuse(reader,
				  "row %u of call %u in layer %u after row %u: a repetition or a gap; record again",
				  at->row, at->call, at->layer, before->row);
	}
	if (at->call == before->call && at->layer < before->layer)
		return sim_refuse(reader,
				  "call %u goes back from layer %u to %u: an engine that does not count its calls: "
				  "record with a newer one",
				  at->call, before->layer, at->layer);
	if (at->call != before->call && at->call != before->call + 1)
		return sim_refuse(reader,
				  "call %u after call %u: lines are missing or two runs in one file; record again",
				  at->call, before->call);
	if (at->row != 0)
		return sim_refuse(reader, "call %u begins with row %u: lines are missing; record again", at->call,
				  at->row);
	return 1;
}

static int read_experts(struct sim_reader *reader, struct sim_text *line)
{
	uint32_t expert;
	int result = 0;

	while (result == 0 && !sim_text_is_done(line)) {
		if (sim_text_number(line, SIM_EXPERTS_MAX - 1, &expert) < 0 || !sim_text_take(line, ':') ||
		    sim_text_decimal(line) < 0 || (line->at < line->end && *line->at != ' ' && *line->at != '\t'))
			return sim_refuse(reader, "expected expert:gate, experts below %u: record again",
					  SIM_EXPERTS_MAX);
		result = sim_row_take(reader, expert);
	}
	return result;
}

/* The first call of a file may be any, so that a trace can be cut at calls. */
static int read_line(struct sim_reader *reader, struct sim_text *line, struct place *before, int is_first)
{
	struct place at = {0};
	int result = parse_place(reader, line, &at);

	if (result < 0)
		return result;
	if (is_first)
		*before = (struct place){.call = at.call - 1, .layer = SIM_LAYERS_MAX};
	result = check_order(reader, before, &at);
	if (result < 0)
		return result;
	if (result > 0) {
		if (at.layer <= before->layer)
			sim_sweep_begin(reader);
		result = sim_visit_begin(reader);
	}
	if (result == 0)
		result = sim_row_begin(reader, at.layer, at.row, 0, 1);
	if (result == 0)
		result = read_experts(reader, line);
	*before = at;
	return result == 0 ? sim_row_end(reader) : result;
}

int sim_read_route(struct sim_reader *reader)
{
	struct place before = {0};
	struct sim_text line;
	int got, result, is_first = 1;

	while ((got = sim_next_line(reader, &line)) > 0) {
		result = read_line(reader, &line, &before, is_first);
		if (result < 0)
			return result;
		is_first = 0;
	}
	return got;
}
