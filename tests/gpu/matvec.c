/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/matvec.h"

#include "tests/support/gpu_jobs.h"

#include <string.h>

/* Scales from random bytes: floats that no other bits stand for, and that no product makes a NaN of. */
static void fill_scales(unsigned char *scales)
{
	for (uint32_t i = 0; i < MATVEC_ROWS; i++) {
		float scale = (float)(1 + scales[4 * i] + 256 * scales[4 * i + 1]) * 0x1.3p-18f;

		memcpy(scales + 4 * i, &scale, sizeof scale);
	}
}

void matvec_fill(void *expert, uint64_t bytes, uint32_t seed)
{
	gpu_fill(expert, bytes, seed);
	fill_scales((unsigned char *)expert + MATVEC_INT8_SCALES_AT);
	fill_scales((unsigned char *)expert + MATVEC_INT4_SCALES_AT);
}

static float scaled(int32_t sum, const unsigned char *scales, uint32_t row)
{
	float scale;

	memcpy(&scale, scales + 4 * row, sizeof scale);
	return (float)sum * scale;
}

void matvec_int8(const unsigned char *expert, const int8_t x[MATVEC_COLUMNS], float y[MATVEC_ROWS])
{
	const int8_t *weight = (const int8_t *)expert + MATVEC_INT8_AT;

	for (uint32_t row = 0; row < MATVEC_ROWS; row++) {
		int32_t sum = 0;

		for (uint32_t i = 0; i < MATVEC_COLUMNS; i++)
			sum += *weight++ * x[i];
		y[row] = scaled(sum, expert + MATVEC_INT8_SCALES_AT, row);
	}
}

void matvec_int4(const unsigned char *expert, const int8_t x[MATVEC_COLUMNS], float y[MATVEC_ROWS])
{
	const unsigned char *weight = expert + MATVEC_INT4_AT;

	for (uint32_t row = 0; row < MATVEC_ROWS; row++) {
		int32_t sum = 0;

		for (uint32_t i = 0; i < MATVEC_COLUMNS; i += 2, weight++)
			sum += ((*weight & 15) - 8) * x[i] + ((*weight >> 4) - 8) * x[i + 1];
		y[row] = scaled(sum, expert + MATVEC_INT4_SCALES_AT, row);
	}
}
