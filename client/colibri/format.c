/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which quantised format the parts of an expert are, by the same arithmetic of bytes that the engines use: routed experts
 * carry no stamp. The weights that a stored element holds differ from format to format, so the columns of a matrix are taken
 * from the rows of its partners: the down projection has as many columns as the gate has rows, and the other way round.
 */
#include "client/colibri/provider.h"

#include <errno.h>

#define DIMENSION_MAX (1u << 24)

enum { NO_SCALES, FLOAT_SCALES, EXPONENT_SCALES };

/* In weights: bytes of data and of scales of a matrix in one format. */
struct format {
	int ordinal;
	int scales;
	uint16_t dtype;                   /* of the data where the bytes alone do not tell, else 0 */
	uint32_t data_bytes, data_weights;  /* a row's data: data_bytes for each data_weights columns, rounded up */
	uint32_t scale_bytes, scale_columns; /* scales: so many bytes for each group of columns; 0: the whole row */
	uint32_t scale_rows;              /* rows that share them; 0: all */
};

/*
 * Of two that fit the first is meant; int4 with groups is below. fp8 before int8: both have a byte a weight, and in a
 * matrix of one column of blocks the scales may agree, too.
 */
static const struct format formats[] = {
	{8, FLOAT_SCALES, CNRE_F8_E4M3, 1, 1, 4, 128, 128}, /* fp8 e4m3, blocks of 128 x 128 */
	{0, NO_SCALES, CNRE_F32, 4, 1, 0, 0, 1},
	{1, FLOAT_SCALES, 0, 1, 1, 4, 0, 1},                /* int8 a row */
	{2, FLOAT_SCALES, 0, 1, 2, 4, 0, 1},                /* int4 a row */
	{3, FLOAT_SCALES, 0, 1, 4, 4, 0, 1},                /* int2 a row */
	{5, FLOAT_SCALES, 0, 24, 64, 4, 64, 1},             /* int3 in groups of 64 */
	{6, FLOAT_SCALES, 0, 98, 256, 4, 0, 0},             /* E8, one tag for all */
	{7, EXPONENT_SCALES, 0, 1, 2, 1, 32, 1},            /* mxfp4 */
};

static const uint32_t int4_groups[] = {64, 128, 32, 256};

static uint64_t groups_of(uint64_t whole, uint32_t size)
{
	return (whole + size - 1) / size;
}

static int kind_of_scales(const struct cnre_part *scale)
{
	if (scale->bytes == 0)
		return NO_SCALES;
	return scale->dtype == CNRE_F32 ? FLOAT_SCALES : EXPONENT_SCALES;
}

static int fits(const struct format *format, const struct cnre_part *data, const struct cnre_part *scale, uint32_t columns)
{
	uint64_t rows = data->rows;
	uint64_t scale_rows = format->scale_rows == 0 ? 1 : groups_of(rows, format->scale_rows);
	uint64_t scale_columns = format->scale_columns == 0 ? 1 : groups_of(columns, format->scale_columns);

	if (rows > DIMENSION_MAX || columns > DIMENSION_MAX)
		return 0; /* so that no product below overflows */
	return format->scales == kind_of_scales(scale) && (format->dtype == 0 || format->dtype == data->dtype) &&
	       (data->dtype != CNRE_F32 || format->ordinal == 0) &&
	       data->bytes == rows * groups_of(columns, format->data_weights) * format->data_bytes &&
	       scale->bytes == scale_rows * scale_columns * format->scale_bytes;
}

static int is_int4_in(uint32_t group, const struct cnre_part *data, const struct cnre_part *scale, uint32_t columns)
{
	const struct format format = {4, FLOAT_SCALES, 0, 1, 2, 4, group, 1};

	return fits(&format, data, scale, columns);
}

/*
 * Columns that one of the scales covers, or 0: it is no int4 with groups. Where the checkpoint says how many, that decides
 * between sizes that make the same count, and it may be any number; else it is one of the usual ones.
 */
static uint32_t int4_group(const struct cnre_part *data, const struct cnre_part *scale, uint32_t columns)
{
	if (scale->block_columns != 0)
		return is_int4_in(scale->block_columns, data, scale, columns) ? scale->block_columns : 0;
	for (unsigned i = 0; i < sizeof int4_groups / sizeof int4_groups[0]; i++)
		if (is_int4_in(int4_groups[i], data, scale, columns))
			return int4_groups[i];
	return 0;
}

static int find_format(const struct cnre_part *data, const struct cnre_part *scale, uint32_t columns, uint32_t *ret_group)
{
	uint32_t group;

	for (unsigned i = 0; i < sizeof formats / sizeof formats[0]; i++) {
		if (!fits(&formats[i], data, scale, columns))
			continue;
		*ret_group = formats[i].scale_columns;
		return formats[i].ordinal;
	}
	group = int4_group(data, scale, columns);
	*ret_group = group;
	return group != 0 ? 4 : -ENOTSUP;
}

static int describe(const struct cnre_expert *expert, enum cnre_role role, uint32_t columns,
		    struct cnre_colibri_matrix *ret_matrix)
{
	const struct cnre_part *data = &expert->part[role], *scale = &expert->part[role + CNRE_GATE_SCALE];
	uint32_t group;
	int format = data->bytes == 0 ? -ENOTSUP : find_format(data, scale, columns, &group);

	if (format < 0)
		return format;
	*ret_matrix = (struct cnre_colibri_matrix){
		.data = data->data,
		.scales = scale->data,
		.data_bytes = data->bytes,
		.scale_bytes = scale->bytes,
		.rows = data->rows,
		.columns = columns,
		.format = format,
		.group = group,
	};
	return 0;
}

int cnre_colibri_describe(const struct cnre_expert *expert, struct cnre_colibri_view *ret_view)
{
	uint32_t hidden = expert->part[CNRE_DOWN].rows, inner = expert->part[CNRE_GATE].rows;
	struct cnre_colibri_view view = {
		.layer = expert->layer,
		.expert = expert->expert,
		.was_resident = (expert->flags & CNRE_WAS_RESIDENT) != 0,
	};
	int r = describe(expert, CNRE_GATE, hidden, &view.gate);

	if (r == 0)
		r = describe(expert, CNRE_UP, hidden, &view.up);
	if (r == 0)
		r = describe(expert, CNRE_DOWN, inner, &view.down);
	if (r == 0)
		*ret_view = view;
	return r;
}

int cnre_colibri_are_one(const struct cnre_colibri_matrix *a, const struct cnre_colibri_matrix *b)
{
	return a->format == b->format && a->columns == b->columns && a->data != NULL &&
	       (const char *)a->data + a->data_bytes == (const char *)b->data &&
	       (a->scales == NULL ? b->scales == NULL
				  : (const char *)a->scales + a->scale_bytes == (const char *)b->scales);
}
