/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Qwen3.8-Flash-Next as published: E4M3 weights of gate and up side by side and down elsewhere, one scale a block of
 * 128 x 128, F32 or BF16. The text model alone is BF16.
 */
#include "tools/gen/family.h"

#include "base/check.h"
#include "tools/gen/tensor.h"

static const char *const aliases[] = {"qwen38", "qwen38flashnext", "qwen4exp", "qwen4exptext", NULL};
static const char *const prefixes[] = {"model.language_model.", "model.", NULL};

#define FORMATS (GEN_FORMAT_BIT(GEN_FP8_BLOCK) | GEN_FORMAT_BIT(GEN_FP8_BLOCK_BF16) | GEN_PLAIN)

static const struct gen_piece pieces[] = {
	{"%B.mlp.experts.%E.gate_proj.weight", 0, GEN_HAS_GATE, GEN_PIECE},
	{"%B.mlp.experts.%E.up_proj.weight", 0, GEN_HAS_UP, GEN_PIECE},
	{"%B.mlp.experts.%E.down_proj.weight", 0, GEN_HAS_DOWN, GEN_PIECE},
	{"%B.mlp.experts.%E.gate_proj.weight_scale_inv", 1, GEN_HAS_GATE, GEN_PIECE},
	{"%B.mlp.experts.%E.up_proj.weight_scale_inv", 1, GEN_HAS_UP, GEN_PIECE},
	{"%B.mlp.experts.%E.down_proj.weight_scale_inv", 1, GEN_HAS_DOWN, GEN_PIECE},
};
static const struct gen_arrangement arrangements[] = {{FORMATS, CNRE_COUNT_OF(pieces), pieces}};

static const struct gen_dense dense[] = {
	{"%Pembed_tokens.weight", GEN_OUTER, GEN_VOCAB, GEN_HIDDEN, GEN_DENSE},
	{"lm_head.weight", GEN_OUTER, GEN_VOCAB, GEN_HIDDEN, GEN_DENSE},
	{"%Pnorm.weight", GEN_OUTER, GEN_ONE, GEN_HIDDEN, GEN_DENSE},
	{"%B.mlp.gate.weight", GEN_EACH, GEN_EXPERTS, GEN_HIDDEN, GEN_DENSE},
	{"%B.mlp.shared_expert.gate_proj.weight", GEN_EACH, GEN_INTERMEDIATE, GEN_HIDDEN, GEN_DENSE},
	{"%B.mlp.shared_expert.up_proj.weight", GEN_EACH, GEN_INTERMEDIATE, GEN_HIDDEN, GEN_DENSE},
	{"%B.mlp.shared_expert.down_proj.weight", GEN_EACH, GEN_HIDDEN, GEN_INTERMEDIATE, GEN_DENSE},
};

static const struct gen_key keys[] = {
	GEN_LITERAL("architectures", "[\"Qwen4ExpForConditionalGeneration\"]"),
	GEN_LITERAL("model_type", "\"qwen4_exp\""),
	GEN_KEY_OF(GEN_KEY_OBJECT, "text_config"),
	GEN_LITERAL("model_type", "\"qwen4_exp_text\""),
	GEN_FIELD("vocab_size", vocab),
	GEN_FIELD("hidden_size", hidden),
	GEN_FIELD("moe_intermediate_size", intermediate),
	GEN_FIELD("shared_expert_intermediate_size", intermediate),
	GEN_FIELD("num_hidden_layers", layers),
	GEN_FIELD("num_attention_heads", heads),
	GEN_FIELD("num_experts", experts),
	GEN_FIELD("num_experts_per_tok", top_k),
	GEN_LITERAL("rms_norm_eps", "1e-06"),
	GEN_KEY_OF(GEN_KEY_END, NULL),
	GEN_KEY_OF(GEN_KEY_LAST, NULL),
};

const struct gen_family gen_family_qwen38 = {
	.name = "qwen38",
	.aliases = aliases,
	.prefixes = prefixes,
	.layer_block = "%Players.%L",
	.formats = FORMATS,
	.takes = GEN_TAKES_CONFIG,
	.default_format = GEN_FP8_BLOCK,
	.dense_format = GEN_BF16,
	.mtp_format = GEN_FORMATS,
	.shard_names = GEN_NAMES_HF,
	.arrangement_count = CNRE_COUNT_OF(arrangements),
	.dense_count = CNRE_COUNT_OF(dense),
	.arrangements = arrangements,
	.dense = dense,
	.keys = keys,
};
