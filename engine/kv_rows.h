/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of a conversation as the payload of a KV block, and back. Layer-major: for each layer its keys, then its values,
 * each [kv_head][token][head_dim] of the block's tokens alone. Pure copying; whose block it is, kv_prefix.h knows.
 */
#ifndef ENGINE_KV_ROWS_H
#define ENGINE_KV_ROWS_H

#include "engine/attention.h"

struct kv_span {                          /* tokens [first, first + count) of a conversation */
	uint32_t first, count;
};

/* From the cache to a payload of span.count * kv_cache_token_bytes() bytes. The rows are there. */
void kv_rows_gather(const struct kv_cache *cache, const struct config *config, struct kv_span span, void *ret_payload);

/* Back: the first span.count of the payload's payload_tokens. They fit the cache; its count is the caller's to move. */
void kv_rows_scatter(struct kv_cache *cache, const struct config *config, struct kv_span span, const void *payload,
		     uint32_t payload_tokens);

#endif
