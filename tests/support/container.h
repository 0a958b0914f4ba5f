/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the expert containers of model families are, written down a third time: neither the manager's adapters nor the
 * generator's tables are believed. Where each part of an expert lies, how long it is, and what shape and type it has,
 * from names and sizes alone; the bytes are those of truth.h. Reports by return value.
 */
#ifndef CNRE_TESTS_SUPPORT_CONTAINER_H
#define CNRE_TESTS_SUPPORT_CONTAINER_H

#include "cnre/cnre.h"
#include "tests/support/truth.h"

#include <stddef.h>
#include <stdint.h>

enum container_kind {
	CONTAINER_PLAIN,                  /* PREFIXlayers.L.mlp.experts.E.gate_proj.weight */
	CONTAINER_QS,                     /* the same, and .weight.qs: GLM */
	CONTAINER_SCALE_INV,              /* the same, and .weight_scale_inv: Qwen3.8 */
	CONTAINER_SCALE,                  /* the same, and .weight_scale: MiMo */
	CONTAINER_MERGED,                 /* PREFIXlayers.L.mlp.experts.E.merged_weight and .qs: OLMoE, Qwen3.6 */
	CONTAINER_FUSED,                  /* PREFIXlayers.L.mlp.experts.gate_up_proj and .down_proj, and .qs: Inkling */
	CONTAINER_PACKED,                 /* PREFIXlayers.L.block_sparse_moe.experts.E.w1.weight_packed, _scale: Kimi */
	CONTAINER_FFN,                    /* layers.L.ffn.experts.E.w1.weight, .scale; mtp.K.ffn…: DeepSeek */
};

struct container {
	enum container_kind kind;
	const char *prefix;
	uint32_t layers;                  /* those after them are drafts */
	uint32_t experts;                 /* of a layer, where one tensor holds them all */
	uint32_t width, intermediate;     /* of an expert; width is the model's, or that of its latent space */
};

struct container_part {
	const unsigned char *data;
	uint64_t bytes;                   /* 0: no such part */
	uint32_t rows, columns;
	uint16_t dtype, block_rows, block_columns;
};

#define CONTAINER_WHY_BYTES 256

/* Bytes of an expert whose gate, up and down have these formats, named as cnre-gen names them. */
uint64_t container_expert_bytes(const struct container *container, const char *const format[3]);

/* 0, or -1 and why: a tensor is not in the files, or is not as long or of the type it has to be. */
int container_find(const struct container *container, const struct truth *truth, uint32_t layer, uint32_t expert,
		   const char *const format[3], struct container_part ret_part[CNRE_ROLES],
		   char why[CONTAINER_WHY_BYTES]);

/* 0, or -1 and in what the leased expert differs from the parts. With `data` NULL in all parts only shapes are looked at. */
int container_compare(const struct container_part part[CNRE_ROLES], const struct cnre_expert *expert,
		      char why[CONTAINER_WHY_BYTES]);

#endif
