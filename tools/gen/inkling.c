/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inkling: one tensor for the gates and ups of all experts of a layer and one for all downs, each with its scales
 * beside it. In the multimodal config.json intermediate_size is that of an expert, where dense_intermediate_size
 * stands beside it; exports of the text model call the same moe_intermediate_size.
 */
#include "tools/gen/family.h"

#include "base/check.h"
#include "tools/gen/tensor.h"

static const char *const aliases[] = {"inkling", "inklingmmmodel", NULL};
static const char *const prefixes[] = {"model.", NULL};

#define FORMATS (GEN_FORMAT_BIT(GEN_INT4_ROW) | GEN_FORMAT_BIT(GEN_INT8_ROW) | GEN_PLAIN)

static const struct gen_piece pieces[] = {
	{"%B.mlp.experts.gate_up_proj", 0, GEN_HAS_GATE | GEN_HAS_UP, GEN_PIECE},
	{"%B.mlp.experts.gate_up_proj.qs", 1, GEN_HAS_GATE | GEN_HAS_UP, GEN_PIECE},
	{"%B.mlp.experts.down_proj", 0, GEN_HAS_DOWN, GEN_PIECE},
	{"%B.mlp.experts.down_proj.qs", 1, GEN_HAS_DOWN, GEN_PIECE},
};
static const struct gen_arrangement arrangements[] = {{FORMATS, CNRE_COUNT_OF(pieces), pieces}};

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
	{"%B.mlp.shared_experts.gate_proj", GEN_SPARSE, GEN_INTERMEDIATE, GEN_HIDDEN, GEN_DENSE},
	{"%B.mlp.shared_experts.up_proj", GEN_SPARSE, GEN_INTERMEDIATE, GEN_HIDDEN, GEN_DENSE},
	{"%B.mlp.shared_experts.down_proj", GEN_SPARSE, GEN_HIDDEN, GEN_INTERMEDIATE, GEN_DENSE},
};

static const struct gen_key keys[] = {
	GEN_LITERAL("architectures", "[\"InklingForConditionalGeneration\"]"),
	GEN_LITERAL("model_type", "\"inkling_mm_model\""),
	GEN_KEY_OF(GEN_KEY_OBJECT, "text_config"),
	GEN_LITERAL("model_type", "\"inkling\""),
	GEN_FIELD("vocab_size", vocab),
	GEN_FIELD("hidden_size", hidden),
	GEN_FIELD_AS(GEN_KEY_FIELD_TWICE, GEN_ONLY_NESTED, "dense_intermediate_size", intermediate),
	GEN_FIELD_AS(GEN_KEY_FIELD, GEN_ONLY_NESTED, "intermediate_size", intermediate),
	GEN_FIELD_AS(GEN_KEY_FIELD_TWICE, GEN_ONLY_FLAT, "intermediate_size", intermediate),
	GEN_FIELD_AS(GEN_KEY_FIELD, GEN_ONLY_FLAT, "moe_intermediate_size", intermediate),
	GEN_FIELD("num_hidden_layers", layers),
	GEN_FIELD("dense_mlp_idx", dense_layers),
	GEN_FIELD("num_attention_heads", heads),
	GEN_FIELD("n_routed_experts", experts),
	GEN_FIELD("num_experts_per_tok", top_k),
	GEN_LITERAL("n_shared_experts", "2"),
	GEN_LITERAL("rms_norm_eps", "1e-06"),
	GEN_KEY_OF(GEN_KEY_END, NULL),
	GEN_KEY_OF(GEN_KEY_LAST, NULL),
};

const struct gen_family gen_family_inkling = {
	.name = "inkling",
	.aliases = aliases,
	.prefixes = prefixes,
	.layer_block = "%Players.%L",
	.formats = FORMATS,
	.takes = GEN_TAKES_DENSE_LAYERS | GEN_TAKES_CONFIG,
	.default_format = GEN_INT4_ROW,
	.dense_format = GEN_BF16,
	.mtp_format = GEN_FORMATS,
	.shard_names = GEN_NAMES_HF,
	.is_u8 = 1,
	.arrangement_count = CNRE_COUNT_OF(arrangements),
	.dense_count = CNRE_COUNT_OF(dense),
	.arrangements = arrangements,
	.dense = dense,
	.keys = keys,
};
