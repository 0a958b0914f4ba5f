/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inkling: one tensor a layer holds gate and up of all experts, another down, each with its scales beside it. An expert
 * is a slice of each. Where config.json tells two sizes apart, intermediate_size is the experts'; else that is the dense
 * layers'. Its router has rows for shared experts too, so it says nothing about how many there are.
 */
#include "model/family.h"

#include "base/check.h"

enum { GATE_UP, GATE_UP_SCALE, DOWN, DOWN_SCALE };

static const char *const names[] = {
	[GATE_UP] = "gate_up_proj",
	[GATE_UP_SCALE] = "gate_up_proj.qs",
	[DOWN] = "down_proj",
	[DOWN_SCALE] = "down_proj.qs",
};
static const char *const model_types[] = {"inkling_mm_model", "inkling", NULL};
static const char *const stems[] = {"model.layers.%L.mlp.experts.", NULL};
static const struct encoding *const encodings[] = {&encoding_int8_row, &encoding_int4_row, &encoding_bf16,
						   &encoding_f16,      &encoding_f32,      NULL};

static const struct family_layout layouts[] = {
	{
		.tensor_count = 2,
		.tensor = {{GATE_UP, GATE_UP_SCALE, 2, {FAMILY_GATE, FAMILY_UP}}, {DOWN, DOWN_SCALE, 1, {FAMILY_DOWN}}},
		.encodings = encodings,
	},
};

const struct family family_inkling = {
	.name = "inkling",
	.model_types = model_types,
	.capabilities = MODEL_CAP_EXPERT_CACHE | MODEL_CAP_DIRECT_IO,
	.state = FAMILY_STATE_POINTS,
	.layers = {{"num_hidden_layers", NULL}},
	.experts = {{"n_routed_experts", NULL}},
	.top_k = {{"num_experts_per_tok", NULL}},
	.hidden = {{"hidden_size", NULL}},
	.intermediate = {{"intermediate_size", "dense_intermediate_size"}, {"moe_intermediate_size", NULL}},
	.stems = stems,
	.name_count = CNRE_COUNT_OF(names),
	.layout_count = CNRE_COUNT_OF(layouts),
	.unit_count = 2,
	.names = names,
	.layouts = layouts,
	.unit = {{2, {MODEL_GATE, MODEL_UP}}, {2, {MODEL_GATE_SCALE, MODEL_UP_SCALE}}},
	.note = "originals (bf16, f16, f32) are widened or quantised by the engine when it loads them",
};
