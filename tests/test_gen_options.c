/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of cnre-gen: which family takes what, what it is by default, and how the rest is refused. */
#include "tools/gen/options.h"

#include "tools/gen/family.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#define WORDS_MAX 48
#define SIZES "--layers 4 --experts 8 --top-k 2 --hidden 256 --intermediate 256 --vocab 64 --seed 1 --out x "

static struct gen_options options;
static char message[GEN_MESSAGE_BYTES];

/* SIZES and more; words point into `line`, which stays. */
static int parse(const char *more)
{
	static char line[1024];
	char *rest = line, *argv[WORDS_MAX + 1] = {NULL};
	int argc = 0;

	(void)snprintf(line, sizeof line, "cnre-gen " SIZES "%s", more);
	while (rest != NULL && argc < WORDS_MAX)
		argv[argc++] = strsep(&rest, " ");
	optind = 0;
	message[0] = '\0';
	return gen_options_parse(argc, argv, &options, message);
}

Test(gen_options, every_family_is_known_by_its_usual_spellings)
{
	static const char *const spellings[][2] = {
		{"olmoe", "olmoe"},
		{"OLMoE", "olmoe"},
		{"glm", "glm"},
		{"GLM-5.2", "glm"},
		{"glm52", "glm"},
		{"glm_moe_dsa", "glm"},
		{"glm53", "glm53"},
		{"GLM-5.3-Flash", "glm53"},
		{"kimi_k3", "kimi_k3"},
		{"Kimi-K3", "kimi_k3"},
		{"kimi", "kimi_k3"},
		{"Inkling", "inkling"},
		{"qwen36", "qwen36"},
		{"Qwen3.6", "qwen36"},
		{"qwen3.8", "qwen38"},
		{"deepseek-v4", "deepseek_v4"},
		{"dsv4", "deepseek_v4"},
		{"DeepSeek_V4", "deepseek_v4"},
		{"deepseek-v4.1", "deepseek_v41"},
		{"dsv41", "deepseek_v41"},
		{"MiMo-V2.6", "mimo"},
	};
	char more[64];

	for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
		(void)snprintf(more, sizeof more, "--family %s", spellings[i][0]);
		cr_assert_eq(parse(more), 0, "%s: %s", spellings[i][0], message);
		cr_expect_str_eq(options.model.family->name, spellings[i][1]);
	}
	cr_expect_eq(parse("--family glm-4"), -EINVAL);
	cr_expect(strstr(message, "deepseek_v41") != NULL, "the list ends too early: %s", message);
}

Test(gen_options, defaults_are_those_of_real_containers)
{
	static const struct {
		const char *family;
		enum gen_format format;
		enum gen_shard_names names;
		enum gen_config config;
		const char *prefix;
	} cases[] = {
		{"olmoe", GEN_INT8_ROW, GEN_NAMES_HF, GEN_CONFIG_NESTED, "model."},
		{"glm", GEN_INT4_ROW, GEN_NAMES_CONVERTER, GEN_CONFIG_NESTED, "model."},
		{"glm53", GEN_INT4_GS64, GEN_NAMES_CONVERTER, GEN_CONFIG_NESTED, "model.language_model."},
		{"kimi_k3", GEN_MXFP4, GEN_NAMES_HF, GEN_CONFIG_NESTED, "language_model.model."},
		{"inkling", GEN_INT4_ROW, GEN_NAMES_HF, GEN_CONFIG_NESTED, "model."},
		{"qwen36", GEN_INT4_GS64, GEN_NAMES_HF, GEN_CONFIG_FLAT, "model."},
		{"qwen38", GEN_FP8_BLOCK, GEN_NAMES_HF, GEN_CONFIG_NESTED, "model.language_model."},
		{"deepseek_v4", GEN_FP4, GEN_NAMES_HF, GEN_CONFIG_NESTED, ""},
		{"deepseek_v41", GEN_FP4, GEN_NAMES_HF, GEN_CONFIG_NESTED, ""},
		{"mimo", GEN_MXFP4, GEN_NAMES_HF, GEN_CONFIG_NESTED, "model."},
	};
	char more[64];

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		(void)snprintf(more, sizeof more, "--family %s", cases[i].family);
		cr_assert_eq(parse(more), 0, "%s", message);
		for (int layer = 0; layer < 4; layer++)
			cr_expect_eq(options.model.expert_format[layer], cases[i].format, "%s", cases[i].family);
		cr_expect_eq(options.model.shard_names, cases[i].names, "%s", cases[i].family);
		cr_expect_eq(options.model.config, cases[i].config, "%s", cases[i].family);
		cr_expect_str_eq(options.model.prefix, cases[i].prefix);
	}
}

Test(gen_options, formats_have_the_names_that_inspect_shows_too)
{
	cr_assert_eq(parse("--family glm --expert-format int4-g64"), 0, "%s", message);
	cr_expect_eq(options.model.expert_format[3], GEN_INT4_GS64);
	cr_assert_eq(parse("--family glm --mixed-layer 1:int4-g128"), 0, "%s", message);
	cr_expect_eq(options.model.expert_format[1], GEN_INT4_GS128);
	cr_assert_eq(parse("--family qwen38 --expert-format fp8-b128"), 0, "%s", message);
	cr_expect_eq(options.model.expert_format[0], GEN_FP8_BLOCK);
}

Test(gen_options, an_mtp_row_of_glm_has_int8_rows_unless_asked_otherwise)
{
	cr_assert_eq(parse("--family glm --expert-format int4-gs64 --mtp 1"), 0, "%s", message);
	cr_expect_eq(options.model.expert_format[3], GEN_INT4_GS64);
	cr_expect_eq(options.model.expert_format[4], GEN_INT8_ROW);
	cr_assert_eq(parse("--family glm --mtp 1 --mixed-layer 4:int2-row --mixed-layer 1:int8-row"), 0, "%s", message);
	cr_expect_eq(options.model.expert_format[4], GEN_INT2_ROW);
	cr_expect_eq(options.model.expert_format[1], GEN_INT8_ROW);
	cr_assert_eq(parse("--family deepseek_v4 --mtp 2"), 0, "%s", message);
	cr_expect_eq(options.model.expert_format[5], GEN_FP4);
}

Test(gen_options, what_a_family_does_not_have_is_refused_with_what_it_has)
{
	static const char *const cases[][2] = {
		{"--family glm --expert-format mxfp4", "int3-g64"},
		{"--family kimi_k3 --expert-format int4-row", "mxfp4"},
		{"--family olmoe --expert-format int4-row", "int8-row"},
		{"--family glm --popularity glm", "leave it out"},
		{"--family kimi_k3 --popularity olmoe", "leave it out"},
		{"--family olmoe --mtp 1", "--mtp means nothing for olmoe"},
		{"--family kimi_k3 --mtp 1", "--mtp means nothing"},
		{"--family deepseek_v4 --mtp 1 --mtp-experts 2", "--mtp-experts means nothing"},
		{"--family deepseek_v41 --mtp-experts 2", "needs --mtp"},
		{"--family glm --latent 64", "--latent means nothing"},
		{"--family deepseek_v4 --dense-layers 1", "--dense-layers means nothing"},
		{"--family mimo --config flat", "--config means nothing"},
		{"--family inkling --matrix-format down:int8-row", "--matrix-format means nothing"},
		{"--family glm --matrix-format left:int8-row", "MATRIX:FORMAT"},
		{"--family glm --matrix-format down:mxfp4", "no experts in format mxfp4"},
		{"--family glm --dense-layers 4", "no layer with experts"},
		{"--family glm --dense-layers 2 --mixed-layer 1:bf16", "dense"},
		{"--family glm --mtp 1 --mixed-layer 5:bf16", "5 layers with its MTP rows"},
		{"--family glm --mtp 9", "from 0 to 8"},
		{"--family kimi_k3 --prefix x.", "language_model.model."},
		{"--family glm --shard-names pt", "hf converter"},
		{"--family glm53 --config deep", "nested flat"},
		{"--family mimo --hidden 100", "multiple of 32"},
		{"--family kimi_k3 --latent 40", "--latent"},
		{"--family glm --expert-format iq3 --intermediate 128", "--intermediate"},
		{"--family qwen36 --hidden 255 --expert-format int4-row", "--hidden"},
		{"--family glm --layers 1024 --experts 1 --top-k 1 --mtp 1", "--mtp 1"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		memset(&options, 0x5a, sizeof options);
		cr_expect_eq(parse(cases[i][0]), -EINVAL, "%s", cases[i][0]);
		cr_expect(strstr(message, cases[i][1]) != NULL, "%s: no \"%s\" in: %s", cases[i][0], cases[i][1],
			  message);
		cr_expect_eq(options.verify, 0x5a5a5a5a, "output is untouched on failure");
	}
}
