/* SPDX-License-Identifier: Apache-2.0 */
/* See tiny_olmoe.h. Two files with the same tensors in the same order: the header first, then the bytes. */
#include "tests/support/tiny_olmoe.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 256 };

struct writer {
	FILE *file;
	uint64_t off; /* bytes of the tensors so far */
	uint32_t seed;
	int dense, experts;
	int writes_header; /* else the bytes */
};

static const char *name_of(int dtype)
{
	return dtype == CNRE_F32 ? "F32" : dtype == CNRE_BF16 ? "BF16" : dtype == CNRE_F16 ? "F16" : "I8";
}

static unsigned int width_of(int dtype)
{
	return dtype == CNRE_F32 ? 4 : dtype == CNRE_I8 ? 1 : 2;
}

/* The next weight in 64ths, -63 .. 63. */
static int next_weight(struct writer *writer)
{
	writer->seed = writer->seed * 1664525u + 1013904223u;
	return (int)((writer->seed >> 16) % 127u) - 63;
}

static void put_float(struct writer *writer, float value, int dtype)
{
	uint32_t bits;
	uint16_t half;

	memcpy(&bits, &value, sizeof bits);
	if (dtype == CNRE_F32) {
		fwrite(&bits, sizeof bits, 1, writer->file);
		return;
	}
	half = (uint16_t)(bits >> 16);
	if (dtype == CNRE_F16) /* exact: six significant bits, exponents -6 .. 0 */
		half = value == 0 ? 0 : (uint16_t)((bits >> 16 & 0x8000u) | ((bits >> 13 & 0x3ffffu) - (112u << 10)));
	fwrite(&half, sizeof half, 1, writer->file);
}

/* columns 0: a vector of norm weights, near one. */
static void tensor(struct writer *writer, const char *name, int dtype, unsigned int rows, unsigned int columns)
{
	const uint64_t count = (uint64_t)rows * (columns ? columns : 1), bytes = count * width_of(dtype);

	if (writer->writes_header) {
		fprintf(writer->file, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%u", writer->off ? "," : "", name,
			name_of(dtype), rows);
		if (columns)
			fprintf(writer->file, ",%u", columns);
		fprintf(writer->file, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)writer->off,
			(unsigned long long)(writer->off + bytes));
	}
	writer->off += bytes;
	for (uint64_t i = 0; i < count && !writer->writes_header; i++) {
		int weight = next_weight(writer);

		if (dtype == CNRE_I8)
			putc(weight & 0xff, writer->file);
		else
			put_float(writer, columns ? (float)weight / 64 : 1 + (float)(weight / 8) / 64, dtype);
	}
}

static void scales(struct writer *writer, const char *name, unsigned int count)
{
	tensor(writer, name, CNRE_F32, count, 0);
}

static void expert(struct writer *writer, unsigned int layer, unsigned int index)
{
	static const char *const projection[] = {"gate_proj", "up_proj", "down_proj"};
	char name[PATH_BYTES];

	if (writer->experts == CNRE_I8) {
		snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%u.merged_weight", layer, index);
		tensor(writer, name, CNRE_I8, 3 * TINY_INNER, TINY_HIDDEN);
		snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%u.qs", layer, index);
		scales(writer, name, 2 * TINY_INNER + TINY_HIDDEN);
		return;
	}
	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%u.%s.weight", layer, index, projection[i]);
		tensor(writer, name, writer->experts, i == 2 ? TINY_HIDDEN : TINY_INNER,
		       i == 2 ? TINY_INNER : TINY_HIDDEN);
	}
}

static void layer_tensors(struct writer *writer, unsigned int layer)
{
	const unsigned int key = TINY_HIDDEN / TINY_HEADS * TINY_KV_HEADS;
	const struct {
		const char *suffix;
		unsigned int rows, columns;
	} dense[] = {
		{"input_layernorm", TINY_HIDDEN, 0},
		{"post_attention_layernorm", TINY_HIDDEN, 0},
		{"self_attn.q_norm", TINY_HIDDEN, 0},
		{"self_attn.k_norm", key, 0},
		{"self_attn.q_proj", TINY_HIDDEN, TINY_HIDDEN},
		{"self_attn.k_proj", key, TINY_HIDDEN},
		{"self_attn.v_proj", key, TINY_HIDDEN},
		{"self_attn.o_proj", TINY_HIDDEN, TINY_HIDDEN},
		{"mlp.gate", TINY_EXPERTS, TINY_HIDDEN},
	};
	char name[PATH_BYTES];

	for (size_t i = 0; i < sizeof dense / sizeof dense[0]; i++) {
		snprintf(name, sizeof name, "model.layers.%u.%s.weight", layer, dense[i].suffix);
		tensor(writer, name, writer->dense, dense[i].rows, dense[i].columns);
	}
	for (unsigned int i = 0; i < TINY_EXPERTS; i++)
		expert(writer, layer, i);
}

static void all_tensors(struct writer *writer)
{
	writer->off = 0;
	tensor(writer, "model.embed_tokens.weight", writer->dense, TINY_VOCAB, TINY_HIDDEN);
	tensor(writer, "lm_head.weight", writer->dense, TINY_VOCAB, TINY_HIDDEN);
	tensor(writer, "model.norm.weight", writer->dense, TINY_HIDDEN, 0);
	for (unsigned int i = 0; i < TINY_LAYERS; i++)
		layer_tensors(writer, i);
}

static int write_config(const char *directory)
{
	char path[PATH_BYTES];
	FILE *file;

	snprintf(path, sizeof path, "%s/config.json", directory);
	file = fopen(path, "w");
	if (!file)
		return -1;
	fprintf(file,
		"{\"model_type\":\"olmoe\",\"hidden_size\":%d,\"num_hidden_layers\":%d,\"num_attention_heads\":%d,"
		"\"num_key_value_heads\":%d,\"num_experts\":%d,\"num_experts_per_tok\":%d,\"intermediate_size\":%d,"
		"\"vocab_size\":%d,\"rope_theta\":10000.0,\"rms_norm_eps\":1e-05,\"norm_topk_prob\":true}",
		TINY_HIDDEN, TINY_LAYERS, TINY_HEADS, TINY_KV_HEADS, TINY_EXPERTS, TINY_TOP_K, TINY_INNER, TINY_VOCAB);
	return fclose(file) == 0 ? 0 : -1;
}

int tiny_olmoe_write(const char *directory, int dense, int experts)
{
	struct writer writer = {.dense = dense, .experts = experts, .writes_header = 1, .seed = 7};
	char path[PATH_BYTES];
	uint64_t length;

	if (write_config(directory) < 0)
		return -1;
	snprintf(path, sizeof path, "%s/model.safetensors", directory);
	writer.file = fopen(path, "w");
	if (!writer.file)
		return -1;
	fseek(writer.file, sizeof length, SEEK_SET);
	putc('{', writer.file);
	all_tensors(&writer);
	putc('}', writer.file);
	length = (uint64_t)ftell(writer.file) - sizeof length;
	writer.writes_header = 0;
	all_tensors(&writer);
	rewind(writer.file);
	fwrite(&length, sizeof length, 1, writer.file); /* this machine's order: the tests run on little-endian ones */
	return fclose(writer.file) == 0 ? 0 : -1;
}

void tiny_olmoe_remove(const char *directory)
{
	static const char *const files[] = {"config.json", "model.safetensors"};
	char path[PATH_BYTES];

	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
		snprintf(path, sizeof path, "%s/%s", directory, files[i]);
		unlink(path);
	}
	rmdir(directory);
}
