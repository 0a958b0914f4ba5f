/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops over rows, the same for AVX2 and AVX-512, which differ in what the 16 lanes of kernel.h are. Included by
 * kernel_avx2.c and kernel_avx512.c and nobody else, after each has defined
 *
 *   TARGET            the attribute of its instruction set, and INLINE, a static function of that set
 *   struct lanes      sixteen sums
 *   lanes_zero, lanes_load, lanes_step, lanes_step_quantised, lanes_fold
 *
 * Four rows are summed side by side, which hides the latency of the additions and reads x once for four rows; it does not
 * change any row's order of summation.
 */
#define ROWS_AT_ONCE 4u
#define UNROLL _Pragma("GCC unroll 4") /* or the sums live in memory at -O2 */

/*
 * The lines of the next rows at the same columns. Rows are too short for the CPU's own prefetcher, which starts
 * anew in each: without this, int8 rows of 2048 run at two thirds of the memory's speed. Addresses behind the
 * matrix do no harm.
 */
INLINE void fetch_ahead(const char *at, size_t row_bytes, const uint32_t row_count)
{
	UNROLL
	for (uint32_t r = 0; r < row_count; r++)
		_mm_prefetch(at + (r + row_count) * row_bytes, _MM_HINT_T0);
}

/* Sums row_count rows (a constant, at most ROWS_AT_ONCE) from first on. */
INLINE void sum_rows(const struct matrix *matrix, size_t first, const float *x, float *ret_sum, uint16_t dtype,
		     const uint32_t row_count)
{
	const size_t columns = matrix->columns, whole = columns - columns % KERNEL_LANES, width = element_bytes(dtype);
	const char *row = (const char *)matrix->data + first * columns * width;
	struct lanes sum[ROWS_AT_ONCE];

	UNROLL
	for (uint32_t r = 0; r < row_count; r++)
		sum[r] = lanes_zero();
	for (size_t i = 0; i < whole; i += KERNEL_LANES) {
		struct lanes value = lanes_load(x + i);

		UNROLL
		for (uint32_t r = 0; r < row_count; r++)
			sum[r] = lanes_step(sum[r], row + (r * columns + i) * width, value, dtype);
		fetch_ahead(row + i * width, columns * width, row_count);
	}
	UNROLL
	for (uint32_t r = 0; r < row_count && whole < columns; r++) {
		char weight[KERNEL_LANES * sizeof(float)] = {0};
		float value[KERNEL_LANES] = {0};

		memcpy(value, x + whole, (columns - whole) * sizeof *value);
		memcpy(weight, row + (r * columns + whole) * width, (columns - whole) * width);
		sum[r] = lanes_step(sum[r], weight, lanes_load(value), dtype);
	}
	UNROLL
	for (uint32_t r = 0; r < row_count; r++)
		ret_sum[r] = lanes_fold(sum[r]);
}

INLINE void rows_of(const struct matrix *matrix, uint32_t first, uint32_t count, const float *x, float *ret_y,
		    uint16_t dtype)
{
	uint32_t i = 0;

	for (; i + ROWS_AT_ONCE <= count; i += ROWS_AT_ONCE)
		sum_rows(matrix, (size_t)first + i, x, ret_y + i, dtype, ROWS_AT_ONCE);
	for (; i < count; i++)
		sum_rows(matrix, (size_t)first + i, x, ret_y + i, dtype, 1);
}

TARGET static void rows(const struct matrix *matrix, uint32_t first, uint32_t count, const float *x, float *ret_y)
{
	switch (matrix->dtype) {
	case CNRE_F32:
		rows_of(matrix, first, count, x, ret_y, CNRE_F32);
		break;
	case CNRE_BF16:
		rows_of(matrix, first, count, x, ret_y, CNRE_BF16);
		break;
	case CNRE_F16:
		rows_of(matrix, first, count, x, ret_y, CNRE_F16);
		break;
	default:
		rows_of(matrix, first, count, x, ret_y, CNRE_I8);
	}
	kernel_scale_rows(matrix, first, count, ret_y);
}

INLINE void sum_quantised(const struct matrix *matrix, size_t first, const struct quantised *x, float *ret_sum,
			  const uint32_t row_count)
{
	const size_t columns = matrix->columns, whole = columns - columns % KERNEL_GROUP;
	const int8_t *row = (const int8_t *)matrix->data + first * columns;
	struct lanes sum[ROWS_AT_ONCE];

	UNROLL
	for (uint32_t r = 0; r < row_count; r++)
		sum[r] = lanes_zero();
	for (size_t i = 0; i < whole; i += KERNEL_GROUP) {
		UNROLL
		for (uint32_t r = 0; r < row_count; r++)
			sum[r] = lanes_step_quantised(sum[r], row + r * columns + i, x->value + i,
						      x->scale + i / KERNEL_QUAD);
		fetch_ahead((const char *)row + i, columns, row_count);
	}
	UNROLL
	for (uint32_t r = 0; r < row_count && whole < columns; r++) {
		int8_t weight[KERNEL_GROUP] = {0};

		memcpy(weight, row + r * columns + whole, columns - whole);
		sum[r] = lanes_step_quantised(sum[r], weight, x->value + whole, x->scale + whole / KERNEL_QUAD);
	}
	UNROLL
	for (uint32_t r = 0; r < row_count; r++)
		ret_sum[r] = lanes_fold(sum[r]);
}

TARGET static void rows_quantised(const struct matrix *matrix, uint32_t first, uint32_t count,
				  const struct quantised *x, float *ret_y)
{
	uint32_t i = 0;

	for (; i + ROWS_AT_ONCE <= count; i += ROWS_AT_ONCE)
		sum_quantised(matrix, (size_t)first + i, x, ret_y + i, ROWS_AT_ONCE);
	for (; i < count; i++)
		sum_quantised(matrix, (size_t)first + i, x, ret_y + i, 1);
	kernel_scale_rows(matrix, first, count, ret_y);
}
