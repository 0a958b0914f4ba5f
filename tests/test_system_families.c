/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experts of families other than OLMoE through a real manager: every part of every expert has the bytes that its tensor
 * has in the shards, which are found by a search in their headers here and not by the catalog's code.
 */
#include "tests/support/folder.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(system_families, .timeout = 120);

#define SHARDS_MAX 2
#define ACQUIRE_NS 20000000000
#define FILE_BYTES_MAX (64u << 20)

struct shard {
	unsigned char *bytes;
	uint64_t header_bytes, count;
};

struct checkpoint {
	struct shard shard[SHARDS_MAX];
	uint32_t shard_count;
};

static void load(struct checkpoint *checkpoint, const char *directory, const char *name)
{
	struct shard *shard = &checkpoint->shard[checkpoint->shard_count++];
	struct stat status;
	char path[512];
	int fd;

	(void)snprintf(path, sizeof path, "%s/%s", directory, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert_geq(fd, 0, "%s", path);
	cr_assert_eq(fstat(fd, &status), 0);
	cr_assert(status.st_size > 8 && status.st_size < (off_t)FILE_BYTES_MAX, "%s", path);
	shard->count = (uint64_t)status.st_size;
	shard->bytes = malloc(shard->count + 1);
	cr_assert_eq(read(fd, shard->bytes, shard->count), status.st_size);
	(void)close(fd);
	for (int i = 8; i-- > 0;)
		shard->header_bytes = shard->header_bytes << 8 | shard->bytes[i];
	cr_assert_lt(shard->header_bytes, shard->count - 8);
}

static void unload(struct checkpoint *checkpoint)
{
	for (uint32_t i = 0; i < checkpoint->shard_count; i++)
		free(checkpoint->shard[i].bytes);
}

/* The bytes of a tensor, by search for its quoted name in the header; NULL: not in this shard. */
static const unsigned char *tensor_in(const struct shard *shard, const char *name, uint64_t *ret_bytes)
{
	unsigned long long begin, end;
	char quoted[300];
	const char *at;

	(void)snprintf(quoted, sizeof quoted, "\"%s\"", name);
	at = memmem(shard->bytes + 8, shard->header_bytes, quoted, strlen(quoted));
	if (at == NULL)
		return NULL;
	at = strchr(strstr(at, "\"data_offsets\""), '[');
	cr_assert_eq(sscanf(at, "[%llu, %llu]", &begin, &end), 2, "%s", name);
	cr_assert(begin <= end && end <= shard->count - 8 - shard->header_bytes, "%s", name);
	*ret_bytes = end - begin;
	return shard->bytes + 8 + shard->header_bytes + begin;
}

static void expect_part(const struct checkpoint *checkpoint, const struct cnre_part *part, const char *name)
{
	const unsigned char *bytes = NULL;
	uint64_t count = 0;

	for (uint32_t i = 0; i < checkpoint->shard_count && bytes == NULL; i++)
		bytes = tensor_in(&checkpoint->shard[i], name, &count);
	cr_assert_not_null(bytes, "no tensor %s", name);
	cr_assert_eq(part->bytes, count, "%s: %llu bytes", name, (unsigned long long)part->bytes);
	cr_expect_eq((uintptr_t)part->data % 64, 0, "%s", name);
	cr_expect_eq(memcmp(part->data, bytes, count), 0, "%s: other bytes", name);
}

/* All experts of the layers, each part against the tensor that the pattern of its role names. */
static void expect_experts(struct cnre *client, const struct checkpoint *checkpoint, const char *const patterns[6],
			   uint32_t first_layer, uint32_t layers, uint32_t experts)
{
	char name[256];

	for (uint32_t i = 0; i < layers * experts; i++) {
		uint32_t layer = first_layer + i / experts, number = i % experts;
		struct cnre_expert expert;

		cr_assert_eq(cnre_acquire(client, layer, number, ACQUIRE_NS, &expert), 0, "layer %u expert %u", layer,
			     number);
		for (int role = 0; role < 6; role++) {
			if (patterns[role] == NULL) {
				cr_expect_eq(expert.part[role].bytes, 0);
				continue;
			}
			(void)snprintf(name, sizeof name, patterns[role], layer, number);
			expect_part(checkpoint, &expert.part[role], name);
		}
		cr_assert_eq(cnre_release(client, &expert), 0);
	}
}

static void use_vector(struct world *world, const char *name)
{
	const char *directory = getenv("CNRE_VECTORS");

	world_open(world);
	(void)snprintf(world->model, sizeof world->model, "%s/%s", directory != NULL ? directory : "../shared/vectors",
		       name);
	if (access(world->model, R_OK) == 0)
		return;
	world_close(world);
	cr_skip("no reference vectors at %s (set CNRE_VECTORS)", world->model);
}

/* ---- reference vectors ---- */

Test(system_families, a_glm_checkpoint_is_served_part_by_part)
{
	static const char *const patterns[6] = {
		"model.layers.%u.mlp.experts.%u.gate_proj.weight",
		"model.layers.%u.mlp.experts.%u.up_proj.weight",
		"model.layers.%u.mlp.experts.%u.down_proj.weight",
		"model.layers.%u.mlp.experts.%u.gate_proj.weight.qs",
		"model.layers.%u.mlp.experts.%u.up_proj.weight.qs",
		"model.layers.%u.mlp.experts.%u.down_proj.weight.qs",
	};
	struct cnre_model_info info = {.size = sizeof info};
	struct checkpoint checkpoint = {.shard_count = 0};
	struct cnre *client;
	struct world world;

	use_vector(&world, "glm-tiny");
	cr_assert_gt(world_start(&world, NULL), 0);
	load(&checkpoint, world.model, "model-00001-of-00002.safetensors");
	load(&checkpoint, world.model, "model-00002-of-00002.safetensors");
	client = world_attach(&world, 0);
	cr_assert_eq(cnre_model(client, &info), 0);
	cr_expect_str_eq(info.family, "glm");
	cr_expect_eq(info.expert_bytes_max, 13312);
	expect_experts(client, &checkpoint, patterns, 2, 4, 16);
	cnre_detach(client);
	unload(&checkpoint);
	world_close(&world);
}

Test(system_families, a_deepseek_checkpoint_is_served_part_by_part)
{
	static const char *const patterns[6] = {
		"layers.%u.ffn.experts.%u.w1.weight", "layers.%u.ffn.experts.%u.w3.weight",
		"layers.%u.ffn.experts.%u.w2.weight", "layers.%u.ffn.experts.%u.w1.scale",
		"layers.%u.ffn.experts.%u.w3.scale",  "layers.%u.ffn.experts.%u.w2.scale",
	};
	struct checkpoint checkpoint = {.shard_count = 0};
	struct cnre_expert expert;
	struct cnre *client;
	struct world world;

	use_vector(&world, "deepseek-v4-tiny");
	cr_assert_gt(world_start(&world, NULL), 0);
	load(&checkpoint, world.model, "model.safetensors");
	client = world_attach(&world, 0);
	expect_experts(client, &checkpoint, patterns, 0, 3, 8);
	cr_assert_eq(cnre_describe(client, 1, 7, &expert), 0);
	cr_expect_eq(expert.part[CNRE_DOWN_SCALE].dtype, CNRE_F8_E8M0);
	cr_expect_eq(expert.part[CNRE_DOWN_SCALE].block_rows, 1);
	cr_expect_eq(expert.part[CNRE_DOWN_SCALE].block_columns, 32);
	cnre_detach(client);
	unload(&checkpoint);
	world_close(&world);
}

/* ---- a family of the user's own ---- */

/* A layer of two plain experts in the way of the example doc/family.ini. */
static void write_mixtral(struct world *world)
{
	static const char config[] = "{\"model_type\":\"mixtral\",\"num_hidden_layers\":1,\"num_local_experts\":2,"
				     "\"num_experts_per_tok\":1,\"hidden_size\":64,\"intermediate_size\":32}";
	static const char *const names[] = {"w1", "w2", "w3"};
	struct folder folder;
	char header[2048];
	size_t used = 0;

	(void)snprintf(world->model, sizeof world->model, "%s/model", world->directory);
	cr_assert_eq(mkdir(world->model, 0755), 0);
	cr_assert_lt(strlen(world->model), sizeof folder.path);
	(void)snprintf(folder.path, sizeof folder.path, "%.63s", world->model);
	folder_write(&folder, "config.json", config, sizeof config - 1);
	for (int i = 0; i < 6; i++)
		used += (size_t)snprintf(
			header + used, sizeof header - used,
			"%c\"model.layers.0.block_sparse_moe.experts.%d.%s.weight\":{\"dtype\":\"BF16\","
			"\"shape\":[%s],\"data_offsets\":[%d,%d]}",
			i == 0 ? '{' : ',', i / 3, names[i % 3], i % 3 == 1 ? "64,32" : "32,64", i * 4096,
			(i + 1) * 4096);
	(void)snprintf(header + used, sizeof header - used, "}");
	folder_write_shard(&folder, "model.safetensors", header, 6 * 4096);
}

static void expect_mixtral(struct world *world, const char *const *options)
{
	static const char *const patterns[6] = {
		"model.layers.%u.block_sparse_moe.experts.%u.w1.weight",
		"model.layers.%u.block_sparse_moe.experts.%u.w3.weight",
		"model.layers.%u.block_sparse_moe.experts.%u.w2.weight",
	};
	struct checkpoint checkpoint = {.shard_count = 0};
	struct cnre *client;

	cr_assert_gt(world_start(world, options), 0);
	load(&checkpoint, world->model, "model.safetensors");
	client = world_attach(world, 0);
	expect_experts(client, &checkpoint, patterns, 0, 1, 2);
	cnre_detach(client);
	unload(&checkpoint);
	(void)world_stop(world, SIGTERM);
}

Test(system_families, a_described_family_is_served_by_option_and_by_environment)
{
	struct world world;

	world_open(&world);
	write_mixtral(&world);
	cr_expect_lt(world_start(&world, NULL), 0, "nobody knows the family");
	cr_expect(world_log_has(&world, "model_type mixtral is not known"));
	expect_mixtral(&world, (const char *const[]){"--family", "doc/family.ini", NULL});
	cr_assert_eq(setenv("CNRE_FAMILY", "doc/family.ini", 1), 0);
	expect_mixtral(&world, NULL);
	world_close(&world);
}

Test(system_families, a_faulty_description_ends_the_start_with_file_and_line)
{
	struct world world;
	char path[128];
	FILE *file;

	world_open(&world);
	write_mixtral(&world);
	(void)snprintf(path, sizeof path, "%s/bad.ini", world.directory);
	file = fopen(path, "w");
	cr_assert_not_null(file);
	(void)fputs("[family]\nnome = x\n", file);
	(void)fclose(file);
	cr_expect_lt(world_start(&world, (const char *const[]){"--family", path, NULL}), 0);
	cr_expect(world_log_has(&world, "bad.ini:2: nome: not known in [family]"));
	world_close(&world);
}
