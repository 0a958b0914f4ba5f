/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GLM-5.2 as Colibri's converter writes it: gate, up and down of an expert one after the other, each quantised on its own,
 * the scales in tensors of their names and .qs. No container says which format a routed expert has, so the engine decides
 * by bytes in the order below, groups from the finest on; where int8 rows and FP8 blocks cannot be told apart it takes
 * int8. The row of the MTP head is layer num_hidden_layers, and often int8 among int4. Originals have no .qs.
 */
#include "model/family.h"

#include "base/check.h"

enum { GATE, GATE_SCALE, UP, UP_SCALE, DOWN, DOWN_SCALE };

static const char *const names[] = {
	[GATE] = "%E.gate_proj.weight", [GATE_SCALE] = "%E.gate_proj.weight.qs",
	[UP] = "%E.up_proj.weight",     [UP_SCALE] = "%E.up_proj.weight.qs",
	[DOWN] = "%E.down_proj.weight", [DOWN_SCALE] = "%E.down_proj.weight.qs",
};
static const char *const model_types[] = {"glm_moe_dsa", "glm5_moe", "glm", NULL};
static const char *const stems[] = {"model.layers.%L.mlp.experts.", NULL};
static const char *const routers[] = {"model.layers.%L.mlp.gate.weight", NULL};
static const struct encoding *const encodings[] = {
	&encoding_e8,        &encoding_int8_row,  &encoding_int4_row,
	&encoding_int4_g16,  &encoding_int4_g32,  &encoding_int4_g48,
	&encoding_int4_g64,  &encoding_int4_g96,  &encoding_int4_g128,
	&encoding_int4_g192, &encoding_int4_g256, &encoding_int2_row,
	&encoding_int3_g64,  &encoding_fp8_b128,  &encoding_bf16,
	&encoding_f16,       &encoding_f32,       NULL,
};

static const struct family_layout layouts[] = {
	{
		.tensor_count = 3,
		.tensor = {{GATE, GATE_SCALE, 1, {FAMILY_GATE}},
			   {UP, UP_SCALE, 1, {FAMILY_UP}},
			   {DOWN, DOWN_SCALE, 1, {FAMILY_DOWN}}},
		.encodings = encodings,
	},
};

const struct family family_glm = {
	.name = "glm",
	.model_types = model_types,
	.capabilities = MODEL_CAP_EXPERT_CACHE | MODEL_CAP_DIRECT_IO,
	.state = FAMILY_STATE_ANY_TOKEN,
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
	.note = "originals (bf16, f16, f32) are quantised by the engine when it loads them",
};
