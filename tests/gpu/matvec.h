/* SPDX-License-Identifier: Apache-2.0 */
/* An expert of two matrices, int8 and int4 with a scale a row, and its products on a CPU: what matvec.cu must give, bit for bit. */
#ifndef CNRE_TESTS_GPU_MATVEC_H
#define CNRE_TESTS_GPU_MATVEC_H

#include <stdint.h>

#define MATVEC_ROWS 768u
#define MATVEC_COLUMNS 2048u
#define MATVEC_THREADS 128u

/* One after another: int8 weights, their scales, int4 weights (two a byte, the first in the lower half, less 8), their scales. */
#define MATVEC_INT8_AT 0ull
#define MATVEC_INT8_SCALES_AT (MATVEC_INT8_AT + (uint64_t)MATVEC_ROWS * MATVEC_COLUMNS)
#define MATVEC_INT4_AT (MATVEC_INT8_SCALES_AT + 4ull * MATVEC_ROWS)
#define MATVEC_INT4_SCALES_AT (MATVEC_INT4_AT + (uint64_t)MATVEC_ROWS * MATVEC_COLUMNS / 2)
#define MATVEC_BYTES (MATVEC_INT4_SCALES_AT + 4ull * MATVEC_ROWS)

void matvec_fill(void *expert, uint64_t bytes, uint32_t seed); /* bytes: MATVEC_BYTES at least */
void matvec_int8(const unsigned char *expert, const int8_t x[MATVEC_COLUMNS], float y[MATVEC_ROWS]);
void matvec_int4(const unsigned char *expert, const int8_t x[MATVEC_COLUMNS], float y[MATVEC_ROWS]);

#endif
