/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels for AVX2 and F16C: two registers are the 16 lanes of kernel.h, so four rows need eight of the sixteen
 * registers. Called only after kernel_find has asked the CPU.
 */
#if defined(__x86_64__)

#include "engine/kernel.h"

#include "cnre/cnre.h"
#include "engine/quantised.h"

#include <immintrin.h>
#include <string.h>

#define HALF_LANES (KERNEL_LANES / 2)
#define TARGET __attribute__((target("avx2,f16c")))
#define INLINE static inline __attribute__((always_inline)) TARGET

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

INLINE struct lanes lanes_zero(void)
{
	return (struct lanes){_mm256_setzero_ps(), _mm256_setzero_ps()};
}

INLINE struct lanes lanes_load(const float *x)
{
	return (struct lanes){_mm256_loadu_ps(x), _mm256_loadu_ps(x + HALF_LANES)};
}

INLINE float lanes_fold(struct lanes sum)
{
	__m256 eight = _mm256_add_ps(sum.low, sum.high);
	__m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
	__m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));

	return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

INLINE struct lanes lanes_step(struct lanes sum, const char *row, struct lanes x, uint16_t dtype)
{
	sum.low = _mm256_add_ps(sum.low, _mm256_mul_ps(x.low, load(row, dtype)));
	sum.high = _mm256_add_ps(sum.high, _mm256_mul_ps(x.high, load(row + HALF_LANES * element_bytes(dtype), dtype)));
	return sum;
}

/*
 * Eight exact sums of four products. The magnitude of the weight is taken as unsigned (128 fits) and its sign
 * moved to x, which lies in -127 .. 127; so no pair exceeds 2 * 128 * 127, and nothing saturates in 16 bits.
 */
INLINE __m256 quads_of(const int8_t *weight, __m256i x)
{
	__m256i weights = _mm256_loadu_si256((const __m256i *)weight);
	__m256i turned = _mm256_sign_epi8(x, weights);
	__m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), turned);

	return _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

INLINE __m256 quads(const int8_t *weight, const int8_t *x)
{
	return quads_of(weight, _mm256_loadu_si256((const __m256i *)x));
}

INLINE struct lanes lanes_step_quantised(struct lanes sum, const int8_t *weight, const int8_t *x, const float *scale)
{
	const uint32_t half = KERNEL_GROUP / 2;
	__m256 low = _mm256_mul_ps(_mm256_loadu_ps(scale), quads(weight, x));
	__m256 high = _mm256_mul_ps(_mm256_loadu_ps(scale + HALF_LANES), quads(weight + half, x + half));

	sum.low = _mm256_add_ps(sum.low, low);
	sum.high = _mm256_add_ps(sum.high, high);
	return sum;
}

/* ---- of a group of sixteen rows; a lane is a row here ---- */

#define ROWS16_LANES_AT_ONCE 4u /* eight registers */
#define ROWS16_BLOCK_QUADS 64u  /* 4 KiB, four times */

INLINE struct lanes lanes_add(struct lanes a, struct lanes b)
{
	return (struct lanes){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}

INLINE void lanes_store(float *to, struct lanes sum)
{
	_mm256_storeu_ps(to, sum.low);
	_mm256_storeu_ps(to + HALF_LANES, sum.high);
}

/* One of the four columns of half a block, as the top byte of each word, which a shift then extends. */
INLINE __m256 column_of(const int8_t *half, const uint32_t column)
{
	__m256i words = _mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)half), 24 - 8 * (int)column);

	return _mm256_cvtepi32_ps(_mm256_srai_epi32(words, 24));
}

INLINE struct lanes lanes_step_column(struct lanes sum, const int8_t *block, const uint32_t column, float x)
{
	const __m256 value = _mm256_set1_ps(x);

	sum.low = _mm256_add_ps(sum.low, _mm256_mul_ps(value, column_of(block, column)));
	sum.high = _mm256_add_ps(sum.high, _mm256_mul_ps(value, column_of(block + MATRIX_BLOCK_BYTES / 2, column)));
	return sum;
}

INLINE struct lanes lanes_step_block(struct lanes sum, const int8_t *block, const int8_t *x, const float *scale)
{
	const __m256 scales = _mm256_set1_ps(*scale);
	__m256i value;
	int32_t four;

	memcpy(&four, x, sizeof four);
	value = _mm256_set1_epi32(four);
	sum.low = _mm256_add_ps(sum.low, _mm256_mul_ps(scales, quads_of(block, value)));
	sum.high = _mm256_add_ps(sum.high, _mm256_mul_ps(scales, quads_of(block + MATRIX_BLOCK_BYTES / 2, value)));
	return sum;
}

#include "engine/kernel_rows.h"
#include "engine/kernel_rows16.h"

TARGET static void add_scaled(float *y, const float *x, float factor, size_t count)
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
	.rows = rows,
	.rows_quantised = rows_quantised,
	.rows16 = rows16,
	.rows16_quantised = rows16_quantised,
	.add_scaled = add_scaled,
};
#else
typedef int kernel_avx2_is_for_x86; /* ISO C wants a declaration in each file */
#endif
