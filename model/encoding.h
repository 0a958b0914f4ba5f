/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the weights of one matrix are stored, and their scales beside them: the formats that engines know, as arithmetic.
 * A container seldom says which one a tensor has; engines infer it from the number of bytes, and so does model/cut.c.
 * Nothing here knows a tensor name.
 */
#ifndef CNRE_MODEL_ENCODING_H
#define CNRE_MODEL_ENCODING_H

#include "model/catalog.h"

#include <stdint.h>

#define ENCODING_NAME_BYTES 16u
#define ENCODING_LIST_MAX 24u             /* encodings that a layout may name */
#define ENCODING_GROUP UINT16_MAX         /* as block_columns: what the checkpoint says; see encoding_set_group */

enum encoding_scales { ENCODING_NO_SCALES, ENCODING_SCALES, ENCODING_TAG }; /* TAG: one float for the whole matrix */

struct encoding {
	char name[ENCODING_NAME_BYTES];
	uint32_t stored, scale_stored;    /* dtypes that the tensors may have in the file, ENCODING_STORED(…) or'ed */
	uint8_t dtype, scale_dtype;       /* what parts are given as; MODEL_DTYPE_OTHER: as stored */
	uint8_t scales;                   /* enum encoding_scales */
	uint8_t must_be_sole;             /* bytes that could be another encoding of the list too are refused */
	uint16_t weights, elements;       /* in a row, elements stored for each so many weights; the last ones are padded */
	uint16_t block_rows, block_columns; /* weights that one scale covers; 0: the whole extent */
};
#define ENCODING_STORED(dtype) (1u << (dtype))

extern const struct encoding encoding_bf16, encoding_f16, encoding_f32;
extern const struct encoding encoding_int8_row, encoding_int4_row, encoding_int2_row;
extern const struct encoding encoding_int4_g16, encoding_int4_g32, encoding_int4_g48, encoding_int4_g64, encoding_int4_g96,
	encoding_int4_g128, encoding_int4_g192, encoding_int4_g256;
extern const struct encoding encoding_int3_g64, encoding_e8, encoding_mxfp4, encoding_fp8_b128;
/* Rows, or groups of as many columns as a file beside the checkpoint says. */
extern const struct encoding encoding_int8_group, encoding_int4_group;

/* NULL: none of this name. Those with ENCODING_GROUP have none that a user could give. */
const struct encoding *encoding_find(const char *name);
/* Comma-separated names, for messages. */
const char *encoding_list(char *text, size_t text_bytes);

/* A copy in which ENCODING_GROUP is replaced by group (0: the whole row), in the name too. */
struct encoding encoding_set_group(const struct encoding *encoding, uint32_t group);

/* The part that a matrix of rows times columns weights becomes, and its scales; stored: the dtype in the file. */
void encoding_weight_part(const struct encoding *encoding, uint32_t rows, uint32_t columns, uint8_t stored,
			  struct model_part_shape *ret_part);
void encoding_scale_part(const struct encoding *encoding, uint32_t rows, uint32_t columns, uint8_t stored,
			 struct model_part_shape *ret_part);

/* "U8"; of every enum model_dtype. */
const char *encoding_dtype_name(uint32_t dtype);

#endif
