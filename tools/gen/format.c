/* SPDX-License-Identifier: Apache-2.0 */
/* The table of formats; see format.h. */
#include "tools/gen/format.h"

#include "base/check.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define U8                              \
	{                               \
		"U8", 1, GEN_FILL_BYTES \
	}
#define ROW_SCALE                            \
	{                                    \
		"F32", 4, GEN_FILL_SCALE_F32 \
	}
#define NO_SCALE           \
	{                  \
		NULL, 0, 0 \
	}

static const struct gen_format_shape shapes[GEN_FORMATS] = {
	[GEN_INT8_ROW] = {"int8-row", {"I8", 1, GEN_FILL_INT8}, ROW_SCALE, 1, 1, 1, 0, 1},
	[GEN_BF16] = {"bf16", {"BF16", 2, GEN_FILL_BF16}, NO_SCALE, 1, 1, 0, 0, 1},
	[GEN_F16] = {"f16", {"F16", 2, GEN_FILL_F16}, NO_SCALE, 1, 1, 0, 0, 1},
	[GEN_F32] = {"f32", {"F32", 4, GEN_FILL_F32}, NO_SCALE, 1, 1, 0, 0, 1},
	[GEN_INT4_ROW] = {"int4-row", U8, ROW_SCALE, 2, 1, 1, 0, 1},
	[GEN_INT4_GS64] = {"int4-gs64", U8, ROW_SCALE, 2, 1, 1, 64, 1},
	[GEN_INT4_GS128] = {"int4-gs128", U8, ROW_SCALE, 2, 1, 1, 128, 1},
	[GEN_INT2_ROW] = {"int2-row", U8, ROW_SCALE, 4, 1, 1, 0, 1},
	[GEN_INT3_G64] = {"int3-g64", U8, ROW_SCALE, 64, 24, 1, 64, 1},
	[GEN_IQ3] = {"iq3", {"U8", 1, GEN_FILL_IQ3}, {"F32", 4, GEN_FILL_TAG}, 256, 98, 0, 0, 256},
	[GEN_MXFP4] = {"mxfp4", U8, {"U8", 1, GEN_FILL_SCALE_E8M0}, 2, 1, 1, 32, 32},
	[GEN_FP4] = {"fp4", {"I8", 1, GEN_FILL_BYTES}, {"F8_E8M0", 1, GEN_FILL_SCALE_E8M0}, 2, 1, 1, 32, 32},
	[GEN_FP8_BLOCK] = {"fp8-block", {"F8_E4M3", 1, GEN_FILL_E4M3}, ROW_SCALE, 1, 1, 128, 128, 1},
	[GEN_FP8_BLOCK_BF16] =
		{"fp8-block-bf16", {"F8_E4M3", 1, GEN_FILL_E4M3}, {"BF16", 2, GEN_FILL_SCALE_BF16}, 1, 1, 128, 128, 1},
};

const struct gen_format_shape *gen_format_shape(enum gen_format format)
{
	CNRE_CHECK(format < GEN_FORMATS);
	return &shapes[format];
}

const char *gen_format_name(enum gen_format format)
{
	return format < GEN_FORMATS ? shapes[format].name : NULL;
}

/* What cnrectl inspect and doc/families.md call them, where that is another name. */
static const struct {
	const char *name;
	enum gen_format format;
} aliases[] = {
	{"int4-g64", GEN_INT4_GS64}, {"int4-g128", GEN_INT4_GS128}, {"e8", GEN_IQ3}, {"fp8-b128", GEN_FP8_BLOCK}};

int gen_format_parse(const char *text, enum gen_format *ret_format)
{
	uint32_t i;

	for (i = 0; i < CNRE_COUNT_OF(aliases); i++)
		if (strcmp(text, aliases[i].name) == 0) {
			*ret_format = aliases[i].format;
			return 0;
		}
	for (i = 0; i < GEN_FORMATS; i++)
		if (strcmp(text, shapes[i].name) == 0) {
			*ret_format = (enum gen_format)i;
			return 0;
		}
	return -EINVAL;
}

const char *gen_format_list(uint32_t formats, char *text, uint32_t text_bytes)
{
	uint32_t i, used = 0;

	text[0] = '\0';
	for (i = 0; i < GEN_FORMATS; i++)
		if ((formats & GEN_FORMAT_BIT(i)) != 0 && used < text_bytes)
			used += (uint32_t)snprintf(text + used, text_bytes - used, "%s%s", used == 0 ? "" : " ",
						   shapes[i].name);
	return text;
}

static uint32_t blocks(uint32_t extent, uint32_t block)
{
	return block == 0 ? 1 : (extent + block - 1) / block;
}

uint32_t gen_format_columns(enum gen_format format, uint32_t columns)
{
	const struct gen_format_shape *shape = gen_format_shape(format);

	return blocks(columns, shape->group) * shape->group_elements;
}

uint32_t gen_format_scale_rows(enum gen_format format, uint32_t rows)
{
	return blocks(rows, gen_format_shape(format)->block_rows);
}

uint32_t gen_format_scale_columns(enum gen_format format, uint32_t columns)
{
	return blocks(columns, gen_format_shape(format)->block_columns);
}
