/* SPDX-License-Identifier: Apache-2.0 */
/* See weights.h. One arena holds everything; it is sized from the headers before the first byte is read. */
#include "engine/weights.h"

#include "cnre/cnre.h"
#include "engine/kernel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA_ALIGNMENT 64u
#define NAME_BYTES 128

struct reader {
	struct weights *weights;
	const struct config *config;
	const struct shard_set *shards;
	char *message;
};

/*
 * Room for bytes, followed by at least as much as the alignment; NULL cannot happen for tensors counted by
 * arena_size.
 */
static void *take(struct weights *weights, uint64_t bytes)
{
	char *place = weights->arena + weights->used_bytes;
	uint64_t room = (bytes + 2 * ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;

	if (room > weights->arena_bytes - weights->used_bytes)
		return NULL;
	weights->used_bytes += room;
	return place;
}

static int find(const struct reader *reader, const char *name, uint64_t rows, uint64_t columns,
		const struct tensor **ret_tensor)
{
	const struct tensor *tensor = shard_find(reader->shards, name);
	uint64_t elements = 1;

	if (!tensor)
		return engine_fail(reader->message, -EBADMSG,
				   "tensor %s is missing: the checkpoint is not complete, or CNRE_DIRS does not name where the rest lies",
				   name);
	if (tensor->dtype != CNRE_F32 && tensor->dtype != CNRE_BF16 && tensor->dtype != CNRE_F16)
		return engine_fail(reader->message, -EBADMSG, "tensor %s: dense weights must be F32, BF16 or F16",
				   name);
	for (uint16_t i = 0; i < tensor->rank; i++)
		elements *= tensor->shape[i]; /* shard_open has checked the product */
	if (elements != rows * columns || (rows > 1 && (tensor->rank != 2 || tensor->shape[0] != rows)))
		return engine_fail(reader->message, -EBADMSG, "tensor %s is not %llu x %llu, as config.json implies",
				   name, (unsigned long long)rows, (unsigned long long)columns);
	*ret_tensor = tensor;
	return 0;
}

static int read_tensor(const struct reader *reader, const struct tensor *tensor, void **ret_data)
{
	void *data = take(reader->weights, tensor->bytes);
	int error = data ? shard_read(reader->shards, tensor->shard, tensor->file_off, data, tensor->bytes) : -ENOMEM;

	if (error < 0)
		return engine_fail(reader->message, error, "cannot read tensor %.200s: %s", tensor->name,
				   strerror(-error));
	*ret_data = data;
	return 0;
}

static int read_matrix(const struct reader *reader, const char *name, uint32_t rows, uint32_t columns,
		       struct matrix *ret_matrix)
{
	const struct tensor *tensor = NULL;
	void *data = NULL;
	int error = find(reader, name, rows, columns, &tensor);

	if (error == 0)
		error = read_tensor(reader, tensor, &data);
	if (error == 0)
		*ret_matrix = (struct matrix){.data = data, .rows = rows, .columns = columns, .dtype = tensor->dtype};
	return error;
}

static int read_vector(const struct reader *reader, const char *name, uint32_t count, const float **ret_vector)
{
	struct matrix matrix = {0};
	float *vector;
	int error = read_matrix(reader, name, 1, count, &matrix);

	if (error < 0)
		return error;
	vector = take(reader->weights, (uint64_t)count * sizeof *vector);
	if (!vector)
		return engine_fail(reader->message, -ENOMEM, "out of memory for tensor %s", name);
	for (uint32_t i = 0; i < count; i++)
		vector[i] = kernel_element(&matrix, i);
	*ret_vector = vector;
	return 0;
}

static int read_layer_vectors(const struct reader *reader, uint32_t index, struct layer_weights *layer)
{
	const struct config *config = reader->config;
	const struct {
		const char *suffix;
		uint32_t count;
		const float **vector;
	} vectors[] = {
		{"input_layernorm", config->hidden, &layer->input_norm},
		{"post_attention_layernorm", config->hidden, &layer->post_norm},
		{"self_attn.q_norm", config->heads * config->head_dim, &layer->q_norm},
		{"self_attn.k_norm", config->kv_heads * config->head_dim, &layer->k_norm},
	};
	char name[NAME_BYTES];
	int error = 0;

	for (size_t i = 0; i < sizeof vectors / sizeof vectors[0] && error == 0; i++) {
		(void)snprintf(name, sizeof name, "model.layers.%u.%s.weight", index, vectors[i].suffix);
		error = read_vector(reader, name, vectors[i].count, vectors[i].vector);
	}
	return error;
}

static int read_layer_matrices(const struct reader *reader, uint32_t index, struct layer_weights *layer)
{
	const struct config *config = reader->config;
	const uint32_t query = config->heads * config->head_dim, key = config->kv_heads * config->head_dim;
	const struct {
		const char *suffix;
		uint32_t rows, columns;
		struct matrix *matrix;
	} matrices[] = {
		{"self_attn.q_proj", query, config->hidden, &layer->q},
		{"self_attn.k_proj", key, config->hidden, &layer->k},
		{"self_attn.v_proj", key, config->hidden, &layer->v},
		{"self_attn.o_proj", config->hidden, query, &layer->o},
		{"mlp.gate", config->experts, config->hidden, &layer->router},
	};
	char name[NAME_BYTES];
	int error = 0;

	for (size_t i = 0; i < sizeof matrices / sizeof matrices[0] && error == 0; i++) {
		(void)snprintf(name, sizeof name, "model.layers.%u.%s.weight", index, matrices[i].suffix);
		error = read_matrix(reader, name, matrices[i].rows, matrices[i].columns, matrices[i].matrix);
	}
	return error;
}

/* A checkpoint with tied embeddings has no head of its own. */
static int read_ends(const struct reader *reader)
{
	const struct config *config = reader->config;
	struct weights *weights = reader->weights;
	int error =
		read_matrix(reader, "model.embed_tokens.weight", config->vocab, config->hidden, &weights->embedding);

	if (error == 0)
		error = read_vector(reader, "model.norm.weight", config->hidden, &weights->final_norm);
	if (error < 0)
		return error;
	if (!shard_find(reader->shards, "lm_head.weight")) {
		weights->head = weights->embedding;
		return 0;
	}
	return read_matrix(reader, "lm_head.weight", config->vocab, config->hidden, &weights->head);
}

/* Every tensor that is not an expert's, norms (which are rounded up to F32) twice more. It is address space only. */
static uint64_t arena_size(const struct shard_set *shards)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < shards->tensor_count; i++)
		if (!strstr(shards->tensor[i].name, ".experts."))
			bytes += 3 * shards->tensor[i].bytes + 4 * ARENA_ALIGNMENT;
	return bytes;
}

static int map_arena(struct weights *weights, const struct shard_set *shards, char *message)
{
	uint64_t bytes = arena_size(shards) + ARENA_ALIGNMENT; /* something, also where no dense tensor is found */
	void *arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (arena == MAP_FAILED)
		return engine_fail(message, -ENOMEM, "cannot reserve %llu bytes for the dense weights",
				   (unsigned long long)bytes);
	(void)madvise(arena, bytes, MADV_HUGEPAGE); /* fewer TLB misses where the kernel grants it */
	weights->arena = arena;
	weights->arena_bytes = bytes;
	return 0;
}

int weights_load(struct weights *ret_weights, const struct config *config, const struct shard_set *shards,
		 char message[ENGINE_MESSAGE_BYTES])
{
	struct weights weights = {0};
	const struct reader reader = {&weights, config, shards, message};
	int error = map_arena(&weights, shards, message);

	if (error < 0)
		return error;
	weights.layer = calloc(config->layers, sizeof *weights.layer);
	error = weights.layer ? read_ends(&reader) : engine_fail(message, -ENOMEM, "out of memory for the layer table");
	for (uint32_t i = 0; i < config->layers && error == 0; i++) {
		error = read_layer_vectors(&reader, i, &weights.layer[i]);
		if (error == 0)
			error = read_layer_matrices(&reader, i, &weights.layer[i]);
	}
	if (error < 0)
		weights_free(&weights);
	else
		*ret_weights = weights;
	return error;
}

void weights_free(struct weights *weights)
{
	free(weights->layer);
	if (weights->arena)
		(void)munmap(weights->arena, weights->arena_bytes);
	*weights = (struct weights){0};
}
