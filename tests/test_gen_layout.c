/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors lie where: names of shards and tensors, order, and what stays together, for each kind of container. */
#include "tools/gen/layout.h"

#include "tests/support/folder.h"
#include "tools/gen/config.h"
#include "tools/gen/family.h"
#include "tools/gen/options.h"
#include "tools/gen/stamp.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS_MAX 48
#define SIZES "--layers 3 --experts 4 --top-k 2 --hidden 128 --intermediate 64 --vocab 64 --seed 1 --out x "

static struct gen_options options;
static struct gen_layout layout;

static void lay_out(const char *more)
{
	static char line[1024];
	char message[GEN_MESSAGE_BYTES] = "", *rest = line, *argv[WORDS_MAX + 1] = {NULL};
	int argc = 0;

	(void)snprintf(line, sizeof line, "cnre-gen " SIZES "%s", more);
	while (rest != NULL && argc < WORDS_MAX)
		argv[argc++] = strsep(&rest, " ");
	optind = 0;
	cr_assert_eq(gen_options_parse(argc, argv, &options, message), 0, "%s", message);
	cr_assert_eq(gen_layout_open(&layout, &options.model), 0);
}

static const char *name_of(uint32_t tensor)
{
	static char text[GEN_NAME_BYTES];

	return gen_tensor_name(&options.model, &layout.tensor[tensor], text);
}

static uint32_t find(const char *name)
{
	for (uint32_t i = 0; i < layout.tensor_count; i++)
		if (strcmp(name_of(i), name) == 0)
			return i;
	return UINT32_MAX;
}

static uint64_t expert_bytes(uint32_t layer, uint32_t expert)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < layout.tensor_count; i++)
		if (gen_tensor_is_expert(&layout.tensor[i]) && layout.tensor[i].layer == layer &&
		    layout.tensor[i].expert == expert)
			bytes += layout.tensor[i].bytes;
	return bytes;
}

Test(gen_layout, tensors_of_an_expert_follow_each_other_in_the_order_of_the_container)
{
	static const struct {
		const char *options, *first[7];
	} cases[] = {
		{"--family glm",
		 {"model.layers.0.mlp.experts.0.gate_proj.weight", "model.layers.0.mlp.experts.0.up_proj.weight",
		  "model.layers.0.mlp.experts.0.down_proj.weight", "model.layers.0.mlp.experts.0.gate_proj.weight.qs",
		  "model.layers.0.mlp.experts.0.up_proj.weight.qs", "model.layers.0.mlp.experts.0.down_proj.weight.qs",
		  "model.layers.0.mlp.experts.1.gate_proj.weight"}},
		{"--family glm --expert-format bf16",
		 {"model.layers.0.mlp.experts.0.gate_proj.weight", "model.layers.0.mlp.experts.0.up_proj.weight",
		  "model.layers.0.mlp.experts.0.down_proj.weight", "model.layers.0.mlp.experts.1.gate_proj.weight"}},
		{"--family kimi_k3 --prefix model.",
		 {"model.layers.0.block_sparse_moe.experts.0.w1.weight_packed",
		  "model.layers.0.block_sparse_moe.experts.0.w1.weight_scale",
		  "model.layers.0.block_sparse_moe.experts.0.w2.weight_packed",
		  "model.layers.0.block_sparse_moe.experts.0.w2.weight_scale",
		  "model.layers.0.block_sparse_moe.experts.0.w3.weight_packed",
		  "model.layers.0.block_sparse_moe.experts.0.w3.weight_scale",
		  "model.layers.0.block_sparse_moe.experts.1.w1.weight_packed"}},
		{"--family inkling --dense-layers 1",
		 {"model.layers.1.mlp.experts.gate_up_proj", "model.layers.1.mlp.experts.gate_up_proj.qs",
		  "model.layers.1.mlp.experts.down_proj", "model.layers.1.mlp.experts.down_proj.qs",
		  "model.layers.2.mlp.experts.gate_up_proj"}},
		{"--family qwen36", {"model.layers.0.mlp.experts.0.qs", "model.layers.0.mlp.experts.0.merged_weight"}},
		{"--family deepseek_v4",
		 {"layers.0.ffn.experts.0.w1.scale", "layers.0.ffn.experts.0.w2.scale",
		  "layers.0.ffn.experts.0.w3.scale", "layers.0.ffn.experts.0.w1.weight",
		  "layers.0.ffn.experts.0.w2.weight", "layers.0.ffn.experts.0.w3.weight",
		  "layers.0.ffn.experts.1.w1.scale"}},
		{"--family mimo",
		 {"model.layers.0.mlp.experts.0.down_proj.weight",
		  "model.layers.0.mlp.experts.0.down_proj.weight_scale",
		  "model.layers.0.mlp.experts.0.gate_proj.weight",
		  "model.layers.0.mlp.experts.0.gate_proj.weight_scale", "model.layers.0.mlp.experts.0.up_proj.weight",
		  "model.layers.0.mlp.experts.0.up_proj.weight_scale"}},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		lay_out(cases[i].options);
		for (uint32_t j = 0; j < 7 && cases[i].first[j] != NULL; j++) {
			cr_expect_str_eq(name_of(j), cases[i].first[j], "%s", cases[i].options);
			cr_expect_eq(layout.tensor[j].continues,
				     strstr(cases[i].options, "inkling") == NULL && j > 0 &&
					     layout.tensor[j].expert == layout.tensor[j - 1].expert);
		}
		gen_layout_done(&layout);
	}
}

/* Of GLM-5.2's size: layers of int4 and an MTP row of int8, as published. */
Test(gen_layout, sizes_are_those_of_the_real_model)
{
	lay_out("--family glm --hidden 6144 --intermediate 2048 --mtp 1");
	cr_expect_eq(expert_bytes(0, 3), 18915328);
	cr_expect_eq(expert_bytes(3, 3), 37789696);
	gen_layout_done(&layout);
	lay_out("--family glm --hidden 6144 --intermediate 2048 --expert-format int4-gs64");
	cr_expect_eq(expert_bytes(0, 0), 21233664);
	gen_layout_done(&layout);
	lay_out("--family glm --hidden 6144 --intermediate 2048 --expert-format iq3");
	cr_expect_eq(expert_bytes(0, 0), 14450688 + 3 * 4);
	gen_layout_done(&layout);
	lay_out("--family deepseek_v4 --hidden 4096 --intermediate 2048");
	cr_expect_eq(expert_bytes(0, 0), 13369344);
	gen_layout_done(&layout);
	lay_out("--family olmoe --hidden 2048 --intermediate 1024");
	cr_expect_eq(expert_bytes(0, 0), 6291456 + 16384);
	gen_layout_done(&layout);
}

Test(gen_layout, a_converter_puts_mtp_rows_into_shards_of_their_own)
{
	char name[GEN_NAME_BYTES];

	lay_out("--family glm --dense-layers 1 --mtp 1 --shard-bytes 100K");
	cr_expect_str_eq(gen_layout_shard_name(&layout, 0, name), "out-00000.safetensors");
	for (uint32_t shard = 0, mtp = 0; shard < layout.shard_count; shard++) {
		const struct gen_shard *the = &layout.shard[shard];

		for (uint32_t i = the->first_tensor; i < the->first_tensor + the->tensor_count; i++)
			cr_expect_eq(the->is_mtp, layout.tensor[i].layer == 3, "%s", name_of(i));
		if (the->is_mtp && mtp++ == 0)
			cr_expect_str_eq(gen_layout_shard_name(&layout, shard, name), "out-mtp-00000.safetensors");
		cr_expect(gen_layout_is_shard_name(gen_layout_shard_name(&layout, shard, name)), "%s", name);
	}
	cr_expect(layout.shard[layout.shard_count - 1].is_mtp);
	cr_expect_neq(find("model.layers.3.mlp.experts.0.up_proj.weight"), UINT32_MAX);
	gen_layout_done(&layout);
	lay_out("--family glm --mtp 1 --shard-names hf");
	cr_expect_eq(layout.shard_count, 1);
	cr_expect_str_eq(gen_layout_shard_name(&layout, 0, name), "model-00001-of-00001.safetensors");
	gen_layout_done(&layout);
	cr_expect_not(gen_layout_is_shard_name("out-00000.safetensors.bak"));
	cr_expect_not(gen_layout_is_shard_name("model.safetensors"));
}

Test(gen_layout, drafts_of_deepseek_have_names_and_numbers_of_their_own)
{
	lay_out("--family deepseek_v41 --mtp 2 --mtp-experts 3");
	cr_expect_neq(find("mtp.1.ffn.experts.2.w3.weight"), UINT32_MAX);
	cr_expect_eq(find("mtp.1.ffn.experts.3.w3.weight"), UINT32_MAX);
	cr_expect_neq(find("layers.2.ffn.experts.3.w3.weight"), UINT32_MAX);
	cr_expect_eq(find("layers.3.ffn.experts.0.w3.weight"), UINT32_MAX);
	cr_expect_eq(layout.tensor[find("mtp.0.ffn.gate.weight")].rows, 3);
	gen_layout_done(&layout);
}

/* How many neighbours in the list are tensors of one expert. */
static uint32_t count_neighbours(void)
{
	uint32_t count = 0;

	for (uint32_t i = 1; i < layout.tensor_count; i++)
		count += gen_tensor_is_expert(&layout.tensor[i]) && gen_tensor_is_expert(&layout.tensor[i - 1]) &&
			 layout.tensor[i].layer == layout.tensor[i - 1].layer &&
			 layout.tensor[i].expert == layout.tensor[i - 1].expert;
	return count;
}

Test(gen_layout, scattered_tensors_are_all_there_in_another_order_and_in_any_shard)
{
	uint32_t tensors, together;

	lay_out("--family deepseek_v4 --mtp 1 --shard-bytes 40K");
	tensors = layout.tensor_count;
	together = count_neighbours();
	gen_layout_done(&layout);
	lay_out("--family deepseek_v4 --mtp 1 --shard-bytes 40K --scattered");
	cr_expect_eq(layout.tensor_count, tensors);
	cr_expect_eq(together, 4 * 4 * 5);
	cr_expect_lt(count_neighbours(), together / 4);
	for (uint32_t layer = 0; layer < 4; layer++)
		for (uint32_t expert = 0; expert < 4; expert++)
			cr_expect_eq(expert_bytes(layer, expert), 3 * 64 * 128 / 2 + 3 * 64 * 128 / 32);
	gen_layout_done(&layout);
}

static int keys_have(const struct gen_key *keys, const char *text)
{
	char *config = NULL;
	size_t bytes;
	int result;

	cr_assert_eq(gen_config_print(&options.model, keys, &config, &bytes), 0);
	result = strstr(config, text) != NULL;
	free(config);
	return result;
}

static int config_has(const char *text)
{
	return keys_have(options.model.family->keys, text);
}

Test(gen_layout, latent_experts_are_as_wide_as_their_latent_space)
{
	lay_out("--family kimi_k3 --latent 96");
	cr_expect_eq(expert_bytes(0, 0), 3 * 64 * 96 / 2 + 3 * 64 * 96 / 32);
	cr_expect_eq(layout.tensor[0].columns, 48);
	cr_expect(config_has("\"hidden_size\": 128"));
	cr_expect(config_has("\"routed_expert_hidden_size\": 96"));
	gen_layout_done(&layout);
	lay_out("--family kimi_k3");
	cr_expect(config_has("\"routed_expert_hidden_size\": 128"), "the engine asks for it in any case");
	gen_layout_done(&layout);
}

/* The width of an expert has another key in each: a reader that takes the wrong one finds another number. */
Test(gen_layout, a_flat_config_has_what_else_is_nested)
{
	lay_out("--family inkling");
	cr_expect(config_has("\"text_config\": {"));
	cr_expect(config_has("  \"dense_intermediate_size\": 128,\n  \"intermediate_size\": 64,"));
	gen_layout_done(&layout);
	lay_out("--family inkling --config flat");
	cr_expect_not(config_has("text_config"));
	cr_expect_not(config_has("inkling_mm_model"));
	cr_expect(config_has(" \"intermediate_size\": 128,\n \"moe_intermediate_size\": 64,"));
	gen_layout_done(&layout);
	lay_out("--family mimo --dense-layers 1");
	cr_expect(config_has("\"moe_layer_freq\": [0, 1, 1]"));
	gen_layout_done(&layout);
}

Test(gen_layout, the_file_beside_a_qwen36_container_says_how_its_experts_are_stored)
{
	lay_out("--family qwen36");
	cr_expect_str_eq(options.model.family->extra->name, "qwen36_meta.json");
	cr_expect(keys_have(options.model.family->extra->keys, "\"expert_gs\": 64\n}"));
	gen_layout_done(&layout);
	lay_out("--family qwen36 --matrix-format down:int8-row");
	cr_expect(keys_have(options.model.family->extra->keys,
			    "\"expert_gs\": 64,\n \"expert_down_bits\": 8,\n \"expert_down_gs\": 0\n}"));
	gen_layout_done(&layout);
}

/* The layout of a model that was read again, against that of the one that was asked for. */
static void expect_same_layout(const struct gen_model *read)
{
	char name[GEN_NAME_BYTES];
	struct gen_layout other;

	cr_assert_eq(gen_layout_open(&other, read), 0);
	cr_assert_eq(other.tensor_count, layout.tensor_count);
	for (uint32_t i = 0; i < layout.tensor_count; i++) {
		cr_assert_str_eq(gen_tensor_name(read, &other.tensor[i], name), name_of(i));
		cr_assert_eq(other.tensor[i].bytes, layout.tensor[i].bytes);
	}
	cr_assert_eq(other.shard_count, layout.shard_count);
	cr_expect_eq(read->config, options.model.config);
	cr_expect_eq(read->shard_names, options.model.shard_names);
	gen_layout_done(&other);
}

Test(gen_layout, a_stamp_gives_back_all_that_was_asked_for)
{
	static const char *const cases[] = {
		"--family olmoe --mixed-layer 1:f32",
		"--family glm --dense-layers 1 --mtp 1 --matrix-format up:int3-g64 --shard-names hf --unaligned",
		"--family kimi_k3 --latent 96 --prefix model. --config flat",
		"--family deepseek_v41 --mtp 2 --mtp-experts 3 --scattered",
	};
	struct folder folder;
	struct gen_model *read = calloc(1, sizeof *read);
	char *text, *again;
	int fd;

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		lay_out(cases[i]);
		folder_make(&folder);
		text = gen_stamp_make(&options.model);
		folder_write(&folder, GEN_STAMP_NAME, text, strlen(text));
		fd = open(folder.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		memset(read, 0, sizeof *read);
		cr_assert_eq(gen_stamp_read(fd, read), 0, "%s: %s", cases[i], text);
		again = gen_stamp_make(read);
		cr_expect_str_eq(again, text, "%s", cases[i]);
		expect_same_layout(read);
		gen_layout_done(&layout);
		free(again);
		free(text);
		(void)close(fd);
		folder_remove(&folder);
	}
	free(read);
}
