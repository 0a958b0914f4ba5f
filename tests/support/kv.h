/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversations for tests of KV prefixes: tokens and payloads that follow from numbers, so that any process can tell whether
 * what it reads is what was stored.
 */
#ifndef CNRE_TESTS_SUPPORT_KV_H
#define CNRE_TESTS_SUPPORT_KV_H

#include "cnre/cnre.h"

#define KV_TEST_BLOCK 16u                 /* tokens of a block */
#define KV_TEST_BYTES 40960u              /* of a payload; no multiple of a hugepage, and one of 4096 */
#define KV_TEST_TOKENS_MAX 4096u

/* An identity with the block size above; change fields before it is opened. */
struct cnre_kv_identity kv_test_identity(void);

/* Tokens of conversation `seed`: the first `shared` ones are those of conversation 0. */
void kv_test_tokens(unsigned seed, size_t shared, int32_t *ret_tokens, size_t count);

/* What a payload must be, from the tokens up to and including its block; check: 0, or 1 + the first byte that differs. */
void kv_test_fill(void *payload, size_t bytes, const int32_t *tokens, size_t end);
uint64_t kv_test_check(const void *payload, size_t bytes, const int32_t *tokens, size_t end);

/*
 * Publishes all of tokens[0, count) that is not there, the last block partial if it is so, and waits until everything can be
 * matched. How many blocks were new, or -errno.
 */
int kv_test_publish(struct cnre_kv *kv, const int32_t *tokens, size_t count);
/* The same without waiting. */
int kv_test_commit(struct cnre_kv *kv, const int32_t *tokens, size_t count);

/* Matches and reads every block that was matched: tokens covered, or -EBADMSG where a payload is another's, or -errno. */
int kv_test_read(struct cnre_kv *kv, const int32_t *tokens, size_t count);

/* Looks every millisecond until a match covers `wanted` tokens, 20 s at most: what the last one covered. */
int kv_test_await(struct cnre_kv *kv, const int32_t *tokens, size_t count, int wanted);

#endif
