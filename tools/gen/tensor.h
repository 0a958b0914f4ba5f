/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a checkpoint, made from the tables of its family: which there are, their names, types and shapes. */
#ifndef CNRE_TOOLS_GEN_TENSOR_H
#define CNRE_TOOLS_GEN_TENSOR_H

#include "tools/gen/model.h"

#include <stddef.h>
#include <stdint.h>

#define GEN_NAME_BYTES 128
#define GEN_RANK_MAX 3u

/* What payload.h and structure.h have to tell apart: all of OLMoE's, since an engine runs it. */
enum gen_kind {
	GEN_EMBED, GEN_LM_HEAD, GEN_NORM,                                 /* one each */
	GEN_INPUT_NORM, GEN_POST_NORM, GEN_Q, GEN_K, GEN_V, GEN_O, GEN_Q_NORM, GEN_K_NORM, GEN_ROUTER, /* of a layer */
	GEN_DENSE,                                                        /* of another family */
	GEN_MERGED, GEN_SCALES, GEN_EXPERT_GATE, GEN_EXPERT_UP, GEN_EXPERT_DOWN,                       /* of an expert */
	GEN_PIECE,                                                        /* of another family's expert, or experts */
};

struct gen_tensor {
	const char *pattern;
	const char *dtype;                /* as safetensors spells it */
	uint64_t bytes;
	uint32_t layer, expert;           /* layer: MTP rows after the last */
	uint32_t rows, columns;           /* elements; rows 1 with one dimension */
	uint64_t dimension[GEN_RANK_MAX];
	uint8_t rank, kind, fill, element_bytes;
	uint8_t continues;                /* has to stay in one shard with the one before it */
};

/* All tensors in file order. A number, or -ENOMEM; free *ret_tensors. */
int64_t gen_tensor_list(const struct gen_model *model, struct gen_tensor **ret_tensors);

int gen_tensor_is_expert(const struct gen_tensor *tensor);
const char *gen_tensor_name(const struct gen_model *model, const struct gen_tensor *tensor, char text[GEN_NAME_BYTES]);

#endif
