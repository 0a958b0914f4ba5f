/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products, shared out over the pool by rows of the weight matrix. An operand is a vector
 * made ready for an expert's matrices once, however many of them it meets.
 */
#ifndef ENGINE_MATMUL_H
#define ENGINE_MATMUL_H

#include "engine/kernel.h"
#include "engine/pool.h"
#include "engine/quantised.h"

#include <stdbool.h>

struct compute {                          /* what every product needs; belongs to main.c */
	const struct kernel *kernel;
	struct pool *pool;
};

/* y[s][o] = sum over i of x[s][i] * matrix[o][i], for s < count; x is count * columns, y is count * rows. */
void matmul(const struct compute *compute, const struct matrix *matrix, const float *x, uint32_t count, float *ret_y);

struct operand {
	const float *x;                   /* belongs to the caller, and must stay */
	struct quantised quantised;       /* valid if is_quantised */
	bool is_quantised;
};

/* is_quantised follows from the matrix the operand will meet: an int8 matrix takes int8 where it can. */
void operand_make(struct operand *ret_operand, const struct matrix *matrix, const float *x);

/* Some rows on the calling thread; first is a multiple of MATRIX_GROUP_ROWS where the matrix has groups. */
void operand_rows(const struct kernel *kernel, const struct matrix *matrix, uint32_t first, uint32_t count,
		  const struct operand *operand, float *ret_y);

/* All rows, shared out. */
void operand_product(const struct compute *compute, const struct matrix *matrix, const struct operand *operand,
		     float *ret_y);

/* How many rows a thread takes at a time, in whole groups: enough to pay for the hand-over, few enough to even out. */
uint32_t matmul_chunk(const struct matrix *matrix);

#endif
