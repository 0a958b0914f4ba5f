/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group lines: `token layer expert …`, token by token, layers of a token in ascending order. Tokens count up; they need not
 * begin with 0 (held-out sessions go on from the one before), and are numbered from 0 here.
 */
#include "tools/sim/trace_reader.h"

#include <errno.h>

struct place {
	uint32_t token, layer;
};

static int check_order(struct sim_reader *reader, const struct place *before, const struct place *at)
{
	if (at->token < before->token)
		return sim_refuse(reader, "token %u after token %u: tokens count up; is this two runs in one file?",
				  at->token, before->token);
	if (at->token == before->token && at->layer <= before->layer)
		return sim_refuse(
			reader, "layer %u of token %u after layer %u: a repetition, or layers out of order; sort them",
			at->layer, at->token, before->layer);
	return 0;
}

static int is_delimited(const struct sim_text *line)
{
	return line->at == line->end || *line->at == ' ' || *line->at == '\t';
}

static int read_line(struct sim_reader *reader, struct sim_text *line, struct place *ret_at)
{
	if (sim_text_number(line, UINT32_MAX, &ret_at->token) < 0 || !is_delimited(line) ||
	    sim_text_number(line, SIM_LAYERS_MAX - 1, &ret_at->layer) < 0 || !is_delimited(line))
		return sim_refuse(reader, "expected `token layer expert ...`, layers below %u: write the line anew",
				  SIM_LAYERS_MAX);
	return 0;
}

static int read_experts(struct sim_reader *reader, struct sim_text *line)
{
	uint32_t expert;
	int result = 0;

	while (result == 0 && !sim_text_is_done(line)) {
		if (sim_text_number(line, SIM_EXPERTS_MAX - 1, &expert) < 0 || !is_delimited(line))
			return sim_refuse(reader,
					  "expected experts below %u after token and layer: write the line anew",
					  SIM_EXPERTS_MAX);
		result = sim_row_take(reader, expert);
	}
	return result;
}

int sim_read_group(struct sim_reader *reader)
{
	struct place before = {0}, at = {0};
	struct sim_text line;
	int got, result, is_first = 1;

	while ((got = sim_next_line(reader, &line)) > 0) {
		result = read_line(reader, &line, &at);
		if (result == 0 && !is_first)
			result = check_order(reader, &before, &at);
		if (result < 0)
			return result;
		if (is_first || at.token != before.token)
			sim_sweep_begin(reader);
		result = sim_visit_begin(reader);
		if (result == 0)
			result = sim_row_begin(reader, at.layer, 0, 0, 1);
		if (result == 0)
			result = read_experts(reader, &line);
		if (result == 0)
			result = sim_row_end(reader);
		if (result < 0)
			return result;
		before = at;
		is_first = 0;
	}
	return got;
}
