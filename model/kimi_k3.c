/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kimi K3: MXFP4 as it was released, an expert's six tensors back to back in the order of units below. Its experts are
 * latent: between two projections that the engine keeps, they take and give vectors of routed_expert_hidden_size, which
 * so stands for the hidden size here.
 */
#include "model/family.h"

#include "base/check.h"

enum { GATE, GATE_SCALE, DOWN, DOWN_SCALE, UP, UP_SCALE };

static const char *const names[] = {
	[GATE] = "%E.w1.weight_packed",      [GATE_SCALE] = "%E.w1.weight_scale", [DOWN] = "%E.w2.weight_packed",
	[DOWN_SCALE] = "%E.w2.weight_scale", [UP] = "%E.w3.weight_packed",        [UP_SCALE] = "%E.w3.weight_scale",
};
static const char *const model_types[] = {"kimi_k3", "kimi_linear", NULL};
static const char *const stems[] = {"language_model.model.layers.%L.block_sparse_moe.experts.",
				    "model.layers.%L.block_sparse_moe.experts.", NULL};
static const char *const routers[] = {"language_model.model.layers.%L.block_sparse_moe.gate.weight",
				      "model.layers.%L.block_sparse_moe.gate.weight", NULL};
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

const struct family family_kimi_k3 = {
	.name = "kimi_k3",
	.model_types = model_types,
	.capabilities = MODEL_CAP_EXPERT_CACHE | MODEL_CAP_DIRECT_IO,
	.state = FAMILY_STATE_POINTS,
	.layers = {{"num_hidden_layers", NULL}},
	.experts = {{"num_experts", NULL}},
	.top_k = {{"num_experts_per_token", NULL}, {"num_experts_per_tok", NULL}},
	.hidden = {{"routed_expert_hidden_size", NULL}},
	.intermediate = {{"moe_intermediate_size", NULL}},
	.dense_key = "first_k_dense_replace",
	.stems = stems,
	.routers = routers,
	.name_count = CNRE_COUNT_OF(names),
	.layout_count = CNRE_COUNT_OF(layouts),
	.unit_count = 1,
	.names = names,
	.layouts = layouts,
	.unit = {{6, {MODEL_GATE, MODEL_GATE_SCALE, MODEL_DOWN, MODEL_DOWN_SCALE, MODEL_UP, MODEL_UP_SCALE}}},
};
