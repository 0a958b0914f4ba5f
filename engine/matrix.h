/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A weight matrix as it lies in memory: row-major, in the checkpoint's own type, at any alignment (a mapped shard
 * gives no better). The bytes belong to whoever filled the struct.
 */
#ifndef ENGINE_MATRIX_H
#define ENGINE_MATRIX_H

#include <stddef.h>
#include <stdint.h>

struct matrix {
	const void *data;
	const void *scale;                /* one F32 a row, at any alignment; NULL: none */
	uint32_t rows, columns;
	uint16_t dtype;                   /* CNRE_F32, CNRE_BF16, CNRE_F16, CNRE_I8 */
};

#endif
