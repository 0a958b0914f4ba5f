/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal attention over a key-value cache: OLMoE's, which normalises the whole query and key vectors before they
 * are cut into heads. Query heads share key heads in groups where config.json has fewer of the latter.
 */
#ifndef ENGINE_ATTENTION_H
#define ENGINE_ATTENTION_H

#include "engine/config.h"
#include "engine/matmul.h"
#include "engine/weights.h"

struct kv_cache {                         /* the rows of one conversation */
	float *key, *value;               /* each [layer][kv_head][position][head_dim] */
	uint32_t positions;               /* room */
	uint32_t count;                   /* positions whose rows are there */
	uint64_t bytes;
};

/* Bytes of one position's rows, all layers, keys and values. */
uint64_t kv_cache_token_bytes(const struct config *config);

/* Returns 0, or -ENOMEM. Pages are touched as positions come. */
int kv_cache_init(struct kv_cache *cache, const struct config *config, uint32_t positions);
void kv_cache_done(struct kv_cache *cache);

/* Where the rows of a head begin at a position, in rows: the key or the value of the cache. */
float *kv_cache_row(const struct kv_cache *cache, const struct config *config, float *rows, uint32_t layer,
		    uint32_t kv_head, uint32_t position);

struct attention_scratch {                /* for up to rows_max rows and positions positions */
	float *query, *key, *value, *context;     /* [rows_max][heads or kv_heads * head_dim] */
	float *cosine, *sine;             /* [rows_max][head_dim / 2] */
	float *score;                     /* [heads][positions] */
};

/* Returns 0, or -ENOMEM; free with attention_scratch_done in either case. */
int attention_scratch_init(struct attention_scratch *scratch, const struct config *config, uint32_t rows_max,
			   uint32_t positions);
void attention_scratch_done(struct attention_scratch *scratch);

/* Angles of rows positions from first on, for all layers of a forward pass. */
void attention_set_positions(struct attention_scratch *scratch, const struct config *config, uint32_t first,
			     uint32_t rows);

struct attention {                        /* one call's fixed surroundings */
	const struct compute *compute;
	const struct config *config;
	struct kv_cache *cache;
	struct attention_scratch *scratch;
};

/* Appends rows at position first to the cache of a layer and attends; x and y are [rows][hidden], y may not be x. */
void attention_run(const struct attention *attention, const struct layer_weights *weights, uint32_t layer,
		   uint32_t first, uint32_t rows, const float *x, float *ret_y);

#endif
