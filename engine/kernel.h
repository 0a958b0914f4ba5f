/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner loops, once for each instruction set. All variants give the same bits: a row is summed in 16 lanes,
 * element i going to lane i mod 16, each step one multiplication and one addition, both rounded (no FMA, which
 * would make the plain variant either different or slow); a last group of fewer than 16 is padded with zeros; then
 * the lanes are folded in halves: 16 to 8, 8 to 4, 4 to 2, 2 to 1. So tokens do not depend on the CPU, the thread
 * count or the row split.
 */
#ifndef ENGINE_KERNEL_H
#define ENGINE_KERNEL_H

#include "engine/matrix.h"

#define KERNEL_LANES 16u
#define KERNEL_QUAD 4u                    /* int8 products summed exactly before they become floats */
#define KERNEL_GROUP (KERNEL_LANES * KERNEL_QUAD)

struct quantised;

struct kernel {
	const char *name;                 /* "avx512", "avx2", "plain" */

	/* y[i] = scale[first + i] * sum over j of x[j] * matrix[first + i][j], for i < count; of a matrix in rows. */
	void (*rows)(const struct matrix *matrix, uint32_t first, uint32_t count, const float *x, float *ret_y);

	/*
	 * The same for an I8 matrix and an x of int8 with its own scales (quantised.h): quad j, the exact sum of four
	 * products, goes to lane j mod 16 after one multiplication with the scale of its block.
	 */
	void (*rows_quantised)(const struct matrix *matrix, uint32_t first, uint32_t count, const struct quantised *x,
			       float *ret_y);

	/* Both for an I8 matrix in groups of rows (MATRIX_ROWS16); first is a multiple of a group. The same bits. */
	void (*rows16)(const struct matrix *matrix, uint32_t first, uint32_t count, const float *x, float *ret_y);
	void (*rows16_quantised)(const struct matrix *matrix, uint32_t first, uint32_t count, const struct quantised *x,
				 float *ret_y);

	/* y[i] += factor * x[i]. */
	void (*add_scaled)(float *y, const float *x, float factor, size_t count);
};

extern const struct kernel kernel_plain;
#if defined(__x86_64__)
extern const struct kernel kernel_avx2, kernel_avx512;
#endif

/* The best variant that this CPU runs. */
const struct kernel *kernel_best(void);

/* By name; NULL: unknown, or not for this CPU. */
const struct kernel *kernel_find(const char *name);

/* y[i] *= scale[first + i], where the matrix has scales. */
void kernel_scale_rows(const struct matrix *matrix, uint32_t first, uint32_t count, float *y);

/* One element as F32; exact for every dtype a matrix may have. */
float kernel_element(const struct matrix *matrix, size_t index);

#endif
