/* SPDX-License-Identifier: Apache-2.0 */
/* engine/kernel*.c: every variant of this CPU gives the same bits, and the right ones. */
#include "engine/kernel.h"

#include "cnre/cnre.h"
#include "engine/quantised.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 11, COLUMNS_MAX = 300 };

static const char *const variants[] = {"avx2", "avx512"};
static const uint16_t dtypes[] = {CNRE_F32, CNRE_BF16, CNRE_F16, CNRE_I8};
static uint32_t seed = 1;

static float next_float(void)
{
	seed = seed * 1664525u + 1013904223u;
	return (float)(int32_t)seed / 2147483648.0f;
}

/* A matrix of one type at an odd address: F32 and BF16 of arbitrary bits below infinity, F16 and I8 of any. */
static struct matrix make_matrix(uint16_t dtype, uint32_t columns, unsigned char *bytes, const float *scale)
{
	const size_t count = (size_t)ROWS * columns;

	for (size_t i = 0; i < count; i++) {
		float value = next_float();
		uint32_t bits;
		uint16_t half;

		memcpy(&bits, &value, sizeof bits);
		half = (uint16_t)(bits >> 16);
		if (dtype == CNRE_F32)
			memcpy(bytes + 1 + 4 * i, &value, 4);
		else if (dtype == CNRE_I8)
			bytes[1 + i] = (unsigned char)(seed >> 24);
		else if (dtype == CNRE_BF16)
			memcpy(bytes + 1 + 2 * i, &half, 2);
		else
			memcpy(bytes + 1 + 2 * i, &(uint16_t){(uint16_t)(seed >> 16 & 0xbbffu)}, 2); /* finite */
	}
	return (struct matrix){.data = bytes + 1,
			       .scale = scale ? (const char *)scale + 1 : NULL,
			       .rows = ROWS,
			       .columns = columns,
			       .dtype = dtype};
}

static void expect_same_rows(uint16_t dtype, uint32_t columns)
{
	static unsigned char bytes[ROWS * COLUMNS_MAX * 4 + 1];
	static float x[COLUMNS_MAX], scale[ROWS + 1];
	struct matrix matrix;
	float plain[ROWS], other[ROWS];

	for (uint32_t i = 0; i < columns; i++)
		x[i] = next_float();
	memset(scale, 0x3c, sizeof scale); /* about 0.0115 at any offset */
	matrix = make_matrix(dtype, columns, bytes, dtype == CNRE_I8 ? scale : NULL);
	kernel_plain.rows(&matrix, 0, ROWS, x, plain);
	for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
		const struct kernel *kernel = kernel_find(variants[v]);

		if (!kernel)
			continue;
		kernel->rows(&matrix, 0, ROWS, x, other);
		cr_expect_arr_eq(other, plain, sizeof plain, "%s dtype %u columns %u", variants[v], dtype, columns);
		kernel->rows(&matrix, 3, 5, x, other); /* another split into fours */
		cr_expect_arr_eq(other, plain + 3, 5 * sizeof *plain, "%s split, dtype %u", variants[v], dtype);
	}
}

Test(engine_kernel, variants_give_the_same_bits)
{
	static const uint32_t columns[] = {1, 15, 16, 17, 31, 64, 100, 255, 300};

	for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
		for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++)
			expect_same_rows(dtypes[d], columns[c]);
}

Test(engine_kernel, quantised_variants_give_the_same_bits)
{
	static unsigned char bytes[ROWS * COLUMNS_MAX + 1];
	static float x[COLUMNS_MAX], scale[ROWS + 1];
	static struct quantised quantised;
	float plain[ROWS], other[ROWS];

	memset(scale, 0x3c, sizeof scale);
	for (uint32_t columns = QUANTISED_BLOCK; columns <= 288; columns += QUANTISED_BLOCK) {
		struct matrix matrix = make_matrix(CNRE_I8, columns, bytes, scale);

		for (uint32_t i = 0; i < columns; i++)
			x[i] = next_float();
		memset(&quantised, 0x55, sizeof quantised); /* what lies behind the columns must not matter */
		quantised_make(&quantised, x, columns);
		kernel_plain.rows_quantised(&matrix, 0, ROWS, &quantised, plain);
		for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
			const struct kernel *kernel = kernel_find(variants[v]);

			if (!kernel)
				continue;
			kernel->rows_quantised(&matrix, 0, ROWS, &quantised, other);
			cr_expect_arr_eq(other, plain, sizeof plain, "%s columns %u", variants[v], columns);
		}
	}
}

/* The extremes are where 16-bit sums would saturate and where a sign trick would lose -128. */
Test(engine_kernel, quantised_extremes_do_not_saturate)
{
	static int8_t weight[64];
	static float x[64];
	static struct quantised quantised;
	static const int8_t extremes[] = {-128, -127, 127};
	const char *names[] = {"plain", "avx2", "avx512"};

	for (size_t e = 0; e < sizeof extremes; e++) {
		struct matrix matrix = {.data = weight, .rows = 1, .columns = 64, .dtype = CNRE_I8};

		memset(weight, extremes[e], sizeof weight);
		for (int i = 0; i < 64; i++)
			x[i] = i % 3 ? -127.0f : 127.0f; /* scale 1: quantised exactly */
		quantised_make(&quantised, x, 64);
		for (size_t v = 0; v < 3; v++) {
			float y = 0, expected = 0;

			for (int i = 0; i < 64; i++)
				expected += x[i] * extremes[e];
			if (!kernel_find(names[v]))
				continue;
			kernel_find(names[v])->rows_quantised(&matrix, 0, 1, &quantised, &y);
			cr_expect_eq(y, expected, "%s weight %d: %f, not %f", names[v], extremes[e], y, expected);
		}
	}
}

Test(engine_kernel, rows_are_near_a_sum_in_double)
{
	static unsigned char bytes[ROWS * COLUMNS_MAX * 4 + 1];
	static float x[COLUMNS_MAX];
	struct matrix matrix = make_matrix(CNRE_F32, COLUMNS_MAX, bytes, NULL);
	float y[ROWS];

	for (int i = 0; i < COLUMNS_MAX; i++)
		x[i] = next_float();
	kernel_best()->rows(&matrix, 0, ROWS, x, y);
	for (int r = 0; r < ROWS; r++) {
		double sum = 0;

		for (int i = 0; i < COLUMNS_MAX; i++)
			sum += (double)kernel_element(&matrix, (size_t)r * COLUMNS_MAX + i) * x[i];
		cr_expect_float_eq(y[r], sum, 1e-4);
	}
}

Test(engine_kernel, every_half_is_converted_exactly)
{
	for (uint32_t bits = 0; bits < 0x10000u; bits++) {
		uint16_t half = (uint16_t)bits;
		const struct matrix matrix = {.data = &half, .rows = 1, .columns = 1, .dtype = CNRE_F16};
		int exponent = (int)(bits >> 10 & 31);
		double mantissa = (double)(bits & 0x3ff) / 1024, expected;

		expected = exponent == 31  ? (mantissa != 0 ? NAN : INFINITY)
			   : exponent == 0 ? ldexp(mantissa, -14)
					   : ldexp(1 + mantissa, exponent - 15);
		if (bits & 0x8000u)
			expected = -expected;
		if (isnan(expected))
			cr_expect(isnan(kernel_element(&matrix, 0)));
		else
			cr_expect_eq((double)kernel_element(&matrix, 0), expected, "half %04x", bits);
	}
}

Test(engine_kernel, add_scaled_gives_the_same_bits)
{
	float x[53], plain[53], other[53];

	for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
		if (!kernel_find(variants[v]))
			continue;
		for (int i = 0; i < 53; i++) {
			x[i] = next_float();
			plain[i] = other[i] = next_float();
		}
		kernel_plain.add_scaled(plain, x, 0.3f, 53);
		kernel_find(variants[v])->add_scaled(other, x, 0.3f, 53);
		cr_expect_arr_eq(other, plain, sizeof plain, "%s", variants[v]);
	}
}

Test(engine_kernel, an_unknown_variant_is_not_found)
{
	cr_expect_null(kernel_find("sse9"));
	cr_expect_eq(kernel_find("plain"), &kernel_plain);
}
