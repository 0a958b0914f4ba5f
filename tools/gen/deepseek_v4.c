/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DeepSeek V4 and V4.1 as published: packed FP4 weights with one UE8M0 scale for 32 columns; three scales side by side, then
 * three weights. Drafts are under mtp. V4.1 has the same tensors, config.json nested, and drafts with fewer experts than
 * the layers have.
 */
#include "tools/gen/family.h"

#include "base/check.h"
#include "tools/gen/tensor.h"

static const char *const aliases[] = {"deepseekv4", "deepseekv4flash", "dsv4", NULL};
static const char *const aliases_41[] = {"deepseekv41", "deepseekv41flash", "deepseekv41text", "dsv41", NULL};
static const char *const prefixes[] = {"", NULL};

static const struct gen_piece pieces[] = {
	{"%B.ffn.experts.%E.w1.scale", 1, GEN_HAS_GATE, GEN_PIECE},
	{"%B.ffn.experts.%E.w2.scale", 1, GEN_HAS_DOWN, GEN_PIECE},
	{"%B.ffn.experts.%E.w3.scale", 1, GEN_HAS_UP, GEN_PIECE},
	{"%B.ffn.experts.%E.w1.weight", 0, GEN_HAS_GATE, GEN_PIECE},
	{"%B.ffn.experts.%E.w2.weight", 0, GEN_HAS_DOWN, GEN_PIECE},
	{"%B.ffn.experts.%E.w3.weight", 0, GEN_HAS_UP, GEN_PIECE},
};
static const struct gen_arrangement arrangements[] = {{GEN_FORMAT_BIT(GEN_FP4), CNRE_COUNT_OF(pieces), pieces}};

static const struct gen_dense dense[] = {
	{"%Pembed.weight", GEN_OUTER, GEN_VOCAB, GEN_HIDDEN, GEN_DENSE},
	{"%Phead.weight", GEN_OUTER, GEN_VOCAB, GEN_HIDDEN, GEN_DENSE},
	{"%Pnorm.weight", GEN_OUTER, GEN_ONE, GEN_HIDDEN, GEN_DENSE},
	{"%B.attn_norm.weight", GEN_EACH, GEN_ONE, GEN_HIDDEN, GEN_DENSE},
	{"%B.ffn_norm.weight", GEN_EACH, GEN_ONE, GEN_HIDDEN, GEN_DENSE},
	{"%B.ffn.gate.weight", GEN_SPARSE, GEN_EXPERTS, GEN_HIDDEN, GEN_DENSE},
	{"%B.ffn.shared_experts.w1.weight", GEN_SPARSE, GEN_INTERMEDIATE, GEN_HIDDEN, GEN_DENSE},
	{"%B.ffn.shared_experts.w2.weight", GEN_SPARSE, GEN_HIDDEN, GEN_INTERMEDIATE, GEN_DENSE},
	{"%B.ffn.shared_experts.w3.weight", GEN_SPARSE, GEN_INTERMEDIATE, GEN_HIDDEN, GEN_DENSE},
};

static const struct gen_key keys[] = {
	GEN_LITERAL("architectures", "[\"DeepseekV4ForCausalLM\"]"),
	GEN_LITERAL("model_type", "\"deepseek_v4\""),
	GEN_LITERAL("expert_dtype", "\"fp4\""),
	GEN_FIELD("vocab_size", vocab),
	GEN_FIELD("hidden_size", hidden),
	GEN_FIELD("moe_intermediate_size", intermediate),
	GEN_FIELD("num_hidden_layers", layers),
	GEN_FIELD("num_attention_heads", heads),
	GEN_FIELD("n_routed_experts", experts),
	GEN_FIELD("num_experts_per_tok", top_k),
	GEN_LITERAL("n_shared_experts", "1"),
	GEN_LITERAL("num_hash_layers", "1"),
	GEN_FIELD_IF("num_nextn_predict_layers", mtp),
	GEN_LITERAL("rms_norm_eps", "1e-06"),
	GEN_KEY_OF(GEN_KEY_LAST, NULL),
};

static const struct gen_key keys_41[] = {
	GEN_LITERAL("architectures", "[\"DeepseekV41ForCausalLM\"]"),
	GEN_LITERAL("model_type", "\"deepseek_v41\""),
	GEN_KEY_OF(GEN_KEY_OBJECT, "text_config"),
	GEN_LITERAL("model_type", "\"deepseek_v41_text\""),
	GEN_FIELD("vocab_size", vocab),
	GEN_FIELD("hidden_size", hidden),
	GEN_FIELD("moe_intermediate_size", intermediate),
	GEN_FIELD("num_hidden_layers", layers),
	GEN_FIELD("num_attention_heads", heads),
	GEN_FIELD("n_routed_experts", experts),
	GEN_FIELD("num_experts_per_tok", top_k),
	GEN_LITERAL("n_shared_experts", "1"),
	GEN_FIELD_IF("n_mtp_layers", mtp),
	GEN_FIELD_IF("dspark_n_routed_experts", mtp_experts),
	GEN_LITERAL("dspark_num_experts_per_tok", "1"),
	GEN_LITERAL("rms_norm_eps", "1e-06"),
	GEN_KEY_OF(GEN_KEY_END, NULL),
	GEN_KEY_OF(GEN_KEY_LAST, NULL),
};

const struct gen_family gen_family_deepseek_v4 = {
	.name = "deepseek_v4",
	.aliases = aliases,
	.prefixes = prefixes,
	.layer_block = "%Players.%L",
	.mtp_block = "%Pmtp.%M",
	.formats = GEN_FORMAT_BIT(GEN_FP4),
	.takes = GEN_TAKES_MTP,
	.default_format = GEN_FP4,
	.dense_format = GEN_BF16,
	.mtp_format = GEN_FORMATS,
	.shard_names = GEN_NAMES_HF,
	.arrangement_count = CNRE_COUNT_OF(arrangements),
	.dense_count = CNRE_COUNT_OF(dense),
	.arrangements = arrangements,
	.dense = dense,
	.keys = keys,
};

const struct gen_family gen_family_deepseek_v41 = {
	.name = "deepseek_v41",
	.aliases = aliases_41,
	.prefixes = prefixes,
	.layer_block = "%Players.%L",
	.mtp_block = "%Pmtp.%M",
	.formats = GEN_FORMAT_BIT(GEN_FP4),
	.takes = GEN_TAKES_MTP | GEN_TAKES_MTP_EXPERTS | GEN_TAKES_CONFIG,
	.default_format = GEN_FP4,
	.dense_format = GEN_BF16,
	.mtp_format = GEN_FORMATS,
	.shard_names = GEN_NAMES_HF,
	.arrangement_count = CNRE_COUNT_OF(arrangements),
	.dense_count = CNRE_COUNT_OF(dense),
	.arrangements = arrangements,
	.dense = dense,
	.keys = keys_41,
};
