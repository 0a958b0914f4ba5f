/* SPDX-License-Identifier: Apache-2.0 */
/*
 * V4_REPLAY_TRACE of Colibri's DeepSeek engine: `layer expert` for each lookup, in the order of the cache. Lookups of one
 * layer that follow one another are a row. An expert that comes again among them is of another token's row of the same
 * visit, for no router chooses one twice. So rows differ in width, and the usual width is taken as top-k.
 */
#include "tools/sim/trace_reader.h"

#include <errno.h>

struct visit {
	uint32_t layer, index; /* index of the row in the visit */
	int is_open;
};

static int begin_visit(struct sim_reader *reader, struct visit *visit, uint32_t layer)
{
	int result = sim_row_end(reader);

	if (result < 0)
		return result;
	if (!visit->is_open || layer < visit->layer)
		sim_sweep_begin(reader);
	*visit = (struct visit){.layer = layer, .is_open = 1};
	result = sim_visit_begin(reader);
	return result < 0 ? result : sim_row_begin(reader, layer, 0, 0, 1);
}

static int take(struct sim_reader *reader, struct visit *visit, uint32_t expert)
{
	int result = sim_row_add(reader, expert);

	if (result != -EEXIST && result != -E2BIG)
		return result;
	result = sim_row_end(reader);
	if (result == 0)
		result = sim_row_begin(reader, visit->layer, ++visit->index, 0, 1);
	return result == 0 ? sim_row_add(reader, expert) : result;
}

int sim_read_replay(struct sim_reader *reader)
{
	struct visit visit = {0};
	uint32_t layer, expert;
	struct sim_text line;
	int got, result = 0;

	reader->widths_may_differ = 1;
	while ((got = sim_next_line(reader, &line)) > 0) {
		if (sim_text_number(&line, SIM_LAYERS_MAX - 1, &layer) < 0 || line.at == line.end ||
		    (*line.at != ' ' && *line.at != '\t') || sim_text_number(&line, SIM_EXPERTS_MAX - 1, &expert) < 0 ||
		    !sim_text_is_done(&line))
			return sim_refuse(reader,
					  "expected `layer expert`, layers below %u, experts below %u: record again",
					  SIM_LAYERS_MAX, SIM_EXPERTS_MAX);
		if (!visit.is_open || layer != visit.layer)
			result = begin_visit(reader, &visit, layer);
		if (result == 0)
			result = take(reader, &visit, expert);
		if (result < 0)
			return result;
	}
	return got < 0 ? got : sim_row_end(reader);
}
