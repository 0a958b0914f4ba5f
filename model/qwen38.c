/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Qwen3.8-Flash-Next as it was released: FP8 with a scale for each 128 times 128 weights, stored as F32, BF16 or F16; or
 * plain matrices, of each expert or of all experts of a layer in one tensor. Its MTP head is not loaded by the engine.
 */
#include "model/family.h"

#include "base/check.h"

enum { GATE, GATE_SCALE, UP, UP_SCALE, DOWN, DOWN_SCALE, ALL_GATE_UP, ALL_DOWN };

static const char *const names[] = {
	[GATE] = "%E.gate_proj.weight", [GATE_SCALE] = "%E.gate_proj.weight_scale_inv",
	[UP] = "%E.up_proj.weight",     [UP_SCALE] = "%E.up_proj.weight_scale_inv",
	[DOWN] = "%E.down_proj.weight", [DOWN_SCALE] = "%E.down_proj.weight_scale_inv",
	[ALL_GATE_UP] = "gate_up_proj", [ALL_DOWN] = "down_proj",
};
static const char *const model_types[] = {"qwen4_exp", "qwen4_exp_text", NULL};
static const char *const stems[] = {"model.language_model.layers.%L.mlp.experts.", "model.layers.%L.mlp.experts.",
				    "language_model.layers.%L.mlp.experts.", "layers.%L.mlp.experts.", NULL};
static const char *const routers[] = {"model.language_model.layers.%L.mlp.gate.weight",
				      "model.layers.%L.mlp.gate.weight", "language_model.layers.%L.mlp.gate.weight",
				      "layers.%L.mlp.gate.weight", NULL};
static const struct encoding *const encodings[] = {&encoding_fp8_b128, &encoding_bf16, &encoding_f16, &encoding_f32,
						   NULL};
static const struct encoding *const plain[] = {&encoding_bf16, &encoding_f16, &encoding_f32, NULL};

static const struct family_layout layouts[] = {
	{
		.tensor_count = 3,
		.tensor = {{GATE, GATE_SCALE, 1, {FAMILY_GATE}},
			   {UP, UP_SCALE, 1, {FAMILY_UP}},
			   {DOWN, DOWN_SCALE, 1, {FAMILY_DOWN}}},
		.encodings = encodings,
	},
	{
		.tensor_count = 2,
		.tensor = {{ALL_GATE_UP, FAMILY_NO_NAME, 2, {FAMILY_GATE, FAMILY_UP}},
			   {ALL_DOWN, FAMILY_NO_NAME, 1, {FAMILY_DOWN}}},
		.encodings = plain,
	},
};

const struct family family_qwen38 = {
	.name = "qwen38",
	.model_types = model_types,
	.capabilities = MODEL_CAP_EXPERT_CACHE | MODEL_CAP_DIRECT_IO,
	.state = FAMILY_STATE_POINTS,
	.layers = {{"num_hidden_layers", NULL}},
	.experts = {{"num_experts", NULL}},
	.top_k = {{"num_experts_per_tok", NULL}},
	.hidden = {{"hidden_size", NULL}},
	.intermediate = {{"moe_intermediate_size", NULL}},
	.stems = stems,
	.routers = routers,
	.name_count = CNRE_COUNT_OF(names),
	.layout_count = CNRE_COUNT_OF(layouts),
	.names = names,
	.layouts = layouts,
	.note = "scales that are not F32, and weights in f16, are widened to F32 by the engine",
};
