/* SPDX-License-Identifier: Apache-2.0 */
/* From pieces to tensors; see expert.h. */
#include "tools/gen/expert.h"

#include "tools/gen/family.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_MIN 1024u

void gen_tensors_add(struct gen_tensors *list, struct gen_tensor tensor, struct gen_element element, uint8_t fill)
{
	uint64_t room = list->room == 0 ? ROOM_MIN : 2 * list->room;
	struct gen_tensor *more;
	uint32_t i;

	if (list->result < 0)
		return;
	if (list->count == list->room) {
		more = realloc(list->tensor, room * sizeof *more);
		if (more == NULL) {
			list->result = -ENOMEM;
			return;
		}
		list->tensor = more;
		list->room = room;
	}
	tensor.dtype = element.dtype;
	tensor.element_bytes = element.bytes;
	tensor.fill = fill;
	tensor.bytes = element.bytes;
	for (i = 0; i < tensor.rank; i++)
		tensor.bytes *= tensor.dimension[i]; /* bounded extents: experts x rows x columns is below 2^48 */
	list->tensor[list->count++] = tensor;
}

struct cut { /* what one expert contributes to a piece */
	uint64_t elements;
	uint32_t rows, columns;
	int is_rectangle, is_uniform; /* rows of one length; matrices of one format */
	struct gen_element element;
};

static void cut_matrix(const struct gen_model *model, uint32_t layer, const struct gen_piece *piece,
		       enum gen_matrix matrix, struct cut *cut)
{
	enum gen_format format = gen_model_format(model, layer, matrix);
	const struct gen_format_shape *shape = gen_format_shape(format);
	struct gen_element element = piece->is_scale ? shape->scale : shape->weight;
	uint32_t rows = gen_model_matrix_rows(model, matrix), columns = gen_model_matrix_columns(model, matrix);

	columns = piece->is_scale ? gen_format_scale_columns(format, columns) : gen_format_columns(format, columns);
	rows = piece->is_scale ? gen_format_scale_rows(format, rows) : rows;
	if (cut->elements == 0) {
		cut->element = element;
		cut->columns = columns;
		cut->is_rectangle = cut->is_uniform = 1;
	}
	cut->is_rectangle &= columns == cut->columns;
	cut->is_uniform &=
		cut->element.dtype == element.dtype ||
		(cut->element.dtype != NULL && element.dtype != NULL && strcmp(cut->element.dtype, element.dtype) == 0);
	cut->rows += rows;
	cut->elements += (uint64_t)rows * columns;
}

static struct cut cut_piece(const struct gen_model *model, uint32_t layer, const struct gen_piece *piece)
{
	static const struct gen_element bytes = {"U8", 1, GEN_FILL_BYTES};
	struct cut cut = {0};
	uint32_t matrix;

	for (matrix = 0; matrix < GEN_MATRICES; matrix++)
		if ((piece->matrices & 1u << matrix) != 0)
			cut_matrix(model, layer, piece, (enum gen_matrix)matrix, &cut);
	if (!cut.is_uniform && !piece->is_scale)
		cut.element = bytes; /* int4 and int8 rows in one tensor */
	return cut;
}

static int is_of_all(const struct gen_piece *piece)
{
	return strstr(piece->pattern, "%E") == NULL;
}

/* That of the first matrix in it. */
static enum gen_format format_of(const struct gen_model *model, uint32_t layer, const struct gen_piece *piece)
{
	uint32_t matrix = 0;

	while ((piece->matrices & 1u << matrix) == 0)
		matrix++;
	return gen_model_format(model, layer, (enum gen_matrix)matrix);
}

static int is_plain(enum gen_format format)
{
	return (GEN_PLAIN & GEN_FORMAT_BIT(format)) != 0;
}

/* Scales of rows, and what is merged or written flat, have one dimension besides that of the experts. */
static int has_rows(const struct gen_model *model, const struct cut *cut, const struct gen_piece *piece,
		    const struct gen_tensor *tensor)
{
	enum gen_format format = format_of(model, tensor->layer, piece);

	if (!cut->is_rectangle || (model->family->is_flat && !is_plain(format)))
		return 0;
	if (piece->kind != GEN_PIECE && cut->rows == 1)
		return 0;
	return !piece->is_scale || gen_format_shape(format)->block_columns != 0;
}

static void set_shape(const struct gen_model *model, const struct cut *cut, const struct gen_piece *piece,
		      struct gen_tensor *tensor)
{
	int is_matrix = has_rows(model, cut, piece, tensor);
	uint8_t rank = 0;

	if (is_of_all(piece))
		tensor->dimension[rank++] = gen_model_experts(model, tensor->layer);
	tensor->rows = is_matrix ? cut->rows : 1;
	tensor->columns = is_matrix ? cut->columns : piece->is_scale ? (uint32_t)cut->elements : cut->columns;
	tensor->dimension[rank++] = is_matrix ? cut->rows : cut->elements;
	if (is_matrix)
		tensor->dimension[rank++] = cut->columns;
	tensor->rank = rank;
}

/* A piece without bytes (the scales of plain weights) is no tensor. */
static void add_piece(struct gen_tensors *list, uint32_t layer, uint32_t expert, const struct gen_piece *piece,
		      int continues)
{
	const struct gen_model *model = list->model;
	struct cut cut = cut_piece(model, layer, piece);
	struct gen_element element = cut.element;
	struct gen_tensor tensor = {.pattern = piece->pattern,
				    .layer = layer,
				    .expert = expert,
				    .kind = piece->kind,
				    .continues = (uint8_t)(continues && !model->scattered)};

	if (element.dtype == NULL)
		return;
	if (model->family->is_u8 && !piece->is_scale && !is_plain(format_of(model, layer, piece)))
		element.dtype = "U8";
	set_shape(model, &cut, piece, &tensor);
	gen_tensors_add(list, tensor, element, piece->kind == GEN_PIECE ? element.fill : GEN_FILL_STRUCTURE);
}

void gen_tensors_add_experts(struct gen_tensors *list, uint32_t layer)
{
	const struct gen_model *model = list->model;
	const struct gen_arrangement *arrangement;
	uint32_t expert, i, experts = gen_model_experts(model, layer);

	if (experts == 0)
		return;
	arrangement = gen_family_arrangement(model->family, gen_model_format(model, layer, GEN_GATE));
	if (is_of_all(&arrangement->pieces[0]))
		experts = 1;
	for (expert = 0; expert < experts; expert++)
		for (i = 0; i < arrangement->piece_count; i++)
			add_piece(list, layer, expert, &arrangement->pieces[i],
				  i > 0 && !is_of_all(&arrangement->pieces[i]));
}
