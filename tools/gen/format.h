/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats in which the three matrices of an expert are stored: how many elements of which type a matrix of so many rows
 * and columns takes, and how many its scales. Families differ in how they spell and arrange them; see family.h.
 */
#ifndef CNRE_TOOLS_GEN_FORMAT_H
#define CNRE_TOOLS_GEN_FORMAT_H

#include <stdint.h>

enum gen_matrix { GEN_GATE, GEN_UP, GEN_DOWN, GEN_MATRICES };

enum gen_format {
	GEN_INT8_ROW, GEN_BF16, GEN_F16, GEN_F32, GEN_INT4_ROW, GEN_INT4_GS64, GEN_INT4_GS128, GEN_INT2_ROW, GEN_INT3_G64,
	GEN_IQ3, GEN_MXFP4, GEN_FP4, GEN_FP8_BLOCK, GEN_FP8_BLOCK_BF16,
	GEN_FORMATS                       /* none */
};
#define GEN_FORMAT_BIT(format) (1u << (format))
#define GEN_PLAIN (GEN_FORMAT_BIT(GEN_BF16) | GEN_FORMAT_BIT(GEN_F16) | GEN_FORMAT_BIT(GEN_F32))
#define GEN_INT4 (GEN_FORMAT_BIT(GEN_INT4_ROW) | GEN_FORMAT_BIT(GEN_INT4_GS64) | GEN_FORMAT_BIT(GEN_INT4_GS128))

/* What the bytes of a tensor are made of; see fill.h. */
enum gen_fill {
	GEN_FILL_STRUCTURE,               /* by structure.h and payload.h: OLMoE, which an engine runs */
	GEN_FILL_BYTES, GEN_FILL_INT8, GEN_FILL_BF16, GEN_FILL_F16, GEN_FILL_F32, GEN_FILL_E4M3, GEN_FILL_IQ3,
	GEN_FILL_SCALE_F32, GEN_FILL_SCALE_BF16, GEN_FILL_SCALE_E8M0, GEN_FILL_TAG,
};

struct gen_element {
	const char *dtype;                /* as safetensors spells it; NULL: there is no such tensor */
	uint8_t bytes, fill;
};

struct gen_format_shape {
	const char *name;
	struct gen_element weight, scale;
	uint16_t group, group_elements;   /* so many weights of a row take so many elements; a last group is whole */
	uint16_t block_rows, block_columns; /* weights one scale covers; 0: all of the extent */
	uint16_t multiple;                /* of which the columns have to be one */
};

const struct gen_format_shape *gen_format_shape(enum gen_format format);
const char *gen_format_name(enum gen_format format); /* NULL past the end */
int gen_format_parse(const char *text, enum gen_format *ret_format); /* 0, or -EINVAL: no such name */
/* The names of a set of formats, for messages. */
const char *gen_format_list(uint32_t formats, char *text, uint32_t text_bytes);

/* Elements of a row, and of the scales of a matrix in each direction; extents are bounded, so sums stay below 2^43. */
uint32_t gen_format_columns(enum gen_format format, uint32_t columns);
uint32_t gen_format_scale_rows(enum gen_format format, uint32_t rows);
uint32_t gen_format_scale_columns(enum gen_format format, uint32_t columns);

#endif
