/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a checkpoint of the OLMoE family: which there are, their names, types and shapes. */
#ifndef CNRE_TOOLS_GEN_TENSOR_H
#define CNRE_TOOLS_GEN_TENSOR_H

#include "tools/gen/model.h"

#include <stddef.h>
#include <stdint.h>

#define GEN_NAME_BYTES 96

enum gen_kind {
	GEN_EMBED, GEN_LM_HEAD, GEN_NORM,                                 /* one each */
	GEN_INPUT_NORM, GEN_POST_NORM, GEN_Q, GEN_K, GEN_V, GEN_O, GEN_Q_NORM, GEN_K_NORM, GEN_ROUTER, /* of a layer */
	GEN_MERGED, GEN_SCALES, GEN_EXPERT_GATE, GEN_EXPERT_UP, GEN_EXPERT_DOWN,                       /* of an expert */
};

struct gen_tensor {
	uint8_t kind;                     /* enum gen_kind */
	uint8_t element_bytes;
	uint32_t layer, expert;
	uint32_t rows, columns;           /* rows 1 with one dimension */
	const char *dtype;                /* as safetensors spells it */
	uint64_t bytes;
};

/* All tensors in file order. A number, or -ENOMEM; free *ret_tensors. */
int64_t gen_tensor_list(const struct gen_model *model, struct gen_tensor **ret_tensors);

int gen_tensor_is_expert(const struct gen_tensor *tensor);
/* A tensor that has to stay in one shard with the one before it. */
int gen_tensor_continues(const struct gen_tensor *tensor);
const char *gen_tensor_name(const struct gen_tensor *tensor, char text[GEN_NAME_BYTES]);

#endif
