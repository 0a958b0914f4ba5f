/* SPDX-License-Identifier: Apache-2.0 */
/* The formats of weights, as tables; see encoding.h. */
#include "model/encoding.h"

#include "base/check.h"
#include "model/safetensors.h"

#include <stdio.h>
#include <string.h>

#define BYTES (ENCODING_STORED(MODEL_U8) | ENCODING_STORED(MODEL_I8))
#define FLOATS (ENCODING_STORED(MODEL_F32) | ENCODING_STORED(MODEL_BF16) | ENCODING_STORED(MODEL_F16))

#define PLAIN(stored_dtype) .stored = ENCODING_STORED(stored_dtype), .weights = 1, .elements = 1
#define FLOAT_SCALES \
	.scales = ENCODING_SCALES, .scale_stored = ENCODING_STORED(MODEL_F32), .scale_dtype = MODEL_F32, .block_rows = 1

const struct encoding encoding_bf16 = {.name = "bf16", PLAIN(MODEL_BF16)};
const struct encoding encoding_f16 = {.name = "f16", PLAIN(MODEL_F16)};
const struct encoding encoding_f32 = {.name = "f32", PLAIN(MODEL_F32)};

/* Two's complement whichever of the two dtypes a converter wrote, so an engine is told I8. */
const struct encoding encoding_int8_row = {
	.name = "int8-row", .stored = BYTES, .dtype = MODEL_I8, .weights = 1, .elements = 1, FLOAT_SCALES};
const struct encoding encoding_int8_group = {.name = "int8",
					     .stored = BYTES,
					     .dtype = MODEL_I8,
					     .weights = 1,
					     .elements = 1,
					     FLOAT_SCALES,
					     .block_columns = ENCODING_GROUP};

#define INT4 .stored = BYTES, .weights = 2, .elements = 1, FLOAT_SCALES
const struct encoding encoding_int4_row = {.name = "int4-row", INT4};
const struct encoding encoding_int4_g16 = {.name = "int4-g16", INT4, .block_columns = 16};
const struct encoding encoding_int4_g32 = {.name = "int4-g32", INT4, .block_columns = 32};
const struct encoding encoding_int4_g48 = {.name = "int4-g48", INT4, .block_columns = 48};
const struct encoding encoding_int4_g64 = {.name = "int4-g64", INT4, .block_columns = 64};
const struct encoding encoding_int4_g96 = {.name = "int4-g96", INT4, .block_columns = 96};
const struct encoding encoding_int4_g128 = {.name = "int4-g128", INT4, .block_columns = 128};
const struct encoding encoding_int4_g192 = {.name = "int4-g192", INT4, .block_columns = 192};
const struct encoding encoding_int4_g256 = {.name = "int4-g256", INT4, .block_columns = 256};
const struct encoding encoding_int4_group = {.name = "int4", INT4, .block_columns = ENCODING_GROUP};

const struct encoding encoding_int2_row = {
	.name = "int2-row", .stored = BYTES, .weights = 4, .elements = 1, FLOAT_SCALES};
const struct encoding encoding_int3_g64 = {
	.name = "int3-g64", .stored = BYTES, .weights = 64, .elements = 24, FLOAT_SCALES, .block_columns = 64};

/* Scales lie inside the blocks of 98 bytes; the tensor beside it is one float that only says so. */
const struct encoding encoding_e8 = {.name = "e8",
				     .stored = BYTES,
				     .weights = 256,
				     .elements = 98,
				     .scales = ENCODING_TAG,
				     .scale_stored = ENCODING_STORED(MODEL_F32),
				     .scale_dtype = MODEL_F32,
				     .must_be_sole = 1};

/* A scale is the exponent of a power of two, whichever dtype the file calls it. */
const struct encoding encoding_mxfp4 = {.name = "mxfp4",
					.stored = BYTES,
					.weights = 2,
					.elements = 1,
					.scales = ENCODING_SCALES,
					.scale_stored = ENCODING_STORED(MODEL_F8_E8M0) | ENCODING_STORED(MODEL_U8),
					.scale_dtype = MODEL_F8_E8M0,
					.block_rows = 1,
					.block_columns = 32};
const struct encoding encoding_fp8_b128 = {.name = "fp8-b128",
					   .stored = BYTES | ENCODING_STORED(MODEL_F8_E4M3),
					   .dtype = MODEL_F8_E4M3,
					   .weights = 1,
					   .elements = 1,
					   .scales = ENCODING_SCALES,
					   .scale_stored = FLOATS,
					   .block_rows = 128,
					   .block_columns = 128};

static const struct encoding *const all[] = {
	&encoding_bf16,     &encoding_f16,       &encoding_f32,       &encoding_int8_row,  &encoding_int4_row,
	&encoding_int2_row, &encoding_int4_g16,  &encoding_int4_g32,  &encoding_int4_g48,  &encoding_int4_g64,
	&encoding_int4_g96, &encoding_int4_g128, &encoding_int4_g192, &encoding_int4_g256, &encoding_int3_g64,
	&encoding_e8,       &encoding_mxfp4,     &encoding_fp8_b128,
};
_Static_assert(CNRE_COUNT_OF(all) <= ENCODING_LIST_MAX, "a layout may list all of them");

const struct encoding *encoding_find(const char *name)
{
	for (size_t i = 0; i < CNRE_COUNT_OF(all); i++)
		if (strcmp(all[i]->name, name) == 0)
			return all[i];
	return NULL;
}

const char *encoding_list(char *text, size_t text_bytes)
{
	size_t used = 0;

	text[0] = '\0';
	for (size_t i = 0; i < CNRE_COUNT_OF(all) && used < text_bytes; i++)
		used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", i == 0 ? "" : ", ", all[i]->name);
	return text;
}

struct encoding encoding_set_group(const struct encoding *encoding, uint32_t group)
{
	struct encoding copy = *encoding;

	if (encoding->block_columns != ENCODING_GROUP)
		return copy;
	CNRE_CHECK(group < ENCODING_GROUP);
	copy.block_columns = (uint16_t)group;
	if (group == 0)
		(void)snprintf(copy.name, sizeof copy.name, "%.8s-row", encoding->name);
	else
		(void)snprintf(copy.name, sizeof copy.name, "%.8s-g%u", encoding->name, (unsigned)copy.block_columns);
	return copy;
}

static uint32_t element_bytes(uint8_t dtype)
{
	switch (dtype) {
	case MODEL_BF16:
	case MODEL_F16:
		return 2;
	case MODEL_F32:
		return 4;
	case MODEL_I64:
		return 8;
	default:
		return 1;
	}
}

/* Extents are bounded by MODEL_EXTENT_MAX, and no format stores more than 8 bytes a weight: below 2^44. */
static void set_bytes(struct model_part_shape *part)
{
	part->bytes = (uint64_t)part->rows * part->columns * element_bytes((uint8_t)part->dtype);
}

static uint32_t divide_up(uint32_t count, uint32_t by)
{
	return count / by + (count % by != 0);
}

void encoding_weight_part(const struct encoding *encoding, uint32_t rows, uint32_t columns, uint8_t stored,
			  struct model_part_shape *ret_part)
{
	*ret_part = (struct model_part_shape){
		.rows = rows,
		.columns = divide_up(columns, encoding->weights) * encoding->elements,
		.dtype = encoding->dtype == MODEL_DTYPE_OTHER ? stored : encoding->dtype,
	};
	set_bytes(ret_part);
}

void encoding_scale_part(const struct encoding *encoding, uint32_t rows, uint32_t columns, uint8_t stored,
			 struct model_part_shape *ret_part)
{
	*ret_part = (struct model_part_shape){
		.rows = encoding->block_rows == 0 ? 1 : divide_up(rows, encoding->block_rows),
		.columns = encoding->block_columns == 0 ? 1 : divide_up(columns, encoding->block_columns),
		.dtype = encoding->scale_dtype == MODEL_DTYPE_OTHER ? stored : encoding->scale_dtype,
		.block_rows = encoding->block_rows,
		.block_columns = encoding->block_columns,
	};
	set_bytes(ret_part);
}

const char *encoding_dtype_name(uint32_t dtype)
{
	static const char *const names[] = {"?", "BF16", "F16", "F32", "U8", "I8", "F8_E4M3", "F8_E8M0", "I64"};

	return dtype < CNRE_COUNT_OF(names) ? names[dtype] : names[0];
}
