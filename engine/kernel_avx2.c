/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels for AVX2 and F16C: two registers are the 16 lanes of kernel.h. Four rows are summed side by side, as
 * in the AVX-512 variant, which needs eight of the sixteen registers. Called only after kernel_find has asked the
 * CPU.
 */
#if defined(__x86_64__)

#include "engine/kernel.h"

#include "cnre/cnre.h"
#include "engine/quantised.h"

#include <immintrin.h>
#include <string.h>

#define ROWS_AT_ONCE 4u
#define HALF_LANES (KERNEL_LANES / 2)
#define TARGET __attribute__((target("avx2,f16c")))
#define INLINE static inline __attribute__((always_inline)) TARGET
#define UNROLL _Pragma("GCC unroll 4") /* or the sums live in memory at -O2 */

struct lanes {
	__m256 low, high;
};

/* dtype is a constant at each use: the switch is gone after inlining. */
INLINE size_t element_bytes(uint16_t dtype)
{
	return dtype == CNRE_F32 ? 4 : dtype == CNRE_I8 ? 1 : 2;
}

INLINE __m256 load(const char *from, uint16_t dtype)
{
	switch (dtype) {
	case CNRE_F32:
		return _mm256_loadu_ps((const float *)from);
	case CNRE_BF16:
		return _mm256_castsi256_ps(
			_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from)), 16));
	case CNRE_F16:
		return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
	default:
		return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from)));
	}
}

INLINE float fold(struct lanes sum)
{
	__m256 eight = _mm256_add_ps(sum.low, sum.high);
	__m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
	__m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));

	return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

INLINE struct lanes step(struct lanes sum, const char *row, struct lanes x, uint16_t dtype)
{
	sum.low = _mm256_add_ps(sum.low, _mm256_mul_ps(x.low, load(row, dtype)));
	sum.high = _mm256_add_ps(sum.high, _mm256_mul_ps(x.high, load(row + HALF_LANES * element_bytes(dtype), dtype)));
	return sum;
}

INLINE struct lanes load_x(const float *x)
{
	return (struct lanes){_mm256_loadu_ps(x), _mm256_loadu_ps(x + HALF_LANES)};
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
	struct lanes sum[ROWS_AT_ONCE];

	UNROLL
	for (uint32_t r = 0; r < row_count; r++)
		sum[r] = (struct lanes){_mm256_setzero_ps(), _mm256_setzero_ps()};
	for (size_t i = 0; i < whole; i += KERNEL_LANES) {
		struct lanes value = load_x(x + i);

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
		sum[r] = step(sum[r], weight, load_x(value), dtype);
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

TARGET static void rows_avx2(const struct matrix *matrix, uint32_t first, uint32_t count, const float *x, float *ret_y)
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
 * Eight exact sums of four products. The magnitude of the weight is taken as unsigned (128 fits) and its sign
 * moved to x, which lies in -127 .. 127; so no pair exceeds 2 * 128 * 127, and nothing saturates in 16 bits.
 */
INLINE __m256 quads(const int8_t *weight, const int8_t *x)
{
	__m256i weights = _mm256_loadu_si256((const __m256i *)weight);
	__m256i turned = _mm256_sign_epi8(_mm256_loadu_si256((const __m256i *)x), weights);
	__m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), turned);

	return _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

INLINE struct lanes step_quantised(struct lanes sum, const int8_t *weight, const int8_t *x, const float *scale)
{
	const uint32_t half = KERNEL_GROUP / 2;
	__m256 low = _mm256_mul_ps(_mm256_loadu_ps(scale), quads(weight, x));
	__m256 high = _mm256_mul_ps(_mm256_loadu_ps(scale + HALF_LANES), quads(weight + half, x + half));

	sum.low = _mm256_add_ps(sum.low, low);
	sum.high = _mm256_add_ps(sum.high, high);
	return sum;
}

INLINE void sum_quantised(const struct matrix *matrix, size_t first, const struct quantised *x, float *ret_sum,
			  const uint32_t row_count)
{
	const size_t columns = matrix->columns, whole = columns - columns % KERNEL_GROUP;
	const int8_t *row = (const int8_t *)matrix->data + first * columns;
	struct lanes sum[ROWS_AT_ONCE];

	UNROLL
	for (uint32_t r = 0; r < row_count; r++)
		sum[r] = (struct lanes){_mm256_setzero_ps(), _mm256_setzero_ps()};
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

TARGET static void rows_quantised_avx2(const struct matrix *matrix, uint32_t first, uint32_t count,
				       const struct quantised *x, float *ret_y)
{
	uint32_t i = 0;

	for (; i + ROWS_AT_ONCE <= count; i += ROWS_AT_ONCE)
		sum_quantised(matrix, (size_t)first + i, x, ret_y + i, ROWS_AT_ONCE);
	for (; i < count; i++)
		sum_quantised(matrix, (size_t)first + i, x, ret_y + i, 1);
	kernel_scale_rows(matrix, first, count, ret_y);
}

TARGET static void add_scaled_avx2(float *y, const float *x, float factor, size_t count)
{
	const __m256 factors = _mm256_set1_ps(factor);
	size_t i = 0;

	for (; i + HALF_LANES <= count; i += HALF_LANES)
		_mm256_storeu_ps(y + i,
				 _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_mul_ps(factors, _mm256_loadu_ps(x + i))));
	for (; i < count; i++)
		y[i] += factor * x[i];
}

const struct kernel kernel_avx2 = {
	.name = "avx2",
	.rows = rows_avx2,
	.rows_quantised = rows_quantised_avx2,
	.add_scaled = add_scaled_avx2,
};
#else
typedef int kernel_avx2_is_for_x86; /* ISO C wants a declaration in each file */
#endif
