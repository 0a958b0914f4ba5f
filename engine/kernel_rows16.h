/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops over groups of sixteen rows (MATRIX_ROWS16), the same for AVX2 and AVX-512. Included by kernel_avx2.c and
 * kernel_avx512.c and nobody else, after each has defined TARGET, INLINE, struct lanes and lanes_zero as for kernel_rows.h, and
 *
 *   lanes_step_column, lanes_step_block   one column, or a quad of them, of sixteen rows, onto their sums
 *   lanes_add, lanes_store
 *   ROWS16_LANES_AT_ONCE                  how many of kernel.h's sixteen lanes have registers at the same time
 *   ROWS16_BLOCK_QUADS                    how many quads of a group are passed over at once, a multiple of the lanes
 *
 * There a register holds the sixteen lanes of one row; here it holds one lane of sixteen rows. So folding the lanes is
 * adding registers, no row has a rest of its own, and a group is read from its first byte to its last. Each lane of each row
 * is summed in the order of kernel.h, so the bits are the same. With fewer lanes at once a group is passed over several
 * times, in blocks of columns that stay in the first-level cache.
 */
#define UNROLL16 _Pragma("GCC unroll 16") /* or the sums live in memory at -O2 */

_Static_assert(KERNEL_QUAD == MATRIX_QUAD && KERNEL_LANES == MATRIX_GROUP_ROWS, "a lane can be a row");

INLINE void load_sums(struct lanes sum[ROWS16_LANES_AT_ONCE], const struct lanes *from)
{
	UNROLL16
	for (uint32_t l = 0; l < ROWS16_LANES_AT_ONCE; l++)
		sum[l] = from[l];
}

INLINE void store_sums(struct lanes *to, const struct lanes sum[ROWS16_LANES_AT_ONCE])
{
	UNROLL16
	for (uint32_t l = 0; l < ROWS16_LANES_AT_ONCE; l++)
		to[l] = sum[l];
}

/* Lanes first .. of the quads [from, to), of which from is a multiple of the lanes. */
INLINE void add_quads_of_lanes(struct lanes *all, uint32_t first, const int8_t *group, const struct quantised *x, size_t from,
			       size_t to)
{
	struct lanes sum[ROWS16_LANES_AT_ONCE];
	size_t quad = from + first;

	load_sums(sum, all + first);
	for (; quad + ROWS16_LANES_AT_ONCE <= to; quad += KERNEL_LANES) {
		UNROLL16
		for (uint32_t l = 0; l < ROWS16_LANES_AT_ONCE; l++)
			sum[l] = lanes_step_block(sum[l], group + (quad + l) * MATRIX_BLOCK_BYTES,
						  x->value + (quad + l) * KERNEL_QUAD, x->scale + quad + l);
	}
	UNROLL16
	for (uint32_t l = 0; l < ROWS16_LANES_AT_ONCE; l++)
		if (quad + l < to)
			sum[l] = lanes_step_block(sum[l], group + (quad + l) * MATRIX_BLOCK_BYTES,
						  x->value + (quad + l) * KERNEL_QUAD, x->scale + quad + l);
	store_sums(all + first, sum);
}

/* The same of columns that are floats: lane l of column i is i mod 16. */
INLINE void add_columns_of_lanes(struct lanes *all, uint32_t first, const int8_t *group, const float *x, size_t from, size_t to)
{
	struct lanes sum[ROWS16_LANES_AT_ONCE];
	size_t column = from + first;

	load_sums(sum, all + first);
	for (; column + ROWS16_LANES_AT_ONCE <= to; column += KERNEL_LANES) {
		UNROLL16
		for (uint32_t l = 0; l < ROWS16_LANES_AT_ONCE; l++)
			sum[l] = lanes_step_column(sum[l], group + (column + l) / MATRIX_QUAD * MATRIX_BLOCK_BYTES,
						   l % MATRIX_QUAD, x[column + l]);
	}
	UNROLL16
	for (uint32_t l = 0; l < ROWS16_LANES_AT_ONCE; l++)
		if (column + l < to)
			sum[l] = lanes_step_column(sum[l], group + (column + l) / MATRIX_QUAD * MATRIX_BLOCK_BYTES,
						   l % MATRIX_QUAD, x[column + l]);
	store_sums(all + first, sum);
}

/* Sixteen to eight, to four, to two, to one, as for one row; count of the sixteen rows go out. */
INLINE void fold_rows(struct lanes all[KERNEL_LANES], uint32_t count, float *ret_sum)
{
	float row[KERNEL_LANES];

	for (uint32_t half = KERNEL_LANES / 2; half > 0; half /= 2)
		for (uint32_t l = 0; l < half; l++)
			all[l] = lanes_add(all[l], all[l + half]);
	lanes_store(row, all[0]);
	memcpy(ret_sum, row, count * sizeof *row);
}

INLINE void clear_lanes(struct lanes all[KERNEL_LANES])
{
	for (uint32_t l = 0; l < KERNEL_LANES; l++)
		all[l] = lanes_zero();
}

INLINE void sum_group_quantised(const int8_t *group, size_t quads_count, const struct quantised *x, uint32_t count, float *ret_sum)
{
	struct lanes all[KERNEL_LANES];

	clear_lanes(all);
	for (size_t from = 0; from < quads_count; from += ROWS16_BLOCK_QUADS) {
		size_t to = quads_count - from < ROWS16_BLOCK_QUADS ? quads_count : from + ROWS16_BLOCK_QUADS;

		for (uint32_t l = 0; l < KERNEL_LANES; l += ROWS16_LANES_AT_ONCE)
			add_quads_of_lanes(all, l, group, x, from, to);
	}
	fold_rows(all, count, ret_sum);
}

INLINE void sum_group(const int8_t *group, size_t columns, const float *x, uint32_t count, float *ret_sum)
{
	const size_t block = (size_t)ROWS16_BLOCK_QUADS * MATRIX_QUAD;
	struct lanes all[KERNEL_LANES];

	clear_lanes(all);
	for (size_t from = 0; from < columns; from += block) {
		size_t to = columns - from < block ? columns : from + block;

		for (uint32_t l = 0; l < KERNEL_LANES; l += ROWS16_LANES_AT_ONCE)
			add_columns_of_lanes(all, l, group, x, from, to);
	}
	fold_rows(all, count, ret_sum);
}

INLINE const int8_t *group_at(const struct matrix *matrix, uint32_t row)
{
	return (const int8_t *)matrix->data + row / MATRIX_GROUP_ROWS * matrix_quads(matrix) * MATRIX_BLOCK_BYTES;
}

INLINE uint32_t rows_left(uint32_t done, uint32_t count)
{
	return count - done < MATRIX_GROUP_ROWS ? count - done : MATRIX_GROUP_ROWS;
}

TARGET static void rows16(const struct matrix *matrix, uint32_t first, uint32_t count, const float *x, float *ret_y)
{
	for (uint32_t i = 0; i < count; i += MATRIX_GROUP_ROWS)
		sum_group(group_at(matrix, first + i), matrix->columns, x, rows_left(i, count), ret_y + i);
	kernel_scale_rows(matrix, first, count, ret_y);
}

TARGET static void rows16_quantised(const struct matrix *matrix, uint32_t first, uint32_t count, const struct quantised *x,
				    float *ret_y)
{
	for (uint32_t i = 0; i < count; i += MATRIX_GROUP_ROWS)
		sum_group_quantised(group_at(matrix, first + i), matrix_quads(matrix), x, rows_left(i, count), ret_y + i);
	kernel_scale_rows(matrix, first, count, ret_y);
}
