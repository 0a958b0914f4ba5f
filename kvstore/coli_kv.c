/* SPDX-License-Identifier: Apache-2.0 */
/* `.coli_kv` of Colibri; see coli_kv.h. A block at a time is in memory: its records, and its payload. */
#include "kvstore/coli_kv.h"

#include "base/file.h"
#include "base/message.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAGIC_BYTES 8u
#define DIMENSIONS 8u
#define NUMBER_BYTES 4u /* of an int32, of a token and of a float */
#define HEADER_BYTES (MAGIC_BYTES + DIMENSIONS * NUMBER_BYTES)

enum { LAYERS, KV_LORA, QK_ROPE, INDEX_DIM, INDEX_LAYERS, VOCABULARY, RECORDS, ALWAYS_ZERO };

/* Formats that look alike and are none of this. */
static const struct {
	const char *magic; /* how it begins */
	const char *what;
} others[] = {
	{"COLIKV2", "version 2, rows in fp8 (KV8=1)"},
	{"COLIKV3", "version 3, rows in rotated int4 (KV_TQ)"},
	{"COLIKV", "a version that this release does not know"},
	{"COLIDV", "DeepSeek V4, whose state cannot be cut at any token"},
};

/* ---- header ---- */

static int32_t number_at(const unsigned char *from)
{
	uint32_t value = 0;

	for (unsigned i = 0; i < NUMBER_BYTES; i++)
		value |= (uint32_t)from[i] << 8 * i;
	return (int32_t)value;
}

static int check_magic(const unsigned char *header, char *message)
{
	if (memcmp(header, "COLIKV1", MAGIC_BYTES) == 0)
		return 0;
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		if (memcmp(header, others[i].magic, strlen(others[i].magic)) == 0)
			return cnre_message(message, COLI_KV_MESSAGE_BYTES, -ENOTSUP,
					    "%.7s: %s: only COLIKV1 (rows in fp32) can be converted",
					    (const char *)header, others[i].what);
	return cnre_message(message, COLI_KV_MESSAGE_BYTES, -EBADMSG, "not a .coli_kv: it does not begin with COLIKV1");
}

static int is_between(int32_t value, int32_t least, uint32_t most)
{
	return value >= least && (uint32_t)value <= most;
}

static int take_dimensions(const int32_t number[DIMENSIONS], struct coli_kv *file)
{
	if (!is_between(number[LAYERS], 1, COLI_KV_LAYERS_MAX) ||
	    !is_between(number[KV_LORA], 0, COLI_KV_ROW_FLOATS_MAX) ||
	    !is_between(number[QK_ROPE], 0, COLI_KV_ROW_FLOATS_MAX) ||
	    !is_between(number[INDEX_DIM], 0, COLI_KV_ROW_FLOATS_MAX) ||
	    !is_between(number[INDEX_LAYERS], 0, COLI_KV_LAYERS_MAX) || number[VOCABULARY] < 1 || number[RECORDS] < 0 ||
	    number[ALWAYS_ZERO] != 0)
		return -EBADMSG;
	file->layers = (uint32_t)number[LAYERS];
	file->row_floats = (uint32_t)number[KV_LORA] + (uint32_t)number[QK_ROPE];
	file->index_layers = (uint32_t)number[INDEX_LAYERS];
	file->index_floats = (uint32_t)number[INDEX_DIM];
	file->vocabulary = (uint32_t)number[VOCABULARY];
	file->promised = (uint64_t)number[RECORDS];
	file->record_bytes = NUMBER_BYTES * (1 + (uint64_t)file->layers * file->row_floats +
					     (uint64_t)file->index_layers * file->index_floats);
	return file->row_floats == 0 || file->record_bytes > COLI_KV_RECORD_BYTES_MAX ? -EBADMSG : 0;
}

static int read_header(int fd, struct coli_kv *file, char *message)
{
	unsigned char header[HEADER_BYTES];
	int32_t number[DIMENSIONS];
	int64_t got = cnre_file_read(fd, header, sizeof header, 0);
	int r;

	if (got < 0)
		return cnre_message(message, COLI_KV_MESSAGE_BYTES, (int)got, "reading at byte 0: %s",
				    strerror((int)-got));
	if (got < (int64_t)sizeof header)
		return cnre_message(message, COLI_KV_MESSAGE_BYTES, -EBADMSG,
				    "not a .coli_kv: %" PRId64 " bytes are no header", got);
	r = check_magic(header, message);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < DIMENSIONS; i++)
		number[i] = number_at(header + MAGIC_BYTES + NUMBER_BYTES * i);
	r = take_dimensions(number, file);
	if (r < 0)
		return cnre_message(message, COLI_KV_MESSAGE_BYTES, r, "impossible dimensions in the header: damaged");
	return 0;
}

int coli_kv_open(struct coli_kv *ret_file, int fd, char message[COLI_KV_MESSAGE_BYTES])
{
	struct coli_kv file = {.fd = fd};
	struct stat status;
	int r;

	if (fstat(fd, &status) < 0)
		return cnre_message(message, COLI_KV_MESSAGE_BYTES, -errno, "%s", strerror(errno));
	if (!S_ISREG(status.st_mode))
		return cnre_message(message, COLI_KV_MESSAGE_BYTES, -EINVAL, "not a regular file");
	r = read_header(fd, &file, message);
	if (r < 0)
		return r;
	if ((uint64_t)status.st_size >= HEADER_BYTES) { /* else it shrank since */
		file.present = ((uint64_t)status.st_size - HEADER_BYTES) / file.record_bytes;
		file.torn_bytes = ((uint64_t)status.st_size - HEADER_BYTES) % file.record_bytes;
	}
	file.records = file.promised < file.present ? file.promised : file.present;
	*ret_file = file;
	return 0;
}

uint64_t coli_kv_dropped(const struct coli_kv *file)
{
	uint64_t torn = file->torn_bytes > 0, seen = file->present + torn;

	return (file->promised > seen ? file->promised : seen) - file->records;
}

/* ---- conversion ---- */

struct conversion {
	const struct coli_kv *file;
	struct kv_prefix_writer writer;
	struct kv_block block;            /* root, block_tokens and parent stay from one to the next */
	unsigned char *records, *payload; /* of one block */
	char *message;
};

static int read_records(struct conversion *conversion, uint64_t first, uint32_t count)
{
	uint64_t bytes = count * conversion->file->record_bytes;
	int64_t got = cnre_file_read(conversion->file->fd, conversion->records, bytes,
				     HEADER_BYTES + first * conversion->file->record_bytes);

	if (got < 0)
		return cnre_message(conversion->message, COLI_KV_MESSAGE_BYTES, (int)got,
				    "reading record %" PRIu64 ": %s", first, strerror((int)-got));
	if ((uint64_t)got < bytes)
		return cnre_message(conversion->message, COLI_KV_MESSAGE_BYTES, -EBADMSG,
				    "became shorter while it was read: stop the engine that writes it");
	return 0;
}

static int take_tokens(struct conversion *conversion, uint64_t first, uint32_t count)
{
	memset(conversion->block.token, 0, sizeof conversion->block.token);
	for (uint32_t i = 0; i < count; i++) {
		int32_t token = number_at(conversion->records + i * conversion->file->record_bytes);

		if ((uint32_t)token >= conversion->file->vocabulary) /* a negative one is beyond every vocabulary */
			return cnre_message(conversion->message, COLI_KV_MESSAGE_BYTES, -EBADMSG,
					    "record %" PRIu64 ": token %" PRId32 " is not of the vocabulary: damaged",
					    first + i, token);
		conversion->block.token[i] = token;
	}
	return 0;
}

/* One kind of rows, from token-major to layer-major; returns where the next kind begins in the payload. */
static unsigned char *gather(const struct conversion *conversion, uint32_t count, uint64_t offset, uint32_t layers,
			     uint32_t floats, unsigned char *to)
{
	size_t row_bytes = (size_t)floats * NUMBER_BYTES;

	for (uint32_t layer = 0; layer < layers; layer++)
		for (uint32_t i = 0; i < count; i++) {
			memcpy(to,
			       conversion->records + i * conversion->file->record_bytes + offset + layer * row_bytes,
			       row_bytes);
			to += row_bytes;
		}
	return to;
}

static void gather_rows(struct conversion *conversion, uint32_t count)
{
	const struct coli_kv *file = conversion->file;
	uint64_t index_off = NUMBER_BYTES + (uint64_t)file->layers * file->row_floats * NUMBER_BYTES;
	unsigned char *to =
		gather(conversion, count, NUMBER_BYTES, file->layers, file->row_floats, conversion->payload);

	(void)gather(conversion, count, index_off, file->index_layers, file->index_floats, to);
}

static int add_block(struct conversion *conversion, uint64_t first, uint32_t count)
{
	struct kv_block *block = &conversion->block;
	int r = read_records(conversion, first, count);

	if (r == 0)
		r = take_tokens(conversion, first, count);
	if (r < 0)
		return r;
	gather_rows(conversion, count);
	block->position = first;
	block->token_count = count;
	block->mark.first = count;
	block->bytes = count * (conversion->file->record_bytes - NUMBER_BYTES);
	kv_check_payload(conversion->payload, block->bytes, block->check);
	r = kv_key_block(block->parent, block->token, count, &block->mark, block->key);
	if (r == 0)
		r = kv_prefix_add(&conversion->writer, block, conversion->payload);
	memcpy(block->parent, block->key, KV_KEY_BYTES);
	return r < 0 ? cnre_message(conversion->message, COLI_KV_MESSAGE_BYTES, r, "writing the prefix: %s",
				    strerror(-r))
		     : 0;
}

static int add_blocks(struct conversion *conversion)
{
	uint32_t block_tokens = conversion->block.block_tokens;
	int r = 0;

	for (uint64_t first = 0; first < conversion->file->records && r == 0; first += block_tokens) {
		uint64_t left = conversion->file->records - first;

		r = add_block(conversion, first, left < block_tokens ? (uint32_t)left : block_tokens);
	}
	return r;
}

static int begin(struct conversion *conversion, const struct kv_identity *identity, int out_fd)
{
	struct kv_block *block = &conversion->block;
	int r = identity->flags != 0 ? -EINVAL : kv_key_root(identity, block->root); /* rows can be cut at any token */

	if (r < 0)
		return cnre_message(conversion->message, COLI_KV_MESSAGE_BYTES, r, "the identity is not one: %s",
				    strerror(-r));
	if (identity->block_tokens * conversion->file->record_bytes > KV_BLOCK_BYTES_MAX)
		return cnre_message(conversion->message, COLI_KV_MESSAGE_BYTES, -EINVAL,
				    "blocks of %" PRIu32 " tokens are larger than %llu bytes: take fewer tokens",
				    identity->block_tokens, KV_BLOCK_BYTES_MAX);
	if (conversion->file->records == 0)
		return cnre_message(conversion->message, COLI_KV_MESSAGE_BYTES, -ENODATA, "has no whole record");
	block->block_tokens = identity->block_tokens;
	memcpy(block->parent, block->root, KV_KEY_BYTES);
	r = kv_prefix_begin(&conversion->writer, out_fd);
	return r < 0 ? cnre_message(conversion->message, COLI_KV_MESSAGE_BYTES, r, "writing the prefix: %s",
				    strerror(-r))
		     : 0;
}

int coli_kv_convert(const struct coli_kv *file, const struct kv_identity *identity, int out_fd,
		    struct kv_prefix_summary *ret_summary, char message[COLI_KV_MESSAGE_BYTES])
{
	struct conversion conversion = {.file = file, .message = message};
	int r = begin(&conversion, identity, out_fd);

	if (r < 0)
		return r;
	conversion.records = malloc(identity->block_tokens * file->record_bytes);
	conversion.payload = malloc(identity->block_tokens * file->record_bytes);
	r = conversion.records == NULL || conversion.payload == NULL
		    ? cnre_message(message, COLI_KV_MESSAGE_BYTES, -ENOMEM, "out of memory")
		    : add_blocks(&conversion);
	if (r == 0) {
		r = kv_prefix_end(&conversion.writer, ret_summary);
		if (r < 0)
			(void)cnre_message(message, COLI_KV_MESSAGE_BYTES, r, "writing the prefix: %s", strerror(-r));
	}
	free(conversion.payload);
	free(conversion.records);
	return r;
}
