/* SPDX-License-Identifier: Apache-2.0 */
/* A client with an open KV namespace, and a fake host behind it: the fixture of the tests of prefixes. */
#ifndef CNRE_TESTS_SUPPORT_KV_ATTACHED_H
#define CNRE_TESTS_SUPPORT_KV_ATTACHED_H

#include "cnre/cnre.h"
#include "tests/support/attached.h"
#include "tests/support/fake_kv.h"

#define KV_TOKENS 4u       /* of a block */
#define KV_BYTES 256u      /* of each block's payload */
#define KV_BYTES_MAX 4096u /* that a block may have */

struct kv_attached {
	struct fake_kv *fake;
	struct fake_host *host;
	struct cnre *client;
	struct cnre_kv *kv;
};

/* Aborts when it cannot. setup NULL: defaults; flags: of the identity. */
struct kv_attached kv_attached_start(const struct fake_kv_setup *setup, uint32_t flags);
void kv_attached_stop(struct kv_attached *attached);
struct cnre_kv_identity kv_attached_identity(void);

struct kv_conversation {
	const int32_t *tokens;
	size_t count;
	const struct cnre_kv_media *media;
	size_t media_count;
};

/*
 * Stores a conversation in blocks of KV_TOKENS, the last one as long as it is, and serves the requests. points: a bit for
 * each block that is committed as one. Each 32-bit word of a payload is the number of tokens before the block, plus 1.
 */
void kv_attached_store(struct kv_attached *attached, struct kv_conversation conversation, uint32_t points);
/* The same, of tokens alone. */
void kv_attached_store_tokens(struct kv_attached *attached, const int32_t *tokens, size_t count);
/* 1 when it is the payload of a block at that position. */
int kv_attached_is_right(const void *data, uint64_t bytes, uint64_t position);
/* Leases on all entries. */
uint32_t kv_attached_leases(struct kv_attached *attached);

#endif
