/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Qwen3.6 as Colibri's converter writes it: gate, up and down merged into one tensor, int8 or int4, and their scales into
 * another. Whether those are for rows or for groups of columns stands in qwen36_meta.json; without it they are for rows.
 * Down may be int8 behind int4 gate and up: the number of bytes says so, and the same file its group.
 */
#include "model/family.h"

#include "base/check.h"

enum { MERGED, SCALES };

static const char *const names[] = {[MERGED] = "%E.merged_weight", [SCALES] = "%E.qs"};
static const char *const model_types[] = {"qwen3_5_moe", "qwen3_5_moe_text", NULL};
static const char *const stems[] = {"model.layers.%L.mlp.experts.", NULL};
static const char *const routers[] = {"model.layers.%L.mlp.gate.weight", NULL};
static const struct encoding *const encodings[] = {&encoding_int8_group, &encoding_int4_group, NULL};

static const struct encoding *const last_encodings[] = {&encoding_int8_group, NULL};

static const struct family_layout layouts[] = {
	{
		.tensor_count = 1,
		.tensor = {{MERGED, SCALES, 3, {FAMILY_GATE, FAMILY_UP, FAMILY_DOWN}}},
		.encodings = encodings,
	},
};

const struct family family_qwen36 = {
	.name = "qwen36",
	.model_types = model_types,
	.capabilities = MODEL_CAP_EXPERT_CACHE | MODEL_CAP_DIRECT_IO,
	.state = FAMILY_STATE_POINTS,
	.layers = {{"num_hidden_layers", NULL}},
	.experts = {{"num_experts", NULL}},
	.top_k = {{"num_experts_per_tok", NULL}},
	.hidden = {{"hidden_size", NULL}},
	.intermediate = {{"moe_intermediate_size", NULL}},
	.group_file = "qwen36_meta.json",
	.group_key = "expert_gs",
	.last_encodings = last_encodings,
	.last_group_key = "expert_down_gs",
	.stems = stems,
	.routers = routers,
	.name_count = CNRE_COUNT_OF(names),
	.layout_count = CNRE_COUNT_OF(layouts),
	.names = names,
	.layouts = layouts,
	.note = "int4 pairs are unpacked by the engine into a layout of its own",
};
