/* SPDX-License-Identifier: Apache-2.0 */
/* Rows put together and stored; see trace_reader.h. */
#include "tools/sim/trace_reader.h"

#include "base/message.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

_Static_assert(SIM_STORE_BUFFER_BYTES % sizeof(struct sim_row) == 0, "pieces hold whole rows");
_Static_assert(SIM_STORE_BUFFER_BYTES % sizeof(struct sim_wait) == 0, "and whole waits");

int sim_visit_begin(struct sim_reader *reader)
{
	if (reader->visits == UINT32_MAX)
		return sim_refuse(reader, "more than %u visits: cut the trace", UINT32_MAX);
	reader->visits++;
	return 0;
}

void sim_sweep_begin(struct sim_reader *reader)
{
	reader->token_base = reader->token_end;
}

int sim_row_begin(struct sim_reader *reader, uint32_t layer, uint32_t index, uint32_t client, uint32_t tokens)
{
	if (index >= UINT32_MAX - reader->token_base)
		return sim_refuse(reader, "more than %u tokens: cut the trace", UINT32_MAX);
	reader->row = (struct sim_row){
		.first = reader->trace->access_count,
		.layer = layer,
		.tokens = tokens,
		.client = client,
		.token = reader->token_base + index,
		.call = reader->visits - 1,
	};
	reader->row_serial++;
	reader->row_is_open = 1;
	return 0;
}

int sim_row_add(struct sim_reader *reader, uint32_t expert)
{
	struct sim_row *row = &reader->row;

	if (!reader->declared && reader->load->experts != 0 && expert >= reader->load->experts)
		return sim_refuse(reader, "expert %u of layer %u: layers have %u: give the model's number of experts",
				  expert, row->layer, reader->load->experts);
	if (reader->stamp[expert] == reader->row_serial)
		return -EEXIST;
	if (row->count == SIM_ROW_EXPERTS_MAX)
		return -E2BIG;
	reader->stamp[expert] = reader->row_serial;
	reader->expert[row->count++] = row->layer << 16 | expert;
	if (!reader->declared && reader->experts[row->layer] <= expert)
		reader->experts[row->layer] = expert + 1;
	return 0;
}

int sim_row_take(struct sim_reader *reader, uint32_t expert)
{
	int result = sim_row_add(reader, expert);

	if (result == -EEXIST)
		return sim_refuse(reader, "expert %u twice in a row: a router chooses each once, record again", expert);
	if (result == -E2BIG)
		return sim_refuse(reader, "a row of more than %u experts: this is no trace", SIM_ROW_EXPERTS_MAX);
	return result;
}

static int check_width(struct sim_reader *reader)
{
	if (reader->widths_may_differ)
		return 0;
	if (reader->top_k == 0)
		reader->top_k = reader->row.count;
	if (reader->top_k == reader->row.count)
		return 0;
	return sim_refuse(
		reader,
		"%u experts in the row that ends here, %u in those before: a cut line, or two models in one trace: record again",
		reader->row.count, reader->top_k);
}

static int store_failed(struct sim_reader *reader, int error)
{
	return cnre_message(reader->message, reader->message_bytes, error,
			    "%s: no room for its rows in %s (%s): set TMPDIR to a directory with more room",
			    reader->path, sim_store_directory(reader->load->temporary), strerror(-error));
}

static uint32_t saturated(uint64_t value)
{
	return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

int sim_wait_add(struct sim_reader *reader, uint64_t misses, uint64_t wait_us)
{
	struct sim_wait wait = {.call = reader->visits, .misses = saturated(misses), .wait_us = saturated(wait_us)};
	int result = sim_store_append(reader->waits, &wait, sizeof wait);

	if (result < 0)
		return store_failed(reader, result);
	reader->trace->wait_count++;
	return 0;
}

int sim_row_end(struct sim_reader *reader)
{
	struct sim_row *row = &reader->row;
	int result;

	if (!reader->row_is_open)
		return 0;
	reader->row_is_open = 0;
	if (row->count == 0)
		return sim_refuse(reader, "a row without experts: a cut line, record again");
	result = check_width(reader);
	if (result < 0)
		return result;
	result = sim_store_append(reader->rows, row, sizeof *row);
	if (result == 0)
		result = sim_store_append(reader->objects, reader->expert, row->count * sizeof reader->expert[0]);
	if (result < 0)
		return store_failed(reader, result);
	reader->width_count[row->count]++;
	reader->trace->row_count++;
	reader->trace->access_count += row->count;
	if (reader->token_end <= row->token)
		reader->token_end = row->token + 1;
	return 0;
}
