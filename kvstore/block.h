/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of one KV block beside its payload, and how a file says it. The file of a block is
 * KV_BLOCK_HEADER_BYTES of header, then the payload; nothing behind it. The header has its own check, the payload's check
 * stands in the header, so a flipped bit anywhere is seen. All numbers are little-endian.
 */
#ifndef KVSTORE_BLOCK_H
#define KVSTORE_BLOCK_H

#include "kvstore/key.h"

#define KV_BLOCK_HEADER_BYTES 4096u       /* one page, so that the payload can be read past the page cache */
#define KV_BLOCK_CHECK_BYTES 16u          /* XXH3-128, canonical */
#define KV_BLOCK_BYTES_MAX (1ull << 30)   /* a payload: one segment of memory */
#define KV_BLOCK_MESSAGE_BYTES 256u

enum {
	KV_BLOCK_POINT = 1u << 0,         /* its end can be resumed where others cannot (CNRE_KV_POINT) */
	KV_BLOCK_CHECKPOINTS = 1u << 1,   /* of a root whose state can be resumed at points only */
};

struct kv_block {
	unsigned char root[KV_KEY_BYTES], parent[KV_KEY_BYTES], key[KV_KEY_BYTES];
	struct kv_media_mark mark;
	uint64_t position;                /* tokens before it; a multiple of block_tokens */
	uint64_t bytes;                   /* of the payload, at least 1 */
	uint64_t compute_ns;              /* what computing it took, as its publisher says */
	uint32_t token_count, block_tokens;
	uint32_t flags;                   /* KV_BLOCK_… */
	unsigned char check[KV_BLOCK_CHECK_BYTES]; /* of the payload */
	int32_t token[KV_BLOCK_TOKENS_MAX];
};

/* The check of a payload, at once or in pieces (copying and checking a piece while it is in the cache). */
struct kv_check;
int kv_check_open(struct kv_check **ret_check);
struct kv_check *kv_check_close(struct kv_check *check);
void kv_check_begin(struct kv_check *check);
void kv_check_add(struct kv_check *check, const void *bytes, size_t count);
void kv_check_end(struct kv_check *check, unsigned char ret_check[KV_BLOCK_CHECK_BYTES]);
void kv_check_payload(const void *payload, size_t bytes, unsigned char ret_check[KV_BLOCK_CHECK_BYTES]);

void kv_block_encode(const struct kv_block *block, unsigned char ret_header[KV_BLOCK_HEADER_BYTES]);

/*
 * kv_block_decode - believe nothing of a header
 *
 * Magic, version, check, ranges, and that the key is that of parent, tokens and media: what passes can be indexed.
 * Returns:  0, -EBADMSG (message: what is wrong), -EPROTO (a newer version). *ret_block on success only.
 */
int kv_block_decode(const unsigned char header[KV_BLOCK_HEADER_BYTES], struct kv_block *ret_block,
		    char message[KV_BLOCK_MESSAGE_BYTES]);

/* The key from parent, tokens and mark; 1 if it is block->key. */
int kv_block_is_named_right(const struct kv_block *block);

#endif
