/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors lie in which shard, the shard's safetensors header, and a walk over all bytes of a shard. */
#ifndef CNRE_TOOLS_GEN_LAYOUT_H
#define CNRE_TOOLS_GEN_LAYOUT_H

#include "tools/gen/payload.h"
#include "tools/gen/tensor.h"

#include <stddef.h>
#include <stdint.h>

#define GEN_SHARDS_MAX 4096u

struct gen_shard {
	uint32_t first_tensor, tensor_count;
	int is_mtp;                       /* has only tensors of MTP rows, and a name that says so */
	uint64_t data_bytes;
};

struct gen_layout {
	const struct gen_model *model;
	struct gen_tensor *tensor;
	uint32_t tensor_count, shard_count;
	struct gen_shard *shard;
};

/* 0, or -ENOMEM, -E2BIG (more than GEN_SHARDS_MAX shards). */
int gen_layout_open(struct gen_layout *layout, const struct gen_model *model);
void gen_layout_done(struct gen_layout *layout);

const char *gen_layout_shard_name(const struct gen_layout *layout, uint32_t shard, char text[GEN_NAME_BYTES]);

/* Whether some layout could give a shard that name. */
int gen_layout_is_shard_name(const char *name);

/* The first bytes of a shard: length, header, padding. Free *ret_text. 0 or -ENOMEM. */
int gen_layout_header(const struct gen_layout *layout, uint32_t shard, char **ret_text, size_t *ret_bytes);

/*
 * gen_layout_walk - all bytes of a shard in order, in pieces of at most GEN_CHUNK_BYTES but for the header
 *
 * @tensor  NULL for the header; offset counts from the start of the tensor or the file
 *
 * Returns:  0, -ENOMEM, or the first negative value that step returned.
 */
typedef int gen_step(void *context, const struct gen_tensor *tensor, uint64_t offset, const void *bytes, size_t count);
int gen_layout_walk(const struct gen_layout *layout, uint32_t shard, struct gen_payload *payload, gen_step *step,
		    void *context);

#endif
