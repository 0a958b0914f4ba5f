/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OLMoE as Colibri's converter writes it: gate, up and down merged into one tensor of int8 rows, their scales into
 * another. The original files have three plain matrices. The only family whose dense weights are complete, since the
 * reference engine runs it.
 */
#include "tools/gen/family.h"

#include "base/check.h"
#include "tools/gen/tensor.h"

static const char *const aliases[] = {"olmoe", NULL};
static const char *const prefixes[] = {"model.", NULL};

static const struct gen_piece merged[] = {
	{"%B.mlp.experts.%E.merged_weight", 0, GEN_HAS_GATE | GEN_HAS_UP | GEN_HAS_DOWN, GEN_MERGED},
	{"%B.mlp.experts.%E.qs", 1, GEN_HAS_GATE | GEN_HAS_UP | GEN_HAS_DOWN, GEN_SCALES},
};
static const struct gen_piece plain[] = {
	{"%B.mlp.experts.%E.gate_proj.weight", 0, GEN_HAS_GATE, GEN_EXPERT_GATE},
	{"%B.mlp.experts.%E.up_proj.weight", 0, GEN_HAS_UP, GEN_EXPERT_UP},
	{"%B.mlp.experts.%E.down_proj.weight", 0, GEN_HAS_DOWN, GEN_EXPERT_DOWN},
};
static const struct gen_arrangement arrangements[] = {
	{GEN_FORMAT_BIT(GEN_INT8_ROW), CNRE_COUNT_OF(merged), merged},
	{GEN_PLAIN, CNRE_COUNT_OF(plain), plain},
};

static const struct gen_dense dense[] = {
	{"%Pembed_tokens.weight", GEN_OUTER, GEN_VOCAB, GEN_HIDDEN, GEN_EMBED},
	{"lm_head.weight", GEN_OUTER, GEN_VOCAB, GEN_HIDDEN, GEN_LM_HEAD},
	{"%Pnorm.weight", GEN_OUTER, GEN_ONE, GEN_HIDDEN, GEN_NORM},
	{"%B.input_layernorm.weight", GEN_EACH, GEN_ONE, GEN_HIDDEN, GEN_INPUT_NORM},
	{"%B.post_attention_layernorm.weight", GEN_EACH, GEN_ONE, GEN_HIDDEN, GEN_POST_NORM},
	{"%B.self_attn.q_proj.weight", GEN_EACH, GEN_HIDDEN, GEN_HIDDEN, GEN_Q},
	{"%B.self_attn.k_proj.weight", GEN_EACH, GEN_HIDDEN, GEN_HIDDEN, GEN_K},
	{"%B.self_attn.v_proj.weight", GEN_EACH, GEN_HIDDEN, GEN_HIDDEN, GEN_V},
	{"%B.self_attn.o_proj.weight", GEN_EACH, GEN_HIDDEN, GEN_HIDDEN, GEN_O},
	{"%B.self_attn.q_norm.weight", GEN_EACH, GEN_ONE, GEN_HIDDEN, GEN_Q_NORM},
	{"%B.self_attn.k_norm.weight", GEN_EACH, GEN_ONE, GEN_HIDDEN, GEN_K_NORM},
	{"%B.mlp.gate.weight", GEN_SPARSE, GEN_EXPERTS, GEN_HIDDEN, GEN_ROUTER},
};

static const struct gen_key keys[] = {
	GEN_LITERAL("architectures", "[\n  \"OlmoeForCausalLM\"\n ]"),
	GEN_LITERAL("model_type", "\"olmoe\""),
	GEN_FIELD("hidden_size", hidden),
	GEN_FIELD("num_hidden_layers", layers),
	GEN_FIELD("num_attention_heads", heads),
	GEN_FIELD("num_key_value_heads", heads),
	GEN_FIELD("num_experts", experts),
	GEN_FIELD("num_experts_per_tok", top_k),
	GEN_FIELD("intermediate_size", intermediate),
	GEN_FIELD("vocab_size", vocab),
	GEN_LITERAL("rope_theta", "10000.0"),
	GEN_LITERAL("rms_norm_eps", "1e-05"),
	GEN_LITERAL("norm_topk_prob", "false"),
	GEN_KEY_OF(GEN_KEY_LAST, NULL),
};

const struct gen_family gen_family_olmoe = {
	.name = "olmoe",
	.aliases = aliases,
	.prefixes = prefixes,
	.layer_block = "%Players.%L",
	.formats = GEN_FORMAT_BIT(GEN_INT8_ROW) | GEN_PLAIN,
	.takes = GEN_TAKES_POPULARITY,
	.default_format = GEN_INT8_ROW,
	.dense_format = GEN_F32,
	.mtp_format = GEN_FORMATS,
	.shard_names = GEN_NAMES_HF,
	.is_flat = 1,
	.is_merged = 1,
	.arrangement_count = CNRE_COUNT_OF(arrangements),
	.dense_count = CNRE_COUNT_OF(dense),
	.arrangements = arrangements,
	.dense = dense,
	.keys = keys,
};
