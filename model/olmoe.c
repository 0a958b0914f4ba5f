/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OLMoE, in two containers. Colibri's converter merges gate, up and down into one tensor of int8 rows, stored as I8 or
 * U8; both hold two's complement bytes, so parts are always given as I8. Its scales are one F32 a row, merged alike.
 * The original files have three plain matrices an expert.
 */
#include "model/family.h"

#include "base/check.h"
#include "model/view.h"

enum { MERGED, SCALES, GATE, UP, DOWN };

static const char *const names[] = {
	[MERGED] = "model.layers.%L.mlp.experts.%E.merged_weight",
	[SCALES] = "model.layers.%L.mlp.experts.%E.qs",
	[GATE] = "model.layers.%L.mlp.experts.%E.gate_proj.weight",
	[UP] = "model.layers.%L.mlp.experts.%E.up_proj.weight",
	[DOWN] = "model.layers.%L.mlp.experts.%E.down_proj.weight",
};

#define PLAIN (FAMILY_STORED(MODEL_BF16) | FAMILY_STORED(MODEL_F16) | FAMILY_STORED(MODEL_F32))
#define INTO FAMILY_INTERMEDIATE, FAMILY_HIDDEN   /* rows, columns of gate and up */
#define OUT_OF FAMILY_HIDDEN, FAMILY_INTERMEDIATE /* of down */

static const struct family_format formats[] = {
	{
		.name = "int8-row",
		.tensor_count = 2,
		.tensor =
			{
				{MERGED,
				 MODEL_I8,
				 3,
				 FAMILY_STORED(MODEL_I8) | FAMILY_STORED(MODEL_U8),
				 {{MODEL_GATE, INTO, 1, 0, 0},
				  {MODEL_UP, INTO, 1, 0, 0},
				  {MODEL_DOWN, OUT_OF, 1, 0, 0}}},
				{SCALES,
				 MODEL_F32,
				 3,
				 FAMILY_STORED(MODEL_F32),
				 {{MODEL_GATE_SCALE, FAMILY_INTERMEDIATE, FAMILY_ONE, 1, 1, 0},
				  {MODEL_UP_SCALE, FAMILY_INTERMEDIATE, FAMILY_ONE, 1, 1, 0},
				  {MODEL_DOWN_SCALE, FAMILY_HIDDEN, FAMILY_ONE, 1, 1, 0}}},
			},
	},
	{
		.name = "plain",
		.tensor_count = 3,
		.tensor =
			{
				{GATE, MODEL_DTYPE_OTHER, 1, PLAIN, {{MODEL_GATE, INTO, 1, 0, 0}}},
				{UP, MODEL_DTYPE_OTHER, 1, PLAIN, {{MODEL_UP, INTO, 1, 0, 0}}},
				{DOWN, MODEL_DTYPE_OTHER, 1, PLAIN, {{MODEL_DOWN, OUT_OF, 1, 0, 0}}},
			},
	},
};

static const struct model_view *const views[] = {&view_rows16, NULL};

const struct family family_olmoe = {
	.name = "olmoe",
	.model_type = "olmoe",
	.capabilities = MODEL_CAP_EXPERT_CACHE | MODEL_CAP_DIRECT_IO,
	.layers_key = "num_hidden_layers",
	.experts_key = "num_experts",
	.top_k_key = "num_experts_per_tok",
	.hidden_key = "hidden_size",
	.intermediate_key = "intermediate_size",
	.name_count = CNRE_COUNT_OF(names),
	.format_count = CNRE_COUNT_OF(formats),
	.names = names,
	.formats = formats,
	.views = views,
};
