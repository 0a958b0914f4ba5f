/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MiMo-V2.6 as it was released: MXFP4, an expert's six tensors back to back in the order of units below. Which layers are
 * sparse stands in a list of config.json that nobody here needs: a layer without expert tensors is dense.
 */
#include "model/family.h"

#include "base/check.h"

enum { DOWN, DOWN_SCALE, GATE, GATE_SCALE, UP, UP_SCALE };

static const char *const names[] = {
	[DOWN] = "%E.down_proj.weight", [DOWN_SCALE] = "%E.down_proj.weight_scale",
	[GATE] = "%E.gate_proj.weight", [GATE_SCALE] = "%E.gate_proj.weight_scale",
	[UP] = "%E.up_proj.weight",     [UP_SCALE] = "%E.up_proj.weight_scale",
};
static const char *const model_types[] = {"mimo_v2", NULL};
static const char *const stems[] = {"model.layers.%L.mlp.experts.", NULL};
static const char *const routers[] = {"model.layers.%L.mlp.gate.weight", NULL};
static const struct encoding *const encodings[] = {&encoding_mxfp4, NULL};

static const struct family_layout layouts[] = {
	{
		.tensor_count = 3,
		.tensor = {{DOWN, DOWN_SCALE, 1, {FAMILY_DOWN}},
			   {GATE, GATE_SCALE, 1, {FAMILY_GATE}},
			   {UP, UP_SCALE, 1, {FAMILY_UP}}},
		.encodings = encodings,
	},
};

const struct family family_mimo = {
	.name = "mimo",
	.model_types = model_types,
	.capabilities = MODEL_CAP_EXPERT_CACHE | MODEL_CAP_DIRECT_IO,
	.state = FAMILY_STATE_POINTS,
	.layers = {{"num_hidden_layers", NULL}},
	.experts = {{"n_routed_experts", NULL}},
	.top_k = {{"num_experts_per_tok", NULL}},
	.hidden = {{"hidden_size", NULL}},
	.intermediate = {{"moe_intermediate_size", NULL}},
	.stems = stems,
	.routers = routers,
	.name_count = CNRE_COUNT_OF(names),
	.layout_count = CNRE_COUNT_OF(layouts),
	.unit_count = 1,
	.names = names,
	.layouts = layouts,
	.unit = {{6, {MODEL_DOWN, MODEL_DOWN_SCALE, MODEL_GATE, MODEL_GATE_SCALE, MODEL_UP, MODEL_UP_SCALE}}},
};
