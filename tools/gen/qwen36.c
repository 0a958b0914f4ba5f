/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Qwen3.6 as its converter writes it: scales of gate, up and down in one tensor, then their rows packed together in
 * another. Down may have int8 rows behind int4 ones. config.json is the text model's.
 */
#include "tools/gen/family.h"

#include "base/check.h"
#include "tools/gen/tensor.h"

static const char *const aliases[] = {"qwen36", "qwen3635ba3b", "qwen35moe", "qwen35moetext", NULL};
static const char *const prefixes[] = {"model.", NULL};

#define FORMATS (GEN_INT4 | GEN_FORMAT_BIT(GEN_INT8_ROW))

static const struct gen_piece pieces[] = {
	{"%B.mlp.experts.%E.qs", 1, GEN_HAS_GATE | GEN_HAS_UP | GEN_HAS_DOWN, GEN_PIECE},
	{"%B.mlp.experts.%E.merged_weight", 0, GEN_HAS_GATE | GEN_HAS_UP | GEN_HAS_DOWN, GEN_PIECE},
};
static const struct gen_arrangement arrangements[] = {{FORMATS, CNRE_COUNT_OF(pieces), pieces}};

static const struct gen_dense dense[] = {
	{"%Pembed_tokens.weight", GEN_OUTER, GEN_VOCAB, GEN_HIDDEN, GEN_DENSE},
	{"lm_head.weight", GEN_OUTER, GEN_VOCAB, GEN_HIDDEN, GEN_DENSE},
	{"%Pnorm.weight", GEN_OUTER, GEN_ONE, GEN_HIDDEN, GEN_DENSE},
	{"%B.input_layernorm.weight", GEN_EACH, GEN_ONE, GEN_HIDDEN, GEN_DENSE},
	{"%B.post_attention_layernorm.weight", GEN_EACH, GEN_ONE, GEN_HIDDEN, GEN_DENSE},
	{"%B.mlp.gate.weight", GEN_EACH, GEN_EXPERTS, GEN_HIDDEN, GEN_DENSE},
	{"%B.mlp.shared_expert.gate_proj.weight", GEN_EACH, GEN_INTERMEDIATE, GEN_HIDDEN, GEN_DENSE},
	{"%B.mlp.shared_expert.up_proj.weight", GEN_EACH, GEN_INTERMEDIATE, GEN_HIDDEN, GEN_DENSE},
	{"%B.mlp.shared_expert.down_proj.weight", GEN_EACH, GEN_HIDDEN, GEN_INTERMEDIATE, GEN_DENSE},
};

static const struct gen_key keys[] = {
	GEN_LITERAL("architectures", "[\"Qwen3_5MoeForConditionalGeneration\"]"),
	GEN_LITERAL("model_type", "\"qwen3_5_moe\""),
	GEN_KEY_OF(GEN_KEY_OBJECT, "text_config"),
	GEN_LITERAL("model_type", "\"qwen3_5_moe_text\""),
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

static const struct gen_key meta_keys[] = {
	GEN_LITERAL("model_type", "\"qwen3_5_moe\""),
	GEN_FIELD("hidden", hidden),
	GEN_FIELD("n_layers", layers),
	GEN_FIELD("num_experts", experts),
	GEN_FIELD("topk", top_k),
	GEN_FIELD("moe_inter", intermediate),
	GEN_KEY_OF(GEN_KEY_GROUP, "expert_gs"),
	GEN_KEY_OF(GEN_KEY_DOWN_BITS, "expert_down_bits"),
	GEN_KEY_OF(GEN_KEY_DOWN_GROUP, "expert_down_gs"),
	GEN_KEY_OF(GEN_KEY_LAST, NULL),
};

static const struct gen_extra meta = {"qwen36_meta.json", meta_keys};

const struct gen_family gen_family_qwen36 = {
	.name = "qwen36",
	.aliases = aliases,
	.prefixes = prefixes,
	.layer_block = "%Players.%L",
	.formats = FORMATS,
	.takes = GEN_TAKES_CONFIG | GEN_TAKES_MATRIX_FORMAT,
	.default_format = GEN_INT4_GS64,
	.dense_format = GEN_F16,
	.mtp_format = GEN_FORMATS,
	.shard_names = GEN_NAMES_HF,
	.config = GEN_CONFIG_FLAT,
	.is_flat = 1,
	.is_merged = 1,
	.arrangement_count = CNRE_COUNT_OF(arrangements),
	.dense_count = CNRE_COUNT_OF(dense),
	.arrangements = arrangements,
	.dense = dense,
	.keys = keys,
	.extra = &meta,
};
