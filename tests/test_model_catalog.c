/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoint directories as catalogs: both containers of OLMoE, mixed ones, and what is refused with which words. */
#include "model/catalog.h"

#include "cnre/cnre.h"
#include "model/family.h"
#include "model/objects.h"
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert((int)MODEL_BF16 == CNRE_BF16 && (int)MODEL_F16 == CNRE_F16 && (int)MODEL_F32 == CNRE_F32 &&
		       (int)MODEL_U8 == CNRE_U8 && (int)MODEL_I8 == CNRE_I8 && (int)MODEL_F8_E4M3 == CNRE_F8_E4M3 &&
		       (int)MODEL_F8_E8M0 == CNRE_F8_E8M0 && (int)MODEL_I64 == CNRE_I64,
	       "numbered as in cnre.h");
_Static_assert((int)MODEL_GATE == CNRE_GATE && (int)MODEL_UP == CNRE_UP && (int)MODEL_DOWN == CNRE_DOWN &&
		       (int)MODEL_GATE_SCALE == CNRE_GATE_SCALE && (int)MODEL_UP_SCALE == CNRE_UP_SCALE &&
		       (int)MODEL_DOWN_SCALE == CNRE_DOWN_SCALE && MODEL_ROLES == CNRE_ROLES,
	       "numbered as in cnre.h");
_Static_assert((int)MODEL_CAP_EXPERT_CACHE == CNRE_CAP_EXPERT_CACHE && (int)MODEL_CAP_DIRECT_IO == CNRE_CAP_DIRECT_IO,
	       "numbered as in cnre.h");

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

TestSuite(model_catalog, .init = make, .fini = clean, .timeout = 60);

/* ---- a header under construction: 2 layers, 2 experts, hidden 8, intermediate 4 ---- */

#define CONFIG                                                                                   \
	"{\"model_type\":\"olmoe\",\"hidden_size\":8,\"num_hidden_layers\":2,\"num_experts\":2," \
	"\"num_experts_per_tok\":1,\"intermediate_size\":4}"

struct header {
	char text[16384];
	size_t used;
	uint64_t data_bytes;
};

static void add(struct header *header, const char *name, const char *dtype, const char *shape, uint64_t bytes)
{
	header->used += (size_t)snprintf(header->text + header->used, sizeof header->text - header->used,
					 "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
					 header->used == 0 ? '{' : ',', name, dtype, shape,
					 (unsigned long long)header->data_bytes,
					 (unsigned long long)(header->data_bytes + bytes));
	header->data_bytes += bytes;
}

static const char *expert_name(uint32_t layer, uint32_t expert, const char *last)
{
	static char name[128];

	(void)snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%u.%s", layer, expert, last);
	return name;
}

static void add_int8(struct header *header, uint32_t layer, uint32_t expert, const char *dtype)
{
	add(header, expert_name(layer, expert, "merged_weight"), dtype, "96", 96);
	add(header, expert_name(layer, expert, "qs"), "F32", "16", 64);
}

static void add_plain(struct header *header, uint32_t layer, uint32_t expert, const char *dtype, uint64_t element)
{
	add(header, expert_name(layer, expert, "up_proj.weight"), dtype, "4,8", 32 * element);
	add(header, expert_name(layer, expert, "down_proj.weight"), dtype, "8,4", 32 * element);
	add(header, expert_name(layer, expert, "gate_proj.weight"), dtype, "4,8", 32 * element);
}

static void write_header(struct header *header, const char *name)
{
	(void)snprintf(header->text + header->used, sizeof header->text - header->used, "}");
	folder_write_shard(&folder, name, header->text, header->data_bytes);
	memset(header, 0, sizeof *header);
}

static void write_config(const char *text)
{
	folder_write(&folder, "config.json", text, strlen(text));
}

static struct model_catalog *opened(const char *directory)
{
	struct model_catalog *catalog = NULL;

	cr_assert_eq(model_catalog_open(&catalog, directory, message), 0, "%s", message);
	return catalog;
}

static void expect_refused(int error, const char *part)
{
	struct model_catalog *catalog = (struct model_catalog *)&catalog, *before = catalog;

	cr_expect_eq(model_catalog_open(&catalog, folder.path, message), error, "%s", message);
	cr_expect_eq(catalog, before, "output touched");
	cr_expect(strstr(message, part) != NULL, "no \"%s\" in: %s", part, message);
}

static void write_int8_model(const char *dtype)
{
	struct header header = {.used = 0};
	uint32_t i;

	write_config(CONFIG);
	add(&header, "lm_head.weight", "F32", "3", 12);
	for (i = 0; i < 4; i++)
		add_int8(&header, i / 2, i % 2, dtype);
	write_header(&header, "model.safetensors");
}

/* ---- what is read ---- */

/* Both dtypes hold two's complement bytes, so an engine is told int8 either way. */
Test(model_catalog, merged_int8_is_cut_into_six_parts_whatever_it_is_stored_as)
{
	static const char *const dtypes[] = {"I8", "U8"};

	for (size_t i = 0; i < 2; i++) {
		struct model_catalog *catalog;
		const struct model_shape *shape;
		const struct model_object *object;

		write_int8_model(dtypes[i]);
		catalog = opened(folder.path);
		cr_assert_eq(catalog->object_count, 4);
		cr_assert_eq(catalog->shape_count, 1);
		shape = &catalog->shape[0];
		object = &catalog->object[3];
		cr_expect_eq(shape->payload_bytes, 160);
		cr_expect_eq(shape->part[MODEL_GATE].rows, 4);
		cr_expect_eq(shape->part[MODEL_GATE].columns, 8);
		cr_expect_eq(shape->part[MODEL_GATE].dtype, CNRE_I8);
		cr_expect_eq(shape->part[MODEL_DOWN].rows, 8);
		cr_expect_eq(shape->part[MODEL_DOWN].columns, 4);
		cr_expect_eq(shape->part[MODEL_DOWN_SCALE].bytes, 32);
		cr_expect_eq(shape->part[MODEL_DOWN_SCALE].dtype, CNRE_F32);
		cr_expect_eq(shape->part[MODEL_DOWN_SCALE].block_rows, 1);
		cr_expect_eq(shape->part[MODEL_DOWN_SCALE].block_columns, 0);
		cr_expect_eq(object->piece[MODEL_UP].file_off, object->piece[MODEL_GATE].file_off + 32);
		cr_expect_eq(object->piece[MODEL_UP_SCALE].file_off, object->piece[MODEL_GATE].file_off + 96 + 16);
		cr_expect_eq(object->piece[MODEL_GATE].file_off, catalog->shard[0].data_off + 12 + 3 * 160);
		(void)model_catalog_close(catalog);
	}
}

Test(model_catalog, facts_of_the_checkpoint_are_there)
{
	struct model_catalog *catalog;

	write_int8_model("I8");
	catalog = opened(folder.path);
	cr_expect_str_eq(catalog->family, "olmoe");
	cr_expect_str_eq(catalog->name, strrchr(folder.path, '/') + 1);
	cr_expect_eq(catalog->layer_count, 2);
	cr_expect_eq(catalog->expert_count, 2);
	cr_expect_eq(catalog->top_k, 1);
	cr_expect_eq(catalog->shard_count, 1);
	cr_expect_eq(catalog->fingerprint.shard_count, 1);
	cr_expect_eq(catalog->payload_bytes_total, 640);
	cr_expect_eq(catalog->slab_bytes_total, 4 * catalog->shape[0].slab_bytes);
	cr_expect_eq(model_catalog_find(catalog, 1, 0), 2);
	cr_expect_eq(model_catalog_find(catalog, 1, 2), -ENOENT);
	cr_expect_eq(model_catalog_find(catalog, 2, 0), -ENOENT);
	(void)model_catalog_close(catalog);
}

Test(model_catalog, plain_matrices_keep_their_dtype)
{
	static const struct {
		const char *dtype;
		uint64_t element;
		int number;
	} cases[] = {{"BF16", 2, CNRE_BF16}, {"F16", 2, CNRE_F16}, {"F32", 4, CNRE_F32}};

	write_config(CONFIG);
	for (size_t i = 0; i < 3; i++) {
		struct header header = {.used = 0};
		struct model_catalog *catalog;
		uint32_t k;

		for (k = 0; k < 4; k++)
			add_plain(&header, k / 2, k % 2, cases[i].dtype, cases[i].element);
		write_header(&header, "model.safetensors");
		catalog = opened(folder.path);
		cr_expect_eq(catalog->shape[0].part[MODEL_UP].dtype, cases[i].number);
		cr_expect_eq(catalog->shape[0].payload_bytes, 96 * cases[i].element);
		cr_expect_eq(catalog->shape[0].part[MODEL_GATE_SCALE].bytes, 0);
		cr_expect_eq(catalog->object[0].piece[MODEL_UP].file_off, catalog->shard[0].data_off);
		(void)model_catalog_close(catalog);
	}
}

/* Sizing by the first expert alone makes a budget that the wide ones overrun. */
Test(model_catalog, experts_of_several_sizes_are_each_counted_with_their_own)
{
	struct header header = {.used = 0};
	struct model_catalog *catalog;

	write_config(CONFIG);
	add_int8(&header, 0, 0, "I8");
	add_int8(&header, 0, 1, "I8");
	add_plain(&header, 1, 0, "F32", 4);
	add_plain(&header, 1, 1, "F32", 4);
	write_header(&header, "model.safetensors");
	catalog = opened(folder.path);
	cr_expect_eq(catalog->shape_count, 2);
	cr_expect_eq(catalog->payload_bytes_min, 160);
	cr_expect_eq(catalog->payload_bytes_max, 384);
	cr_expect_eq(catalog->payload_bytes_total, 2 * 160 + 2 * 384);
	(void)model_catalog_close(catalog);
}

Test(model_catalog, a_layer_without_expert_tensors_is_dense)
{
	struct header header = {.used = 0};
	struct model_catalog *catalog;

	write_config(CONFIG);
	add(&header, "model.layers.0.mlp.gate_proj.weight", "F32", "4,8", 128);
	add_int8(&header, 1, 0, "I8");
	add_int8(&header, 1, 1, "I8");
	write_header(&header, "model.safetensors");
	catalog = opened(folder.path);
	cr_expect_eq(catalog->layer[0].expert_count, 0);
	cr_expect_eq(catalog->layer[1].first_object, 0);
	cr_expect_eq(model_catalog_find(catalog, 0, 0), -ENOENT);
	cr_expect_eq(model_catalog_find(catalog, 1, 1), 1);
	(void)model_catalog_close(catalog);
}

Test(model_catalog, parts_of_an_expert_may_lie_in_different_shards)
{
	struct header header = {.used = 0};
	struct model_catalog *catalog;

	write_config(CONFIG);
	add_int8(&header, 0, 0, "I8");
	add_int8(&header, 0, 1, "I8");
	add_int8(&header, 1, 0, "I8");
	add(&header, expert_name(1, 1, "merged_weight"), "I8", "96", 96);
	write_header(&header, "model-1.safetensors");
	add(&header, expert_name(1, 1, "qs"), "F32", "16", 64);
	write_header(&header, "model-2.safetensors");
	catalog = opened(folder.path);
	cr_expect_eq(catalog->object[3].piece[MODEL_DOWN].shard, 0);
	cr_expect_eq(catalog->object[3].piece[MODEL_GATE_SCALE].shard, 1);
	(void)model_catalog_close(catalog);
}

/* ---- what is refused ---- */

Test(model_catalog, a_missing_expert_tensor_is_named)
{
	struct header header = {.used = 0};

	write_config(CONFIG);
	add_int8(&header, 0, 0, "I8");
	add(&header, expert_name(0, 1, "merged_weight"), "I8", "96", 96);
	write_header(&header, "model.safetensors");
	expect_refused(-EBADMSG, "model.layers.0.mlp.experts.1.qs is missing");
}

Test(model_catalog, an_expert_tensor_in_two_shards_is_a_duplicate)
{
	struct header header = {.used = 0};

	write_int8_model("I8");
	add(&header, expert_name(1, 0, "qs"), "F32", "16", 64);
	write_header(&header, "zzz.safetensors");
	expect_refused(-EBADMSG, "in model.safetensors too");
}

Test(model_catalog, tensors_of_the_wrong_form_are_refused_with_their_bytes)
{
	struct header header = {.used = 0};

	write_config(CONFIG);
	add(&header, expert_name(0, 0, "merged_weight"), "I8", "95", 95);
	add(&header, expert_name(0, 0, "qs"), "F32", "16", 64);
	write_header(&header, "model.safetensors");
	expect_refused(-EBADMSG, "95 bytes");
	expect_refused(-EBADMSG, "it needs 96");

	add(&header, expert_name(0, 0, "merged_weight"), "BF16", "48", 96);
	add(&header, expert_name(0, 0, "qs"), "F32", "16", 64);
	write_header(&header, "model.safetensors");
	expect_refused(-EBADMSG, "merged_weight");

	add(&header, expert_name(0, 0, "gate_proj.weight"), "BF16", "8,4", 64); /* transposed */
	add(&header, expert_name(0, 0, "up_proj.weight"), "BF16", "4,8", 64);
	add(&header, expert_name(0, 0, "down_proj.weight"), "BF16", "8,4", 64);
	write_header(&header, "model.safetensors");
	expect_refused(-EBADMSG, "gate_proj");

	add_int8(&header, 0, 0, "I8");
	add_plain(&header, 0, 0, "BF16", 2);
	write_header(&header, "model.safetensors");
	expect_refused(-EBADMSG, "two formats");
}

Test(model_catalog, layers_and_experts_beyond_the_config_are_refused)
{
	struct header header = {.used = 0};

	write_config(CONFIG);
	add_int8(&header, 2, 0, "I8");
	write_header(&header, "model.safetensors");
	expect_refused(-EBADMSG, "num_hidden_layers 2");
	add_int8(&header, 0, 2, "I8");
	write_header(&header, "model.safetensors");
	expect_refused(-EBADMSG, "num_experts 2");
}

/* "05" would be a second name for expert 5. */
Test(model_catalog, numbers_with_leading_zeros_are_not_expert_names)
{
	struct header header = {.used = 0};

	write_config(CONFIG);
	add(&header, "model.layers.0.mlp.experts.01.qs", "F32", "16", 64);
	add(&header, "model.layers.0.mlp.experts.1234567.qs", "F32", "16", 64);
	add(&header, "model.layers.0.mlp.experts..qs", "F32", "16", 64);
	write_header(&header, "model.safetensors");
	expect_refused(-ENOTSUP, "no routed experts");
}

Test(model_catalog, truncated_shards_are_refused_by_name_and_missing_bytes)
{
	static const uint64_t short_by[] = {1, 4096, 6307840};

	for (size_t i = 0; i < sizeof short_by / sizeof short_by[0]; i++) {
		char expected[64];

		write_config("{\"model_type\":\"olmoe\",\"hidden_size\":2048,\"num_hidden_layers\":1,\"num_experts\":1,"
			     "\"num_experts_per_tok\":1,\"intermediate_size\":1024}");
		folder_write_shard(
			&folder, "model-00001-of-00001.safetensors",
			"{\"model.layers.0.mlp.experts.0.merged_weight\":{\"dtype\":\"I8\",\"shape\":[6291456],"
			"\"data_offsets\":[0,6291456]},\"model.layers.0.mlp.experts.0.qs\":{\"dtype\":\"F32\","
			"\"shape\":[4096],\"data_offsets\":[6291456,6307840]}}",
			6307840 - short_by[i]);
		(void)snprintf(expected, sizeof expected, "%llu bytes missing", (unsigned long long)short_by[i]);
		expect_refused(-EBADMSG, expected);
		cr_expect(strstr(message, "model-00001-of-00001.safetensors") != NULL, "%s", message);
	}
}

Test(model_catalog, bad_configs_are_refused_by_key)
{
	static const struct {
		const char *text;
		int error;
		const char *part;
	} cases[] = {
		{"{", -EBADMSG, "line 1"},
		{"[1]", -EBADMSG, "not an object"},
		{"{\"a\":1,\"a\":2}", -EBADMSG, "config.json"},
		{"{}", -EBADMSG, "model_type"},
		{"{\"model_type\":7}", -EBADMSG, "model_type"},
		{"{\"model_type\":\"gpt\"}", -ENOTSUP, "known are: glm_moe_dsa"},
		{"{\"model_type\":\"olmoe\"}", -EBADMSG, "num_hidden_layers is missing"},
		{"{\"model_type\":\"olmoe\",\"num_hidden_layers\":0}", -EBADMSG, "num_hidden_layers is 0"},
		{"{\"model_type\":\"olmoe\",\"num_hidden_layers\":1025}", -EBADMSG, "1 to 1024"},
		{"{\"model_type\":\"olmoe\",\"num_hidden_layers\":1.5}", -EBADMSG, "not a whole number"},
		{"{\"model_type\":\"olmoe\",\"num_hidden_layers\":1,\"num_experts\":2,\"num_experts_per_tok\":3}",
		 -EBADMSG, "num_experts_per_tok is 3"},
		{"{\"model_type\":\"olmoe\",\"num_hidden_layers\":1024,\"num_experts\":4096,\"num_experts_per_tok\":3,"
		 "\"hidden_size\":8,\"intermediate_size\":4}",
		 -E2BIG, "1048576"},
	};

	write_int8_model("I8");
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		write_config(cases[i].text);
		expect_refused(cases[i].error, cases[i].part);
	}
}

Test(model_catalog, an_expert_larger_than_a_pool_segment_is_e2big)
{
	write_config("{\"model_type\":\"olmoe\",\"hidden_size\":32768,\"num_hidden_layers\":1,\"num_experts\":1,"
		     "\"num_experts_per_tok\":1,\"intermediate_size\":16384}");
	folder_write_shard(&folder, "model.safetensors",
			   "{\"model.layers.0.mlp.experts.0.merged_weight\":{\"dtype\":\"I8\",\"shape\":[1610612736],"
			   "\"data_offsets\":[0,1610612736]},\"model.layers.0.mlp.experts.0.qs\":{\"dtype\":\"F32\","
			   "\"shape\":[65536],\"data_offsets\":[1610612736,1610874880]}}",
			   1610874880);
	expect_refused(-E2BIG, "1610874880 bytes");
}

Test(model_catalog, what_is_not_there_is_enoent)
{
	struct model_catalog *catalog = NULL;
	char path[256];

	cr_expect_eq(model_catalog_open(&catalog, "/nonexistent/model", message), -ENOENT);
	cr_expect(strstr(message, "/nonexistent/model") != NULL, "%s", message);
	expect_refused(-ENOENT, "config.json");
	write_int8_model("I8");
	(void)unlink(folder_path(&folder, "model.safetensors", path, sizeof path));
	expect_refused(-ENOENT, "safetensors");
}

/* ---- the table-driven part, with a family that no file has ---- */

static const char *const made_up_names[] = {"gate_up", "down", "e%E.g", "e%E.gs", "e%E.u", "e%E.us", "e%E.d", "e%E.ds"};
static const char *const made_up_stems[] = {"l%L.", "m%M.", NULL};
static const char *const made_up_routers[] = {"l%L.router", "m%M.router", NULL};
static const char *const made_up_types[] = {"made_up", NULL};
static const struct encoding *const made_up_plain[] = {&encoding_bf16, NULL};
static const struct encoding *const made_up_quantised[] = {&encoding_int8_row, &encoding_int4_row, NULL};
static const struct family_layout made_up_layouts[] = {
	{2, {{0, FAMILY_NO_NAME, 2, {FAMILY_GATE, FAMILY_UP}}, {1, FAMILY_NO_NAME, 1, {FAMILY_DOWN}}}, made_up_plain},
	{3, {{2, 3, 1, {FAMILY_GATE}}, {4, 5, 1, {FAMILY_UP}}, {6, 7, 1, {FAMILY_DOWN}}}, made_up_quantised},
};
static const struct family made_up = {.name = "made-up",
				      .model_types = made_up_types,
				      .mtp_rows = 2,
				      .stems = made_up_stems,
				      .routers = made_up_routers,
				      .name_count = 8,
				      .layout_count = 2,
				      .names = made_up_names,
				      .layouts = made_up_layouts};

/* Runs the collector on one header, without files. */
static int collect(const char *header, uint64_t data_bytes, struct model_catalog *catalog)
{
	static struct model_shard shard = {.name = (char *)"s"};
	const struct family_extents extents = {.layers = 2,
					       .experts = 2,
					       .top_k = 2,
					       .hidden = 7,
					       .intermediate = 4,
					       .mtp_experts = 1,
					       .mtp_top_k = 1,
					       .dense_layers = UINT32_MAX,
					       .layers_key = "layers",
					       .experts_key = "experts"};
	struct safetensors *file = NULL;
	struct model_objects *objects = NULL;
	int result;

	memset(catalog, 0, sizeof *catalog);
	message[0] = '\0';
	cr_assert_eq(safetensors_parse(&file, strdup(header), strlen(header), data_bytes, "s", message), 0, "%s",
		     message);
	cr_assert_eq(model_objects_open(&objects, &made_up, &extents, message), 0);
	catalog->shard = &shard;
	catalog->shard_count = 1;
	result = model_objects_add(objects, catalog, 0, file);
	if (result == 0)
		result = model_objects_finish(objects, catalog);
	(void)model_objects_close(objects);
	(void)safetensors_close(file);
	return result;
}

static void drop(struct model_catalog *catalog)
{
	free(catalog->layer);
	free(catalog->object);
	free(catalog->shape);
}

Test(model_catalog, fused_tensors_are_given_as_slices_of_each_expert)
{
	struct model_catalog catalog;

	cr_assert_eq(collect("{\"l1.gate_up\":{\"dtype\":\"BF16\",\"shape\":[2,8,7],\"data_offsets\":[0,224]},"
			     "\"l1.down\":{\"dtype\":\"BF16\",\"shape\":[2,7,4],\"data_offsets\":[224,336]}}",
			     336, &catalog),
		     0, "%s", message);
	cr_assert_eq(catalog.object_count, 2);
	cr_expect_eq(catalog.object[1].piece[MODEL_GATE].file_off - catalog.object[0].piece[MODEL_GATE].file_off, 112);
	cr_expect_eq(catalog.object[1].piece[MODEL_UP].file_off - catalog.object[1].piece[MODEL_GATE].file_off, 56);
	cr_expect_eq(catalog.object[1].piece[MODEL_DOWN].file_off - catalog.object[0].piece[MODEL_DOWN].file_off, 56);
	cr_expect_eq(catalog.shape[0].payload_bytes, 168);
	drop(&catalog);
}

/* Adds the six tensors of an expert: int8 or int4 rows of 7 and 4 columns. */
static void add_made_up(struct header *header, const char *prefix, int gate_bits, int other_bits)
{
	static const struct {
		const char *weight, *scale;
		uint32_t rows, columns;
	} tensors[] = {{"g", "gs", 4, 7}, {"u", "us", 4, 7}, {"d", "ds", 7, 4}};
	char name[64], shape[32];

	for (size_t i = 0; i < 3; i++) {
		uint32_t columns = (i == 0 ? gate_bits : other_bits) == 8 ? tensors[i].columns : (tensors[i].columns + 1) / 2;

		(void)snprintf(name, sizeof name, "%s.%s", prefix, tensors[i].weight);
		(void)snprintf(shape, sizeof shape, "%u,%u", tensors[i].rows, columns);
		add(header, name, "U8", shape, (uint64_t)tensors[i].rows * columns);
		(void)snprintf(name, sizeof name, "%s.%s", prefix, tensors[i].scale);
		(void)snprintf(shape, sizeof shape, "%u", tensors[i].rows);
		add(header, name, "F32", shape, 4u * tensors[i].rows);
	}
}

static int collect_made_up(struct header *header, struct model_catalog *catalog)
{
	header->text[header->used++] = '}';
	header->text[header->used] = '\0';
	return collect(header->text, header->data_bytes, catalog);
}

/* One name, two widths: an int8 row among int4 rows. Odd extents round up. */
Test(model_catalog, formats_that_share_a_name_are_told_apart_by_bytes)
{
	struct header header = {.used = 0};
	struct model_catalog catalog;
	const struct model_shape *int4, *mixed;

	add_made_up(&header, "l0.e0", 4, 4);
	add_made_up(&header, "l0.e1", 8, 4);
	cr_assert_eq(collect_made_up(&header, &catalog), 0, "%s", message);
	cr_expect_eq(catalog.shape_count, 2);
	int4 = &catalog.shape[catalog.object[0].shape];
	mixed = &catalog.shape[catalog.object[1].shape];
	cr_expect_str_eq(int4->format, "int4-row");
	cr_expect_eq(int4->part[MODEL_GATE].dtype, CNRE_U8);
	cr_expect_eq(int4->part[MODEL_GATE].columns, 4);
	cr_expect_eq(int4->part[MODEL_GATE_SCALE].rows, 4);
	cr_expect_eq(int4->part[MODEL_GATE_SCALE].columns, 1);
	cr_expect_eq(int4->payload_bytes, 16 + 16 + 14 + 4 * 15);
	cr_expect_str_eq(mixed->format, "int8-row+int4-row+int4-row");
	cr_expect_eq(mixed->part[MODEL_GATE].dtype, CNRE_I8);
	cr_expect_eq(mixed->part[MODEL_UP].dtype, CNRE_U8);
	cr_expect_eq(mixed->payload_bytes, 28 + 16 + 14 + 4 * 15);
	drop(&catalog);
}

/* ---- layers ---- */

Test(model_catalog, rows_after_the_last_layer_have_their_own_experts_and_top_k)
{
	struct header header = {.used = 0};
	struct model_catalog catalog;

	add_made_up(&header, "m1.e0", 8, 8);
	add_made_up(&header, "l1.e0", 4, 4);
	add_made_up(&header, "l1.e1", 4, 4);
	cr_assert_eq(collect_made_up(&header, &catalog), 0, "%s", message);
	cr_expect_eq(catalog.main_layer_count, 2);
	cr_assert_eq(catalog.layer_count, 4);
	cr_expect_eq(catalog.layer[0].expert_count, 0);
	cr_expect_eq(catalog.layer[1].expert_count, 2);
	cr_expect_eq(catalog.layer[1].top_k, 2);
	cr_expect_eq(catalog.layer[2].expert_count, 0);
	cr_expect_eq(catalog.layer[3].expert_count, 1);
	cr_expect_eq(catalog.layer[3].top_k, 1);
	cr_expect_eq(model_catalog_find(&catalog, 3, 0), 2);
	cr_expect_eq(model_catalog_find(&catalog, 3, 1), -ENOENT);
	drop(&catalog);
}

Test(model_catalog, a_row_after_those_that_there_may_be_is_refused)
{
	struct header header = {.used = 0};
	struct model_catalog catalog;

	add_made_up(&header, "m2.e0", 8, 8);
	cr_expect_eq(collect_made_up(&header, &catalog), -EBADMSG);
	cr_expect(strstr(message, "m2.e0.g: layer 2") != NULL, "%s", message);
	drop(&catalog);
}

Test(model_catalog, a_missing_tensor_of_a_row_after_the_last_has_the_name_it_would_have)
{
	struct header header = {.used = 0};
	struct model_catalog catalog;

	add(&header, "m1.e0.g", "U8", "4,7", 28);
	cr_expect_eq(collect_made_up(&header, &catalog), -EBADMSG);
	cr_expect(strstr(message, "m1.e0.gs is missing") != NULL, "%s", message);
	drop(&catalog);
}

/* Pruning need not take as many experts from each layer; the router then has a row for each that is left. */
Test(model_catalog, a_layer_whose_router_knows_fewer_experts_has_fewer)
{
	struct header header = {.used = 0};
	struct model_catalog catalog;

	add(&header, "l0.router", "F32", "1,7", 28);
	add_made_up(&header, "l0.e0", 4, 4);
	add_made_up(&header, "l1.e0", 4, 4);
	add_made_up(&header, "l1.e1", 4, 4);
	add(&header, "l1.router", "F32", "2,7", 56);
	cr_assert_eq(collect_made_up(&header, &catalog), 0, "%s", message);
	cr_expect_eq(catalog.layer[0].expert_count, 1);
	cr_expect_eq(catalog.layer[1].expert_count, 2);
	cr_expect_eq(catalog.expert_count, 2);
	cr_expect_eq(catalog.object_count, 3);
	cr_expect_eq(model_catalog_find(&catalog, 1, 0), 1);
	drop(&catalog);
}

Test(model_catalog, an_expert_beyond_the_rows_of_its_router_is_refused)
{
	struct header header = {.used = 0};
	struct model_catalog catalog;

	add(&header, "l0.router", "F32", "1,7", 28);
	add_made_up(&header, "l0.e0", 4, 4);
	add_made_up(&header, "l0.e1", 4, 4);
	cr_expect_eq(collect_made_up(&header, &catalog), -EBADMSG);
	cr_expect(strstr(message, "expert 1, but its router has only 1 rows") != NULL, "%s", message);
	drop(&catalog);
}

/* ---- shards in several directories ---- */

static struct folder second, third;

/* All shards in `folder`, and copies of the checkpoint that is spread over second and third. */
static void spread(void)
{
	static const char *const names[] = {"a.safetensors", "b.safetensors", "c.safetensors"};
	struct header header = {.used = 0};
	char from[128], to[128];

	write_config(CONFIG);
	for (uint32_t i = 0; i < 2; i++) {
		add_int8(&header, i, 0, "I8");
		add_int8(&header, i, 1, "I8");
		write_header(&header, names[i]);
	}
	add(&header, "lm_head.weight", "F32", "3", 12);
	write_header(&header, names[2]);
	folder_make(&second);
	folder_make(&third);
	folder_write(&second, "config.json", CONFIG, strlen(CONFIG));
	for (size_t i = 0; i < 3; i++)
		cr_assert_eq(link(folder_path(&folder, names[i], from, sizeof from),
				  folder_path(i == 0 ? &third : &second, names[i], to, sizeof to)),
			     0);
}

static void gather(void)
{
	folder_remove(&second);
	folder_remove(&third);
}

static int open_spread(struct model_catalog **ret_catalog)
{
	const char *const further[] = {third.path};
	const struct model_source source = {.directory = second.path, .further = further, .further_count = 1};

	return model_catalog_open_source(ret_catalog, &source, message);
}

Test(model_catalog, a_checkpoint_in_two_directories_is_the_one_that_lies_in_one)
{
	struct model_catalog *one, *two = NULL;
	char path[128];

	spread();
	one = opened(folder.path);
	cr_assert_eq(open_spread(&two), 0, "%s", message);
	cr_expect_arr_eq(one->fingerprint.identity, two->fingerprint.identity, CNRE_DIGEST_BYTES);
	cr_assert_eq(two->shard_count, 3);
	cr_assert_eq(two->object_count, one->object_count);
	cr_expect_arr_eq(one->object, two->object, one->object_count * sizeof *one->object);
	cr_expect_str_eq(two->shard[0].path, folder_path(&third, "a.safetensors", path, sizeof path));
	cr_expect_str_eq(two->shard[1].path, folder_path(&second, "b.safetensors", path, sizeof path));
	cr_expect_str_eq(two->directory, second.path);
	(void)model_catalog_close(one);
	(void)model_catalog_close(two);
	gather();
}

/* Another shard with the name of one that is there: nothing of it is looked at. */
Test(model_catalog, a_shard_with_a_name_that_is_taken_is_not_read)
{
	struct model_catalog *before, *after = NULL;

	spread();
	cr_assert_eq(open_spread(&before), 0, "%s", message);
	folder_write(&third, "b.safetensors", "garbage", 7);
	cr_assert_eq(open_spread(&after), 0, "%s", message);
	cr_expect_arr_eq(before->fingerprint.identity, after->fingerprint.identity, CNRE_DIGEST_BYTES);
	cr_expect_eq(after->places->place[1].hidden_count, 1);
	(void)model_catalog_close(before);
	(void)model_catalog_close(after);
	gather();
}

/* Under another name a shard with the same tensors is a duplicate, as in one directory; the message says where it lies. */
Test(model_catalog, the_same_tensors_under_another_name_elsewhere_are_a_duplicate)
{
	struct model_catalog *catalog = NULL;
	char from[128], to[128];

	spread();
	cr_assert_eq(link(folder_path(&second, "b.safetensors", from, sizeof from),
			  folder_path(&third, "z.safetensors", to, sizeof to)),
		     0);
	cr_expect_eq(open_spread(&catalog), -EBADMSG);
	cr_expect_null(catalog);
	cr_expect(strncmp(message, to, strlen(to)) == 0 && strstr(message, "duplicate") != NULL, "%s", message);
	cr_assert_eq(unlink(to), 0);
	folder_write(&third, "z.safetensors", "short", 5);
	cr_expect_eq(open_spread(&catalog), -EBADMSG);
	cr_expect(strncmp(message, to, strlen(to)) == 0, "%s", message);
	gather();
}

/* ---- reference vectors ---- */

static const char *vector(const char *name)
{
	static char path[4096];
	const char *directory = getenv("CNRE_VECTORS");

	(void)snprintf(path, sizeof path, "%s/%s", directory != NULL ? directory : "../shared/vectors", name);
	if (access(path, R_OK) != 0)
		cr_skip("no reference vectors at %s (set CNRE_VECTORS)", path);
	return path;
}

Test(model_catalog, reference_vector_a_is_as_documented)
{
	struct model_catalog *catalog = opened(vector("olmoe-a"));

	cr_expect_eq(catalog->layer_count, 4);
	cr_expect_eq(catalog->object_count, 64);
	cr_expect_eq(catalog->top_k, 4);
	cr_expect_eq(catalog->shape_count, 1);
	cr_expect_eq(catalog->payload_bytes_max, 3 * 64 * 64 + 4 * 3 * 64);
	(void)model_catalog_close(catalog);
}

Test(model_catalog, reference_vector_b_splits_an_expert_over_shards)
{
	struct model_catalog *catalog = opened(vector("olmoe-b"));
	int64_t split = model_catalog_find(catalog, 3, 23);

	cr_expect_eq(catalog->object_count, 144);
	cr_assert_geq(split, 0);
	cr_expect_neq(catalog->object[split].piece[MODEL_GATE].shard,
		      catalog->object[split].piece[MODEL_UP_SCALE].shard);
	cr_expect_eq(catalog->object[split].piece[MODEL_GATE_SCALE].file_off, 8 + 11760);
	(void)model_catalog_close(catalog);
}
