/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of tensors that no engine of ours computes with: pseudo-random by seed and name, never NaN or infinite when read as
 * what they are, scales of a size that keeps products near one.
 */
#ifndef CNRE_TOOLS_GEN_FILL_H
#define CNRE_TOOLS_GEN_FILL_H

#include "tools/gen/payload.h"
#include "tools/gen/tensor.h"

#include <stdint.h>

#define GEN_FILL_UNIT 4096u               /* pieces begin at multiples of this */

/* bytes [offset, offset + bytes) of a tensor with this key. */
void gen_fill(const struct gen_payload *payload, const struct gen_tensor *tensor, uint64_t key, uint64_t offset,
	      uint64_t bytes, void *to);

#endif
