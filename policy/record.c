/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binary trace's bytes; see record.h. The reader takes any bytes: each integer is bounded before it is used, and no
 * memory is asked for that the bytes at hand do not account for. Writer and reader check a header by the same rules.
 */
#include "policy/record.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TAGS (1u << RECORD_TAG_BITS)
#define LEB_BYTES_MAX 10u            /* of 64 bits */
#define MAGIC_BYTES (sizeof RECORD_MAGIC - 1)
#define LAYER_BYTES_MIN 4u           /* encoded: four integers */

/* How many of a, b and c a record of that kind has; -1: no such kind. */
static const signed char operands_of[TAGS] = {
	[RECORD_END] = 1, [RECORD_VISIT] = 2, [RECORD_ACCESS] = 2, [RECORD_TOKEN] = 1,
	[RECORD_WAIT] = 3, [RECORD_LOST] = 1, [RECORD_LOST + 1] = -1, [RECORD_LOST + 2] = -1,
};
_Static_assert(RECORD_LOST + 2 == TAGS - 1, "every tag has its line above");
_Static_assert(RECORD_BYTES_MAX >= 4 * LEB_BYTES_MAX, "a record is four integers at most");

/* ---- integers ---- */

static size_t put_number(unsigned char *to, uint64_t value)
{
	size_t bytes = 0;

	for (; value >= 0x80; value >>= 7)
		to[bytes++] = (unsigned char)(value | 0x80);
	to[bytes++] = (unsigned char)value;
	return bytes;
}

/* Where the reader stands. Errors stay: whoever reads several numbers in a row asks once, at their end. */
struct reader {
	const unsigned char *at, *end;
	int error;                   /* -EBADMSG, or -EAGAIN: the buffer ends here */
};

static uint64_t fail(struct reader *reader, int error)
{
	if (reader->error == 0)
		reader->error = error;
	return 0;
}

/* One form for each value: no zeros at the end, nothing above bit 63. */
static uint64_t get_number(struct reader *reader)
{
	uint64_t value = 0;

	for (unsigned shift = 0; reader->error == 0 && reader->at < reader->end; shift += 7) {
		unsigned char byte = *reader->at++;

		if ((shift == 63 && byte > 1) || (shift > 0 && byte == 0))
			return fail(reader, -EBADMSG);
		value |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			return value;
	}
	return fail(reader, -EAGAIN);
}

static uint64_t get_bounded(struct reader *reader, uint64_t max)
{
	uint64_t value = get_number(reader);

	return value <= max ? value : fail(reader, -EBADMSG);
}

static long result_of(const struct reader *reader, const unsigned char *from)
{
	if (reader->error == -EAGAIN)
		return 0;
	return reader->error != 0 ? reader->error : reader->at - from;
}

/* ---- records ---- */

size_t record_put(unsigned char *to, const struct record *record)
{
	const uint64_t operand[] = {record->a, record->b, record->c};
	size_t bytes = put_number(to, (uint64_t)record->client << RECORD_TAG_BITS | record->kind);

	CNRE_CHECK(record->kind < TAGS && operands_of[record->kind] > 0);
	for (int i = 0; i < operands_of[record->kind]; i++)
		bytes += put_number(to + bytes, operand[i]);
	return bytes;
}

long record_get(const unsigned char *from, size_t bytes, struct record *ret_record)
{
	struct reader reader = {.at = from, .end = from + bytes};
	uint64_t key = get_bounded(&reader, (uint64_t)UINT32_MAX << RECORD_TAG_BITS | (TAGS - 1)), operand[3] = {0};
	int operands = operands_of[key % TAGS];

	if (operands < 0)
		(void)fail(&reader, -EBADMSG);
	for (int i = 0; i < operands; i++)
		operand[i] = get_number(&reader);
	if (reader.error == 0)
		*ret_record = (struct record){
			.kind = (enum record_kind)(key % TAGS), .client = (uint32_t)(key >> RECORD_TAG_BITS),
			.a = operand[0], .b = operand[1], .c = operand[2]};
	return result_of(&reader, from);
}

/* ---- what a header must be ---- */

/* Objects of all layers; 0: none, or more than may be, or bytes that are none or beyond 64 bits. */
static uint32_t count_objects(const struct record_header *header)
{
	uint64_t objects = 0, resident_bytes = 0, read_bytes = 0, product;

	for (uint32_t i = 0; i < header->layer_count; i++) {
		const struct record_layer *layer = &header->layer[i];

		objects += layer->experts; /* of 4096 layers: no overflow */
		if (objects > RECORD_OBJECTS_MAX || (layer->experts > 0 && layer->resident_bytes == 0) ||
		    __builtin_mul_overflow(layer->experts, layer->resident_bytes, &product) ||
		    __builtin_add_overflow(resident_bytes, product, &resident_bytes) ||
		    __builtin_mul_overflow(layer->experts, layer->read_bytes, &product) ||
		    __builtin_add_overflow(read_bytes, product, &read_bytes))
			return 0;
	}
	return (uint32_t)objects;
}

/* 0, -EBADMSG or -ENOMEM. */
static int check_residents(const struct record_header *header, uint32_t objects)
{
	unsigned char *seen = calloc(objects / 8 + 1, 1);
	int r = 0;

	if (seen == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; r == 0 && i < header->resident_count; i++) {
		uint32_t object = header->resident[i];

		if (object >= objects || (seen[object / 8] >> object % 8 & 1) != 0)
			r = -EBADMSG;
		else
			seen[object / 8] = (unsigned char)(seen[object / 8] | 1u << object % 8);
	}
	free(seen);
	return r;
}

static int is_name(const char *name)
{
	size_t bytes = strnlen(name, RECORD_NAME_BYTES_MAX);

	for (size_t i = 0; i < bytes; i++)
		if (name[i] <= ' ' || name[i] > '~')
			return 0;
	return bytes < RECORD_NAME_BYTES_MAX;
}

/* 0, -EBADMSG or -ENOMEM. */
static int check_header(const struct record_header *header)
{
	uint32_t objects;

	if (header->layer_count == 0 || header->layer_count > RECORD_LAYERS_MAX || !is_name(header->policy))
		return -EBADMSG;
	objects = count_objects(header);
	if (objects == 0 || header->top_k > objects || header->resident_count > objects)
		return -EBADMSG;
	return header->resident_count == 0 ? 0 : check_residents(header, objects);
}

/* ---- writing one ---- */

static size_t header_bytes_max(const struct record_header *header)
{
	return MAGIC_BYTES + RECORD_NAME_BYTES_MAX +
	       LEB_BYTES_MAX * (size_t)(5 + LAYER_BYTES_MIN * header->layer_count) + 4 * (size_t)header->resident_count;
}
_Static_assert(RECORD_OBJECTS_MAX <= 1u << 28, "an object's number has four bytes at most");

static unsigned char *put_numbers(unsigned char *to, const struct record_header *header)
{
	size_t name_bytes = strlen(header->policy);

	to += put_number(to, header->layer_count);
	for (uint32_t i = 0; i < header->layer_count; i++) {
		to += put_number(to, header->layer[i].number);
		to += put_number(to, header->layer[i].experts);
		to += put_number(to, header->layer[i].resident_bytes);
		to += put_number(to, header->layer[i].read_bytes);
	}
	to += put_number(to, header->budget_bytes);
	to += put_number(to, header->top_k);
	to += put_number(to, name_bytes);
	memcpy(to, header->policy, name_bytes);
	to += name_bytes;
	to += put_number(to, header->resident_count);
	for (uint32_t i = 0; i < header->resident_count; i++)
		to += put_number(to, header->resident[i]);
	return to;
}

int record_put_header(const struct record_header *header, unsigned char **ret_bytes, size_t *ret_size)
{
	unsigned char *bytes;
	int r = check_header(header);

	if (r < 0)
		return r == -EBADMSG ? -EINVAL : r;
	bytes = malloc(header_bytes_max(header));
	if (bytes == NULL)
		return -ENOMEM;
	memcpy(bytes, RECORD_MAGIC, MAGIC_BYTES);
	*ret_size = (size_t)(put_numbers(bytes + MAGIC_BYTES, header) - bytes);
	*ret_bytes = bytes;
	return 0;
}

/* ---- reading one ---- */

static void get_magic(struct reader *reader)
{
	size_t left = (size_t)(reader->end - reader->at), bytes = left < MAGIC_BYTES ? left : MAGIC_BYTES;

	if (memcmp(reader->at, RECORD_MAGIC, bytes) != 0)
		(void)fail(reader, -EBADMSG);
	else if (bytes < MAGIC_BYTES)
		(void)fail(reader, -EAGAIN);
	reader->at += bytes;
}

/* Room for count things of `bytes`, each of which has at least so many bytes of the buffer; NULL and the reader's error. */
static void *get_room(struct reader *reader, uint32_t count, size_t bytes, size_t encoded_bytes_min)
{
	void *room;

	if (reader->error == 0 && (size_t)(reader->end - reader->at) / encoded_bytes_min < count)
		(void)fail(reader, -EAGAIN);
	if (reader->error != 0 || count == 0)
		return NULL;
	room = calloc(count, bytes);
	if (room == NULL)
		(void)fail(reader, -ENOMEM);
	return room;
}

static void get_layers(struct reader *reader, struct record_header *header)
{
	header->layer_count = (uint32_t)get_bounded(reader, RECORD_LAYERS_MAX);
	header->layer = get_room(reader, header->layer_count, sizeof *header->layer, LAYER_BYTES_MIN);
	for (uint32_t i = 0; reader->error == 0 && i < header->layer_count; i++) {
		header->layer[i].number = (uint32_t)get_bounded(reader, UINT32_MAX);
		header->layer[i].experts = (uint32_t)get_bounded(reader, RECORD_OBJECTS_MAX);
		header->layer[i].resident_bytes = get_number(reader);
		header->layer[i].read_bytes = get_number(reader);
	}
}

static void get_name(struct reader *reader, struct record_header *header)
{
	size_t bytes = (size_t)get_bounded(reader, RECORD_NAME_BYTES_MAX - 1);

	if (reader->error == 0 && (size_t)(reader->end - reader->at) < bytes)
		(void)fail(reader, -EAGAIN);
	if (reader->error != 0)
		return;
	memcpy(header->policy, reader->at, bytes);
	reader->at += bytes;
	if (strlen(header->policy) != bytes)
		(void)fail(reader, -EBADMSG);
}

static void get_residents(struct reader *reader, struct record_header *header)
{
	header->resident_count = (uint32_t)get_bounded(reader, RECORD_OBJECTS_MAX);
	header->resident = get_room(reader, header->resident_count, sizeof *header->resident, 1);
	for (uint32_t i = 0; reader->error == 0 && i < header->resident_count; i++)
		header->resident[i] = (uint32_t)get_bounded(reader, RECORD_OBJECTS_MAX - 1);
}

long record_get_header(const unsigned char *from, size_t bytes, struct record_header *ret_header)
{
	struct reader reader = {.at = from, .end = from + bytes};
	struct record_header header = {0};

	get_magic(&reader);
	get_layers(&reader, &header);
	header.budget_bytes = get_number(&reader);
	header.top_k = (uint32_t)get_bounded(&reader, RECORD_OBJECTS_MAX);
	get_name(&reader, &header);
	get_residents(&reader, &header);
	if (reader.error == 0)
		reader.error = check_header(&header);
	if (reader.error == 0)
		*ret_header = header;
	else
		record_free_header(&header);
	return result_of(&reader, from);
}

void record_free_header(struct record_header *header)
{
	free(header->layer);
	free(header->resident);
	*header = (struct record_header){0};
}
