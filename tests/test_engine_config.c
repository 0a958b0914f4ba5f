/* SPDX-License-Identifier: Apache-2.0 */
/* engine/config.c: what an OLMoE config may say, and what it may not. */
#include "engine/config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[] = "/tmp/cnre-config-XXXXXX";
static char path[64], message[ENGINE_MESSAGE_BYTES];

static void make_directory(void)
{
	cr_assert_not_null(mkdtemp(directory));
	snprintf(path, sizeof path, "%s/config.json", directory);
}

static void remove_directory(void)
{
	unlink(path);
	rmdir(directory);
}

TestSuite(engine_config, .init = make_directory, .fini = remove_directory, .timeout = 30);

#define GOOD                                                                                             \
	"\"model_type\":\"olmoe\",\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":4," \
	"\"num_key_value_heads\":2,\"num_experts\":16,\"num_experts_per_tok\":4,"                        \
	"\"intermediate_size\":32,\"vocab_size\":100"

static int load(struct config *config, const char *text)
{
	FILE *file = fopen(path, "w");

	cr_assert_not_null(file);
	fputs(text, file);
	fclose(file);
	message[0] = '\0';
	return config_load(config, directory, message);
}

Test(engine_config, absent_keys_have_the_defaults_of_the_family)
{
	struct config config;

	cr_assert_eq(load(&config, "{" GOOD "}"), 0, "%s", message);
	cr_expect_eq(config.head_dim, 16);
	cr_expect_eq(config.kv_heads, 2);
	cr_expect_float_eq(config.rms_norm_eps, 1e-5f, 1e-10);
	cr_expect_eq(config.rope_theta, 10000.0f);
	cr_expect_eq(config.clip_qkv, 0);
	cr_expect_not(config.norm_top_k);
}

Test(engine_config, present_keys_count)
{
	struct config config;

	cr_assert_eq(load(&config, "{" GOOD ",\"rope_theta\":500,\"clip_qkv\":8,\"norm_topk_prob\":true,\"head_dim\":8,"
				   "\"max_position_embeddings\":4096,\"rope_scaling\":null}"),
		     0, "%s", message);
	cr_expect_eq(config.rope_theta, 500.0f);
	cr_expect_eq(config.clip_qkv, 8.0f);
	cr_expect(config.norm_top_k);
	cr_expect_eq(config.head_dim, 8);
	cr_expect_eq(config.positions_max, 4096);
}

Test(engine_config, what_the_engine_would_compute_wrongly_is_enotsup)
{
	static const char *const variants[] = {
		"{" GOOD ",\"hidden_act\":\"gelu\"}",
		"{" GOOD ",\"rope_scaling\":{\"factor\":2}}",
		"{" GOOD ",\"attention_bias\":true}",
		"{\"model_type\":\"llama\"}",
		"{}",
	};

	for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
		struct config config = {.layers = 42};

		cr_expect_eq(load(&config, variants[i]), -ENOTSUP, "%s", variants[i]);
		cr_expect_eq(config.layers, 42);
		cr_expect_neq(message[0], '\0');
	}
}

Test(engine_config, numbers_out_of_range_are_ebadmsg_and_touch_nothing)
{
	static const char *const changes[][2] = {
		{"\"hidden_size\":64", "\"hidden_size\":0"},
		{"\"hidden_size\":64", "\"hidden_size\":4294967360"},
		{"\"hidden_size\":64", "\"hidden_size\":64.5"},
		{"\"hidden_size\":64", "\"hidden_size\":\"64\""},
		{"\"num_hidden_layers\":4", "\"num_hidden_layers\":-4"},
		{"\"num_attention_heads\":4", "\"num_attention_heads\":64"},
		{"\"num_key_value_heads\":2", "\"num_key_value_heads\":3"},
		{"\"num_experts_per_tok\":4", "\"num_experts_per_tok\":17"},
		{"\"num_experts\":16", "\"num_expert\":16"},
		{"\"vocab_size\":100", "\"vocab_size\":100,\"head_dim\":7"},
		{"\"vocab_size\":100", "\"vocab_size\":100,\"rope_theta\":-1"},
		{"\"vocab_size\":100", "\"vocab_size\":100,\"rms_norm_eps\":\"x\""},
		{"\"vocab_size\":100", "\"vocab_size\":100"}, /* the brace below is missing */
	};

	for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
		static const char good[] = "{" GOOD "}";
		const char *at = strstr(good, changes[i][0]);
		struct config config = {.layers = 42};
		char text[512];

		cr_assert_not_null(at);
		snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, changes[i][1],
			 at + strlen(changes[i][0]));
		if (i + 1 == sizeof changes / sizeof changes[0])
			text[strlen(text) - 1] = '\0';
		cr_expect_eq(load(&config, text), -EBADMSG, "accepted: %s", changes[i][1]);
		cr_expect_eq(config.layers, 42);
		cr_expect_neq(message[0], '\0');
	}
}

Test(engine_config, no_file_is_enoent)
{
	struct config config;

	cr_expect_eq(config_load(&config, directory, message), -ENOENT);
}
