/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A vector as int8 in blocks of 16, each with its own scale, to meet int8 weights with integer products. This is
 * what Colibri's OLMoE engine does on a CPU with AVX2 for rows of whole blocks up to 4096 columns; we do it on
 * every CPU, for the same rows, so that the same checkpoint gives the same tokens there and here. Other rows meet
 * the vector as F32.
 */
#ifndef ENGINE_QUANTISED_H
#define ENGINE_QUANTISED_H

#include "engine/kernel.h"

#include <stdbool.h>
#include <stdint.h>

#define QUANTISED_BLOCK 16u
#define QUANTISED_COLUMNS_MAX 4096u

struct quantised {
	_Alignas(64) int8_t value[QUANTISED_COLUMNS_MAX];         /* zero from columns on to a whole KERNEL_GROUP */
	_Alignas(64) float scale[QUANTISED_COLUMNS_MAX / KERNEL_QUAD]; /* a quad's is its block's; then zero */
};

/* Whether products with this matrix take a quantised vector. */
bool quantised_applies(const struct matrix *matrix);

/* columns must satisfy quantised_applies. */
void quantised_make(struct quantised *ret_quantised, const float *x, uint32_t columns);

#endif
