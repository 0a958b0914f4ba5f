/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels for AVX-512 F and BW: one register is the 16 lanes of kernel.h. Four rows are summed side by side,
 * which hides the latency of the additions and reads x once for four rows; it does not change any row's order of
 * summation. Called only after kernel_find has asked the CPU.
 */
#if defined(__x86_64__)

#include "engine/kernel.h"

#include "cnre/cnre.h"
#include "engine/quantised.h"

#include <immintrin.h>
#include <string.h>

#define ROWS_AT_ONCE 4u
#define TARGET __attribute__((target("avx512f,avx512bw")))
#define INLINE static inline __attribute__((always_inline)) TARGET
#define UNROLL _Pragma("GCC unroll 4") /* or the sums live in memory at -O2 */

/* dtype is a constant at each use: the switch is gone after inlining. */
INLINE size_t element_bytes(uint16_t dtype)
{
	return dtype == CNRE_F32 ? 4 : dtype == CNRE_I8 ? 1 : 2;
}

INLINE __m512 load(const char *from, uint16_t dtype)
{
	switch (dtype) {
	case CNRE_F32:
		return _mm512_loadu_ps(from);
	case CNRE_BF16:
		return _mm512_castsi512_ps(
			_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from)), 16));
	case CNRE_F16:
		return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
	default:
		return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from)));
	}
}

INLINE float fold(__m512 lanes)
{
	__m256 eight = _mm256_add_ps(_mm512_castps512_ps256(lanes),
				     _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(lanes), 1)));
	__m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
	__m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));

	return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

INLINE __m512 step(__m512 sum, const char *row, __m512 x, uint16_t dtype)
{
	return _mm512_add_ps(sum, _mm512_mul_ps(x, load(row, dtype)));
}

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
	__m512 sum[ROWS_AT_ONCE];

	UNROLL
	for (uint32_t r = 0; r < row_count; r++)
		sum[r] = _mm512_setzero_ps();
	for (size_t i = 0; i < whole; i += KERNEL_LANES) {
		__m512 value = _mm512_loadu_ps(x + i);

		UNROLL
		for (uint32_t r = 0; r < row_count; r++)
			sum[r] = step(sum[r], row + (r * columns + i) * width, value, dtype);
		fetch_ahead(row + i * width, columns * width, row_count);
	}
	UNROLL
	for (uint32_t r = 0; r < row_count && whole < columns; r++) {
		char weight[KERNEL_LANES * sizeof(float)] = {0};
		float value[KERNEL_LANES] = {0};

		memcpy(value, x + whole, (columns - whole) * sizeof *value);
		memcpy(weight, row + (r * columns + whole) * width, (columns - whole) * width);
		sum[r] = step(sum[r], weight, _mm512_loadu_ps(value), dtype);
	}
	UNROLL
	for (uint32_t r = 0; r < row_count; r++)
		ret_sum[r] = fold(sum[r]);
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

TARGET static void rows_avx512(const struct matrix *matrix, uint32_t first, uint32_t count, const float *x,
			       float *ret_y)
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

/*
 * Sixteen exact sums of four products. The magnitude of the weight is taken as unsigned (128 fits) and its sign
 * moved to x, which lies in -127 .. 127; so no pair exceeds 2 * 128 * 127, and nothing saturates in 16 bits.
 */
INLINE __m512 quads(__m512i weight, __m512i x)
{
	__m512i turned = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(weight), _mm512_setzero_si512(), x);
	__m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(weight), turned);

	return _mm512_cvtepi32_ps(_mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}

INLINE __m512 step_quantised(__m512 sum, const int8_t *weight, const int8_t *x, const float *scale)
{
	__m512 products = quads(_mm512_loadu_si512(weight), _mm512_loadu_si512(x));

	return _mm512_add_ps(sum, _mm512_mul_ps(_mm512_loadu_ps(scale), products));
}

INLINE void sum_quantised(const struct matrix *matrix, size_t first, const struct quantised *x, float *ret_sum,
			  const uint32_t row_count)
{
	const size_t columns = matrix->columns, whole = columns - columns % KERNEL_GROUP;
	const int8_t *row = (const int8_t *)matrix->data + first * columns;
	__m512 sum[ROWS_AT_ONCE];

	UNROLL
	for (uint32_t r = 0; r < row_count; r++)
		sum[r] = _mm512_setzero_ps();
	for (size_t i = 0; i < whole; i += KERNEL_GROUP) {
		UNROLL
		for (uint32_t r = 0; r < row_count; r++)
			sum[r] =
				step_quantised(sum[r], row + r * columns + i, x->value + i, x->scale + i / KERNEL_QUAD);
		fetch_ahead((const char *)row + i, columns, row_count);
	}
	UNROLL
	for (uint32_t r = 0; r < row_count && whole < columns; r++) {
		int8_t weight[KERNEL_GROUP] = {0};

		memcpy(weight, row + r * columns + whole, columns - whole);
		sum[r] = step_quantised(sum[r], weight, x->value + whole, x->scale + whole / KERNEL_QUAD);
	}
	UNROLL
	for (uint32_t r = 0; r < row_count; r++)
		ret_sum[r] = fold(sum[r]);
}

TARGET static void rows_quantised_avx512(const struct matrix *matrix, uint32_t first, uint32_t count,
					 const struct quantised *x, float *ret_y)
{
	uint32_t i = 0;

	for (; i + ROWS_AT_ONCE <= count; i += ROWS_AT_ONCE)
		sum_quantised(matrix, (size_t)first + i, x, ret_y + i, ROWS_AT_ONCE);
	for (; i < count; i++)
		sum_quantised(matrix, (size_t)first + i, x, ret_y + i, 1);
	kernel_scale_rows(matrix, first, count, ret_y);
}

TARGET static void add_scaled_avx512(float *y, const float *x, float factor, size_t count)
{
	const __m512 factors = _mm512_set1_ps(factor);
	size_t i = 0;

	for (; i + KERNEL_LANES <= count; i += KERNEL_LANES)
		_mm512_storeu_ps(y + i,
				 _mm512_add_ps(_mm512_loadu_ps(y + i), _mm512_mul_ps(factors, _mm512_loadu_ps(x + i))));
	for (; i < count; i++)
		y[i] += factor * x[i];
}

const struct kernel kernel_avx512 = {
	.name = "avx512",
	.rows = rows_avx512,
	.rows_quantised = rows_quantised_avx512,
	.add_scaled = add_scaled_avx512,
};
#else
typedef int kernel_avx512_is_for_x86; /* ISO C wants a declaration in each file */
#endif
