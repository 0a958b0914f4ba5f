/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See attention.h. The scores of a head are a matrix product with its keys as the matrix, so they use the same
 * kernel.
 */
#include "engine/attention.h"

#include "cnre/cnre.h"
#include "engine/vector.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

uint64_t kv_cache_token_bytes(const struct config *config)
{
	return 2 * (uint64_t)config->layers * config->kv_heads * config->head_dim * sizeof(float);
}

int kv_cache_init(struct kv_cache *cache, const struct config *config, uint32_t positions)
{
	uint64_t bytes;
	void *memory;

	if (__builtin_mul_overflow(kv_cache_token_bytes(config), (uint64_t)positions, &bytes))
		return -ENOMEM;
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return -ENOMEM;
	*cache = (struct kv_cache){
		.key = memory, .value = (float *)((char *)memory + bytes / 2), .positions = positions, .bytes = bytes};
	return 0;
}

void kv_cache_done(struct kv_cache *cache)
{
	if (cache->key)
		(void)munmap(cache->key, cache->bytes);
	*cache = (struct kv_cache){0};
}

float *kv_cache_row(const struct kv_cache *cache, const struct config *config, float *rows, uint32_t layer,
		    uint32_t kv_head, uint32_t position)
{
	return rows + (((size_t)layer * config->kv_heads + kv_head) * cache->positions + position) * config->head_dim;
}

int attention_scratch_init(struct attention_scratch *scratch, const struct config *config, uint32_t rows_max,
			   uint32_t positions)
{
	const size_t query = (size_t)config->heads * config->head_dim,
		     key = (size_t)config->kv_heads * config->head_dim;

	*scratch = (struct attention_scratch){
		.query = calloc(rows_max, query * sizeof(float)),
		.context = calloc(rows_max, query * sizeof(float)),
		.key = calloc(rows_max, key * sizeof(float)),
		.value = calloc(rows_max, key * sizeof(float)),
		.cosine = calloc(rows_max, config->head_dim / 2 * sizeof(float)),
		.sine = calloc(rows_max, config->head_dim / 2 * sizeof(float)),
		.score = calloc(config->heads, (size_t)positions * sizeof(float)),
	};
	return scratch->query && scratch->context && scratch->key && scratch->value && scratch->cosine &&
			       scratch->sine && scratch->score
		       ? 0
		       : -ENOMEM;
}

void attention_scratch_done(struct attention_scratch *scratch)
{
	free(scratch->query);
	free(scratch->context);
	free(scratch->key);
	free(scratch->value);
	free(scratch->cosine);
	free(scratch->sine);
	free(scratch->score);
	*scratch = (struct attention_scratch){0};
}

void attention_set_positions(struct attention_scratch *scratch, const struct config *config, uint32_t first,
			     uint32_t rows)
{
	const size_t half = config->head_dim / 2;

	for (uint32_t s = 0; s < rows; s++)
		vector_rope_angles(scratch->cosine + s * half, scratch->sine + s * half, first + s, config->head_dim,
				   config->rope_theta);
}

/* One row's q or k: normalised as a whole, clipped, turned to its position. */
static void prepare(const struct attention *attention, float *x, const float *norm, uint32_t heads, uint32_t row)
{
	const struct config *config = attention->config;
	const size_t angles = (size_t)row * (config->head_dim / 2);

	vector_rms_norm(x, x, norm, heads * config->head_dim, config->rms_norm_eps);
	if (config->clip_qkv > 0)
		vector_clip(x, heads * config->head_dim, config->clip_qkv);
	vector_rope(x, heads, config->head_dim, attention->scratch->cosine + angles, attention->scratch->sine + angles);
}

static float *cache_row(const struct attention *attention, float *rows, uint32_t layer, uint32_t kv_head,
			uint32_t position)
{
	return kv_cache_row(attention->cache, attention->config, rows, layer, kv_head, position);
}

static void store(const struct attention *attention, uint32_t layer, uint32_t position, const float *key,
		  const float *value)
{
	const uint32_t head_dim = attention->config->head_dim;

	for (uint32_t head = 0; head < attention->config->kv_heads; head++) {
		memcpy(cache_row(attention, attention->cache->key, layer, head, position),
		       key + (size_t)head * head_dim, head_dim * sizeof *key);
		memcpy(cache_row(attention, attention->cache->value, layer, head, position),
		       value + (size_t)head * head_dim, head_dim * sizeof *value);
	}
}

static void project(const struct attention *attention, const struct layer_weights *weights, uint32_t layer,
		    uint32_t first, uint32_t rows, const float *x)
{
	const struct config *config = attention->config;
	struct attention_scratch *scratch = attention->scratch;

	matmul(attention->compute, &weights->q, x, rows, scratch->query);
	matmul(attention->compute, &weights->k, x, rows, scratch->key);
	matmul(attention->compute, &weights->v, x, rows, scratch->value);
	for (uint32_t s = 0; s < rows; s++) {
		float *key = scratch->key + (size_t)s * weights->k.rows;
		float *value = scratch->value + (size_t)s * weights->v.rows;

		prepare(attention, scratch->query + (size_t)s * weights->q.rows, weights->q_norm, config->heads, s);
		prepare(attention, key, weights->k_norm, config->kv_heads, s);
		if (config->clip_qkv > 0)
			vector_clip(value, weights->v.rows, config->clip_qkv);
		store(attention, layer, first + s, key, value);
	}
}

struct head_job {
	const struct attention *attention;
	uint32_t layer, first, rows;
};

/* One head of one row over positions 0 .. position. */
static void attend(const struct attention *attention, uint32_t layer, uint32_t head, uint32_t row, uint32_t position)
{
	const struct config *config = attention->config;
	const struct kernel *kernel = attention->compute->kernel;
	const uint32_t kv_head = head / (config->heads / config->kv_heads), count = position + 1;
	const size_t at = ((size_t)row * config->heads + head) * config->head_dim;
	const struct matrix keys = {.data = cache_row(attention, attention->cache->key, layer, kv_head, 0),
				    .rows = count,
				    .columns = config->head_dim,
				    .dtype = CNRE_F32};
	const float *value = cache_row(attention, attention->cache->value, layer, kv_head, 0);
	const float scale = 1.0f / sqrtf((float)config->head_dim);
	float *score = attention->scratch->score + (size_t)head * attention->cache->positions;
	float *context = attention->scratch->context + at;

	kernel->rows(&keys, 0, count, attention->scratch->query + at, score);
	for (uint32_t t = 0; t < count; t++)
		score[t] *= scale;
	vector_softmax(score, count);
	memset(context, 0, config->head_dim * sizeof *context);
	for (uint32_t t = 0; t < count; t++)
		kernel->add_scaled(context, value + (size_t)t * config->head_dim, score[t], config->head_dim);
}

static void attend_heads(void *argument, uint32_t first_head, uint32_t count)
{
	const struct head_job *job = argument;

	for (uint32_t head = first_head; head < first_head + count; head++)
		for (uint32_t s = 0; s < job->rows; s++)
			attend(job->attention, job->layer, head, s, job->first + s);
}

void attention_run(const struct attention *attention, const struct layer_weights *weights, uint32_t layer,
		   uint32_t first, uint32_t rows, const float *x, float *ret_y)
{
	struct head_job job = {.attention = attention, .layer = layer, .first = first, .rows = rows};
	const struct config *config = attention->config;
	/* Heads too short to share out run in one piece: a chunk of all of them. */
	const uint64_t work = (uint64_t)rows * (first + rows) * config->head_dim * config->heads;
	const uint32_t chunk = work < 65536 ? config->heads : 1;

	project(attention, weights, layer, first, rows, x);
	pool_run(attention->compute->pool, attend_heads, &job, config->heads, chunk);
	matmul(attention->compute, &weights->o, attention->scratch->context, rows, ret_y);
}
