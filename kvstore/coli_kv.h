/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conversation that Colibri's GLM engine saves beside a model (`.coli_kv`), read, and turned into a prefix file.
 *
 *   byte 0   magic "COLIKV1\0"
 *        8   int32[8]: layers, kv_lora, qk_rope, index_dim (0: none), index layers, vocabulary, records, 0
 *       40   records: int32 token; for each layer kv_lora + qk_rope floats; for each index layer index_dim floats
 *
 * Little-endian, not aligned. The engine appends records and then their count, without a sync: after a crash either may be
 * ahead of the other, and a count that was lowered leaves the old records behind it. Only what both vouch for is taken.
 *
 * The file says nothing of weights, tokenizer or quantisation, and two engines that shared one file may have mixed two
 * conversations in it, which nothing in it shows: whoever converts it states the identity and answers for it.
 */
#ifndef KVSTORE_COLI_KV_H
#define KVSTORE_COLI_KV_H

#include "kvstore/prefix_file.h"

#define COLI_KV_LAYERS_MAX 4096u          /* of either kind */
#define COLI_KV_ROW_FLOATS_MAX 65536u
#define COLI_KV_RECORD_BYTES_MAX (64u << 20)
#define COLI_KV_MESSAGE_BYTES 256u

struct coli_kv {
	int fd;                           /* the caller's */
	uint32_t layers, row_floats;      /* row_floats: kv_lora + qk_rope */
	uint32_t index_layers, index_floats;
	uint32_t vocabulary;
	uint64_t record_bytes;
	uint64_t records;                 /* to be read: what header and file both vouch for */
	uint64_t promised;                /* by the header */
	uint64_t present;                 /* whole ones in the file */
	uint64_t torn_bytes;              /* of a record that is not whole, at the end */
};

/*
 * coli_kv_open - check the header of a `.coli_kv`
 *
 * Returns:  0; -EINVAL: not a regular file; -EBADMSG: not such a file, or impossible dimensions; -ENOTSUP: another of
 *           Colibri's formats (fp8, rotated int4, DeepSeek V4), named in the message; errors of fstat and read.
 *           *ret_file on success only. The file is trusted to be quiet: reading while an engine writes gives torn rows.
 */
int coli_kv_open(struct coli_kv *ret_file, int fd, char message[COLI_KV_MESSAGE_BYTES]);

/* Records that are left out: torn, or not counted by the header. */
uint64_t coli_kv_dropped(const struct coli_kv *file);

/*
 * coli_kv_convert - write a prefix file (kvstore/prefix_file.h) of all records
 *
 * Blocks of identity->block_tokens tokens; the last one may have fewer. The payload of a block is layer-major: for each
 * layer the rows of the block's tokens, then for each index layer its rows. What computing them took is not known: 0.
 *
 * @out_fd  an empty regular file, the caller's to sync and close
 *
 * Returns:  0; -EINVAL: the identity (which has no flags: rows can be cut at any token), or a block
 *           would be larger than KV_BLOCK_BYTES_MAX; -ENODATA: no record; -EBADMSG: a token beyond the vocabulary, or the
 *           file became shorter; -ENOMEM, -ENOSPC, -EIO, …
 */
int coli_kv_convert(const struct coli_kv *file, const struct kv_identity *identity, int out_fd,
		    struct kv_prefix_summary *ret_summary, char message[COLI_KV_MESSAGE_BYTES]);

#endif
