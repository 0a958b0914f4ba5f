/* SPDX-License-Identifier: Apache-2.0 */
/* See kv_rows.h. A head's rows are adjacent on both sides, so each copy is one of some kilobytes. */
#include "engine/kv_rows.h"

#include <string.h>

/* The side'th of keys and values. */
static float *side_of(const struct kv_cache *cache, int side)
{
	return side == 0 ? cache->key : cache->value;
}

void kv_rows_gather(const struct kv_cache *cache, const struct config *config, struct kv_span span, void *ret_payload)
{
	const size_t floats = (size_t)span.count * config->head_dim;
	char *to = ret_payload;

	for (uint32_t layer = 0; layer < config->layers; layer++)
		for (int side = 0; side < 2; side++)
			for (uint32_t head = 0; head < config->kv_heads; head++, to += floats * sizeof(float))
				memcpy(to, kv_cache_row(cache, config, side_of(cache, side), layer, head, span.first),
				       floats * sizeof(float));
}

void kv_rows_scatter(struct kv_cache *cache, const struct config *config, struct kv_span span, const void *payload,
		     uint32_t payload_tokens)
{
	const size_t stride = (size_t)payload_tokens * config->head_dim * sizeof(float),
		     bytes = (size_t)span.count * config->head_dim * sizeof(float);
	const char *from = payload;

	for (uint32_t layer = 0; layer < config->layers; layer++)
		for (int side = 0; side < 2; side++)
			for (uint32_t head = 0; head < config->kv_heads; head++, from += stride)
				memcpy(kv_cache_row(cache, config, side_of(cache, side), layer, head, span.first), from,
				       bytes);
}
