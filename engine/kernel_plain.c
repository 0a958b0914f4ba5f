/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels in plain C: the definition of the result, and what runs where there is no AVX2. */
#include "engine/kernel.h"

#include "cnre/cnre.h"
#include "engine/quantised.h"

#include <string.h>

/* Half precision to single, exact; subnormal halves become normal singles. */
static float half_to_float(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = half & 0x7fffu, bits;
	float value;

	if (magnitude >= 0x7c00u) { /* infinity, NaN (made quiet, as the hardware does) */
		bits = 0x7f800000u | (magnitude & 0x3ffu) << 13;
		if (magnitude > 0x7c00u)
			bits |= 0x00400000u;
	} else if (magnitude >= 0x0400u) {
		bits = (magnitude << 13) + 0x38000000u;
	} else {
		value = (float)magnitude * 0x1p-24f;
		memcpy(&bits, &value, sizeof bits);
	}
	bits |= sign;
	memcpy(&value, &bits, sizeof value);
	return value;
}

float kernel_element(const struct matrix *matrix, size_t index)
{
	uint32_t bits = 0;
	uint16_t half;
	float value;

	switch (matrix->dtype) {
	case CNRE_F32:
		memcpy(&value, (const char *)matrix->data + index * sizeof value, sizeof value);
		return value;
	case CNRE_BF16:
	case CNRE_F16:
		memcpy(&half, (const char *)matrix->data + index * sizeof half, sizeof half);
		if (matrix->dtype == CNRE_F16)
			return half_to_float(half);
		bits = (uint32_t)half << 16;
		memcpy(&value, &bits, sizeof value);
		return value;
	default:
		return (float)((const int8_t *)matrix->data)[index];
	}
}

static float fold(float lane[KERNEL_LANES])
{
	for (uint32_t half = KERNEL_LANES / 2; half > 0; half /= 2)
		for (uint32_t i = 0; i < half; i++)
			lane[i] += lane[i + half];
	return lane[0];
}

/* count elements from index on; the switch stands outside the loops so that the compiler can vectorise them. */
static void unpack(const struct matrix *matrix, size_t index, size_t count, float weight[KERNEL_LANES])
{
	const int8_t *bytes = (const int8_t *)matrix->data + index;

	switch (matrix->dtype) {
	case CNRE_F32:
		memcpy(weight, (const char *)matrix->data + index * sizeof *weight, count * sizeof *weight);
		break;
	case CNRE_I8:
		for (size_t j = 0; j < count; j++)
			weight[j] = (float)bytes[j];
		break;
	default:
		for (size_t j = 0; j < count; j++)
			weight[j] = kernel_element(matrix, index + j);
	}
}

static float dot(const struct matrix *matrix, size_t row, const float *x)
{
	float lane[KERNEL_LANES] = {0};

	for (size_t i = 0; i < matrix->columns; i += KERNEL_LANES) {
		size_t left = matrix->columns - i, count = left < KERNEL_LANES ? left : KERNEL_LANES;
		float weight[KERNEL_LANES] = {0}, value[KERNEL_LANES] = {0};

		unpack(matrix, row * matrix->columns + i, count, weight);
		memcpy(value, x + i, count * sizeof *value);
		for (size_t j = 0; j < KERNEL_LANES; j++)
			lane[j] += value[j] * weight[j];
	}
	return fold(lane);
}

static void rows_plain(const struct matrix *matrix, uint32_t first, uint32_t count, const float *x, float *ret_y)
{
	for (uint32_t i = 0; i < count; i++)
		ret_y[i] = dot(matrix, (size_t)first + i, x);
	kernel_scale_rows(matrix, first, count, ret_y);
}

/* One group of 64 weights, the last one of a row padded with zeros by the caller. */
static void add_quads(float lane[KERNEL_LANES], const int8_t *weight, const int8_t *x, const float *scale)
{
	for (uint32_t j = 0; j < KERNEL_LANES; j++) {
		int32_t sum = 0;

		for (uint32_t i = KERNEL_QUAD * j; i < KERNEL_QUAD * (j + 1); i++)
			sum += weight[i] * x[i];
		lane[j] += scale[j] * (float)sum;
	}
}

static float dot_quantised(const struct matrix *matrix, size_t row, const struct quantised *x)
{
	const int8_t *weight = (const int8_t *)matrix->data + row * matrix->columns;
	float lane[KERNEL_LANES] = {0};

	for (size_t i = 0; i < matrix->columns; i += KERNEL_GROUP) {
		size_t left = matrix->columns - i;
		int8_t padded[KERNEL_GROUP] = {0};

		memcpy(padded, weight + i, left < KERNEL_GROUP ? left : KERNEL_GROUP);
		add_quads(lane, padded, x->value + i, x->scale + i / KERNEL_QUAD);
	}
	return fold(lane);
}

static void rows_quantised_plain(const struct matrix *matrix, uint32_t first, uint32_t count, const struct quantised *x,
				 float *ret_y)
{
	for (uint32_t i = 0; i < count; i++)
		ret_y[i] = dot_quantised(matrix, (size_t)first + i, x);
	kernel_scale_rows(matrix, first, count, ret_y);
}

/*
 * ---- groups of sixteen rows ----
 *
 * The same sums in the same order, with the rows of a group in the innermost loops, which a compiler for any CPU with
 * vectors makes vectors of.
 */

struct group_sums {
	float lane[KERNEL_LANES][MATRIX_GROUP_ROWS];
};

static const int8_t *block_of(const struct matrix *matrix, size_t row, size_t quad)
{
	return (const int8_t *)matrix->data + (row / MATRIX_GROUP_ROWS * matrix_quads(matrix) + quad) * MATRIX_BLOCK_BYTES;
}

static void fold_group(struct group_sums *sums, uint32_t count, float *ret_y)
{
	for (uint32_t half = KERNEL_LANES / 2; half > 0; half /= 2)
		for (uint32_t i = 0; i < half; i++)
			for (uint32_t r = 0; r < MATRIX_GROUP_ROWS; r++)
				sums->lane[i][r] += sums->lane[i + half][r];
	memcpy(ret_y, sums->lane[0], count * sizeof *ret_y);
}

static void add_column(float lane[MATRIX_GROUP_ROWS], const int8_t *block, uint32_t column, float x)
{
	for (uint32_t r = 0; r < MATRIX_GROUP_ROWS; r++)
		lane[r] += x * (float)block[r * MATRIX_QUAD + column];
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "as the checkpoint's own numbers");

/* Sixteen times the same two columns of x, 16 bits each. */
static void spread(const int8_t *x, uint32_t first, int16_t ret_pairs[2 * MATRIX_GROUP_ROWS])
{
	uint32_t both = (uint16_t)x[first] | (uint32_t)(uint16_t)x[first + 2] << 16, all[MATRIX_GROUP_ROWS];

	for (uint32_t r = 0; r < MATRIX_GROUP_ROWS; r++)
		all[r] = both;
	memcpy(ret_pairs, all, sizeof all);
}

/* The lower half of a number, with its sign. */
static int16_t low_byte(int16_t pair)
{
	return (int16_t)((int16_t)((uint16_t)pair << 8) >> 8);
}

static int32_t low_half(int32_t quad)
{
	return (int32_t)((uint32_t)quad << 16) >> 16;
}

/*
 * Bytes become 16 bits wide by shifts, which vectors have, and not by picking every fourth, which costs them most. Two
 * products fit, since x lies in -127 .. 127, so nothing is lost.
 */
static void add_block(float lane[MATRIX_GROUP_ROWS], const int8_t *block, const int8_t *x, float scale)
{
	int16_t pair[2 * MATRIX_GROUP_ROWS], even[2 * MATRIX_GROUP_ROWS], odd[2 * MATRIX_GROUP_ROWS];
	int32_t quad[MATRIX_GROUP_ROWS];

	memcpy(pair, block, sizeof pair);
	spread(x, 0, even);
	spread(x, 1, odd);
	for (uint32_t i = 0; i < 2 * MATRIX_GROUP_ROWS; i++)
		pair[i] = (int16_t)(low_byte(pair[i]) * even[i] + (pair[i] >> 8) * odd[i]);
	memcpy(quad, pair, sizeof quad);
	for (uint32_t r = 0; r < MATRIX_GROUP_ROWS; r++)
		lane[r] += scale * (float)(low_half(quad[r]) + (quad[r] >> 16));
}

static uint32_t rows_left(uint32_t done, uint32_t count)
{
	return count - done < MATRIX_GROUP_ROWS ? count - done : MATRIX_GROUP_ROWS;
}

static void rows16_plain(const struct matrix *matrix, uint32_t first, uint32_t count, const float *x, float *ret_y)
{
	for (uint32_t i = 0; i < count; i += MATRIX_GROUP_ROWS) {
		struct group_sums sums = {0};

		for (size_t column = 0; column < matrix->columns; column++)
			add_column(sums.lane[column % KERNEL_LANES], block_of(matrix, first + i, column / MATRIX_QUAD),
				   column % MATRIX_QUAD, x[column]);
		fold_group(&sums, rows_left(i, count), ret_y + i);
	}
	kernel_scale_rows(matrix, first, count, ret_y);
}

static void rows16_quantised_plain(const struct matrix *matrix, uint32_t first, uint32_t count,
				   const struct quantised *x, float *ret_y)
{
	for (uint32_t i = 0; i < count; i += MATRIX_GROUP_ROWS) {
		struct group_sums sums = {0};

		for (size_t quad = 0; quad < matrix_quads(matrix); quad++)
			add_block(sums.lane[quad % KERNEL_LANES], block_of(matrix, first + i, quad),
				  x->value + quad * KERNEL_QUAD, x->scale[quad]);
		fold_group(&sums, rows_left(i, count), ret_y + i);
	}
	kernel_scale_rows(matrix, first, count, ret_y);
}

static void add_scaled_plain(float *y, const float *x, float factor, size_t count)
{
	for (size_t i = 0; i < count; i++)
		y[i] += factor * x[i];
}

const struct kernel kernel_plain = {
	.name = "plain",
	.rows = rows_plain,
	.rows_quantised = rows_quantised_plain,
	.rows16 = rows16_plain,
	.rows16_quantised = rows16_quantised_plain,
	.add_scaled = add_scaled_plain,
};
