/* SPDX-License-Identifier: Apache-2.0 */
/* See quantised.h. Rounding is to nearest, ties to even; a block's largest magnitude becomes 127. */
#include "engine/quantised.h"

#include "cnre/cnre.h"

#include <math.h>
#include <string.h>

#define SCALE_MIN 1e-12f /* a block of zeros has no scale of its own */

bool quantised_applies(const struct matrix *matrix)
{
	return matrix->dtype == CNRE_I8 && matrix->columns % QUANTISED_BLOCK == 0 &&
	       matrix->columns <= QUANTISED_COLUMNS_MAX;
}

static void make_block(struct quantised *quantised, const float *x, uint32_t first)
{
	float largest = 0, scale, inverse;

	for (uint32_t i = first; i < first + QUANTISED_BLOCK; i++)
		largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
	scale = largest / 127.0f;
	scale = scale < SCALE_MIN ? SCALE_MIN : scale;
	inverse = 1.0f / scale;
	for (uint32_t i = first; i < first + QUANTISED_BLOCK; i++)
		quantised->value[i] = (int8_t)lrintf(x[i] * inverse);
	for (uint32_t i = first / KERNEL_QUAD; i < (first + QUANTISED_BLOCK) / KERNEL_QUAD; i++)
		quantised->scale[i] = scale;
}

void quantised_make(struct quantised *ret_quantised, const float *x, uint32_t columns)
{
	const uint32_t padding = (KERNEL_GROUP - columns % KERNEL_GROUP) % KERNEL_GROUP;

	for (uint32_t i = 0; i < columns; i += QUANTISED_BLOCK)
		make_block(ret_quantised, x, i);
	memset(ret_quantised->value + columns, 0, padding);
	memset(ret_quantised->scale + columns / KERNEL_QUAD, 0, padding / KERNEL_QUAD * sizeof(float));
}
