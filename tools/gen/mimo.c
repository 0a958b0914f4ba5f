/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MiMo-V2.6 as published: six tensors of an expert back to back, MXFP4 with one scale for 32 columns. Which layers
 * are dense stands in a list.
 */
#include "tools/gen/family.h"

#include "base/check.h"
#include "tools/gen/tensor.h"

static const char *const aliases[] = {"mimo", "mimov2", "mimov26", "mimov26flash", NULL};
static const char *const prefixes[] = {"model.", NULL};

static const struct gen_piece pieces[] = {
	{"%B.mlp.experts.%E.down_proj.weight", 0, GEN_HAS_DOWN, GEN_PIECE},
	{"%B.mlp.experts.%E.down_proj.weight_scale", 1, GEN_HAS_DOWN, GEN_PIECE},
	{"%B.mlp.experts.%E.gate_proj.weight", 0, GEN_HAS_GATE, GEN_PIECE},
	{"%B.mlp.experts.%E.gate_proj.weight_scale", 1, GEN_HAS_GATE, GEN_PIECE},
	{"%B.mlp.experts.%E.up_proj.weight", 0, GEN_HAS_UP, GEN_PIECE},
	{"%B.mlp.experts.%E.up_proj.weight_scale", 1, GEN_HAS_UP, GEN_PIECE},
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
	{"%B.mlp.gate.weight", GEN_SPARSE, GEN_EXPERTS, GEN_HIDDEN, GEN_DENSE},
	{"%B.mlp.gate.e_score_correction_bias", GEN_SPARSE, GEN_ONE, GEN_EXPERTS, GEN_DENSE},
};

static const struct gen_key keys[] = {
	GEN_LITERAL("architectures", "[\"MiMoV2ForCausalLM\"]"),
	GEN_LITERAL("model_type", "\"mimo_v2\""),
	GEN_FIELD("vocab_size", vocab),
	GEN_FIELD("hidden_size", hidden),
	GEN_FIELD_TWICE("intermediate_size", intermediate),
	GEN_FIELD("moe_intermediate_size", intermediate),
	GEN_FIELD("num_hidden_layers", layers),
	GEN_KEY_OF(GEN_KEY_SPARSE_LAYERS, "moe_layer_freq"),
	GEN_FIELD("num_attention_heads", heads),
	GEN_FIELD("num_key_value_heads", heads),
	GEN_FIELD("n_routed_experts", experts),
	GEN_FIELD("num_experts_per_tok", top_k),
	GEN_LITERAL("layernorm_epsilon", "1e-06"),
	GEN_KEY_OF(GEN_KEY_LAST, NULL),
};

const struct gen_family gen_family_mimo = {
	.name = "mimo",
	.aliases = aliases,
	.prefixes = prefixes,
	.layer_block = "%Players.%L",
	.formats = GEN_FORMAT_BIT(GEN_MXFP4),
	.takes = GEN_TAKES_DENSE_LAYERS,
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
