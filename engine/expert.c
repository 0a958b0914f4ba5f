/* SPDX-License-Identifier: Apache-2.0 */
/* See expert.h. Gate, up and the activation are one job: a thread that has both rows has all it needs. */
#include "engine/expert.h"

#include "cnre/cnre.h"
#include "engine/shard.h"

#include <errno.h>
#include <math.h>

#define BLOCK_ROWS 64u

_Static_assert(BLOCK_ROWS % MATRIX_GROUP_ROWS == 0, "a block begins with a group");

static uint64_t bytes_needed(uint16_t layout, uint16_t dtype, uint32_t rows, uint32_t columns)
{
	if (layout == MATRIX_ROWS16)
		return matrix_bytes_rows16(rows, columns);
	return (uint64_t)rows * columns * shard_dtype_bytes(dtype);
}

static int make_matrix(const struct expert_part *weight, const struct expert_part *scale, uint32_t rows,
		       uint32_t columns, struct matrix *ret_matrix)
{
	uint16_t dtype = weight->dtype == CNRE_U8 ? CNRE_I8 : weight->dtype;

	if (dtype != CNRE_I8 && dtype != CNRE_F32 && dtype != CNRE_BF16 && dtype != CNRE_F16)
		return -EBADMSG;
	if (weight->layout == MATRIX_ROWS16 && dtype != CNRE_I8)
		return -EBADMSG;
	if (!weight->data || weight->bytes != bytes_needed(weight->layout, dtype, rows, columns))
		return -EBADMSG;
	if ((dtype == CNRE_I8) != (scale->bytes > 0))
		return -EBADMSG;
	if (scale->bytes > 0 &&
	    (!scale->data || scale->dtype != CNRE_F32 || scale->bytes != (uint64_t)rows * sizeof(float)))
		return -EBADMSG;
	*ret_matrix = (struct matrix){.data = weight->data,
				      .scale = scale->bytes > 0 ? scale->data : NULL,
				      .rows = rows,
				      .columns = columns,
				      .dtype = dtype,
				      .layout = weight->layout};
	return 0;
}

int expert_make(const struct config *config, const struct expert_part part[EXPERT_PARTS], struct expert *ret_expert)
{
	const uint32_t hidden = config->hidden, inner = config->intermediate;
	struct expert expert;

	if (make_matrix(&part[CNRE_GATE], &part[CNRE_GATE_SCALE], inner, hidden, &expert.gate) < 0 ||
	    make_matrix(&part[CNRE_UP], &part[CNRE_UP_SCALE], inner, hidden, &expert.up) < 0 ||
	    make_matrix(&part[CNRE_DOWN], &part[CNRE_DOWN_SCALE], hidden, inner, &expert.down) < 0)
		return -EBADMSG;
	if ((expert.gate.dtype == CNRE_I8) != (expert.up.dtype == CNRE_I8))
		return -EBADMSG; /* both meet the same operand */
	*ret_expert = expert;
	return 0;
}

struct gated {
	const struct kernel *kernel;
	const struct expert *expert;
	const struct operand *x;
	float *middle;
};

static void gated_rows(void *job, uint32_t first, uint32_t count)
{
	const struct gated *gated = job;
	float up[BLOCK_ROWS];

	for (uint32_t row = first, end = first + count; row < end; row += BLOCK_ROWS) {
		uint32_t block = end - row < BLOCK_ROWS ? end - row : BLOCK_ROWS;
		float *gate = gated->middle + row;

		operand_rows(gated->kernel, &gated->expert->gate, row, block, gated->x, gate);
		operand_rows(gated->kernel, &gated->expert->up, row, block, gated->x, up);
		for (uint32_t i = 0; i < block; i++)
			gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
	}
}

void expert_compute(const struct compute *compute, const struct expert *expert, struct operand *x, float *middle,
		    float *ret_y)
{
	struct gated gated = {.kernel = compute->kernel, .expert = expert, .x = x, .middle = middle};
	struct operand inner;

	if (x->is_quantised != quantised_applies(&expert->gate)) /* experts of one model may differ in type */
		operand_make(x, &expert->gate, x->x);
	pool_run(compute->pool, gated_rows, &gated, expert->gate.rows, matmul_chunk(&expert->gate));
	operand_make(&inner, &expert->down, middle);
	operand_product(compute, &expert->down, &inner, ret_y);
}
