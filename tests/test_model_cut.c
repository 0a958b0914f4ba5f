/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which format an expert has: formats side by side in one checkpoint, bytes that could be two of them, tensors that are
 * missing or of a wrong form, models with fewer experts; and the reference vectors, against a header read independently.
 */
#include "model/cut.h"

#include "cnre/cnre.h"
#include "model/catalog.h"
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct folder folder;
static char message[MODEL_MESSAGE_BYTES];

static void make(void)
{
	folder_make(&folder);
}

static void clean(void)
{
	folder_remove(&folder);
}

TestSuite(model_cut, .init = make, .fini = clean, .timeout = 60);

/* ---- a header under construction ---- */

#define HEADER_BYTES (1u << 20)

struct header {
	char *text;
	size_t used;
	uint64_t data_bytes;
};

static struct header start(void)
{
	return (struct header){.text = calloc(1, HEADER_BYTES)};
}

__attribute__((format(printf, 5, 6))) static void add(struct header *header, const char *dtype, const char *shape,
						      uint64_t bytes, const char *format, ...)
{
	char name[256];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(name, sizeof name, format, arguments);
	va_end(arguments);
	header->used += (size_t)snprintf(header->text + header->used, HEADER_BYTES - header->used,
					 "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
					 header->used == 0 ? '{' : ',', name, dtype, shape,
					 (unsigned long long)header->data_bytes,
					 (unsigned long long)(header->data_bytes + bytes));
	header->data_bytes += bytes;
}

static void finish(struct header *header, const char *name)
{
	cr_assert_lt(header->used, (size_t)HEADER_BYTES - 1);
	(void)strcat(header->text + header->used, "}");
	folder_write_shard(&folder, name, header->text, header->data_bytes);
	free(header->text);
	*header = (struct header){.text = NULL};
}

static void write_config(const char *text)
{
	folder_write(&folder, "config.json", text, strlen(text));
}

static struct model_catalog *opened(const char *directory)
{
	struct model_catalog *catalog = NULL;

	message[0] = '\0';
	cr_assert_eq(model_catalog_open(&catalog, directory, message), 0, "%s", message);
	return catalog;
}

static void expect_refused(int error, const char *part)
{
	struct model_catalog *catalog = (struct model_catalog *)&catalog, *before = catalog;

	message[0] = '\0';
	cr_expect_eq(model_catalog_open(&catalog, folder.path, message), error, "%s", message);
	cr_expect_eq(catalog, before, "output touched");
	cr_expect(strstr(message, part) != NULL, "no \"%s\" in: %s", part, message);
}

/* ---- GLM: hidden 128, intermediate 64, as Colibri's engine would read it ---- */

#define GLM_CONFIG                                                                                                    \
	"{\"model_type\":\"glm_moe_dsa\",\"num_hidden_layers\":3,\"first_k_dense_replace\":1,\"n_routed_experts\":2," \
	"\"num_experts_per_tok\":2,\"hidden_size\":128,\"moe_intermediate_size\":64}"

enum glm_format { INT4_ROW, INT4_G64, INT8_ROW, INT4_G64_AND_INT8 };

/* One matrix with its scales. */
static void add_matrix(struct header *header, const char *prefix, const char *which, uint32_t rows, uint32_t columns,
		       int bits, uint32_t group)
{
	uint32_t stored = columns * (uint32_t)bits / 8,
		 scales = rows * (group == 0 ? 1 : (columns + group - 1) / group);
	char shape[32];

	(void)snprintf(shape, sizeof shape, "%u,%u", rows, stored);
	add(header, "U8", shape, (uint64_t)rows * stored, "%s.%s_proj.weight", prefix, which);
	(void)snprintf(shape, sizeof shape, "%u", scales);
	add(header, "F32", shape, 4u * scales, "%s.%s_proj.weight.qs", prefix, which);
}

static void add_glm(struct header *header, uint32_t layer, uint32_t expert, enum glm_format format)
{
	uint32_t group = format == INT4_G64 || format == INT4_G64_AND_INT8 ? 64 : 0;
	int bits = format == INT8_ROW ? 8 : 4;
	char prefix[128];

	(void)snprintf(prefix, sizeof prefix, "model.layers.%u.mlp.experts.%u", layer, expert);
	add_matrix(header, prefix, "gate", 64, 128, bits, group);
	add_matrix(header, prefix, "up", 64, 128, bits, group);
	if (format == INT4_G64_AND_INT8)
		add_matrix(header, prefix, "down", 128, 64, 8, 0);
	else
		add_matrix(header, prefix, "down", 128, 64, bits, 0); /* one group of 64 is a row */
}

/* The converter gives the MTP head int8 rows; the others are int4. */
Test(model_cut, int8_rows_of_the_mtp_head_lie_among_int4_rows)
{
	struct header header = start();
	const struct model_shape *last, *first;
	struct model_catalog *catalog;

	write_config(GLM_CONFIG);
	for (uint32_t i = 2; i < 8; i++)
		add_glm(&header, i / 2, i % 2, i / 2 == 3 ? INT8_ROW : INT4_ROW);
	finish(&header, "model.safetensors");
	catalog = opened(folder.path);
	cr_expect_eq(catalog->main_layer_count, 3);
	cr_expect_eq(catalog->layer_count, 4);
	cr_expect_eq(catalog->layer[0].expert_count, 0);
	cr_expect_eq(catalog->layer[3].expert_count, 2);
	cr_expect_eq(catalog->layer[3].top_k, 2);
	cr_expect_eq(catalog->shape_count, 2);
	first = &catalog->shape[catalog->object[0].shape];
	last = &catalog->shape[catalog->object[model_catalog_find(catalog, 3, 1)].shape];
	cr_expect_str_eq(first->format, "int4-row");
	cr_expect_str_eq(last->format, "int8-row");
	cr_expect_eq(first->payload_bytes, 3 * 64 * 64 + 4 * 256);
	cr_expect_eq(last->payload_bytes, 3 * 64 * 128 + 4 * 256);
	cr_expect_eq(catalog->payload_bytes_min, first->payload_bytes);
	cr_expect_eq(catalog->payload_bytes_max, last->payload_bytes);
	cr_expect_eq(catalog->payload_bytes_total, 4 * first->payload_bytes + 2 * last->payload_bytes);
	(void)model_catalog_close(catalog);
}

Test(model_cut, matrices_of_one_expert_may_differ)
{
	struct header header = start();
	struct model_catalog *catalog;
	const struct model_shape *shape;

	write_config(GLM_CONFIG);
	for (uint32_t i = 2; i < 6; i++)
		add_glm(&header, i / 2, i % 2, INT4_G64_AND_INT8);
	finish(&header, "model.safetensors");
	catalog = opened(folder.path);
	shape = &catalog->shape[0];
	cr_expect_str_eq(shape->format, "int4-g64+int4-g64+int8-row");
	cr_expect_eq(shape->part[MODEL_UP].dtype, CNRE_U8);
	cr_expect_eq(shape->part[MODEL_UP_SCALE].block_columns, 64);
	cr_expect_eq(shape->part[MODEL_UP_SCALE].columns, 2);
	cr_expect_eq(shape->part[MODEL_DOWN].dtype, CNRE_I8);
	cr_expect_eq(shape->part[MODEL_DOWN_SCALE].block_columns, 0);
	(void)model_catalog_close(catalog);
}

/* ---- bytes that could be two formats ---- */

struct sizes {
	uint64_t weight, scale;
};

static void write_glm_bytes(uint32_t hidden, uint32_t intermediate, struct sizes in, struct sizes out)
{
	static const char *const names[] = {"gate", "up", "down"};
	struct header header = start();
	char config[512], shape[32];

	(void)snprintf(
		config, sizeof config,
		"{\"model_type\":\"glm\",\"num_hidden_layers\":1,\"n_routed_experts\":1,\"num_experts_per_tok\":1,"
		"\"hidden_size\":%u,\"moe_intermediate_size\":%u}",
		hidden, intermediate);
	write_config(config);
	for (size_t i = 0; i < 3; i++) {
		struct sizes sizes = i == 2 ? out : in;

		(void)snprintf(shape, sizeof shape, "%llu", (unsigned long long)sizes.weight);
		add(&header, "U8", shape, sizes.weight, "model.layers.0.mlp.experts.0.%s_proj.weight", names[i]);
		(void)snprintf(shape, sizeof shape, "%llu", (unsigned long long)(sizes.scale / 4));
		add(&header, "F32", shape, sizes.scale, "model.layers.0.mlp.experts.0.%s_proj.weight.qs", names[i]);
	}
	finish(&header, "model.safetensors");
}

/* In the order of the engine: rows before groups, the finest group first, int8 before FP8. */
Test(model_cut, bytes_that_fit_several_formats_are_what_the_engine_takes_them_for)
{
	static const struct {
		uint32_t hidden, intermediate;
		struct sizes in, out;
		const char *format;
	} cases[] = {
		/* One group of 64 has as many scales as a row. */
		{64, 64, {64 * 32, 4 * 64}, {64 * 32, 4 * 64}, "int4-row"},
		/* Two groups of 64, or of 96. */
		{128, 128, {128 * 64, 4 * 256}, {128 * 64, 4 * 256}, "int4-g64"},
		/* Two groups of 96, or of 128: of 96 for this engine. */
		{192, 192, {192 * 96, 4 * 384}, {192 * 96, 4 * 384}, "int4-g96"},
		/* 48 columns: int4 rows of 24 bytes, or an int3 group. */
		{48, 48, {48 * 24, 4 * 48}, {48 * 24, 4 * 48}, "int4-row"},
		/* 128 rows of 128 * 128 columns have 128 scales, as their blocks do. */
		{16384, 128, {128ull * 16384, 4 * 128}, {128ull * 16384, 4 * 16384}, "int8-row"},
		{256, 256, {256 * 256, 4 * 4}, {256 * 256, 4 * 4}, "fp8-b128"},
		{256, 256, {256 * 98, 4}, {256 * 98, 4}, "e8"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct model_catalog *catalog;

		write_glm_bytes(cases[i].hidden, cases[i].intermediate, cases[i].in, cases[i].out);
		catalog = opened(folder.path);
		cr_expect_str_eq(catalog->shape[0].format, cases[i].format, "case %zu: %s", i,
				 catalog->shape[0].format);
		(void)model_catalog_close(catalog);
	}
}

/* One row of 196 weights: 98 bytes are an E8 block, or int4, and the one float is a tag or a scale. */
Test(model_cut, bytes_that_no_engine_can_tell_apart_are_refused)
{
	write_glm_bytes(196, 1, (struct sizes){98, 4}, (struct sizes){196, 4 * 196});
	expect_refused(-EBADMSG, "gate_proj.weight: its bytes are e8 and something else");
}

Test(model_cut, bytes_of_no_format_are_refused_with_what_the_nearest_needs)
{
	write_glm_bytes(128, 128, (struct sizes){128 * 63, 4 * 128}, (struct sizes){128 * 64, 4 * 128});
	expect_refused(-EBADMSG, "gate_proj.weight: 8064 bytes in a dtype or shape that no format of family glm has");
	write_glm_bytes(128, 128, (struct sizes){128 * 64, 4 * 128}, (struct sizes){128 * 64, 4 * 127});
	expect_refused(-EBADMSG, "down_proj.weight.qs: 508 bytes");
	expect_refused(-EBADMSG, "as int4-row it needs 512");
}

/* Somebody's scales belong to somebody's quantised weights. */
Test(model_cut, scales_beside_plain_weights_are_refused)
{
	static const char *const names[] = {"gate", "up", "down"};
	struct header header = start();

	write_config("{\"model_type\":\"glm\",\"num_hidden_layers\":1,\"n_routed_experts\":1,\"num_experts_per_tok\":1,"
		     "\"hidden_size\":64,\"moe_intermediate_size\":64}");
	for (size_t i = 0; i < 3; i++)
		add(&header, "BF16", "64,64", 64 * 64 * 2, "model.layers.0.mlp.experts.0.%s_proj.weight", names[i]);
	add(&header, "F32", "64", 64 * 4, "model.layers.0.mlp.experts.0.up_proj.weight.qs");
	finish(&header, "model.safetensors");
	expect_refused(-EBADMSG, "up_proj.weight: 8192 bytes in a dtype or shape that no format of family glm has");
}

/* ---- Inkling: slices ---- */

#define INKLING_CONFIG                                                                                          \
	"{\"model_type\":\"inkling\",\"num_hidden_layers\":1,\"n_routed_experts\":3,\"num_experts_per_tok\":2," \
	"\"hidden_size\":16,\"moe_intermediate_size\":8}"

static void write_inkling(const char *shape, uint64_t gate_up_bytes, uint64_t scale_bytes)
{
	struct header header = start();
	char text[32];

	write_config(INKLING_CONFIG);
	add(&header, "U8", shape, gate_up_bytes, "model.layers.0.mlp.experts.gate_up_proj");
	(void)snprintf(text, sizeof text, "%llu", (unsigned long long)(scale_bytes / 4));
	add(&header, "F32", text, scale_bytes, "model.layers.0.mlp.experts.gate_up_proj.qs");
	add(&header, "U8", "3,16,4", 3 * 16 * 4, "model.layers.0.mlp.experts.down_proj");
	add(&header, "F32", "3,16", 3 * 16 * 4, "model.layers.0.mlp.experts.down_proj.qs");
	finish(&header, "model.safetensors");
}

Test(model_cut, an_expert_of_a_fused_tensor_is_a_slice_of_each_of_them)
{
	struct model_catalog *catalog;

	write_inkling("3,16,8", 3 * 16 * 8, 3 * 16 * 4);
	catalog = opened(folder.path);
	cr_expect_str_eq(catalog->shape[0].format, "int4-row");
	cr_assert_eq(catalog->object_count, 3);
	for (uint32_t i = 0; i < 3; i++) {
		const struct model_piece *piece = catalog->object[i].piece;
		uint64_t data = catalog->shard[0].data_off;

		cr_expect_eq(piece[MODEL_GATE].file_off, data + i * 128);
		cr_expect_eq(piece[MODEL_UP].file_off, data + i * 128 + 64);
		cr_expect_eq(piece[MODEL_GATE_SCALE].file_off, data + 384 + i * 64);
		cr_expect_eq(piece[MODEL_UP_SCALE].file_off, data + 384 + i * 64 + 32);
		cr_expect_eq(piece[MODEL_DOWN].file_off, data + 576 + i * 64);
		cr_expect_eq(piece[MODEL_DOWN_SCALE].file_off, data + 768 + i * 64);
	}
	(void)model_catalog_close(catalog);
}

Test(model_cut, fused_tensors_that_do_not_hold_all_experts_alike_are_refused)
{
	write_inkling("3,16,7", 3 * 16 * 7, 3 * 16 * 4);
	expect_refused(-EBADMSG, "gate_up_proj: 336 bytes");
	write_inkling("385", 385, 3 * 16 * 4);
	expect_refused(-EBADMSG, "gate_up_proj: 385 bytes");
	write_inkling("3,16,8", 3 * 16 * 8, 3 * 15 * 4);
	expect_refused(-EBADMSG, "gate_up_proj.qs: 180 bytes");
	expect_refused(-EBADMSG, "it needs 192");
}

/* A transposed one has the same bytes. */
Test(model_cut, a_fused_tensor_of_whole_weights_must_have_the_shape_too)
{
	struct header header = start();

	write_config(INKLING_CONFIG);
	add(&header, "BF16", "3,16,16", 3 * 16 * 16 * 2, "model.layers.0.mlp.experts.gate_up_proj");
	add(&header, "BF16", "3,8,16", 3 * 8 * 16 * 2, "model.layers.0.mlp.experts.down_proj");
	finish(&header, "model.safetensors");
	expect_refused(-EBADMSG, "down_proj: 768 bytes in a dtype or shape");
}

/* ---- DeepSeek: pieces anywhere, fewer experts, rows after the last layer ---- */

static void write_v4_config(const char *more)
{
	char config[512];

	(void)snprintf(
		config, sizeof config,
		"{\"model_type\":\"deepseek_v41\",\"text_config\":{\"num_hidden_layers\":1,\"num_experts_per_tok\":6,"
		"\"hidden_size\":64,\"moe_intermediate_size\":32%s}}",
		more);
	write_config(config);
}

static void add_v4_weight(struct header *header, const char *layer, uint32_t expert, uint32_t which)
{
	add(header, "I8", which == 2 ? "64,16" : "32,32", 1024, "%s.ffn.experts.%u.w%u.weight", layer, expert, which);
}

static void add_v4_scale(struct header *header, const char *layer, uint32_t expert, uint32_t which)
{
	add(header, "F8_E8M0", which == 2 ? "64,1" : "32,2", 64, "%s.ffn.experts.%u.w%u.scale", layer, expert, which);
}

Test(model_cut, a_pruned_model_has_the_experts_that_are_left_wherever_their_pieces_lie)
{
	struct header header = start(), scales = start();
	struct model_catalog *catalog;
	struct model_plan plan;

	write_v4_config(",\"n_routed_experts\":132");
	for (uint32_t which = 1; which <= 3; which++)
		for (uint32_t expert = 132; expert-- > 0;) {
			add_v4_weight(&header, "layers.0", expert, which);
			add_v4_scale(&scales, "layers.0", expert, which);
		}
	add(&header, "BF16", "132,64", 132 * 64 * 2, "layers.0.ffn.gate.weight");
	finish(&header, "model-00001-of-00002.safetensors");
	finish(&scales, "model-00002-of-00002.safetensors");
	catalog = opened(folder.path);
	cr_expect_eq(catalog->object_count, 132);
	cr_expect_eq(catalog->shape_count, 1);
	cr_expect_eq(catalog->payload_bytes_min, 3 * 1024 + 3 * 64);
	model_plan(catalog, 131, &plan);
	cr_expect_eq(plan.run_count, 6);
	cr_expect_eq(catalog->object[131].piece[MODEL_GATE].file_off, catalog->shard[0].data_off);
	cr_expect_eq(catalog->object[131].piece[MODEL_GATE_SCALE].shard, 1);
	(void)model_catalog_close(catalog);
}

static void add_v4_expert(struct header *header, const char *layer, uint32_t expert)
{
	for (uint32_t which = 1; which <= 3; which++)
		add_v4_scale(header, layer, expert, which);
	for (uint32_t which = 1; which <= 3; which++)
		add_v4_weight(header, layer, expert, which);
}

Test(model_cut, draft_rows_follow_the_last_layer_with_experts_and_top_k_of_their_own)
{
	struct header header = start();
	struct model_catalog *catalog;

	write_v4_config(",\"n_routed_experts\":8,\"dspark_n_routed_experts\":4,\"dspark_num_experts_per_tok\":3");
	for (uint32_t expert = 0; expert < 8; expert++)
		add_v4_expert(&header, "layers.0", expert);
	for (uint32_t expert = 0; expert < 4; expert++) {
		add_v4_expert(&header, "mtp.0", expert);
		add_v4_expert(&header, "mtp.2", expert);
	}
	finish(&header, "model.safetensors");
	catalog = opened(folder.path);
	cr_assert_eq(catalog->layer_count, 4);
	cr_expect_eq(catalog->main_layer_count, 1);
	cr_expect_eq(catalog->layer[0].expert_count, 8);
	cr_expect_eq(catalog->layer[0].top_k, 6);
	cr_expect_eq(catalog->layer[1].expert_count, 4);
	cr_expect_eq(catalog->layer[1].top_k, 3);
	cr_expect_eq(catalog->layer[2].expert_count, 0);
	cr_expect_eq(catalog->layer[3].expert_count, 4);
	cr_expect_eq(catalog->object_count, 16);
	(void)model_catalog_close(catalog);
}

Test(model_cut, a_layer_that_lacks_experts_is_refused_by_the_name_of_the_first_that_is_missing)
{
	struct header header = start();

	write_v4_config(",\"n_routed_experts\":8");
	for (uint32_t expert = 0; expert < 8; expert++)
		if (expert != 5)
			add_v4_expert(&header, "layers.0", expert);
	finish(&header, "model.safetensors");
	expect_refused(-EBADMSG, "layers.0.ffn.experts.5.w1.weight is missing");
}

/* A whole shard that was not downloaded must not make its layers dense. */
Test(model_cut, a_layer_that_cannot_be_dense_and_has_no_experts_is_refused)
{
	struct header header = start();

	write_config(GLM_CONFIG);
	add_glm(&header, 2, 0, INT4_ROW);
	add_glm(&header, 2, 1, INT4_ROW);
	finish(&header, "model.safetensors");
	expect_refused(-EBADMSG, "model.layers.1.mlp.experts.0.gate_proj.weight is missing");
}

/* ---- what is legal, and what is not, in any family (cases C3, C5, C6) ---- */

Test(model_cut, empty_tensors_and_metadata_are_legal_beside_experts)
{
	struct header header = start();
	struct model_catalog *catalog;

	write_config(GLM_CONFIG);
	header.used = (size_t)snprintf(header.text, HEADER_BYTES, "{\"__metadata__\":{}");
	add(&header, "F32", "0", 0, "model.empty");
	for (uint32_t i = 2; i < 6; i++)
		add_glm(&header, i / 2, i % 2, INT4_ROW);
	finish(&header, "model.safetensors");
	catalog = opened(folder.path);
	cr_expect_eq(catalog->object_count, 4);
	(void)model_catalog_close(catalog);
}

Test(model_cut, an_expert_tensor_without_bytes_is_none)
{
	struct header header = start();

	write_config(GLM_CONFIG);
	add(&header, "U8", "0", 0, "model.layers.1.mlp.experts.0.gate_proj.weight");
	finish(&header, "model.safetensors");
	expect_refused(-EBADMSG, "gate_proj.weight.qs is missing");
}

/* The same expert under both of a family's prefixes would be served from one of them. */
Test(model_cut, a_tensor_under_two_prefixes_is_a_duplicate)
{
	struct header header = start();

	write_config(
		"{\"model_type\":\"glm5_next\",\"num_hidden_layers\":1,\"n_routed_experts\":1,\"num_experts_per_tok\":1,"
		"\"hidden_size\":64,\"moe_intermediate_size\":64}");
	add(&header, "U8", "64,32", 2048, "model.layers.0.mlp.experts.0.up_proj.weight");
	add(&header, "U8", "64,32", 2048, "model.language_model.layers.0.mlp.experts.0.up_proj.weight");
	finish(&header, "model.safetensors");
	expect_refused(-EBADMSG, "duplicate");
}

Test(model_cut, a_shape_that_wraps_to_the_right_bytes_is_refused)
{
	struct header header = start();

	write_config(GLM_CONFIG);
	add(&header, "U8", "4294967296,4294967296", 0, "model.layers.1.mlp.experts.0.gate_proj.weight");
	finish(&header, "model.safetensors");
	expect_refused(-EBADMSG, "more than 2^64 bits");
}

/* Tables have room for as many in each row as the fullest has: a few numbers here would be a gigabyte there. */
Test(model_cut, many_layers_of_one_expert_beside_a_draft_row_of_thousands_are_too_many)
{
	struct header header = start();

	write_config("{\"model_type\":\"deepseek_v41\",\"num_hidden_layers\":1016,\"n_routed_experts\":1,"
		     "\"num_experts_per_tok\":1,\"hidden_size\":64,\"moe_intermediate_size\":64,"
		     "\"dspark_n_routed_experts\":4096}");
	add_v4_expert(&header, "layers.0", 0);
	finish(&header, "model.safetensors");
	expect_refused(-E2BIG, "1048576");
}

Test(model_cut, hostile_numbers_of_a_config_are_refused_by_key)
{
	static const struct {
		const char *more;
		int error;
		const char *part;
	} cases[] = {
		{",\"n_routed_experts\":0", -EBADMSG, "n_routed_experts is 0"},
		{",\"n_routed_experts\":-1", -EBADMSG, "n_routed_experts is -1"},
		{",\"n_routed_experts\":4097", -EBADMSG, "1 to 4096"},
		{",\"n_routed_experts\":[8]", -EBADMSG, "not a whole number"},
		{",\"n_routed_experts\":5", -EBADMSG, "num_experts_per_tok is 6"},
		{",\"n_routed_experts\":8,\"dspark_n_routed_experts\":\"4\"", -EBADMSG, "dspark_n_routed_experts"},
		{",\"n_routed_experts\":8,\"dspark_n_routed_experts\":2,\"dspark_num_experts_per_tok\":3", -EBADMSG,
		 "dspark_num_experts_per_tok is 3"},
	};
	struct header header = start();

	add_v4_expert(&header, "layers.0", 0);
	finish(&header, "model.safetensors");
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		write_v4_config(cases[i].more);
		expect_refused(cases[i].error, cases[i].part);
	}
}

/* Exported configs are full of them. */
Test(model_cut, a_null_in_a_config_is_as_if_it_were_not_there)
{
	struct model_catalog *catalog;

	write_inkling("3,16,8", 3 * 16 * 8, 3 * 16 * 4);
	write_config("{\"model_type\":\"inkling\",\"hidden_size\":16,\"text_config\":{\"num_hidden_layers\":1,"
		     "\"n_routed_experts\":3,\"num_experts_per_tok\":2,\"hidden_size\":null,"
		     "\"dense_intermediate_size\":null,\"intermediate_size\":99,\"moe_intermediate_size\":8}}");
	catalog = opened(folder.path);
	cr_expect_eq(catalog->object_count, 3);
	(void)model_catalog_close(catalog);
}

/* More dense layers than there are: all of them, as for the engine. */
Test(model_cut, dense_layers_beyond_the_last_are_no_mistake)
{
	struct header header = start();
	struct model_catalog *catalog;

	write_config(
		"{\"model_type\":\"glm\",\"num_hidden_layers\":2,\"first_k_dense_replace\":3,\"n_routed_experts\":1,"
		"\"num_experts_per_tok\":1,\"hidden_size\":128,\"moe_intermediate_size\":64}");
	add_glm(&header, 1, 0, INT4_ROW);
	finish(&header, "model.safetensors");
	catalog = opened(folder.path);
	cr_expect_eq(catalog->layer[0].expert_count, 0);
	cr_expect_eq(catalog->layer[1].expert_count, 1);
	(void)model_catalog_close(catalog);
}

Test(model_cut, a_file_with_the_group_is_believed_no_more_than_config_json)
{
	static const struct {
		const char *text, *part;
	} cases[] = {
		{"{\"expert_gs\":-64}", "qwen36_meta.json: expert_gs is -64"},
		{"{\"expert_gs\":65535}", "0 to 32768"},
		{"{\"expert_gs\":\"64\"}", "not a whole number"},
		{"[", "qwen36_meta.json: line 1"},
	};
	struct header header = start();

	write_config(
		"{\"model_type\":\"qwen3_5_moe\",\"num_hidden_layers\":1,\"num_experts\":1,\"num_experts_per_tok\":1,"
		"\"hidden_size\":128,\"moe_intermediate_size\":64}");
	add(&header, "U8", "12288", 12288, "model.layers.0.mlp.experts.0.merged_weight");
	add(&header, "F32", "384", 1536, "model.layers.0.mlp.experts.0.qs");
	finish(&header, "model.safetensors");
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		folder_write(&folder, "qwen36_meta.json", cases[i].text, strlen(cases[i].text));
		expect_refused(-EBADMSG, cases[i].part);
	}
	/* What it says decides: as rows the scales are too many. */
	folder_write(&folder, "qwen36_meta.json", "{}", 2);
	expect_refused(-EBADMSG, "as int4-row it needs 1024");
	folder_write(&folder, "qwen36_meta.json", "{\"expert_gs\":64}", 16);
	(void)model_catalog_close(opened(folder.path));
}

/* Both kinds of rows in one tensor: only the number of bytes says so. */
Test(model_cut, qwen36_may_have_int8_rows_of_down_behind_int4_ones)
{
	struct header header = start();
	struct model_catalog *catalog;

	write_config("{\"model_type\":\"qwen3_5_moe\",\"num_hidden_layers\":1,\"num_experts\":1,\"num_experts_per_tok\":1,"
		     "\"hidden_size\":128,\"moe_intermediate_size\":64}");
	add(&header, "F32", "384", 1536, "model.layers.0.mlp.experts.0.qs");
	add(&header, "U8", "16384", 16384, "model.layers.0.mlp.experts.0.merged_weight");
	finish(&header, "model.safetensors");
	folder_write(&folder, "qwen36_meta.json", "{\"expert_gs\":64,\"expert_down_bits\":8,\"expert_down_gs\":0}", 56);
	catalog = opened(folder.path);
	cr_expect_str_eq(catalog->shape[0].format, "int4-g64+int4-g64+int8-row");
	cr_expect_eq(catalog->shape[0].part[MODEL_UP].bytes, 4096);
	cr_expect_eq(catalog->shape[0].part[MODEL_DOWN].bytes, 8192);
	cr_expect_eq(catalog->shape[0].part[MODEL_DOWN].dtype, MODEL_I8);
	cr_expect_eq(catalog->shape[0].part[MODEL_UP_SCALE].block_columns, 64);
	cr_expect_eq(catalog->shape[0].part[MODEL_DOWN_SCALE].columns, 1);
	cr_expect_eq(catalog->object[0].piece[MODEL_DOWN].file_off - catalog->object[0].piece[MODEL_GATE].file_off, 8192);
	(void)model_catalog_close(catalog);
	folder_write(&folder, "qwen36_meta.json", "{\"expert_gs\":64,\"expert_down_gs\":32}", 36);
	expect_refused(-EBADMSG, "16384 bytes");
	folder_write(&folder, "qwen36_meta.json", "{\"expert_down_gs\":-1}", 21);
	expect_refused(-EBADMSG, "expert_down_gs is -1");
}

/* ---- reference vectors, read independently ---- */

static const char *vector(const char *name)
{
	static char path[4096];
	const char *directory = getenv("CNRE_VECTORS");

	(void)snprintf(path, sizeof path, "%s/%s", directory != NULL ? directory : "../shared/vectors", name);
	if (access(path, R_OK) != 0)
		cr_skip("no reference vectors at %s (set CNRE_VECTORS)", path);
	return path;
}

/* The header of a shard as text, and where its data begins. */
static char *header_of(const char *path, uint64_t *ret_data_off)
{
	unsigned char prefix[8];
	uint64_t bytes = 0;
	FILE *file = fopen(path, "rb");
	char *text;

	cr_assert_not_null(file, "%s", path);
	cr_assert_eq(fread(prefix, 1, 8, file), 8);
	for (int i = 8; i-- > 0;)
		bytes = bytes << 8 | prefix[i];
	cr_assert_lt(bytes, 1u << 24);
	text = calloc(1, bytes + 1);
	cr_assert_eq(fread(text, 1, bytes, file), bytes);
	(void)fclose(file);
	*ret_data_off = 8 + bytes;
	return text;
}

/* By search in the text: begin and end of a tensor in the data area. 1 found. */
static int find_range(const char *header, const char *name, unsigned long long *begin, unsigned long long *end)
{
	char quoted[300];
	const char *at;

	(void)snprintf(quoted, sizeof quoted, "\"%s\"", name);
	at = strstr(header, quoted);
	if (at == NULL)
		return 0;
	at = strstr(at, "\"data_offsets\"");
	cr_assert_not_null(at);
	at = strchr(at, '[');
	return at != NULL && sscanf(at, "[%llu,%llu]", begin, end) == 2;
}

/* Each part of each expert lies where the header of its shard says, and nowhere else. */
static void expect_as_in_headers(const struct model_catalog *catalog, const char *const names[6])
{
	uint32_t checked = 0;

	for (uint32_t s = 0; s < catalog->shard_count; s++) {
		uint64_t data_off = 0;
		char *header = header_of(catalog->shard[s].path, &data_off);

		for (uint32_t i = 0; i < catalog->object_count; i++)
			for (uint32_t role = 0; role < 6; role++) {
				const struct model_object *object = &catalog->object[i];
				unsigned long long begin = 0, end = 0;
				char name[256];

				(void)snprintf(name, sizeof name, names[role], object->layer, object->expert);
				if (!find_range(header, name, &begin, &end))
					continue;
				cr_expect_eq(object->piece[role].shard, s, "%s", name);
				cr_expect_eq(object->piece[role].file_off, data_off + begin, "%s", name);
				cr_expect_eq(catalog->shape[object->shape].part[role].bytes, end - begin, "%s", name);
				checked++;
			}
		free(header);
	}
	cr_expect_eq(checked, catalog->object_count * 6);
}

Test(model_cut, the_glm_vector_is_read_part_by_part)
{
	static const char *const names[6] = {
		"model.layers.%u.mlp.experts.%u.gate_proj.weight",
		"model.layers.%u.mlp.experts.%u.up_proj.weight",
		"model.layers.%u.mlp.experts.%u.down_proj.weight",
		"model.layers.%u.mlp.experts.%u.gate_proj.weight.qs",
		"model.layers.%u.mlp.experts.%u.up_proj.weight.qs",
		"model.layers.%u.mlp.experts.%u.down_proj.weight.qs",
	};
	struct model_catalog *catalog = opened(vector("glm-tiny"));

	cr_expect_str_eq(catalog->family, "glm");
	cr_expect_eq(catalog->layer_count, 6);
	cr_expect_eq(catalog->top_k, 4);
	cr_expect_eq(catalog->object_count, 4 * 16);
	cr_expect_eq(catalog->layer[1].expert_count, 0);
	cr_expect_eq(catalog->layer[2].expert_count, 16);
	cr_expect_eq(catalog->payload_bytes_min, 13312);
	cr_expect_eq(catalog->payload_bytes_max, 13312);
	cr_expect_str_eq(catalog->shape[0].format, "int4-row");
	expect_as_in_headers(catalog, names);
	(void)model_catalog_close(catalog);
}

Test(model_cut, the_deepseek_vector_is_read_part_by_part)
{
	static const char *const names[6] = {
		"layers.%u.ffn.experts.%u.w1.weight", "layers.%u.ffn.experts.%u.w3.weight",
		"layers.%u.ffn.experts.%u.w2.weight", "layers.%u.ffn.experts.%u.w1.scale",
		"layers.%u.ffn.experts.%u.w3.scale",  "layers.%u.ffn.experts.%u.w2.scale",
	};
	struct model_catalog *catalog = opened(vector("deepseek-v4-tiny"));
	struct model_plan plan;

	cr_expect_str_eq(catalog->family, "deepseek_v4");
	cr_expect_eq(catalog->layer_count, 3);
	cr_expect_eq(catalog->top_k, 2);
	cr_expect_eq(catalog->object_count, 3 * 8);
	cr_expect_eq(catalog->payload_bytes_min, 26112);
	cr_expect_eq(catalog->payload_bytes_max, 26112);
	cr_expect_str_eq(catalog->shape[0].format, "mxfp4");
	cr_expect_eq(catalog->shape[0].part[MODEL_GATE_SCALE].block_columns, 32);
	cr_expect_eq(catalog->shape[0].part[MODEL_GATE_SCALE].dtype, CNRE_F8_E8M0);
	expect_as_in_headers(catalog, names);
	model_plan(catalog, 0, &plan);
	cr_expect_eq(plan.run_count, 1);
	(void)model_catalog_close(catalog);
}
