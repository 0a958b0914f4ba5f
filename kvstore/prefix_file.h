/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A prefix that was exported: its blocks in one file, in order from the root to the leaf, for another machine or another
 * namespace. The names of the blocks are content, so whoever imports it has to believe nothing but the payloads.
 *
 *   header   KV_BLOCK_HEADER_BYTES: magic, version, how many blocks, tokens and bytes, root and leaf, check
 *   block    KV_BLOCK_HEADER_BYTES as in a block's own file (kvstore/block.h), the payload, zeros up to 4096
 *   block    …its parent is the one before it; nothing behind the last
 *
 * The header is written last: a file that nobody finished has zeros there and is refused. Every byte of a file is under a
 * check or must be zero. Files come from strangers: descriptors of regular files only, sizes bounded before they are used.
 */
#ifndef KVSTORE_PREFIX_FILE_H
#define KVSTORE_PREFIX_FILE_H

#include "kvstore/block.h"

#define KV_PREFIX_BLOCKS_MAX (1u << 20)
#define KV_PREFIX_ALIGNMENT 4096u
#define KV_PREFIX_MESSAGE_BYTES 256u

/* What the header says, and what a writer has so far. */
struct kv_prefix_summary {
	unsigned char root[KV_KEY_BYTES], leaf[KV_KEY_BYTES];
	uint64_t tokens;
	uint64_t payload_bytes;           /* of all blocks, without padding */
	uint64_t payload_bytes_max;       /* of the largest: a buffer of this size takes every one */
	uint64_t file_bytes;
	uint32_t blocks;
};

/* ---- writing; the caller owns the descriptor, syncs and closes it ---- */

struct kv_prefix_writer {
	int fd;
	struct kv_prefix_summary summary;
	uint32_t block_tokens;
	int has_checkpoints;
};

/*
 * kv_prefix_begin - start a prefix in an empty regular file
 *
 * Returns:  0; -EINVAL: not a regular file, not empty, not writable, or O_APPEND; other errors of fstat and fcntl.
 */
int kv_prefix_begin(struct kv_prefix_writer *writer, int fd);
/*
 * kv_prefix_add - the next block, from the root on
 *
 * Returns:  0; -EINVAL: it does not continue the chain; -EBADMSG: the payload is not what its check says; -ENOSPC, -EIO, ….
 *           After an error the file cannot be finished.
 */
int kv_prefix_add(struct kv_prefix_writer *writer, const struct kv_block *block, const void *payload);
/* Writes the header. 0, or -EINVAL (no block), -ENOSPC, -EIO, …. *ret_summary on success only; may be NULL. */
int kv_prefix_end(struct kv_prefix_writer *writer, struct kv_prefix_summary *ret_summary);

/* ---- reading; messages are one line for people ---- */

struct kv_prefix_reader {
	int fd;
	struct kv_prefix_summary summary; /* as the header says; held to it at the end */
	struct kv_prefix_summary read;    /* so far */
	struct kv_block block;            /* the last one given */
	uint64_t payload_off;             /* of its payload in the file */
};

/*
 * kv_prefix_open - check the header of a prefix
 *
 * Returns:  0; -EINVAL: not a regular file; -EBADMSG: not a prefix, damaged, or longer or shorter than it says; -EPROTO: of
 *           a newer release; errors of fstat and read. *ret_reader on success only; the caller owns the descriptor.
 */
int kv_prefix_open(struct kv_prefix_reader *ret_reader, int fd, char message[KV_PREFIX_MESSAGE_BYTES]);
/*
 * kv_prefix_next - the next block, without its payload
 *
 * Returns:  1 with *ret_block set; 0 behind the last; -EBADMSG: damaged, or not the next of its chain; -EPROTO; -EIO, …
 */
int kv_prefix_next(struct kv_prefix_reader *reader, struct kv_block *ret_block, char message[KV_PREFIX_MESSAGE_BYTES]);
/*
 * kv_prefix_read_payload - payload of the block that kv_prefix_next gave last
 *
 * @payload  room for block.bytes; what is there after an error is nothing
 *
 * Returns:  0; -EBADMSG: not what its check says, or no block was given; -EIO, …
 */
int kv_prefix_read_payload(const struct kv_prefix_reader *reader, void *payload, char message[KV_PREFIX_MESSAGE_BYTES]);

#endif
