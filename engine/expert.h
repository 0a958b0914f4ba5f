/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A routed expert: the three matrices as the computation wants them (struct expert), made from six parts wherever
 * these came from, and the SwiGLU that uses them.
 */
#ifndef ENGINE_EXPERT_H
#define ENGINE_EXPERT_H

#include "engine/config.h"
#include "engine/matmul.h"

#define EXPERT_PARTS 6u                   /* numbered as CNRE_GATE .. CNRE_DOWN_SCALE */

struct expert {
	struct matrix gate, up, down;
};

struct expert_part {
	const void *data;
	uint64_t bytes;                   /* 0: no such part */
	uint16_t dtype;                   /* enum cnre_dtype; U8 is taken for the bits of I8 */
	uint16_t layout;                  /* enum matrix_layout; of weights */
};

/*
 * Returns 0, or -EBADMSG if the parts are not what config needs: int8 rows with scales, in either layout, or F32, BF16, F16
 * rows without.
 */
int expert_make(const struct config *config, const struct expert_part part[EXPERT_PARTS], struct expert *ret_expert);

/*
 * y = down(silu(gate x) * (up x)). x->x is the input; the rest of x is made when an expert first needs it, and
 * kept for the next expert that meets the same input. middle is scratch of config->intermediate floats.
 */
void expert_compute(const struct compute *compute, const struct expert *expert, struct operand *x, float *middle,
		    float *ret_y);

#endif
