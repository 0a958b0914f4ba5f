/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dense weights (embedding, attention, norms, router, head): read once, in memory until the end, matrices in the
 * checkpoint's own type, norms as F32. Experts are not here: see expert_source.h.
 */
#ifndef ENGINE_WEIGHTS_H
#define ENGINE_WEIGHTS_H

#include "engine/config.h"
#include "engine/matrix.h"
#include "engine/shard.h"

struct layer_weights {
	const float *input_norm, *post_norm, *q_norm, *k_norm;
	struct matrix q, k, v, o, router;
};

struct weights {
	struct matrix embedding, head;
	const float *final_norm;
	struct layer_weights *layer;      /* [config->layers] */
	char *arena;
	uint64_t arena_bytes;             /* reserved address space */
	uint64_t used_bytes;              /* resident */
};

/*
 * weights_load - read the dense weights of a checkpoint
 *
 * Returns:  0, or -EBADMSG (a tensor is missing, or of another shape or type than config.json implies), -ENOMEM,
 *           errors of read; message names the tensor. *ret_weights is set on success only; free it with weights_free.
 */
int weights_load(struct weights *ret_weights, const struct config *config, const struct shard_set *shards,
		 char message[ENGINE_MESSAGE_BYTES]);
void weights_free(struct weights *weights);

#endif
