/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in, written for this project's tests, for the header of that name in Colibri's tree: the names that
 * client/colibri/expert_store.c uses, in the order that is known of that tree, and nothing else. No engine is built with it.
 */
#ifndef CNRE_TESTS_SUPPORT_COLIBRI_TENSOR_H
#define CNRE_TESTS_SUPPORT_COLIBRI_TENSOR_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
	COLI_TENSOR_F32,
	COLI_TENSOR_Q8_ROW,
	COLI_TENSOR_Q4_ROW,
	COLI_TENSOR_Q2_ROW,
	COLI_TENSOR_FP8_E4M3_BLOCK,
	COLI_TENSOR_FP4_NATIVE_BLOCK,
	COLI_TENSOR_INT8_BLOCK,
	COLI_TENSOR_INT4_BLOCK,
} ColiTensorFormat;

typedef enum { COLI_SCALE_NONE, COLI_SCALE_F32, COLI_SCALE_UE8M0 } ColiScaleFormat;

typedef struct {
	ColiTensorFormat format;
	ColiScaleFormat scale_format;
	const void *data, *scales;
	size_t data_bytes, scale_bytes;
	int64_t rows, columns;
	uint32_t block_rows, block_columns;
	void *gpu;
} ColiTensorView;

#endif
