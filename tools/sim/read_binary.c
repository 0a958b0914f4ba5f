/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binary trace of policy/record.h. What clients did is kept in the order in which it was told: where another client
 * comes between, the row ends, and goes on as a visit of its own. A batch of the manager knows no tokens and is one row.
 * Whether a lookup was a hit then does not matter now.
 */
#include "tools/sim/trace_reader.h"

#include "base/message.h"
#include "policy/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS_MAX 65536u

struct client {
	uint32_t base, end;     /* tokens of its sweep */
	uint32_t layer, tokens; /* of its visit */
	uint32_t index;         /* of the token in the sweep */
	unsigned char in_sweep, in_visit;
};

struct binary {
	struct record_header header;
	uint32_t *first_object; /* [layer_count + 1] */
	struct client *client;  /* [CLIENTS_MAX] */
	uint32_t latest;        /* client of the open row */
	struct record wait;     /* came last, and waits for its visit; kind RECORD_WAIT, or there is none */
	uint64_t records;
};

static void fini(struct binary *binary)
{
	record_free_header(&binary->header);
	free(binary->first_object);
	free(binary->client);
}

static int grow_buffer(struct sim_reader *reader)
{
	struct sim_input *input = &reader->input;
	unsigned char *buffer;

	if (input->room >= SIM_HEADER_BYTES_MAX)
		return sim_refuse(reader, "a header of more than %u bytes: this is no trace", SIM_HEADER_BYTES_MAX);
	buffer = realloc(input->buffer, input->room * 2);
	if (buffer == NULL)
		return sim_refuse_error(reader, -ENOMEM);
	input->buffer = buffer;
	input->room *= 2;
	return 0;
}

/* The header's own bounds make its size bounded. */
static int read_header(struct sim_reader *reader, struct record_header *ret_header)
{
	struct sim_input *input = &reader->input;
	long took = 0;
	int got = 1, result = 0;

	while (result == 0 && got > 0) {
		got = sim_input_fill(reader);
		if (got < 0)
			return got;
		took = record_get_header(input->buffer + input->at, input->end - input->at, ret_header);
		if (took != 0)
			break;
		if (input->end == input->room) {
			got = 1;
			result = grow_buffer(reader);
		}
	}
	if (result < 0)
		return result;
	if (took == -ENOMEM)
		return sim_refuse_error(reader, -ENOMEM);
	if (took <= 0)
		return sim_refuse(reader, took < 0 ? "no header of a trace: damaged, record again"
						   : "ends within its header: cut, record again");
	input->at += (size_t)took;
	return 0;
}

/* Layers by ascending number, as the geometry has them; objects as the header counts them. */
static int take_geometry(struct sim_reader *reader, struct binary *binary)
{
	const struct record_header *header = &binary->header;
	const struct record_layer *layer;
	uint32_t i, objects = 0;

	binary->first_object = calloc(header->layer_count + 1, sizeof binary->first_object[0]);
	if (binary->first_object == NULL)
		return sim_refuse_error(reader, -ENOMEM);
	for (i = 0; i < header->layer_count; i++) {
		layer = &header->layer[i];
		if (layer->number >= SIM_LAYERS_MAX || layer->experts > SIM_EXPERTS_MAX ||
		    reader->experts[layer->number] != 0 || layer->experts > SIM_OBJECTS_MAX - objects)
			return sim_refuse(reader,
					  "layer %u of the header: twice, or beyond the limits: damaged, record again",
					  layer->number);
		reader->experts[layer->number] = layer->experts;
		reader->resident_bytes[layer->number] = layer->resident_bytes;
		reader->read_bytes[layer->number] = layer->read_bytes;
		objects += layer->experts;
		binary->first_object[i + 1] = objects;
	}
	reader->declared = 1;
	reader->top_k = header->top_k <= SIM_ROW_EXPERTS_MAX ? header->top_k : 0;
	reader->widths_may_differ = 1;
	return 0;
}

static int find_object(struct sim_reader *reader, const struct binary *binary, uint64_t object, uint32_t *ret_layer,
		       uint32_t *ret_expert)
{
	uint32_t low = 0, high = binary->header.layer_count, middle;

	if (object >= binary->first_object[high])
		return sim_refuse(reader, "object %llu of %u: damaged, record again", (unsigned long long)object,
				  binary->first_object[high]);
	while (high - low > 1) {
		middle = low + (high - low) / 2;
		if (binary->first_object[middle] <= object)
			low = middle;
		else
			high = middle;
	}
	*ret_layer = binary->header.layer[low].number;
	*ret_expert = (uint32_t)object - binary->first_object[low];
	return 0;
}

static int take_residents(struct sim_reader *reader, struct binary *binary)
{
	struct sim_trace *trace = reader->trace;
	uint32_t i, layer = 0, expert = 0;
	int result;

	for (i = 0; i < binary->header.resident_count; i++) {
		result = find_object(reader, binary, binary->header.resident[i], &layer, &expert);
		if (result < 0)
			return result;
		binary->header.resident[i] = layer << 16 | expert;
	}
	trace->budget_bytes = binary->header.budget_bytes;
	trace->resident_count = binary->header.resident_count;
	trace->resident = binary->header.resident;
	binary->header.resident = NULL;
	binary->header.resident_count = 0;
	return 0;
}

/* A sweep of a client begins where its layers do not go up, after TOKEN, or where a visit has more tokens than it had. */
static void begin_visit(struct sim_reader *reader, struct client *client, uint32_t layer, uint32_t tokens)
{
	if (!client->in_sweep || layer <= client->layer || tokens > client->end - client->base) {
		client->base = reader->token_end;
		client->end = tokens > UINT32_MAX - client->base ? UINT32_MAX : client->base + tokens;
		reader->token_end = client->end;
		client->in_sweep = 1;
	}
	client->layer = layer;
	client->tokens = tokens;
	client->index = 0;
	client->in_visit = 1;
}

/* VISIT of 0 tokens: the next token's row. Tokens of other clients may have come between, then it gets one of its own. */
static void next_token(struct sim_reader *reader, struct client *client)
{
	client->tokens = 1;
	if (++client->index < client->end - client->base)
		return;
	if (client->end != reader->token_end) {
		client->base = client->end = reader->token_end;
		client->index = 0;
	}
	if (client->end < UINT32_MAX)
		reader->token_end = ++client->end;
}

static int begin_row(struct sim_reader *reader, const struct client *client, uint32_t number)
{
	reader->token_base = client->base;
	return sim_row_begin(reader, client->layer, client->index, number, client->tokens);
}

static int take_visit(struct sim_reader *reader, struct binary *binary, const struct record *record)
{
	struct client *client = &binary->client[record->client];
	uint64_t layer = record->a, tokens = record->b;
	int result = sim_row_end(reader), goes_on;

	if (result < 0)
		return result;
	if (layer >= binary->header.layer_count || tokens >= UINT32_MAX)
		return sim_refuse(reader, "a visit of layer %llu of %u with %llu tokens: damaged, record again",
				  (unsigned long long)layer, binary->header.layer_count, (unsigned long long)tokens);
	if (binary->wait.kind == RECORD_WAIT && binary->wait.client == record->client && binary->wait.a == layer)
		result = sim_wait_add(reader, binary->wait.b, binary->wait.c);
	if (result < 0)
		return result;
	layer = binary->header.layer[layer].number;
	goes_on = tokens == 0 && client->in_visit && client->layer == layer && binary->latest == record->client;
	if (goes_on)
		next_token(reader, client);
	else
		begin_visit(reader, client, (uint32_t)layer, tokens > 0 ? (uint32_t)tokens : 1);
	binary->latest = record->client;
	return goes_on ? 0 : sim_visit_begin(reader);
}

/* A lookup outside a visit is a visit of its own; one of another client's turn begins a row and a call, too. */
static int take_access(struct sim_reader *reader, struct binary *binary, const struct record *record)
{
	struct client *client = &binary->client[record->client];
	uint32_t layer = 0, expert = 0;
	int result = find_object(reader, binary, record->a, &layer, &expert);

	if (result < 0)
		return result;
	if (!client->in_visit || client->layer != layer || binary->latest != record->client) {
		result = sim_row_end(reader);
		if (!client->in_visit || client->layer != layer)
			begin_visit(reader, client, layer, 1);
		binary->latest = record->client;
		result = result < 0 ? result : sim_visit_begin(reader);
	}
	if (result == 0 && !reader->row_is_open)
		result = begin_row(reader, client, record->client);
	if (result < 0)
		return result;
	result = sim_row_add(reader, expert);
	if (result != -EEXIST && result != -E2BIG)
		return result;
	result = sim_row_end(reader);
	if (result == 0)
		result = begin_row(reader, client, record->client);
	return result == 0 ? sim_row_add(reader, expert) : result;
}

/* 1 at the end. */
static int take_record(struct sim_reader *reader, struct binary *binary, const struct record *record)
{
	if (record->client >= CLIENTS_MAX)
		return sim_refuse(reader, "client %u: only %u can be told apart: damaged, record again", record->client,
				  CLIENTS_MAX);
	switch (record->kind) {
	case RECORD_VISIT:
		return take_visit(reader, binary, record);
	case RECORD_ACCESS:
		return take_access(reader, binary, record);
	case RECORD_TOKEN:
		binary->client[record->client].in_sweep = 0;
		binary->client[record->client].in_visit = 0;
		return binary->latest == record->client ? sim_row_end(reader) : 0;
	case RECORD_LOST:
		if (__builtin_add_overflow(reader->trace->lost, record->a, &reader->trace->lost))
			reader->trace->lost = UINT64_MAX;
		return 0;
	case RECORD_END:
		if (record->a != binary->records)
			return sim_refuse(reader, "%llu records where its end counts %llu: damaged, record again",
					  (unsigned long long)binary->records, (unsigned long long)record->a);
		return 1;
	default:
		return 0;
	}
}

/* 1, or 0 at the end of the file, or a refusal. */
static int next_record(struct sim_reader *reader, struct record *ret_record)
{
	struct sim_input *input = &reader->input;
	long took;
	int got;

	while ((took = record_get(input->buffer + input->at, input->end - input->at, ret_record)) == 0) {
		if (input->end - input->at >= RECORD_BYTES_MAX)
			break;
		got = sim_input_fill(reader);
		if (got <= 0)
			return got;
	}
	if (took <= 0)
		return sim_refuse(reader, "no record: damaged, record again");
	input->at += (size_t)took;
	return 1;
}

static int read_records(struct sim_reader *reader, struct binary *binary)
{
	struct record record = {0};
	int got, result = 0;

	while (result == 0 && (got = next_record(reader, &record)) != 0) {
		if (got < 0)
			return got;
		result = take_record(reader, binary, &record);
		binary->wait = record; /* what a visit before this one waited for stands right before it */
		binary->records++;
	}
	if (result < 0)
		return result;
	if (result == 0)
		return sim_refuse(reader, "ends after %llu records without its end: cut, record again",
				  (unsigned long long)binary->records);
	if (next_record(reader, &record) != 0)
		return sim_refuse(reader, "bytes after its end: damaged, record again");
	return reader->input.at == reader->input.end ? sim_row_end(reader)
						     : sim_refuse(reader, "bytes after its end: damaged, record again");
}

int sim_read_binary(struct sim_reader *reader)
{
	struct binary binary = {0};
	int result = read_header(reader, &binary.header);

	if (result < 0)
		return result;
	binary.client = calloc(CLIENTS_MAX, sizeof binary.client[0]);
	result = binary.client == NULL ? sim_refuse_error(reader, -ENOMEM) : take_geometry(reader, &binary);
	if (result == 0)
		result = take_residents(reader, &binary);
	if (result == 0)
		result = read_records(reader, &binary);
	fini(&binary);
	return result;
}
