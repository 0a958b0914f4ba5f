/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GLM-5.3-Flash: GLM-5.2's tensors, int4 in groups of 64, under the names of a multimodal model, or without that prefix
 * as exports of the text model have them.
 */
#include "tools/gen/family.h"

#include "base/check.h"
#include "tools/gen/tensor.h"

static const char *const aliases[] = {"glm53", "glm53flash", "glm5next", NULL};
static const char *const prefixes[] = {"model.language_model.", "model.", NULL};

static const struct gen_piece pieces[] = {
	{"%B.mlp.experts.%E.gate_proj.weight", 0, GEN_HAS_GATE, GEN_PIECE},
	{"%B.mlp.experts.%E.up_proj.weight", 0, GEN_HAS_UP, GEN_PIECE},
	{"%B.mlp.experts.%E.down_proj.weight", 0, GEN_HAS_DOWN, GEN_PIECE},
	{"%B.mlp.experts.%E.gate_proj.weight.qs", 1, GEN_HAS_GATE, GEN_PIECE},
	{"%B.mlp.experts.%E.up_proj.weight.qs", 1, GEN_HAS_UP, GEN_PIECE},
	{"%B.mlp.experts.%E.down_proj.weight.qs", 1, GEN_HAS_DOWN, GEN_PIECE},
};
static const struct gen_arrangement arrangements[] = {{GEN_FORMAT_BIT(GEN_INT4_GS64), CNRE_COUNT_OF(pieces), pieces}};

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
	{"%B.mlp.shared_experts.gate_proj.weight", GEN_SPARSE, GEN_INTERMEDIATE, GEN_HIDDEN, GEN_DENSE},
	{"%B.mlp.shared_experts.up_proj.weight", GEN_SPARSE, GEN_INTERMEDIATE, GEN_HIDDEN, GEN_DENSE},
	{"%B.mlp.shared_experts.down_proj.weight", GEN_SPARSE, GEN_HIDDEN, GEN_INTERMEDIATE, GEN_DENSE},
};

static const struct gen_key keys[] = {
	GEN_LITERAL("architectures", "[\"Glm5NextForConditionalGeneration\"]"),
	GEN_LITERAL("model_type", "\"glm5_next\""),
	GEN_KEY_OF(GEN_KEY_OBJECT, "text_config"),
	GEN_LITERAL("model_type", "\"glm5_next\""),
	GEN_FIELD("vocab_size", vocab),
	GEN_FIELD("hidden_size", hidden),
	GEN_FIELD_TWICE("intermediate_size", intermediate),
	GEN_FIELD("moe_intermediate_size", intermediate),
	GEN_FIELD("num_hidden_layers", layers),
	GEN_FIELD("first_k_dense_replace", dense_layers),
	GEN_FIELD("num_attention_heads", heads),
	GEN_FIELD("n_routed_experts", experts),
	GEN_FIELD("num_experts_per_tok", top_k),
	GEN_LITERAL("n_shared_experts", "1"),
	GEN_FIELD_IF("num_nextn_predict_layers", mtp),
	GEN_LITERAL("rms_norm_eps", "1e-05"),
	GEN_KEY_OF(GEN_KEY_END, NULL),
	GEN_KEY_OF(GEN_KEY_LAST, NULL),
};

const struct gen_family gen_family_glm53 = {
	.name = "glm53",
	.aliases = aliases,
	.prefixes = prefixes,
	.layer_block = "%Players.%L",
	.formats = GEN_FORMAT_BIT(GEN_INT4_GS64),
	.takes = GEN_TAKES_DENSE_LAYERS | GEN_TAKES_MTP | GEN_TAKES_CONFIG,
	.default_format = GEN_INT4_GS64,
	.dense_format = GEN_BF16,
	.mtp_format = GEN_FORMATS,
	.shard_names = GEN_NAMES_CONVERTER,
	.is_flat = 1,
	.is_u8 = 1,
	.arrangement_count = CNRE_COUNT_OF(arrangements),
	.dense_count = CNRE_COUNT_OF(dense),
	.arrangements = arrangements,
	.dense = dense,
	.keys = keys,
};
