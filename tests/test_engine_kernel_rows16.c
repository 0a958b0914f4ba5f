/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/kernel_rows16.h and its plain counterpart: a matrix in groups of sixteen rows gives the very bits of the same
 * matrix row by row, whatever its size, in every variant of this CPU. Groups are made here by the words of matrix.h.
 */
#include "engine/kernel.h"

#include "cnre/cnre.h"
#include "engine/matmul.h"
#include "engine/quantised.h"

#include <criterion/criterion.h>
#include <string.h>

enum { ROWS_MAX = 70, COLUMNS_MAX = 1100 };

static const char *const variants[] = {"plain", "avx2", "avx512"};
static const uint32_t row_counts[] = {1, 15, 16, 17, 48, ROWS_MAX};
static uint32_t seed = 1;

static int8_t bytes[ROWS_MAX * COLUMNS_MAX];
static int8_t grouped[(ROWS_MAX + 15) * (COLUMNS_MAX + 3)];
static float x[COLUMNS_MAX], scale[ROWS_MAX];

static uint32_t next_random(void)
{
	seed = seed * 1664525u + 1013904223u;
	return seed >> 8;
}

static void fill(uint32_t rows, uint32_t columns)
{
	for (uint32_t i = 0; i < rows * columns; i++)
		bytes[i] = (int8_t)next_random();
	for (uint32_t i = 0; i < columns; i++)
		x[i] = (float)(int32_t)(next_random() - (1u << 23)) / 1e5f;
	for (uint32_t i = 0; i < rows; i++)
		scale[i] = (float)next_random() / 1e7f;
}

/* Group after group, four columns after four, row after row of the group. */
static void group(uint32_t rows, uint32_t columns)
{
	int8_t *to = grouped;

	for (uint32_t first = 0; first < rows; first += 16)
		for (uint32_t column = 0; column < columns; column += 4)
			for (uint32_t row = first; row < first + 16; row++)
				for (uint32_t i = column; i < column + 4; i++)
					*to++ = row < rows && i < columns ? bytes[row * columns + i] : 0;
	cr_assert_eq((uint64_t)(to - grouped), matrix_bytes_rows16(rows, columns));
}

static struct matrix make(uint32_t rows, uint32_t columns, enum matrix_layout layout)
{
	return (struct matrix){.data = layout == MATRIX_ROWS ? bytes : grouped,
			       .scale = scale,
			       .rows = rows,
			       .columns = columns,
			       .dtype = CNRE_I8,
			       .layout = (uint16_t)layout};
}

static void expect_same(const float *y, const float *expected, uint32_t count, const char *what, uint32_t rows, uint32_t columns)
{
	cr_expect_arr_eq(y, expected, count * sizeof *y, "%s, %u rows of %u columns", what, rows, columns);
}

/* All rows, and the rows from the second group on, as another thread would take them. */
static void compare(uint32_t rows, uint32_t columns)
{
	const struct matrix plain = make(rows, columns, MATRIX_ROWS), in_groups = make(rows, columns, MATRIX_ROWS16);
	float expected[ROWS_MAX], y[ROWS_MAX];
	struct operand operand;

	fill(rows, columns);
	group(rows, columns);
	operand_make(&operand, &plain, x);
	operand_rows(&kernel_plain, &plain, 0, rows, &operand, expected);
	for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
		const struct kernel *kernel = kernel_find(variants[v]);

		if (!kernel)
			continue;
		memset(y, 0x55, sizeof y);
		operand_rows(kernel, &in_groups, 0, rows, &operand, y);
		expect_same(y, expected, rows, variants[v], rows, columns);
		if (rows <= 16)
			continue;
		memset(y, 0x55, sizeof y);
		operand_rows(kernel, &in_groups, 16, rows - 16, &operand, y);
		expect_same(y, expected + 16, rows - 16, variants[v], rows, columns);
	}
}

/* Rows of whole blocks of 16 meet an int8 operand. */
Test(engine_kernel_rows16, groups_give_the_bits_of_rows_with_an_int8_operand)
{
	static const uint32_t columns[] = {16, 32, 48, 64, 80, 256, 272, 1024, 1088};

	for (size_t r = 0; r < sizeof row_counts / sizeof row_counts[0]; r++)
		for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++)
			compare(row_counts[r], columns[c]);
}

Test(engine_kernel_rows16, groups_give_the_bits_of_rows_with_a_float_operand)
{
	static const uint32_t columns[] = {1, 2, 3, 4, 5, 15, 17, 24, 63, 255, 257, 300, 1031};

	for (size_t r = 0; r < sizeof row_counts / sizeof row_counts[0]; r++)
		for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++)
			compare(row_counts[r], columns[c]);
}

/* The extremes are where 16-bit sums would saturate and where a sign trick would lose -128. */
Test(engine_kernel_rows16, extremes_do_not_saturate)
{
	enum { ROWS = 16, COLUMNS = 64 };
	const struct matrix in_groups = make(ROWS, COLUMNS, MATRIX_ROWS16);
	static const int8_t extremes[] = {-128, -127, 127};
	static struct quantised quantised;
	float y[ROWS], expected;

	for (size_t e = 0; e < sizeof extremes; e++) {
		memset(grouped, extremes[e], ROWS * COLUMNS);
		expected = 0;
		for (int i = 0; i < COLUMNS; i++) {
			x[i] = i % 3 ? -127.0f : 127.0f; /* scale 1: quantised exactly */
			expected += x[i] * extremes[e];
		}
		for (int i = 0; i < ROWS; i++)
			scale[i] = 1;
		quantised_make(&quantised, x, COLUMNS);
		for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
			if (!kernel_find(variants[v]))
				continue;
			kernel_find(variants[v])->rows16_quantised(&in_groups, 0, ROWS, &quantised, y);
			for (int i = 0; i < ROWS; i++)
				cr_expect_eq(y[i], expected, "%s weight %d: %f, not %f", variants[v], extremes[e], y[i], expected);
		}
	}
}

/* Whoever takes part of a matrix in groups begins with a whole group. */
Test(engine_kernel_rows16, chunks_are_whole_groups)
{
	static const uint32_t columns[] = {1, 24, 2048, 4096, 5000, 100000};

	for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++) {
		struct matrix matrix = {.columns = columns[c], .layout = MATRIX_ROWS16};

		cr_expect_gt(matmul_chunk(&matrix), 0);
		cr_expect_eq(matmul_chunk(&matrix) % MATRIX_GROUP_ROWS, 0, "%u columns", columns[c]);
	}
}
