/* SPDX-License-Identifier: Apache-2.0 */
/* See matmul.h. A few weight rows stay in the first-level cache while all inputs pass over them. */
#include "engine/matmul.h"

#define CHUNK_ELEMENTS 65536u
#define BLOCK_ROWS 4u

struct product {
	const struct kernel *kernel;
	const struct matrix *matrix;
	const float *x;
	float *y;
	uint32_t count;
};

static void product_rows(void *job, uint32_t first, uint32_t count)
{
	const struct product *product = job;
	const struct matrix *matrix = product->matrix;

	if (product->count == 1) {
		product->kernel->rows(matrix, first, count, product->x, product->y + first);
		return;
	}
	for (uint32_t row = first, end = first + count; row < end; row += BLOCK_ROWS) {
		uint32_t block = end - row < BLOCK_ROWS ? end - row : BLOCK_ROWS;

		for (uint32_t s = 0; s < product->count; s++)
			product->kernel->rows(matrix, row, block, product->x + (size_t)s * matrix->columns,
					      product->y + (size_t)s * matrix->rows + row);
	}
}

uint32_t matmul_chunk(const struct matrix *matrix)
{
	uint32_t unit = matrix->layout == MATRIX_ROWS16 ? MATRIX_GROUP_ROWS : BLOCK_ROWS;
	uint32_t rows = CHUNK_ELEMENTS / matrix->columns / unit * unit;

	return rows < unit ? unit : rows;
}

void matmul(const struct compute *compute, const struct matrix *matrix, const float *x, uint32_t count, float *ret_y)
{
	struct product product = {.kernel = compute->kernel, .matrix = matrix, .x = x, .y = ret_y, .count = count};

	pool_run(compute->pool, product_rows, &product, matrix->rows, matmul_chunk(matrix));
}

void operand_make(struct operand *ret_operand, const struct matrix *matrix, const float *x)
{
	ret_operand->x = x;
	ret_operand->is_quantised = quantised_applies(matrix);
	if (ret_operand->is_quantised)
		quantised_make(&ret_operand->quantised, x, matrix->columns);
}

void operand_rows(const struct kernel *kernel, const struct matrix *matrix, uint32_t first, uint32_t count,
		  const struct operand *operand, float *ret_y)
{
	if (matrix->layout == MATRIX_ROWS16 && operand->is_quantised)
		kernel->rows16_quantised(matrix, first, count, &operand->quantised, ret_y);
	else if (matrix->layout == MATRIX_ROWS16)
		kernel->rows16(matrix, first, count, operand->x, ret_y);
	else if (operand->is_quantised)
		kernel->rows_quantised(matrix, first, count, &operand->quantised, ret_y);
	else
		kernel->rows(matrix, first, count, operand->x, ret_y);
}

struct operand_job {
	const struct kernel *kernel;
	const struct matrix *matrix;
	const struct operand *operand;
	float *y;
};

static void operand_job_rows(void *argument, uint32_t first, uint32_t count)
{
	const struct operand_job *job = argument;

	operand_rows(job->kernel, job->matrix, first, count, job->operand, job->y + first);
}

void operand_product(const struct compute *compute, const struct matrix *matrix, const struct operand *operand,
		     float *ret_y)
{
	struct operand_job job = {compute->kernel, matrix, operand, ret_y};

	pool_run(compute->pool, operand_job_rows, &job, matrix->rows, matmul_chunk(matrix));
}
