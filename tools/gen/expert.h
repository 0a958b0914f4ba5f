/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of experts: the pieces of a family's arrangement, with the sizes that a format gives them. */
#ifndef CNRE_TOOLS_GEN_EXPERT_H
#define CNRE_TOOLS_GEN_EXPERT_H

#include "tools/gen/tensor.h"

struct gen_tensors { /* a list that grows */
	const struct gen_model *model;
	struct gen_tensor *tensor;
	uint64_t count, room;
	int result;                       /* -ENOMEM: it did not; then nothing more is added */
};

/* Adds a tensor of these elements: rows x columns of them, or, of more than two dimensions, their product. */
void gen_tensors_add(struct gen_tensors *list, struct gen_tensor tensor, struct gen_element element, uint8_t fill);

void gen_tensors_add_experts(struct gen_tensors *list, uint32_t layer);

#endif
