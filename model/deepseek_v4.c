/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DeepSeek V4 and V4.1 as they were released: packed FP4 weights, called I8, and one UE8M0 scale for 32 columns. An
 * expert's three scales lie before its three weights, in one file or, where experts were pruned, anywhere. Rows of the
 * MTP heads are named mtp.K.; those of V4.1 have fewer experts and another top-k. Tables of n-grams are no experts.
 */
#include "model/family.h"

#include "base/check.h"

enum { GATE, GATE_SCALE, DOWN, DOWN_SCALE, UP, UP_SCALE };

static const char *const names[] = {
	[GATE] = "%E.w1.weight",      [GATE_SCALE] = "%E.w1.scale", [DOWN] = "%E.w2.weight",
	[DOWN_SCALE] = "%E.w2.scale", [UP] = "%E.w3.weight",        [UP_SCALE] = "%E.w3.scale",
};
static const char *const model_types_v4[] = {"deepseek_v4", NULL};
static const char *const model_types_v41[] = {"deepseek_v41", "deepseek_v41_text", NULL};
static const char *const stems[] = {"layers.%L.ffn.experts.", "mtp.%M.ffn.experts.", NULL};
static const char *const routers[] = {"layers.%L.ffn.gate.weight", "mtp.%M.ffn.gate.weight", NULL};
static const struct encoding *const encodings[] = {&encoding_mxfp4, NULL};

static const struct family_layout layouts[] = {
	{
		.tensor_count = 3,
		.tensor = {{GATE, GATE_SCALE, 1, {FAMILY_GATE}},
			   {DOWN, DOWN_SCALE, 1, {FAMILY_DOWN}},
			   {UP, UP_SCALE, 1, {FAMILY_UP}}},
		.encodings = encodings,
	},
};

#define DEEPSEEK                                                                                              \
	.capabilities = MODEL_CAP_EXPERT_CACHE | MODEL_CAP_DIRECT_IO, .state = FAMILY_STATE_POINTS,           \
	.every_layer_is_sparse = 1, .mtp_rows = FAMILY_MTP_MAX, .layers = {{"num_hidden_layers", NULL}},      \
	.experts = {{"n_routed_experts", NULL}}, .top_k = {{"num_experts_per_tok", NULL}},                    \
	.hidden = {{"hidden_size", NULL}}, .intermediate = {{"moe_intermediate_size", NULL}}, .stems = stems, \
	.routers = routers, .name_count = CNRE_COUNT_OF(names), .layout_count = CNRE_COUNT_OF(layouts),       \
	.names = names, .layouts = layouts,                                                                   \
	.note = "rows may be packed by the engine for its kernels: never in place, the bytes are everybody's"

const struct family family_deepseek_v4 = {.name = "deepseek_v4", .model_types = model_types_v4, DEEPSEEK};
const struct family family_deepseek_v41 = {
	.name = "deepseek_v41",
	.model_types = model_types_v41,
	DEEPSEEK,
	.mtp_experts = {{"dspark_n_routed_experts", NULL}},
	.mtp_top_k = {{"dspark_num_experts_per_tok", NULL}},
};
