/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The view rows16, version 1, of experts whose matrices are int8 rows with one F32 scale a row: sixteen rows side by side,
 * so that one load of 64 bytes has four consecutive columns of each. A kernel then sums sixteen rows without ever adding
 * across a register, in the same order as it would sum each row alone, and reads a matrix from its first byte to its last.
 *
 *   weight (row, column)  is byte  ((row / 16 * quads + column / 4) * 16 + row % 16) * 4 + column % 4
 *
 * where quads is the number of columns divided by 4, rounded up. Rows and columns that the matrix does not have are 0.
 * A part says rows: groups of sixteen rows; columns: bytes of a group, 64 * quads; dtype I8; block_rows 16, block_columns 4.
 * Scales are as in the checkpoint.
 */
#include "model/view.h"

#include "model/family.h"
#include "model/objects.h"

#include <errno.h>
#include <string.h>

#define ROWS 16u
#define QUAD 4u
#define TILE (ROWS * QUAD) /* bytes that hold one quad of columns of a group */

static const struct {
	enum model_role weight, scale;
} matrices[] = {{MODEL_GATE, MODEL_GATE_SCALE}, {MODEL_UP, MODEL_UP_SCALE}, {MODEL_DOWN, MODEL_DOWN_SCALE}};

#define MATRICES (sizeof matrices / sizeof matrices[0])

static uint64_t quads_of(const struct model_part_shape *weight)
{
	return ((uint64_t)weight->columns + QUAD - 1) / QUAD;
}

static uint64_t groups_of(const struct model_part_shape *weight)
{
	return ((uint64_t)weight->rows + ROWS - 1) / ROWS;
}

static int is_int8_rows(const struct model_part_shape *weight, const struct model_part_shape *scale)
{
	return weight->dtype == MODEL_I8 && weight->rows > 0 && weight->columns > 0 &&
	       weight->bytes == (uint64_t)weight->rows * weight->columns && scale->dtype == MODEL_F32 &&
	       scale->bytes == (uint64_t)weight->rows * sizeof(float);
}

static int shape_weight(const struct model_part_shape *weight, struct model_part_shape *ret_part)
{
	uint64_t columns = quads_of(weight) * TILE, groups = groups_of(weight);

	if (columns > UINT32_MAX || columns * groups > MODEL_OBJECT_BYTES_MAX) /* at most 2^32 times 2^28 */
		return -E2BIG;
	*ret_part = (struct model_part_shape){.bytes = columns * groups,
					      .rows = (uint32_t)groups,
					      .columns = (uint32_t)columns,
					      .dtype = MODEL_I8,
					      .block_rows = ROWS,
					      .block_columns = QUAD};
	return 0;
}

static int shape_rows16(const struct model_shape *raw, struct model_shape *ret_shape)
{
	uint32_t known = 0;

	for (uint32_t i = 0; i < MATRICES; i++) {
		const struct model_part_shape *weight = &raw->part[matrices[i].weight], *scale = &raw->part[matrices[i].scale];
		int r;

		if (!is_int8_rows(weight, scale))
			return -ENOTSUP;
		r = shape_weight(weight, &ret_shape->part[matrices[i].weight]);
		if (r < 0)
			return r;
		ret_shape->part[matrices[i].scale] = *scale;
		known |= 1u << matrices[i].weight | 1u << matrices[i].scale;
	}
	for (uint32_t role = 0; role < MODEL_ROLES; role++)
		if (raw->part[role].bytes > 0 && (known & 1u << role) == 0)
			return -ENOTSUP;
	return 0;
}

/* The rows of one group, of which the matrix has row_count. */
static void pack_group(const unsigned char *from, uint64_t columns, uint32_t row_count, unsigned char *to)
{
	const uint64_t whole = columns / QUAD;

	for (uint64_t quad = 0; quad < whole; quad++)
		for (uint32_t row = 0; row < row_count; row++)
			memcpy(to + quad * TILE + row * QUAD, from + row * columns + quad * QUAD, QUAD);
	if (columns % QUAD == 0)
		return;
	memset(to + whole * TILE, 0, TILE);
	for (uint32_t row = 0; row < row_count; row++)
		memcpy(to + whole * TILE + row * QUAD, from + row * columns + whole * QUAD, columns % QUAD);
}

static void pack(const struct model_part_shape *weight, const unsigned char *from, unsigned char *to)
{
	const uint64_t group_bytes = quads_of(weight) * TILE;

	for (uint32_t row = 0; row < weight->rows; row += ROWS, to += group_bytes) {
		uint32_t left = weight->rows - row, row_count = left < ROWS ? left : ROWS;

		if (row_count < ROWS)
			memset(to, 0, group_bytes);
		pack_group(from + (uint64_t)row * weight->columns, weight->columns, row_count, to);
	}
}

static void prepare_rows16(const struct model_shape *raw, const unsigned char *const from[MODEL_ROLES],
			   unsigned char *const to[MODEL_ROLES])
{
	for (uint32_t i = 0; i < MATRICES; i++) {
		const uint32_t weight = matrices[i].weight, scale = matrices[i].scale;

		pack(&raw->part[weight], from[weight], to[weight]);
		memcpy(to[scale], from[scale], raw->part[scale].bytes);
	}
}

const struct model_view view_rows16 = {
	.name = "rows16",
	.version = 1,
	.shape = shape_rows16,
	.prepare = prepare_rows16,
};
