/* SPDX-License-Identifier: Apache-2.0 */
/* Formats as formulas, names as text; see container.h. */
#include "tests/support/container.h"

#include <stdio.h>
#include <string.h>

#define NAME_BYTES 192
#define MATRICES 3u

static const char *const role_names[CNRE_ROLES] = {"gate", "up", "down", "gate scale", "up scale", "down scale"};

/* ---- formats: O rows of I weights ---- */

struct format {
	const char *name;
	uint16_t dtype;       /* what the part is given as; 0: as the file has it */
	uint16_t scale_dtype; /* 0: there are no scales */
	uint32_t row_bits;    /* of a weight, where rows are padded to bytes; 0: see group */
	uint32_t group, group_bytes;
	uint32_t scale_rows, scale_columns; /* of a block; 0: all there are */
};

static const struct format formats[] = {
	{"f32", CNRE_F32, 0, 32, 0, 0, 0, 0},
	{"bf16", CNRE_BF16, 0, 16, 0, 0, 0, 0},
	{"f16", CNRE_F16, 0, 16, 0, 0, 0, 0},
	{"int8-row", CNRE_I8, CNRE_F32, 8, 0, 0, 1, 0},
	{"int4-row", CNRE_U8, CNRE_F32, 4, 0, 0, 1, 0},
	{"int4-gs64", CNRE_U8, CNRE_F32, 4, 0, 0, 1, 64},
	{"int4-gs128", CNRE_U8, CNRE_F32, 4, 0, 0, 1, 128},
	{"int2-row", CNRE_U8, CNRE_F32, 2, 0, 0, 1, 0},
	{"int3-g64", CNRE_U8, CNRE_F32, 0, 64, 24, 1, 64},
	{"iq3", CNRE_U8, CNRE_F32, 0, 256, 98, 0, 0},
	{"mxfp4", 0, CNRE_F8_E8M0, 4, 0, 0, 1, 32}, /* U8 with U8 scales, I8 with F8_E8M0: the same bytes */
	{"fp4", 0, CNRE_F8_E8M0, 4, 0, 0, 1, 32},
	{"fp8-block", CNRE_F8_E4M3, CNRE_F32, 8, 0, 0, 128, 128},
	{"fp8-block-bf16", CNRE_F8_E4M3, CNRE_BF16, 8, 0, 0, 128, 128},
};

static const struct format *find_format(const char *name)
{
	for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
		if (strcmp(formats[i].name, name) == 0)
			return &formats[i];
	return NULL;
}

static uint32_t element_bytes(uint16_t dtype)
{
	return dtype == CNRE_F32 ? 4 : dtype == CNRE_BF16 || dtype == CNRE_F16 ? 2 : 1;
}

static uint64_t row_bytes(const struct format *format, uint32_t columns)
{
	return format->group == 0 ? ((uint64_t)columns * format->row_bits + 7) / 8
				  : ((uint64_t)columns + format->group - 1) / format->group * format->group_bytes;
}

static uint32_t count_blocks(uint32_t extent, uint32_t block)
{
	return block == 0 ? 1 : (extent + block - 1) / block;
}

/* ---- an expert: three matrices and their scales, without their places ---- */

static uint32_t rows_of(const struct container *container, uint32_t matrix)
{
	return matrix == CNRE_DOWN ? container->width : container->intermediate;
}

static uint32_t columns_of(const struct container *container, uint32_t matrix)
{
	return matrix == CNRE_DOWN ? container->intermediate : container->width;
}

static void set_weight(const struct container *container, const struct format *format, uint32_t matrix,
		       struct container_part *part)
{
	uint64_t bytes = row_bytes(format, columns_of(container, matrix));

	part->rows = rows_of(container, matrix);
	part->bytes = part->rows * bytes;
	part->columns = (uint32_t)(bytes / element_bytes(format->dtype));
	part->dtype = format->dtype;
}

static void set_scale(const struct container *container, const struct format *format, uint32_t matrix,
		      struct container_part *part)
{
	if (format->scale_dtype == 0)
		return;
	part->rows = count_blocks(rows_of(container, matrix), format->scale_rows);
	part->columns = count_blocks(columns_of(container, matrix), format->scale_columns);
	part->bytes = (uint64_t)part->rows * part->columns * element_bytes(format->scale_dtype);
	part->dtype = format->scale_dtype;
	part->block_rows = (uint16_t)format->scale_rows;
	part->block_columns = (uint16_t)format->scale_columns;
}

static int set_shapes(const struct container *container, const char *const format[3],
		      struct container_part part[CNRE_ROLES])
{
	memset(part, 0, CNRE_ROLES * sizeof *part);
	for (uint32_t matrix = 0; matrix < MATRICES; matrix++) {
		const struct format *its = find_format(format[matrix]);

		if (its == NULL)
			return -1;
		set_weight(container, its, matrix, &part[matrix]);
		set_scale(container, its, matrix, &part[CNRE_GATE_SCALE + matrix]);
	}
	return 0;
}

uint64_t container_expert_bytes(const struct container *container, const char *const format[3])
{
	struct container_part part[CNRE_ROLES];
	uint64_t bytes = 0;

	if (set_shapes(container, format, part) < 0)
		return 0;
	for (uint32_t role = 0; role < CNRE_ROLES; role++)
		bytes += part[role].bytes;
	return bytes;
}

/* ---- places ---- */

struct place {
	char name[NAME_BYTES];
	uint64_t offset, tensor_bytes; /* in the tensor, and how long all of that has to be */
};

static void name_block(const struct container *container, uint32_t layer, char *text)
{
	if (container->kind != CONTAINER_FFN)
		(void)snprintf(text, NAME_BYTES, "%slayers.%u.%s", container->prefix, layer,
			       container->kind == CONTAINER_PACKED ? "block_sparse_moe" : "mlp");
	else if (layer < container->layers)
		(void)snprintf(text, NAME_BYTES, "layers.%u.ffn", layer);
	else
		(void)snprintf(text, NAME_BYTES, "mtp.%u.ffn", layer - container->layers);
}

/* All of a tensor is one part. */
static void place_alone(const struct container *container, uint32_t layer, uint32_t expert, uint32_t role,
			uint64_t bytes, struct place *place)
{
	static const char *const proj[] = {"gate_proj", "up_proj", "down_proj"}, *const w[] = {"w1", "w3", "w2"};
	static const char *const suffixes[][2] = {
		[CONTAINER_PLAIN] = {".weight", ".none"},
		[CONTAINER_QS] = {".weight", ".weight.qs"},
		[CONTAINER_SCALE_INV] = {".weight", ".weight_scale_inv"},
		[CONTAINER_SCALE] = {".weight", ".weight_scale"},
		[CONTAINER_PACKED] = {".weight_packed", ".weight_scale"},
		[CONTAINER_FFN] = {".weight", ".scale"},
	};
	const char *const *matrices = container->kind >= CONTAINER_PACKED ? w : proj;
	char block[NAME_BYTES / 2];

	name_block(container, layer, block);
	(void)snprintf(place->name, NAME_BYTES, "%s.experts.%u.%s%s", block, expert, matrices[role % 3],
		       suffixes[container->kind][role >= CNRE_GATE_SCALE]);
	place->offset = 0;
	place->tensor_bytes = bytes;
}

/* Gate, up, down of one expert one after the other. */
static void place_merged(const struct container *container, uint32_t layer, uint32_t expert, uint32_t role,
			 const struct container_part part[CNRE_ROLES], struct place *place)
{
	uint32_t first = role >= CNRE_GATE_SCALE ? CNRE_GATE_SCALE : CNRE_GATE;
	char block[NAME_BYTES / 2];

	name_block(container, layer, block);
	(void)snprintf(place->name, NAME_BYTES, "%s.experts.%u.%s", block, expert,
		       first == CNRE_GATE ? "merged_weight" : "qs");
	place->offset = 0;
	for (uint32_t i = first; i < role; i++)
		place->offset += part[i].bytes;
	place->tensor_bytes = part[first].bytes + part[first + 1].bytes + part[first + 2].bytes;
}

/* A slice of a tensor of all experts: gates and ups share one, an expert's up behind its gate. */
static void place_fused(const struct container *container, uint32_t layer, uint32_t expert, uint32_t role,
			const struct container_part part[CNRE_ROLES], struct place *place)
{
	uint32_t gate = role >= CNRE_GATE_SCALE ? CNRE_GATE_SCALE : CNRE_GATE;
	int is_down = role % 3 == CNRE_DOWN;
	uint64_t stride = is_down ? part[role].bytes : part[gate].bytes + part[gate + 1].bytes;
	char block[NAME_BYTES / 2];

	name_block(container, layer, block);
	(void)snprintf(place->name, NAME_BYTES, "%s.experts.%s%s", block, is_down ? "down_proj" : "gate_up_proj",
		       gate == CNRE_GATE ? "" : ".qs");
	place->offset = expert * stride + (role % 3 == CNRE_UP ? part[gate].bytes : 0);
	place->tensor_bytes = container->experts * stride;
}

static void find_place(const struct container *container, uint32_t layer, uint32_t expert, uint32_t role,
		       const struct container_part part[CNRE_ROLES], struct place *place)
{
	if (container->kind == CONTAINER_MERGED)
		place_merged(container, layer, expert, role, part, place);
	else if (container->kind == CONTAINER_FUSED)
		place_fused(container, layer, expert, role, part, place);
	else
		place_alone(container, layer, expert, role, part[role].bytes, place);
}

/* Packed bytes are given as the file calls them. */
static int take_dtype(const struct truth_tensor *tensor, struct container_part *part)
{
	static const char *const names[] = {
		[CNRE_BF16] = "BF16", [CNRE_F16] = "F16",         [CNRE_F32] = "F32",        [CNRE_U8] = "U8",
		[CNRE_I8] = "I8",     [CNRE_F8_E4M3] = "F8_E4M3", [CNRE_F8_E8M0] = "F8_E8M0"};

	if (part->dtype == 0)
		part->dtype = strcmp(tensor->dtype, "I8") == 0 ? CNRE_I8 : CNRE_U8;
	/* A byte is a byte: what a converter calls U8 or I8 may mean something else. */
	return strcmp(tensor->dtype, names[part->dtype]) == 0 ||
	       (element_bytes(part->dtype) == 1 &&
		(strcmp(tensor->dtype, "U8") == 0 || strcmp(tensor->dtype, "I8") == 0));
}

/* Containers may be flat; where they are not, rows are as long as they should be. A scale a row is no row of one. */
static int has_shape(const struct truth_tensor *tensor, const struct container_part *part)
{
	return tensor->rank == 1 || tensor->last == part->columns ||
	       (part->columns == 1 && tensor->last % part->rows == 0);
}

int container_find(const struct container *container, const struct truth *truth, uint32_t layer, uint32_t expert,
		   const char *const format[3], struct container_part ret_part[CNRE_ROLES],
		   char why[CONTAINER_WHY_BYTES])
{
	struct container_part part[CNRE_ROLES];
	struct truth_tensor tensor;
	struct place place;

	if (set_shapes(container, format, part) < 0) {
		(void)snprintf(why, CONTAINER_WHY_BYTES, "no format %s, %s or %s", format[0], format[1], format[2]);
		return -1;
	}
	for (uint32_t role = 0; role < CNRE_ROLES; role++) {
		if (part[role].bytes == 0)
			continue;
		find_place(container, layer, expert, role, part, &place);
		if (!truth_tensor(truth, place.name, &tensor)) {
			(void)snprintf(why, CONTAINER_WHY_BYTES, "no tensor %s", place.name);
			return -1;
		}
		if (tensor.bytes != place.tensor_bytes || !take_dtype(&tensor, &part[role]) ||
		    !has_shape(&tensor, &part[role])) {
			(void)snprintf(why, CONTAINER_WHY_BYTES,
				       "%s: %llu bytes of %s in rows of %llu, not %llu in rows of %u", place.name,
				       (unsigned long long)tensor.bytes, tensor.dtype, (unsigned long long)tensor.last,
				       (unsigned long long)place.tensor_bytes, part[role].columns);
			return -1;
		}
		part[role].data = tensor.data + place.offset;
	}
	memcpy(ret_part, part, sizeof part);
	return 0;
}

/* ---- comparing ---- */

static int shapes_differ(const struct container_part *wanted, const struct cnre_part *got)
{
	if (wanted->bytes != got->bytes)
		return 1;
	return wanted->bytes != 0 &&
	       (wanted->rows != got->rows || wanted->columns != got->columns || wanted->dtype != got->dtype ||
		wanted->block_rows != got->block_rows || wanted->block_columns != got->block_columns);
}

int container_compare(const struct container_part part[CNRE_ROLES], const struct cnre_expert *expert,
		      char why[CONTAINER_WHY_BYTES])
{
	uint64_t bytes = 0;

	for (uint32_t role = 0; role < CNRE_ROLES; role++) {
		const struct container_part *wanted = &part[role];
		const struct cnre_part *got = &expert->part[role];

		bytes += wanted->bytes;
		if (shapes_differ(wanted, got)) {
			(void)snprintf(
				why, CONTAINER_WHY_BYTES,
				"%s: %llu bytes, %u x %u, dtype %u, blocks %u x %u; not %llu, %u x %u, %u, %u x %u",
				role_names[role] != NULL ? role_names[role] : "an unknown role",
				(unsigned long long)got->bytes, got->rows, got->columns, got->dtype, got->block_rows,
				got->block_columns, (unsigned long long)wanted->bytes, wanted->rows, wanted->columns,
				wanted->dtype, wanted->block_rows, wanted->block_columns);
			return -1;
		}
		if (wanted->bytes != 0 && got->data != NULL && memcmp(wanted->data, got->data, wanted->bytes) != 0) {
			(void)snprintf(why, CONTAINER_WHY_BYTES, "%s: other bytes than in the file", role_names[role]);
			return -1;
		}
	}
	if (bytes == expert->bytes)
		return 0;
	(void)snprintf(why, CONTAINER_WHY_BYTES, "%llu bytes in all, not %llu", (unsigned long long)expert->bytes,
		       (unsigned long long)bytes);
	return -1;
}
