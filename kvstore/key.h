/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of KV blocks. A name is content: whoever computes the same state from the same tokens finds the same name, and
 * nobody else does. Client and manager both link this file, so that neither has to believe the other.
 *
 *   root  = SHA-256 of everything that the state depends on beside the tokens (kv_key_root)
 *   media = SHA-256 of the items that overlap a block (kv_key_media)
 *   block = SHA-256 of the parent's name, tokens and media (kv_key_block); a first block's parent is its root
 *
 * Every record is a sequence of fields: a tag byte, the length as 8 bytes little-endian, the bytes. So "ab","c" is not
 * "a","bc", a salt is not an adapter, and an absent string (no field) is not an empty one. The first field names the
 * record: "cnre-kv-root-1", "cnre-kv-media-1", "cnre-kv-block-1".
 */
#ifndef KVSTORE_KEY_H
#define KVSTORE_KEY_H

#include <stddef.h>
#include <stdint.h>

#define KV_KEY_BYTES 32u
#define KV_BLOCK_TOKENS_DEFAULT 64u
#define KV_BLOCK_TOKENS_MAX 256u          /* tokens of one block */
#define KV_TEXT_BYTES_MAX (16u << 20)     /* of one string of an identity */
#define KV_PAYLOAD_BYTES 16u              /* the beginning of that digest */
#define KV_ADAPTER_BYTES_MAX 4096u
#define KV_MEDIA_DIGEST_BYTES_MAX 256u
#define KV_MEDIA_MAX 65536u               /* items of one conversation */

struct kv_identity {
	const unsigned char *model;       /* KV_KEY_BYTES: configuration and shapes of the checkpoint (base/fingerprint.h) */
	const unsigned char *payload;     /* KV_PAYLOAD_BYTES: its weights (base/payload.h); NULL: absent */
	const char *tokenizer, *chat_template, *position, *representation, *salt; /* each may be NULL: absent */
	uint32_t version;
	const unsigned char *adapter_digest; /* NULL: absent */
	size_t adapter_digest_bytes;
	uint32_t block_tokens;            /* 1..KV_BLOCK_TOKENS_MAX */
	uint32_t flags;                   /* of struct cnre_kv_identity */
};

/* One image or sound; the layout of struct cnre_kv_media. */
struct kv_media {
	uint64_t token_offset, token_count; /* from token 0 of the conversation */
	const unsigned char *digest;        /* NULL: from token_offset on nothing can be named */
	size_t digest_bytes;
};

/* 0, or -EINVAL (no model, a length beyond its bound, block_tokens out of range), -ENOMEM. */
int kv_key_root(const struct kv_identity *identity, unsigned char ret_root[KV_KEY_BYTES]);

/* What a block says of the media in it. */
struct kv_media_mark {
	unsigned char digest[KV_KEY_BYTES]; /* zeros: no item overlaps the block */
	uint32_t first;                     /* in-block offset of the first token with media; the token count if none */
};

/*
 * The items that overlap tokens [start, start + count), each with its full digest, its count, and its offset relative to
 * `start` (it may begin before the block). Items may be in any order and are named in the order of their offsets. An
 * item of no tokens overlaps nothing.
 * Returns:  0, -ENODATA (an item without digest begins before start + count: the block has no name), -EINVAL (an empty or too
 *           long digest, too many items, an offset beyond INT64_MAX), -ENOMEM.
 */
int kv_key_media(const struct kv_media *media, size_t media_count, uint64_t start, uint32_t count,
		 struct kv_media_mark *ret_mark);

/*
 * count 1..KV_BLOCK_TOKENS_MAX; a mark with a digest has its first token before that. 0, -EINVAL or -ENOMEM. A thread's
 * first call allocates its context; after that OpenSSL 3.0 allocates 112 bytes while it hashes, which are free at the end.
 */
int kv_key_block(const unsigned char parent[KV_KEY_BYTES], const int32_t *tokens, uint32_t count,
		 const struct kv_media_mark *mark, unsigned char ret_key[KV_KEY_BYTES]);

#endif
