/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OLMoE, in two containers. Colibri's converter merges gate, up and down into one tensor of int8 rows, stored as I8 or
 * U8, and their scales, one F32 a row, into another. The original files have three plain matrices an expert.
 */
#include "model/family.h"

#include "base/check.h"
#include "model/view.h"

enum { MERGED, SCALES, GATE, UP, DOWN };

static const char *const names[] = {
	[MERGED] = "%E.merged_weight",  [SCALES] = "%E.qs", [GATE] = "%E.gate_proj.weight", [UP] = "%E.up_proj.weight",
	[DOWN] = "%E.down_proj.weight",
};
static const char *const model_types[] = {"olmoe", NULL};
static const char *const stems[] = {"model.layers.%L.mlp.experts.", NULL};
static const char *const routers[] = {"model.layers.%L.mlp.gate.weight", NULL};
static const struct encoding *const rows[] = {&encoding_int8_row, NULL};
static const struct encoding *const plain[] = {&encoding_bf16, &encoding_f16, &encoding_f32, NULL};

static const struct family_layout layouts[] = {
	{
		.tensor_count = 1,
		.tensor = {{MERGED, SCALES, 3, {FAMILY_GATE, FAMILY_UP, FAMILY_DOWN}}},
		.encodings = rows,
	},
	{
		.tensor_count = 3,
		.tensor = {{GATE, FAMILY_NO_NAME, 1, {FAMILY_GATE}},
			   {UP, FAMILY_NO_NAME, 1, {FAMILY_UP}},
			   {DOWN, FAMILY_NO_NAME, 1, {FAMILY_DOWN}}},
		.encodings = plain,
	},
};

static const struct model_view *const views[] = {&view_rows16, NULL};

const struct family family_olmoe = {
	.name = "olmoe",
	.model_types = model_types,
	.capabilities = MODEL_CAP_EXPERT_CACHE | MODEL_CAP_DIRECT_IO,
	.state = FAMILY_STATE_ANY_TOKEN,
	.layers = {{"num_hidden_layers", NULL}},
	.experts = {{"num_experts", NULL}},
	.top_k = {{"num_experts_per_tok", NULL}},
	.hidden = {{"hidden_size", NULL}},
	.intermediate = {{"intermediate_size", NULL}},
	.stems = stems,
	.routers = routers,
	.name_count = CNRE_COUNT_OF(names),
	.layout_count = CNRE_COUNT_OF(layouts),
	.names = names,
	.layouts = layouts,
	.views = views,
};
