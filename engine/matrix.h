/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A weight matrix as it lies in memory: in the checkpoint's own type, at any alignment (a mapped shard gives no better),
 * row after row or in groups of rows. The bytes belong to whoever filled the struct.
 */
#ifndef ENGINE_MATRIX_H
#define ENGINE_MATRIX_H

#include <stddef.h>
#include <stdint.h>

/*
 * MATRIX_ROWS16 is the manager's view of that name, version 1, of int8 rows: groups of sixteen rows; in a group one block
 * of 64 bytes for each four columns; in a block the four columns of its first row, then those of the second, and so on.
 * The last group and the last block are filled up with zeros.
 */
enum matrix_layout { MATRIX_ROWS, MATRIX_ROWS16 };

#define MATRIX_GROUP_ROWS 16u
#define MATRIX_QUAD 4u                    /* columns of a row side by side */
#define MATRIX_BLOCK_BYTES (MATRIX_GROUP_ROWS * MATRIX_QUAD)
#define MATRIX_ROWS16_VIEW "rows16"
#define MATRIX_ROWS16_VERSION 1u

struct matrix {
	const void *data;
	const void *scale;                /* one F32 a row, at any alignment; NULL: none */
	uint32_t rows, columns;
	uint16_t dtype;                   /* CNRE_F32, CNRE_BF16, CNRE_F16, CNRE_I8 */
	uint16_t layout;                  /* enum matrix_layout */
};

/* Blocks of a group. */
static inline size_t matrix_quads(const struct matrix *matrix)
{
	return ((size_t)matrix->columns + MATRIX_QUAD - 1) / MATRIX_QUAD;
}

static inline uint64_t matrix_bytes_rows16(uint32_t rows, uint32_t columns)
{
	uint64_t groups = ((uint64_t)rows + MATRIX_GROUP_ROWS - 1) / MATRIX_GROUP_ROWS;

	return groups * (((uint64_t)columns + MATRIX_QUAD - 1) / MATRIX_QUAD) * MATRIX_BLOCK_BYTES;
}

#endif
