/* SPDX-License-Identifier: Apache-2.0 */
/* Traces out; see trace_write.h. */
#include "tools/sim/trace_write.h"

#include "base/check.h"
#include "base/message.h"

#include <errno.h>
#include <stdlib.h>

int sim_writer_open(struct sim_writer *ret_writer, FILE *file, enum sim_format format,
		    const struct sim_geometry *geometry, const struct record_header *header)
{
	struct sim_writer writer = {.file = file, .format = format, .geometry = geometry, .header = header};
	unsigned char *bytes = NULL;
	size_t size = 0;
	int result = 0;

	if (format == SIM_FORMAT_BINARY) {
		writer.client = calloc(SIM_WRITE_CLIENTS_MAX, sizeof writer.client[0]);
		result = writer.client == NULL ? -ENOMEM : record_put_header(header, &bytes, &size);
		if (result == 0)
			(void)fwrite(bytes, 1, size, file);
		free(bytes);
		if (result < 0)
			free(writer.client);
	}
	if (result == 0)
		*ret_writer = writer;
	return result;
}

static void put_record(struct sim_writer *writer, enum record_kind kind, uint32_t client, uint64_t a, uint64_t b)
{
	struct record record = {.kind = kind, .client = client, .a = a, .b = b};
	unsigned char bytes[RECORD_BYTES_MAX];

	(void)fwrite(bytes, 1, record_put(bytes, &record), writer->file);
	writer->records++;
}

/* A call that begins with a token that is new to its client begins a sweep; the one before it had so many tokens. */
static void put_token(struct sim_writer *writer, const struct sim_row *row, int goes_on)
{
	struct sim_write_client *client = &writer->client[row->client];

	if (!goes_on && client->end > 0 && row->token >= client->end)
		put_record(writer, RECORD_TOKEN, row->client, client->end - client->base, 0);
	if (!goes_on && row->token >= client->end)
		client->base = row->token;
	if (row->token >= client->end)
		client->end = row->token + 1;
}

/* A row of the same token and layer is the rest of one that was cut, and goes on in the visit that its client has. */
static void put_binary(struct sim_writer *writer, const struct sim_row *row, const uint32_t *object, int goes_on)
{
	struct sim_write_client *client = &writer->client[row->client];
	int is_rest = client->end > 0 && client->layer == row->layer && client->token == row->token;
	uint32_t i;

	if (!is_rest) {
		put_token(writer, row, goes_on);
		put_record(writer, RECORD_VISIT, row->client, row->layer, goes_on ? 0 : row->tokens);
	}
	client->layer = row->layer;
	client->token = row->token;
	for (i = 0; i < row->count; i++)
		put_record(writer, RECORD_ACCESS, row->client, object[i], 0);
}

/* No printf: a trace has tens of millions of numbers. */
static void put_number(FILE *file, uint32_t number, char after)
{
	char text[12];
	size_t at = sizeof text - 1;

	text[at] = after;
	do {
		text[--at] = (char)('0' + number % 10);
		number /= 10;
	} while (number > 0);
	(void)fwrite(text + at, 1, sizeof text - at, file);
}

/* Gates are not kept: they are 0. */
static void put_text(struct sim_writer *writer, const struct sim_row *row, const uint32_t *object)
{
	uint32_t first = writer->geometry->first_object[row->layer], i;
	int is_route = writer->format == SIM_FORMAT_ROUTE;

	put_number(writer->file, is_route ? writer->call : row->token, ' ');
	if (is_route)
		put_number(writer->file, writer->index, ' ');
	put_number(writer->file, writer->geometry->number[row->layer], ' ');
	for (i = 0; i < row->count; i++) {
		put_number(writer->file, object[i] - first, is_route ? ':' : i + 1 < row->count ? ' ' : '\n');
		if (is_route)
			(void)fputs(i + 1 < row->count ? "0 " : "0\n", writer->file);
	}
}

void sim_writer_row(struct sim_writer *writer, const struct sim_row *row, const uint32_t *object)
{
	int goes_on = writer->rows > 0 && row->call == writer->call;

	writer->index = goes_on ? writer->index + 1 : 0;
	writer->call = row->call;
	writer->rows++;
	if (writer->format == SIM_FORMAT_BINARY)
		put_binary(writer, row, object, goes_on);
	else
		put_text(writer, row, object);
}

void sim_writer_close(struct sim_writer *writer)
{
	if (writer->format == SIM_FORMAT_BINARY)
		put_record(writer, RECORD_END, 0, writer->records, 0);
	free(writer->client);
	writer->client = NULL;
}

static const char *check_group(const struct sim_row *before, const struct sim_row *row)
{
	if (before == NULL || row->token > before->token || (row->token == before->token && row->layer > before->layer))
		return NULL;
	return "its prompt goes layer by layer, which group lines cannot say: use --to route or binary, or --phase decode";
}

static const char *check_row(const struct sim_trace *trace, uint64_t i, enum sim_format format)
{
	const struct sim_row *row = &trace->row[i];

	if (row->tokens > 1)
		return "it has batches of unknown tokens, which text cannot say: use --to binary";
	if (row->count != trace->row[0].count)
		return "its rows differ in width, which text cannot say: use --to binary";
	return format == SIM_FORMAT_GROUP ? check_group(i > 0 ? row - 1 : NULL, row) : NULL;
}

int sim_writer_check(const struct sim_trace *trace, enum sim_format format, char *message, size_t message_bytes)
{
	const char *reason = NULL;
	uint64_t i;

	CNRE_CHECK(format == SIM_FORMAT_BINARY || format == SIM_FORMAT_GROUP || format == SIM_FORMAT_ROUTE);
	for (i = 0; i < trace->row_count && reason == NULL && format != SIM_FORMAT_BINARY; i++)
		reason = check_row(trace, i, format);
	return reason == NULL ? 0 : cnre_message(message, message_bytes, -EINVAL, "%s: %s", trace->path, reason);
}
