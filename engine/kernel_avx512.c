/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels for AVX-512 F and BW: one register is the 16 lanes of kernel.h. Called only after kernel_find has asked
 * the CPU.
 */
#if defined(__x86_64__)

#include "engine/kernel.h"

#include "cnre/cnre.h"
#include "engine/quantised.h"

#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx512f,avx512bw")))
#define INLINE static inline __attribute__((always_inline)) TARGET

struct lanes {
	__m512 all;
};

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

INLINE struct lanes lanes_zero(void)
{
	return (struct lanes){_mm512_setzero_ps()};
}

INLINE struct lanes lanes_load(const float *x)
{
	return (struct lanes){_mm512_loadu_ps(x)};
}

INLINE float lanes_fold(struct lanes sum)
{
	__m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sum.all),
				     _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(sum.all), 1)));
	__m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
	__m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));

	return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

INLINE struct lanes lanes_step(struct lanes sum, const char *row, struct lanes x, uint16_t dtype)
{
	return (struct lanes){_mm512_add_ps(sum.all, _mm512_mul_ps(x.all, load(row, dtype)))};
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

INLINE struct lanes lanes_step_quantised(struct lanes sum, const int8_t *weight, const int8_t *x, const float *scale)
{
	__m512 products = quads(_mm512_loadu_si512(weight), _mm512_loadu_si512(x));

	return (struct lanes){_mm512_add_ps(sum.all, _mm512_mul_ps(_mm512_loadu_ps(scale), products))};
}

/* ---- of a group of sixteen rows; a lane is a row here ---- */

#define ROWS16_LANES_AT_ONCE 16u
#define ROWS16_BLOCK_QUADS (1u << 28) /* once is enough */

INLINE struct lanes lanes_add(struct lanes a, struct lanes b)
{
	return (struct lanes){_mm512_add_ps(a.all, b.all)};
}

INLINE void lanes_store(float *to, struct lanes sum)
{
	_mm512_storeu_ps(to, sum.all);
}

/* One of the four columns of a block, as the top byte of each word, which a shift then extends. */
INLINE struct lanes lanes_step_column(struct lanes sum, const int8_t *block, const uint32_t column, float x)
{
	__m512i words = _mm512_slli_epi32(_mm512_loadu_si512(block), 24 - 8 * column);
	__m512 weights = _mm512_cvtepi32_ps(_mm512_srai_epi32(words, 24));

	return (struct lanes){_mm512_add_ps(sum.all, _mm512_mul_ps(_mm512_set1_ps(x), weights))};
}

INLINE struct lanes lanes_step_block(struct lanes sum, const int8_t *block, const int8_t *x, const float *scale)
{
	int32_t four;

	memcpy(&four, x, sizeof four);
	return (struct lanes){_mm512_add_ps(sum.all, _mm512_mul_ps(_mm512_set1_ps(*scale),
								   quads(_mm512_loadu_si512(block), _mm512_set1_epi32(four))))};
}

#include "engine/kernel_rows.h"
#include "engine/kernel_rows16.h"

TARGET static void add_scaled(float *y, const float *x, float factor, size_t count)
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
	.rows = rows,
	.rows_quantised = rows_quantised,
	.rows16 = rows16,
	.rows16_quantised = rows16_quantised,
	.add_scaled = add_scaled,
};
#else
typedef int kernel_avx512_is_for_x86; /* ISO C wants a declaration in each file */
#endif
