/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GLM-5.3-Flash: the pieces of GLM-5.2 with int4 weights in groups of 64, and nothing else. The wrapper for images nests
 * its config in text_config and names tensors model.language_model., the text model alone does neither.
 */
#include "model/family.h"

#include "base/check.h"

enum { GATE, GATE_SCALE, UP, UP_SCALE, DOWN, DOWN_SCALE };

static const char *const names[] = {
	[GATE] = "%E.gate_proj.weight", [GATE_SCALE] = "%E.gate_proj.weight.qs",
	[UP] = "%E.up_proj.weight",     [UP_SCALE] = "%E.up_proj.weight.qs",
	[DOWN] = "%E.down_proj.weight", [DOWN_SCALE] = "%E.down_proj.weight.qs",
};
static const char *const model_types[] = {"glm5_next", "glm5_next_text", NULL};
static const char *const stems[] = {"model.language_model.layers.%L.mlp.experts.", "model.layers.%L.mlp.experts.",
				    NULL};
static const char *const routers[] = {"model.language_model.layers.%L.mlp.gate.weight",
				      "model.layers.%L.mlp.gate.weight", NULL};
static const struct encoding *const encodings[] = {&encoding_int4_g64, NULL};

static const struct family_layout layouts[] = {
	{
		.tensor_count = 3,
		.tensor = {{GATE, GATE_SCALE, 1, {FAMILY_GATE}},
			   {UP, UP_SCALE, 1, {FAMILY_UP}},
			   {DOWN, DOWN_SCALE, 1, {FAMILY_DOWN}}},
		.encodings = encodings,
	},
};

const struct family family_glm53 = {
	.name = "glm53",
	.model_types = model_types,
	.capabilities = MODEL_CAP_EXPERT_CACHE | MODEL_CAP_DIRECT_IO,
	.mtp_rows = 1,
	.layers = {{"num_hidden_layers", NULL}},
	.experts = {{"n_routed_experts", NULL}},
	.top_k = {{"num_experts_per_tok", NULL}},
	.hidden = {{"hidden_size", NULL}},
	.intermediate = {{"moe_intermediate_size", NULL}},
	.dense_key = "first_k_dense_replace",
	.stems = stems,
	.routers = routers,
	.name_count = CNRE_COUNT_OF(names),
	.layout_count = CNRE_COUNT_OF(layouts),
	.names = names,
	.layouts = layouts,
};
