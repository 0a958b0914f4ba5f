/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One prefix, one file; see prefix_file.h. Numbers of the header are little-endian:
 *
 *   byte  0 magic  8 version  12 blocks  16 tokens  24 payload bytes  32 of the largest  40 of the file
 *        48 zero  64 root  96 leaf  128 zero  4080 check of everything before it
 *
 * Writer and reader hold every block to the same rules (refusal): what one may write, the other must read.
 */
#include "kvstore/prefix_file.h"

#include "base/file.h"
#include "base/message.h"
#include "base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define MAGIC "CNREKVP" /* with its end: 8 bytes */
#define VERSION 1u

enum {
	AT_MAGIC = 0,
	AT_VERSION = 8,
	AT_BLOCKS = 12,
	AT_TOKENS = 16,
	AT_PAYLOAD_BYTES = 24,
	AT_PAYLOAD_BYTES_MAX = 32,
	AT_FILE_BYTES = 40,
	AT_ROOT = 64,
	AT_LEAF = 96,
	AT_CHECK = KV_BLOCK_HEADER_BYTES - KV_BLOCK_CHECK_BYTES,
};
_Static_assert(KV_BLOCK_HEADER_BYTES % KV_PREFIX_ALIGNMENT == 0, "payloads begin aligned");

/* ---- header ---- */

static void put(unsigned char *to, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		to[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t get(const unsigned char *from, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)from[i] << 8 * i;
	return value;
}

static void encode(const struct kv_prefix_summary *summary, unsigned char header[KV_BLOCK_HEADER_BYTES])
{
	memset(header, 0, KV_BLOCK_HEADER_BYTES);
	memcpy(header + AT_MAGIC, MAGIC, sizeof MAGIC);
	put(header + AT_VERSION, VERSION, 4);
	put(header + AT_BLOCKS, summary->blocks, 4);
	put(header + AT_TOKENS, summary->tokens, 8);
	put(header + AT_PAYLOAD_BYTES, summary->payload_bytes, 8);
	put(header + AT_PAYLOAD_BYTES_MAX, summary->payload_bytes_max, 8);
	put(header + AT_FILE_BYTES, summary->file_bytes, 8);
	memcpy(header + AT_ROOT, summary->root, KV_KEY_BYTES);
	memcpy(header + AT_LEAF, summary->leaf, KV_KEY_BYTES);
	kv_check_payload(header, AT_CHECK, header + AT_CHECK);
}

static void take(const unsigned char *header, struct kv_prefix_summary *summary)
{
	memset(summary, 0, sizeof *summary);
	summary->blocks = (uint32_t)get(header + AT_BLOCKS, 4);
	summary->tokens = get(header + AT_TOKENS, 8);
	summary->payload_bytes = get(header + AT_PAYLOAD_BYTES, 8);
	summary->payload_bytes_max = get(header + AT_PAYLOAD_BYTES_MAX, 8);
	summary->file_bytes = get(header + AT_FILE_BYTES, 8);
	memcpy(summary->root, header + AT_ROOT, KV_KEY_BYTES);
	memcpy(summary->leaf, header + AT_LEAF, KV_KEY_BYTES);
}

static int is_possible(const struct kv_prefix_summary *summary)
{
	return summary->blocks >= 1 && summary->blocks <= KV_PREFIX_BLOCKS_MAX && summary->payload_bytes_max >= 1 &&
	       summary->payload_bytes_max <= KV_BLOCK_BYTES_MAX;
}

static int decode(const unsigned char *header, struct kv_prefix_summary *ret_summary, char *message)
{
	unsigned char again[KV_BLOCK_HEADER_BYTES];
	struct kv_prefix_summary summary;
	uint32_t version = (uint32_t)get(header + AT_VERSION, 4);

	if (memcmp(header + AT_MAGIC, MAGIC, sizeof MAGIC) != 0)
		return cnre_message(message, KV_PREFIX_MESSAGE_BYTES, -EBADMSG,
				    "not an exported prefix, or one whose export did not end: export it again");
	kv_check_payload(header, AT_CHECK, again);
	if (memcmp(header + AT_CHECK, again, KV_BLOCK_CHECK_BYTES) != 0)
		return cnre_message(message, KV_PREFIX_MESSAGE_BYTES, -EBADMSG,
				    "the header's check is wrong: damaged, copy or export it again");
	if (version > VERSION)
		return cnre_message(message, KV_PREFIX_MESSAGE_BYTES, -EPROTO,
				    "version %" PRIu32 ", this release reads %u: use a newer one", version, VERSION);
	take(header, &summary);
	encode(&summary, again); /* the same page, unless padding or version are not as they must be */
	if (memcmp(header, again, sizeof again) != 0 || !is_possible(&summary))
		return cnre_message(message, KV_PREFIX_MESSAGE_BYTES, -EBADMSG, "the header has impossible values");
	*ret_summary = summary;
	return 0;
}

/* ---- the chain ---- */

/*
 * Why the block cannot be the next of those in summary (NULL: it can); block_tokens and has_checkpoints are theirs. That the
 * one before it is full follows from its position, which is a multiple of block_tokens.
 */
static const char *refusal(const struct kv_prefix_summary *summary, uint32_t block_tokens, int has_checkpoints,
			   const struct kv_block *block)
{
	int is_first = summary->blocks == 0;

	if (summary->blocks == KV_PREFIX_BLOCKS_MAX)
		return "more blocks than allowed";
	if (block->position != summary->tokens)
		return is_first ? "the first block is not at token 0" : "a block is missing before it";
	if (is_first)
		return NULL;
	if (memcmp(block->root, summary->root, KV_KEY_BYTES) != 0)
		return "of another root than the first block";
	if (memcmp(block->parent, summary->leaf, KV_KEY_BYTES) != 0)
		return "its parent is not the block before it";
	if (block->block_tokens != block_tokens)
		return "of another number of tokens a block";
	if (((block->flags & KV_BLOCK_CHECKPOINTS) != 0) != has_checkpoints)
		return "the blocks disagree on whether they are resumed at points only";
	return NULL;
}

/* The block is now the last one. */
static void count_block(struct kv_prefix_summary *summary, const struct kv_block *block)
{
	memcpy(summary->root, block->root, KV_KEY_BYTES);
	memcpy(summary->leaf, block->key, KV_KEY_BYTES);
	summary->tokens += block->token_count;
	summary->payload_bytes += block->bytes;
	if (block->bytes > summary->payload_bytes_max)
		summary->payload_bytes_max = block->bytes;
	summary->file_bytes += KV_BLOCK_HEADER_BYTES + cnre_size_align_up(block->bytes, KV_PREFIX_ALIGNMENT);
	summary->blocks++;
}

/* ---- writing ---- */

/* Where the descriptor stands is its owner's, who may hold it open too. */
static int write_at(int fd, const void *bytes, uint64_t count, uint64_t offset)
{
	const char *from = bytes;

	while (count > 0) {
		ssize_t n = pwrite(fd, from, count, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		from += n;
		offset += (uint64_t)n;
		count -= (uint64_t)n;
	}
	return 0;
}

int kv_prefix_begin(struct kv_prefix_writer *writer, int fd)
{
	struct stat status;
	int flags;

	if (fstat(fd, &status) < 0)
		return -errno;
	flags = fcntl(fd, F_GETFL);
	if (flags < 0)
		return -errno;
	/* With O_APPEND the header would go to the end. */
	if (!S_ISREG(status.st_mode) || status.st_size != 0 || (flags & O_APPEND) != 0 ||
	    (flags & O_ACCMODE) == O_RDONLY)
		return -EINVAL;
	*writer = (struct kv_prefix_writer){.fd = fd, .summary = {.file_bytes = KV_BLOCK_HEADER_BYTES}};
	return 0;
}

static int write_block(const struct kv_prefix_writer *writer, const struct kv_block *block,
		       const unsigned char header[KV_BLOCK_HEADER_BYTES], const void *payload)
{
	static const unsigned char zeros[KV_PREFIX_ALIGNMENT];
	uint64_t at = writer->summary.file_bytes,
		 padding = cnre_size_align_up(block->bytes, KV_PREFIX_ALIGNMENT) - block->bytes;
	int r = write_at(writer->fd, header, KV_BLOCK_HEADER_BYTES, at);

	if (r == 0)
		r = write_at(writer->fd, payload, block->bytes, at + KV_BLOCK_HEADER_BYTES);
	if (r == 0)
		r = write_at(writer->fd, zeros, padding, at + KV_BLOCK_HEADER_BYTES + block->bytes);
	return r;
}

int kv_prefix_add(struct kv_prefix_writer *writer, const struct kv_block *block, const void *payload)
{
	unsigned char header[KV_BLOCK_HEADER_BYTES], check[KV_BLOCK_CHECK_BYTES];
	char message[KV_BLOCK_MESSAGE_BYTES];
	struct kv_block again;
	int r;

	/* The reader's own eyes: what it would refuse is not written. */
	kv_block_encode(block, header);
	if (kv_block_decode(header, &again, message) < 0 ||
	    refusal(&writer->summary, writer->block_tokens, writer->has_checkpoints, block) != NULL)
		return -EINVAL;
	kv_check_payload(payload, block->bytes, check);
	if (memcmp(check, block->check, sizeof check) != 0)
		return -EBADMSG;
	r = write_block(writer, block, header, payload);
	if (r < 0)
		return r;
	count_block(&writer->summary, block);
	writer->block_tokens = block->block_tokens;
	writer->has_checkpoints = (block->flags & KV_BLOCK_CHECKPOINTS) != 0;
	return 0;
}

int kv_prefix_end(struct kv_prefix_writer *writer, struct kv_prefix_summary *ret_summary)
{
	unsigned char header[KV_BLOCK_HEADER_BYTES];
	int r;

	if (writer->summary.blocks == 0)
		return -EINVAL;
	encode(&writer->summary, header);
	r = write_at(writer->fd, header, sizeof header, 0);
	if (r == 0 && ret_summary != NULL)
		*ret_summary = writer->summary;
	return r;
}

/* ---- reading ---- */

/* All of it: the file was as long as that when it was opened. */
static int read_at(int fd, void *to, uint64_t bytes, uint64_t offset, char *message)
{
	int64_t got = cnre_file_read(fd, to, bytes, offset);

	if (got < 0)
		return cnre_message(message, KV_PREFIX_MESSAGE_BYTES, (int)got, "reading at byte %" PRIu64 ": %s",
				    offset, strerror((int)-got));
	if ((uint64_t)got < bytes)
		return cnre_message(message, KV_PREFIX_MESSAGE_BYTES, -EBADMSG,
				    "ends at byte %" PRIu64 ", before it is whole: copy or export it again",
				    offset + (uint64_t)got);
	return 0;
}

int kv_prefix_open(struct kv_prefix_reader *ret_reader, int fd, char message[KV_PREFIX_MESSAGE_BYTES])
{
	unsigned char header[KV_BLOCK_HEADER_BYTES];
	struct kv_prefix_reader reader = {.fd = fd, .read = {.file_bytes = KV_BLOCK_HEADER_BYTES}};
	struct stat status;
	int r;

	if (fstat(fd, &status) < 0)
		return cnre_message(message, KV_PREFIX_MESSAGE_BYTES, -errno, "%s", strerror(errno));
	if (!S_ISREG(status.st_mode))
		return cnre_message(message, KV_PREFIX_MESSAGE_BYTES, -EINVAL, "not a regular file");
	if ((uint64_t)status.st_size < sizeof header)
		return cnre_message(message, KV_PREFIX_MESSAGE_BYTES, -EBADMSG,
				    "not an exported prefix, or only the first %" PRIu64 " bytes of one",
				    (uint64_t)status.st_size);
	r = read_at(fd, header, sizeof header, 0, message);
	if (r == 0)
		r = decode(header, &reader.summary, message);
	if (r < 0)
		return r;
	if ((uint64_t)status.st_size != reader.summary.file_bytes)
		return cnre_message(message, KV_PREFIX_MESSAGE_BYTES, -EBADMSG,
				    "%" PRIu64 " bytes long, and should be %" PRIu64 ": copy or export it again",
				    (uint64_t)status.st_size, reader.summary.file_bytes);
	*ret_reader = reader;
	return 0;
}

static int refuse_block(const struct kv_prefix_reader *reader, int error, const char *why, char *message)
{
	return cnre_message(message, KV_PREFIX_MESSAGE_BYTES, error, "block %" PRIu32 ": %s", reader->read.blocks, why);
}

/* Behind the last block everything must have come out as the header said. */
static int check_end(const struct kv_prefix_reader *reader, char *message)
{
	unsigned char said[KV_BLOCK_HEADER_BYTES], found[KV_BLOCK_HEADER_BYTES];

	encode(&reader->summary, said);
	encode(&reader->read, found);
	if (memcmp(said, found, sizeof said) != 0)
		return cnre_message(message, KV_PREFIX_MESSAGE_BYTES, -EBADMSG,
				    "the blocks are not those that the header tells of");
	return 0;
}

int kv_prefix_next(struct kv_prefix_reader *reader, struct kv_block *ret_block, char message[KV_PREFIX_MESSAGE_BYTES])
{
	unsigned char header[KV_BLOCK_HEADER_BYTES];
	const struct kv_block *last = &reader->block;
	char reason[KV_BLOCK_MESSAGE_BYTES];
	struct kv_block block;
	const char *why;
	int r;

	if (reader->read.blocks == reader->summary.blocks)
		return check_end(reader, message);
	r = read_at(reader->fd, header, sizeof header, reader->read.file_bytes, message);
	if (r < 0)
		return r;
	r = kv_block_decode(header, &block, reason);
	if (r < 0)
		return refuse_block(reader, r, reason, message);
	why = refusal(&reader->read, last->block_tokens, (last->flags & KV_BLOCK_CHECKPOINTS) != 0, &block);
	if (why == NULL && block.bytes > reader->summary.payload_bytes_max)
		why = "larger than the header says";
	if (why != NULL)
		return refuse_block(reader, -EBADMSG, why, message);
	reader->payload_off = reader->read.file_bytes + KV_BLOCK_HEADER_BYTES;
	count_block(&reader->read, &block);
	reader->block = block;
	*ret_block = block;
	return 1;
}

static int check_padding(const struct kv_prefix_reader *reader, char *message)
{
	static const unsigned char zeros[KV_PREFIX_ALIGNMENT];
	unsigned char padding[KV_PREFIX_ALIGNMENT];
	uint64_t bytes = reader->block.bytes, count = cnre_size_align_up(bytes, KV_PREFIX_ALIGNMENT) - bytes;
	int r = read_at(reader->fd, padding, count, reader->payload_off + bytes, message);

	if (r == 0 && memcmp(padding, zeros, count) != 0)
		r = cnre_message(message, KV_PREFIX_MESSAGE_BYTES, -EBADMSG, "padding is not zero: damaged");
	return r;
}

int kv_prefix_read_payload(const struct kv_prefix_reader *reader, void *payload, char message[KV_PREFIX_MESSAGE_BYTES])
{
	unsigned char check[KV_BLOCK_CHECK_BYTES];
	int r;

	if (reader->read.blocks == 0)
		return cnre_message(message, KV_PREFIX_MESSAGE_BYTES, -EBADMSG, "no block was read yet");
	r = read_at(reader->fd, payload, reader->block.bytes, reader->payload_off, message);
	if (r < 0)
		return r;
	kv_check_payload(payload, reader->block.bytes, check);
	if (memcmp(check, reader->block.check, sizeof check) != 0)
		return cnre_message(message, KV_PREFIX_MESSAGE_BYTES, -EBADMSG,
				    "block %" PRIu32 ": the payload's check is wrong: damaged, copy or export it again",
				    reader->read.blocks - 1);
	return check_padding(reader, message);
}
