/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BigMoeOnEdge's routing trace: comments that may say `n_expert=N` and `layer=N expert_bytes=N`, a header, then `turn,phase,step,layer,slot,expert,weight,residency,bytes`, a line
 * for each expert. Lines of one (turn, phase, step, layer) are a row; its slots count up from 0. The prompt (phase 0) goes
 * layer by layer, all its steps in each, so its rows of one layer are one visit.
 */
#include "tools/sim/trace_reader.h"

#include <errno.h>
#include <string.h>

#define HEADER "turn,phase,step,layer,slot,expert,"
#define PHASE_PREFILL 0u

enum { TURN, PHASE, STEP, LAYER, SLOT, EXPERT, FIELDS };

struct csv {
	uint32_t key[FIELDS]; /* of the row that is open */
	uint32_t first_step;  /* of the sweep */
	int has_row;
	uint32_t experts;     /* of every layer, as the comments say; 0: they do not */
};

/* The number behind `name` in a comment. 0, or -EINVAL: it is not there. */
static int find_number(struct sim_text line, const char *name, uint32_t max, uint32_t *ret_number)
{
	size_t bytes = strlen(name);

	for (; (size_t)(line.end - line.at) > bytes; line.at++)
		if (memcmp(line.at, name, bytes) == 0) {
			line.at += bytes;
			return sim_text_number(&line, max, ret_number);
		}
	return -EINVAL;
}

static void take_comment(struct sim_reader *reader, struct csv *csv, struct sim_text line)
{
	uint32_t layer, bytes;

	(void)find_number(line, " n_expert=", SIM_EXPERTS_MAX, &csv->experts);
	if (find_number(line, " layer=", SIM_LAYERS_MAX - 1, &layer) == 0 &&
	    find_number(line, " expert_bytes=", UINT32_MAX, &bytes) == 0)
		reader->resident_bytes[layer] = reader->read_bytes[layer] = bytes;
}

static int read_header(struct sim_reader *reader, struct csv *csv)
{
	struct sim_text line, look;
	int got;

	while ((got = sim_any_line(reader, &line)) > 0) {
		look = line;
		if (!sim_text_is_done(&look) && *look.at != '#')
			break;
		take_comment(reader, csv, line);
	}
	if (got < 0)
		return got;
	if (got == 0 || (size_t)(line.end - line.at) < strlen(HEADER) || memcmp(line.at, HEADER, strlen(HEADER)) != 0)
		return sim_refuse(reader, "expected the header `" HEADER "...`: record again");
	return 0;
}

static int parse_fields(struct sim_reader *reader, struct sim_text *line, uint32_t field[FIELDS])
{
	static const uint32_t max[FIELDS] = {
		UINT32_MAX - 1, 1, UINT32_MAX - 1, SIM_LAYERS_MAX - 1, SIM_ROW_EXPERTS_MAX - 1, SIM_EXPERTS_MAX - 1};
	static const char *const name[FIELDS] = {"turn",  "phase (0 prefill, 1 decode)", "step", "layer", "slot",
						 "expert"};
	unsigned i;

	for (i = 0; i < FIELDS; i++)
		if (sim_text_number(line, max[i], &field[i]) < 0 || !sim_text_take(line, ','))
			return sim_refuse(reader, "expected the %s, at most %u, as field %u: record again", name[i],
					  max[i], i + 1);
	if (sim_text_decimal(line) < 0 || !sim_text_take(line, ',') || sim_text_decimal(line) < 0 ||
	    !sim_text_take(line, ',') || sim_text_decimal(line) < 0 || !sim_text_is_done(line))
		return sim_refuse(reader, "expected weight,residency,bytes after the expert: a cut line, record again");
	return 0;
}

/* Steps count up within a phase of a turn, and only then may layers begin anew. */
static int check_order(struct sim_reader *reader, const struct csv *csv, const uint32_t field[FIELDS])
{
	const uint32_t *key = csv->key;

	if (field[TURN] < key[TURN])
		return sim_refuse(reader, "turn %u after turn %u: two runs in one file? record again", field[TURN],
				  key[TURN]);
	if (field[TURN] != key[TURN] || field[PHASE] != key[PHASE])
		return 0;
	if (field[LAYER] == key[LAYER] && field[STEP] <= key[STEP])
		return sim_refuse(reader,
				  "step %u of layer %u after step %u: a repetition or lines out of order; record again",
				  field[STEP], field[LAYER], key[STEP]);
	if (field[PHASE] != PHASE_PREFILL &&
	    (field[STEP] < key[STEP] || (field[STEP] == key[STEP] && field[LAYER] < key[LAYER])))
		return sim_refuse(reader, "step %u, layer %u after step %u, layer %u: lines out of order; record again",
				  field[STEP], field[LAYER], key[STEP], key[LAYER]);
	return 0;
}

static int begin_row(struct sim_reader *reader, struct csv *csv, const uint32_t field[FIELDS])
{
	int is_prefill = field[PHASE] == PHASE_PREFILL, same_phase, same_visit, result;

	same_phase = csv->has_row && field[TURN] == csv->key[TURN] && field[PHASE] == csv->key[PHASE];
	same_visit = same_phase && is_prefill && field[LAYER] == csv->key[LAYER];
	if (!same_phase || (!same_visit && field[LAYER] <= csv->key[LAYER]) ||
	    (!is_prefill && field[STEP] != csv->key[STEP])) {
		sim_sweep_begin(reader);
		csv->first_step = field[STEP];
	}
	if (field[STEP] < csv->first_step)
		return sim_refuse(
			reader,
			"step %u in a sweep over layers that began with step %u: lines out of order; record again",
			field[STEP], csv->first_step);
	result = same_visit ? 0 : sim_visit_begin(reader);
	if (result == 0)
		result = sim_row_begin(reader, field[LAYER], field[STEP] - csv->first_step, 0, 1);
	memcpy(csv->key, field, sizeof csv->key);
	csv->has_row = 1;
	return result;
}

static int is_wanted(const struct sim_reader *reader, uint32_t phase)
{
	unsigned phases = reader->load->phases;

	return phases == 0 || (phases & (phase == PHASE_PREFILL ? SIM_PHASE_PREFILL : SIM_PHASE_DECODE)) != 0;
}

static int read_line(struct sim_reader *reader, struct csv *csv, struct sim_text *line)
{
	uint32_t field[FIELDS];
	int result = parse_fields(reader, line, field);

	if (result < 0 || !is_wanted(reader, field[PHASE]))
		return result;
	if (!csv->has_row || memcmp(csv->key, field, SLOT * sizeof field[0]) != 0) {
		result = sim_row_end(reader);
		if (result == 0 && csv->has_row)
			result = check_order(reader, csv, field);
		if (result == 0)
			result = begin_row(reader, csv, field);
	}
	if (result < 0)
		return result;
	if (field[SLOT] != reader->row.count)
		return sim_refuse(reader, "slot %u where %u was due: a repetition or a gap; record again", field[SLOT],
				  reader->row.count);
	return sim_row_take(reader, field[EXPERT]);
}

/* What the comments said is believed where it covers what the rows have: all of their layers, or none. */
static int declare(struct sim_reader *reader, const struct csv *csv)
{
	int has_bytes = 1;
	uint32_t i;

	for (i = 0; i < SIM_LAYERS_MAX; i++) {
		has_bytes &= reader->experts[i] == 0 || reader->resident_bytes[i] != 0;
		if (csv->experts != 0 && reader->experts[i] > csv->experts)
			return sim_refuse(reader, "expert %u of layer %u: the comments say n_expert=%u: record again",
					  reader->experts[i] - 1, i, csv->experts);
	}
	for (i = 0; i < SIM_LAYERS_MAX; i++) {
		if (csv->experts != 0 && reader->experts[i] != 0)
			reader->experts[i] = csv->experts;
		if (!has_bytes || csv->experts == 0)
			reader->resident_bytes[i] = reader->read_bytes[i] = 0;
	}
	reader->declared = csv->experts != 0;
	return 0;
}

int sim_read_csv(struct sim_reader *reader)
{
	struct csv csv = {0};
	struct sim_text line;
	int got, result = read_header(reader, &csv);

	if (result < 0)
		return result;
	while ((got = sim_next_line(reader, &line)) > 0) {
		result = read_line(reader, &csv, &line);
		if (result < 0)
			return result;
	}
	result = got < 0 ? got : sim_row_end(reader);
	return result < 0 ? result : declare(reader, &csv);
}
