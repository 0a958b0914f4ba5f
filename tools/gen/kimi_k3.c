/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kimi K3 as published: packed MXFP4 weights, each followed by its scales. Experts work in a latent space narrower
 * than the model (LatentMoE), so their width is routed_expert_hidden_size.
 */
#include "tools/gen/family.h"

#include "base/check.h"
#include "tools/gen/tensor.h"

static const char *const aliases[] = {"kimi", "kimik3", "kimilinear", "k3", NULL};
static const char *const prefixes[] = {"language_model.model.", "model.", NULL};

static const struct gen_piece pieces[] = {
	{"%B.block_sparse_moe.experts.%E.w1.weight_packed", 0, GEN_HAS_GATE, GEN_PIECE},
	{"%B.block_sparse_moe.experts.%E.w1.weight_scale", 1, GEN_HAS_GATE, GEN_PIECE},
	{"%B.block_sparse_moe.experts.%E.w2.weight_packed", 0, GEN_HAS_DOWN, GEN_PIECE},
	{"%B.block_sparse_moe.experts.%E.w2.weight_scale", 1, GEN_HAS_DOWN, GEN_PIECE},
	{"%B.block_sparse_moe.experts.%E.w3.weight_packed", 0, GEN_HAS_UP, GEN_PIECE},
	{"%B.block_sparse_moe.experts.%E.w3.weight_scale", 1, GEN_HAS_UP, GEN_PIECE},
};
static const struct gen_arrangement arrangements[] = {{GEN_FORMAT_BIT(GEN_MXFP4), CNRE_COUNT_OF(pieces), pieces}};

static const struct gen_dense dense[] = {
	{"%Pembed_tokens.weight", GEN_OUTER, GEN_VOCAB, GEN_HIDDEN, GEN_DENSE},
	{"lm_head.weight", GEN_OUTER, GEN_VOCAB, GEN_HIDDEN, GEN_DENSE},
	{"%Pnorm.weight", GEN_OUTER, GEN_ONE, GEN_HIDDEN, GEN_DENSE},
	{"%B.input_layernorm.weight", GEN_EACH, GEN_ONE, GEN_HIDDEN, GEN_DENSE},
	{"%B.post_attention_layernorm.weight", GEN_EACH, GEN_ONE, GEN_HIDDEN, GEN_DENSE},
	{"%B.mlp.gate_proj.weight", GEN_DENSE_ONLY, GEN_DENSE_INTERMEDIATE, GEN_HIDDEN, GEN_DENSE},
	{"%B.mlp.up_proj.weight", GEN_DENSE_ONLY, GEN_DENSE_INTERMEDIATE, GEN_HIDDEN, GEN_DENSE},
	{"%B.mlp.down_proj.weight", GEN_DENSE_ONLY, GEN_HIDDEN, GEN_DENSE_INTERMEDIATE, GEN_DENSE},
	{"%B.block_sparse_moe.gate.weight", GEN_SPARSE, GEN_EXPERTS, GEN_HIDDEN, GEN_DENSE},
	{"%B.block_sparse_moe.routed_expert_down_proj.weight", GEN_SPARSE, GEN_LATENT, GEN_HIDDEN, GEN_DENSE},
	{"%B.block_sparse_moe.routed_expert_up_proj.weight", GEN_SPARSE, GEN_HIDDEN, GEN_LATENT, GEN_DENSE},
	{"%B.block_sparse_moe.shared_experts.gate_proj.weight", GEN_SPARSE, GEN_INTERMEDIATE, GEN_HIDDEN, GEN_DENSE},
	{"%B.block_sparse_moe.shared_experts.up_proj.weight", GEN_SPARSE, GEN_INTERMEDIATE, GEN_HIDDEN, GEN_DENSE},
	{"%B.block_sparse_moe.shared_experts.down_proj.weight", GEN_SPARSE, GEN_HIDDEN, GEN_INTERMEDIATE, GEN_DENSE},
};

static const struct gen_key keys[] = {
	GEN_LITERAL("architectures", "[\"KimiK3ForConditionalGeneration\"]"),
	GEN_LITERAL("model_type", "\"kimi_k3\""),
	GEN_KEY_OF(GEN_KEY_OBJECT, "text_config"),
	GEN_LITERAL("model_type", "\"kimi_linear\""),
	GEN_FIELD("vocab_size", vocab),
	GEN_FIELD("hidden_size", hidden),
	GEN_FIELD_TWICE("intermediate_size", intermediate),
	GEN_FIELD("moe_intermediate_size", intermediate),
	GEN_KEY_OF(GEN_KEY_WIDTH, "routed_expert_hidden_size"),
	GEN_FIELD("num_hidden_layers", layers),
	GEN_FIELD("first_k_dense_replace", dense_layers),
	GEN_FIELD("num_attention_heads", heads),
	GEN_FIELD("num_experts", experts),
	GEN_FIELD("num_experts_per_token", top_k),
	GEN_LITERAL("num_shared_experts", "1"),
	GEN_LITERAL("rms_norm_eps", "1e-05"),
	GEN_KEY_OF(GEN_KEY_END, NULL),
	GEN_KEY_OF(GEN_KEY_LAST, NULL),
};

const struct gen_family gen_family_kimi_k3 = {
	.name = "kimi_k3",
	.aliases = aliases,
	.prefixes = prefixes,
	.layer_block = "%Players.%L",
	.formats = GEN_FORMAT_BIT(GEN_MXFP4),
	.takes = GEN_TAKES_DENSE_LAYERS | GEN_TAKES_LATENT | GEN_TAKES_CONFIG,
	.default_format = GEN_MXFP4,
	.dense_format = GEN_BF16,
	.mtp_format = GEN_FORMATS,
	.shard_names = GEN_NAMES_HF,
	.arrangement_count = CNRE_COUNT_OF(arrangements),
	.dense_count = CNRE_COUNT_OF(dense),
	.arrangements = arrangements,
	.dense = dense,
	.keys = keys,
};
