/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of any tensor, or of any piece of it: a function of the model and the piece alone. Dense tensors come from
 * structure.h row by row; expert weights, nearly all of a checkpoint, are table look-ups at memory speed.
 */
#ifndef CNRE_TOOLS_GEN_PAYLOAD_H
#define CNRE_TOOLS_GEN_PAYLOAD_H

#include "tools/gen/model.h"
#include "tools/gen/random.h"
#include "tools/gen/structure.h"
#include "tools/gen/tensor.h"

#include <stdint.h>

#define GEN_CHUNK_BYTES (4u << 20)        /* the largest piece; no row or unit is longer */

enum gen_class { GEN_CLASS_INTO, GEN_CLASS_NOISE, GEN_CLASS_QUIET, GEN_CLASSES }; /* rows of experts by deviation */

struct gen_payload {
	struct gen_structure structure;
	float deviation[GEN_CLASSES];
	int8_t as_int8[GEN_QUANTILES];
	uint16_t as_bf16[GEN_CLASSES][GEN_QUANTILES], as_f16[GEN_CLASSES][GEN_QUANTILES];
	float as_f32[GEN_CLASSES][GEN_QUANTILES];
	float row[GEN_EXTENT_MAX];        /* scratch */
};

/* Rounds to nearest even; finite values. */
uint16_t gen_payload_to_bf16(float value);

/* Table entries first, first + 1, … of a key's stream; first is a multiple of 4. */
void gen_payload_look_up_int8(const int8_t *table, uint64_t key, uint64_t first, uint64_t count, int8_t *to);
void gen_payload_look_up_16(const uint16_t *table, uint64_t key, uint64_t first, uint64_t count, uint16_t *to);
void gen_payload_look_up_f32(const float *table, uint64_t key, uint64_t first, uint64_t count, float *to);

void gen_payload_open(struct gen_payload *payload, const struct gen_model *model);

/* Pieces begin at multiples of this; at most GEN_CHUNK_BYTES. */
uint64_t gen_payload_unit(const struct gen_tensor *tensor);

/* bytes [offset, offset + bytes) of a tensor; both multiples of the unit, but for the tensor's end. */
void gen_payload_fill(struct gen_payload *payload, const struct gen_tensor *tensor, uint64_t offset, uint64_t bytes,
		      void *to);

#endif
