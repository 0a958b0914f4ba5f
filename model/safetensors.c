/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading safetensors headers; see safetensors.h for what is refused. Order of work: tokens to an array of tensors,
 * each checked alone; then two sorts, one by range (must tile the data area) and one by name (must be unique).
 */
#include "model/safetensors.h"

#include "base/check.h"
#include "base/file.h"
#include "base/fingerprint.h"
#include "base/message.h"
#include "model/order.h"
#include "model/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define METADATA "__metadata__"

struct parser {
	struct model_text text;
	struct safetensors *file;
	size_t tensor_room, dimension_count, dimension_room;
	uint64_t data_bytes;
	int has_metadata;
	const char *name;
	char *message;
};

struct dtype {
	const char *name;
	uint8_t bits;
	uint8_t number;
};

static const struct dtype dtypes[] = {
	{"BF16", 16, MODEL_BF16},
	{"F16", 16, MODEL_F16},
	{"F32", 32, MODEL_F32},
	{"U8", 8, MODEL_U8},
	{"I8", 8, MODEL_I8},
	{"F8_E4M3", 8, MODEL_F8_E4M3},
	{"F8_E8M0", 8, MODEL_F8_E8M0},
	{"I64", 64, MODEL_I64},
	{"F64", 64, MODEL_DTYPE_OTHER},
	{"I32", 32, MODEL_DTYPE_OTHER},
	{"U32", 32, MODEL_DTYPE_OTHER},
	{"U64", 64, MODEL_DTYPE_OTHER},
	{"I16", 16, MODEL_DTYPE_OTHER},
	{"U16", 16, MODEL_DTYPE_OTHER},
	{"BOOL", 8, MODEL_DTYPE_OTHER},
	{"F4", 4, MODEL_DTYPE_OTHER},
	{"C64", 64, MODEL_DTYPE_OTHER},
	{"F8_E5M2", 8, MODEL_DTYPE_OTHER},
	{"F6_E2M3", 6, MODEL_DTYPE_OTHER},
	{"F6_E3M2", 6, MODEL_DTYPE_OTHER},
};

__attribute__((format(printf, 3, 4))) static int fail(struct parser *parser, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)cnre_message_list(parser->message, SAFETENSORS_MESSAGE_BYTES, error, format, arguments);
	va_end(arguments);
	return error;
}

static int fail_syntax(struct parser *parser, const char *expected)
{
	return fail(parser, -EBADMSG, "%s: header byte %llu: expected %s: download it again", parser->name,
		    (unsigned long long)(parser->text.at - parser->text.start), expected);
}

static int expect(struct parser *parser, char c)
{
	const char expected[] = {'\'', c, '\'', '\0'};

	return model_text_take(&parser->text, c) ? 0 : fail_syntax(parser, expected);
}

/* After an element: 1 a comma (more follows), 0 the closing character. */
static int expect_more(struct parser *parser, char closing)
{
	if (model_text_take(&parser->text, ','))
		return 1;
	return expect(parser, closing);
}

/* Makes room for one more element; bounded by the header, whose every byte holds at most one element. */
static int grow(void **array, size_t count, size_t *room, size_t size)
{
	size_t larger = *room == 0 ? 64 : *room + *room / 2;
	void *moved;

	if (count < *room)
		return 0;
	moved = reallocarray(*array, larger, size);
	if (moved == NULL)
		return -ENOMEM;
	*array = moved;
	*room = larger;
	return 0;
}

static int fail_memory(struct parser *parser)
{
	return fail(parser, -ENOMEM, "%s: out of memory for its %u tensors", parser->name, parser->file->tensor_count);
}

/* {"key":"value",…}: well-formed, otherwise nobody's business here. */
static int parse_metadata(struct parser *parser)
{
	struct model_word word;
	int more;

	if (parser->has_metadata)
		return fail(parser, -EBADMSG, "%s: " METADATA " is there twice", parser->name);
	parser->has_metadata = 1;
	if (expect(parser, '{') < 0)
		return -EBADMSG;
	if (model_text_take(&parser->text, '}'))
		return 0;
	do {
		if (model_text_string(&parser->text, &word) < 0)
			return fail_syntax(parser, "a string in " METADATA);
		if (expect(parser, ':') < 0)
			return -EBADMSG;
		if (model_text_string(&parser->text, &word) < 0)
			return fail_syntax(parser, "a string in " METADATA);
		more = expect_more(parser, '}');
	} while (more > 0);
	return more;
}

static int parse_dtype(struct parser *parser, struct safetensors_tensor *tensor, unsigned *ret_bits)
{
	struct model_word word;
	size_t i;

	if (model_text_string(&parser->text, &word) < 0)
		return fail_syntax(parser, "a dtype");
	for (i = 0; i < CNRE_COUNT_OF(dtypes); i++) {
		if (!model_word_is(&word, dtypes[i].name))
			continue;
		tensor->dtype = dtypes[i].number;
		*ret_bits = dtypes[i].bits;
		return 0;
	}
	return fail(parser, -EBADMSG, "%s: tensor %.200s: dtype %.40s is unknown", parser->name,
		    safetensors_name(parser->file, tensor), word.text);
}

static int add_dimension(struct parser *parser, struct safetensors_tensor *tensor, uint64_t value)
{
	if (tensor->rank == SAFETENSORS_RANK_MAX)
		return fail(parser, -E2BIG, "%s: tensor %.200s: more than %u dimensions", parser->name,
			    safetensors_name(parser->file, tensor), SAFETENSORS_RANK_MAX);
	if (grow((void **)&parser->file->dimension, parser->dimension_count, &parser->dimension_room,
		 sizeof *parser->file->dimension) < 0)
		return fail_memory(parser);
	parser->file->dimension[parser->dimension_count++] = value;
	tensor->rank++;
	return 0;
}

static int parse_shape(struct parser *parser, struct safetensors_tensor *tensor)
{
	uint64_t value = 0;
	int result;

	tensor->dimension_off = (uint32_t)parser->dimension_count;
	if (expect(parser, '[') < 0)
		return -EBADMSG;
	if (model_text_take(&parser->text, ']'))
		return 0; /* a scalar */
	do {
		if (model_text_number(&parser->text, &value) < 0)
			return fail_syntax(parser, "a dimension below 2^64");
		result = add_dimension(parser, tensor, value);
		if (result == 0)
			result = expect_more(parser, ']');
	} while (result > 0);
	return result;
}

static int parse_range(struct parser *parser, struct safetensors_tensor *tensor)
{
	if (expect(parser, '[') < 0)
		return -EBADMSG;
	if (model_text_number(&parser->text, &tensor->begin) < 0)
		return fail_syntax(parser, "an offset below 2^64");
	if (expect(parser, ',') < 0)
		return -EBADMSG;
	if (model_text_number(&parser->text, &tensor->end) < 0)
		return fail_syntax(parser, "an offset below 2^64");
	return expect(parser, ']');
}

/* Product of dimensions times element size, as bytes. */
static int tensor_bytes(const struct parser *parser, const struct safetensors_tensor *tensor, unsigned bits,
			uint64_t *ret_bytes)
{
	const uint64_t *dimension = safetensors_dimensions(parser->file, tensor);
	uint64_t product = 1;
	unsigned i;

	for (i = 0; i < tensor->rank; i++)
		if (__builtin_mul_overflow(product, dimension[i], &product))
			return -EOVERFLOW;
	if (__builtin_mul_overflow(product, (uint64_t)bits, &product))
		return -EOVERFLOW;
	if (product % 8 != 0)
		return -EDOM;
	*ret_bytes = product / 8;
	return 0;
}

static int check_tensor(struct parser *parser, const struct safetensors_tensor *tensor, unsigned bits)
{
	const char *name = safetensors_name(parser->file, tensor);
	uint64_t bytes = 0;
	int result = tensor_bytes(parser, tensor, bits, &bytes);

	if (result == -EOVERFLOW)
		return fail(parser, -EBADMSG, "%s: tensor %.200s: its shape has more than 2^64 bits", parser->name,
			    name);
	if (result == -EDOM)
		return fail(parser, -EBADMSG, "%s: tensor %.200s: its %u-bit elements do not fill whole bytes",
			    parser->name, name, bits);
	if (tensor->begin > tensor->end)
		return fail(parser, -EBADMSG, "%s: tensor %.200s: ends before it begins", parser->name, name);
	if (tensor->end - tensor->begin != bytes)
		return fail(parser, -EBADMSG, "%s: tensor %.200s: its shape needs %llu bytes but its range has %llu",
			    parser->name, name, (unsigned long long)bytes,
			    (unsigned long long)(tensor->end - tensor->begin));
	return 0;
}

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_RANGE = 4, HAS_ALL = 7 };

/* One "key":value of a tensor; returns the bit of the key, or -errno. */
static int parse_member(struct parser *parser, struct safetensors_tensor *tensor, unsigned *bits)
{
	struct model_word key;
	int result;

	if (model_text_string(&parser->text, &key) < 0)
		return fail_syntax(parser, "a key");
	if (expect(parser, ':') < 0)
		return -EBADMSG;
	if (model_word_is(&key, "dtype")) {
		result = parse_dtype(parser, tensor, bits);
		return result < 0 ? result : HAS_DTYPE;
	}
	if (model_word_is(&key, "shape")) {
		result = parse_shape(parser, tensor);
		return result < 0 ? result : HAS_SHAPE;
	}
	if (model_word_is(&key, "data_offsets")) {
		result = parse_range(parser, tensor);
		return result < 0 ? result : HAS_RANGE;
	}
	return fail_syntax(parser, "dtype, shape or data_offsets as the key");
}

static int parse_members(struct parser *parser, struct safetensors_tensor *tensor, unsigned *bits)
{
	int has = 0, member, more;

	if (expect(parser, '{') < 0)
		return -EBADMSG;
	do {
		member = parse_member(parser, tensor, bits);
		if (member < 0)
			return member;
		if (has & member)
			return fail(parser, -EBADMSG, "%s: tensor %.200s: a key is there twice", parser->name,
				    safetensors_name(parser->file, tensor));
		has |= member;
		more = expect_more(parser, '}');
	} while (more > 0);
	if (more == 0 && has != HAS_ALL)
		return fail(parser, -EBADMSG, "%s: tensor %.200s: dtype, shape or data_offsets is missing",
			    parser->name, safetensors_name(parser->file, tensor));
	return more;
}

static int parse_tensor(struct parser *parser, const struct model_word *name)
{
	struct safetensors *file = parser->file;
	struct safetensors_tensor tensor = {.name_off = (uint32_t)(name->text - file->text),
					    .name_bytes = (uint32_t)name->bytes};
	unsigned bits = 0;
	int result;

	result = parse_members(parser, &tensor, &bits);
	if (result == 0)
		result = check_tensor(parser, &tensor, bits);
	if (result < 0)
		return result;
	if (grow((void **)&file->tensor, file->tensor_count, &parser->tensor_room, sizeof tensor) < 0)
		return fail_memory(parser);
	file->tensor[file->tensor_count++] = tensor;
	return 0;
}

static int parse_object(struct parser *parser)
{
	struct model_word name;
	int result;

	if (expect(parser, '{') < 0)
		return -EBADMSG;
	if (model_text_take(&parser->text, '}'))
		return 0;
	do {
		if (model_text_string(&parser->text, &name) < 0)
			return fail_syntax(parser, "a tensor name");
		if (expect(parser, ':') < 0)
			return -EBADMSG;
		result = model_word_is(&name, METADATA) ? parse_metadata(parser) : parse_tensor(parser, &name);
		if (result == 0)
			result = expect_more(parser, '}');
	} while (result > 0);
	return result;
}

static int parse_text(struct parser *parser)
{
	int result = parse_object(parser);

	if (result < 0)
		return result;
	return model_text_is_done(&parser->text) ? 0 : fail_syntax(parser, "nothing but spaces after the object");
}

static int by_range(const void *left, const void *right, const void *context)
{
	const struct safetensors_tensor *a = left, *b = right;

	(void)context;
	if (a->begin != b->begin)
		return a->begin < b->begin ? -1 : 1;
	return a->end < b->end ? -1 : a->end > b->end;
}

static int fail_truncated(struct parser *parser, const struct safetensors_tensor *last)
{
	uint64_t missing = last->end - parser->data_bytes;

	return fail(parser, -EBADMSG,
		    "%s: truncated: %llu bytes missing; tensor %.200s ends at byte %llu of the data, "
		    "the file at %llu: download it again",
		    parser->name, (unsigned long long)missing, safetensors_name(parser->file, last),
		    (unsigned long long)last->end, (unsigned long long)parser->data_bytes);
}

/* In order of begin each tensor must start where the one before ended, and the last must end with the file. */
static int check_tiling(struct parser *parser)
{
	const struct safetensors *file = parser->file;
	const struct safetensors_tensor *tensor = NULL;
	uint64_t expected = 0;
	uint32_t i;

	for (i = 0; i < file->tensor_count; i++) {
		tensor = &file->tensor[i];
		if (tensor->begin != expected)
			return fail(parser, -EBADMSG, "%s: tensor %.200s: starts at byte %llu of the data, %s at %llu",
				    parser->name, safetensors_name(file, tensor), (unsigned long long)tensor->begin,
				    tensor->begin < expected ? "inside another, which ends"
							     : "after a hole that starts",
				    (unsigned long long)expected);
		expected = tensor->end;
	}
	if (expected > parser->data_bytes)
		return fail_truncated(parser, tensor);
	if (expected < parser->data_bytes)
		return fail(parser, -EBADMSG, "%s: %llu bytes after its last tensor belong to nothing", parser->name,
			    (unsigned long long)(parser->data_bytes - expected));
	return 0;
}

struct name_key {
	uint64_t hash;
	uint32_t tensor;
};

static int by_name(const void *left, const void *right, const void *context)
{
	const struct name_key *a = left, *b = right;
	const struct safetensors *file = context;
	const struct safetensors_tensor *first = &file->tensor[a->tensor], *second = &file->tensor[b->tensor];

	if (a->hash != b->hash)
		return a->hash < b->hash ? -1 : 1;
	if (first->name_bytes != second->name_bytes)
		return first->name_bytes < second->name_bytes ? -1 : 1;
	return memcmp(safetensors_name(file, first), safetensors_name(file, second), first->name_bytes);
}

/* FNV-1a. Collisions cost a comparison each, never more: the sort stays n log n. */
static uint64_t hash_name(const char *name, size_t bytes)
{
	uint64_t hash = 0xcbf29ce484222325ull;
	size_t i;

	for (i = 0; i < bytes; i++)
		hash = (hash ^ (unsigned char)name[i]) * 0x100000001b3ull;
	return hash;
}

static int check_names(struct parser *parser, struct name_key *key, struct name_key *scratch)
{
	struct safetensors *file = parser->file;
	uint32_t i;

	for (i = 0; i < file->tensor_count; i++) {
		key[i].tensor = i;
		key[i].hash = hash_name(safetensors_name(file, &file->tensor[i]), file->tensor[i].name_bytes);
	}
	model_sort(key, scratch, file->tensor_count, sizeof *key, by_name, file);
	for (i = 1; i < file->tensor_count; i++)
		if (by_name(&key[i - 1], &key[i], file) == 0)
			return fail(parser, -EBADMSG, "%s: tensor %.200s is there twice (duplicate name)", parser->name,
				    safetensors_name(file, &file->tensor[key[i].tensor]));
	return 0;
}

static int check_all(struct parser *parser)
{
	struct safetensors *file = parser->file;
	size_t largest = sizeof(struct safetensors_tensor);
	void *scratch;
	int result;

	_Static_assert(sizeof(struct safetensors_tensor) >= 2 * sizeof(struct name_key),
		       "one scratch serves both sorts");
	if (file->tensor_count == 0)
		return check_tiling(parser);
	scratch = reallocarray(NULL, file->tensor_count, largest);
	if (scratch == NULL)
		return fail_memory(parser);
	model_sort(file->tensor, scratch, file->tensor_count, sizeof *file->tensor, by_range, NULL);
	result = check_tiling(parser);
	if (result == 0)
		result = check_names(parser, scratch, (struct name_key *)scratch + file->tensor_count);
	free(scratch);
	return result;
}

int safetensors_parse(struct safetensors **ret_file, char *text, uint64_t header_bytes, uint64_t data_bytes,
		      const char *name, char message[SAFETENSORS_MESSAGE_BYTES])
{
	struct parser parser = {
		.text = {text, text, text + header_bytes}, .data_bytes = data_bytes, .name = name, .message = message};
	struct safetensors *file = calloc(1, sizeof *file);
	int result;

	if (file == NULL) {
		free(text);
		return fail(&parser, -ENOMEM, "%s: out of memory", name);
	}
	parser.file = file;
	file->text = text;
	file->data_off = 8 + header_bytes;
	file->file_bytes = file->data_off + data_bytes;
	if (header_bytes >= UINT32_MAX)
		result = fail(&parser, -E2BIG, "%s: header of %llu bytes", name, (unsigned long long)header_bytes);
	else if (grow((void **)&file->dimension, 0, &parser.dimension_room, sizeof *file->dimension) < 0)
		result = fail_memory(&parser);
	else if (!model_text_is_utf8(text, header_bytes))
		result = fail(&parser, -EBADMSG, "%s: its header is not UTF-8 text: download it again", name);
	else
		result = parse_text(&parser);
	if (result == 0)
		result = check_all(&parser);
	if (result < 0) {
		(void)safetensors_close(file);
		return result;
	}
	*ret_file = file;
	return 0;
}

struct safetensors *safetensors_close(struct safetensors *file)
{
	if (file == NULL)
		return NULL;
	free(file->text);
	free(file->dimension);
	free(file->tensor);
	free(file);
	return NULL;
}

/* The 8 bytes in front of the header, checked against the file's size and the bound. */
static int read_header_length(struct parser *parser, int fd, uint64_t file_bytes, uint64_t header_bytes_max,
			      uint64_t *ret_bytes)
{
	unsigned char prefix[8];
	uint64_t bytes = 0;
	int64_t got = cnre_file_read(fd, prefix, sizeof prefix, 0);
	unsigned i;

	if (got < 0)
		return fail(parser, (int)got, "%s: reading at byte 0: %s", parser->name, strerror((int)-got));
	if (got < (int64_t)sizeof prefix || file_bytes < sizeof prefix)
		return fail(parser, -EBADMSG, "%s: %lld bytes, not even a header length: download it again",
			    parser->name, (long long)got);
	for (i = 0; i < sizeof prefix; i++)
		bytes |= (uint64_t)prefix[i] << 8 * i;
	if (bytes > file_bytes - sizeof prefix)
		return fail(parser, -EBADMSG, "%s: header of %llu bytes, but the file has only %llu: download it again",
			    parser->name, (unsigned long long)bytes, (unsigned long long)file_bytes);
	if (bytes > header_bytes_max)
		return fail(parser, -E2BIG, "%s: header of %llu bytes, more than the bound of %llu: " CNRE_SHARD_HEADER_ADVICE, parser->name,
			    (unsigned long long)bytes, (unsigned long long)header_bytes_max);
	*ret_bytes = bytes;
	return 0;
}

static int read_header(struct parser *parser, int fd, uint64_t bytes, char **ret_text)
{
	char *text = malloc(bytes + 1);
	int64_t got;

	if (text == NULL)
		return fail(parser, -ENOMEM, "%s: out of memory for its header of %llu bytes", parser->name,
			    (unsigned long long)bytes);
	got = cnre_file_read(fd, text, bytes, 8);
	if (got != (int64_t)bytes) {
		free(text);
		if (got < 0)
			return fail(parser, (int)got, "%s: reading its header: %s", parser->name, strerror((int)-got));
		return fail(parser, -EBADMSG,
			    "%s: became shorter while it was read, at byte %lld of its header: stop what writes it",
			    parser->name, (long long)got);
	}
	text[bytes] = '\0';
	*ret_text = text;
	return 0;
}

int safetensors_open(struct safetensors **ret_file, int directory_fd, const char *name, uint64_t header_bytes_max,
		     char message[SAFETENSORS_MESSAGE_BYTES])
{
	struct parser parser = {.name = name, .message = message};
	uint64_t file_bytes = 0, header_bytes = 0;
	char *text = NULL;
	int fd, result;

	fd = cnre_file_open(directory_fd, name, &file_bytes);
	if (fd == -EINVAL)
		return fail(&parser, fd, "%s: not a regular file", name);
	if (fd < 0)
		return fail(&parser, fd, "%s: %s", name, strerror(-fd));
	result = read_header_length(&parser, fd, file_bytes, header_bytes_max, &header_bytes);
	if (result == 0)
		result = read_header(&parser, fd, header_bytes, &text);
	(void)close(fd);
	if (result < 0)
		return result;
	return safetensors_parse(ret_file, text, header_bytes, file_bytes - 8 - header_bytes, name, message);
}
