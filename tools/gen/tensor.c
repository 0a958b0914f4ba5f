/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of tensors; see tensor.h. By default all experts come first, so that where an expert's size is a multiple of
 * 4096 every one of them begins at such a multiple; packed as converters do it, each layer's dense tensors come first.
 * MTP rows are last in both. Scattered, the experts' tensors change places with each other.
 */
#include "tools/gen/tensor.h"

#include "tools/gen/expert.h"
#include "tools/gen/family.h"
#include "tools/gen/random.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int gen_tensor_is_expert(const struct gen_tensor *tensor)
{
	return tensor->kind >= GEN_MERGED;
}

/* ---- names ---- */

struct text {
	char *to;
	size_t used;
};

static void append(struct text *text, const char *more)
{
	text->used += strlen(more);
	if (text->used < GEN_NAME_BYTES) /* patterns and numbers are ours: they fit */
		strcat(text->to, more);
}

static void append_number(struct text *text, uint32_t number)
{
	char digits[16];

	(void)snprintf(digits, sizeof digits, "%u", number);
	append(text, digits);
}

static void expand(const struct gen_model *model, const struct gen_tensor *tensor, const char *pattern,
		   struct text *text)
{
	const struct gen_family *family = model->family;
	int is_mtp = tensor->layer >= model->layers && family->mtp_block != NULL;
	char one[2] = "";

	for (; *pattern != '\0'; pattern++) {
		if (*pattern != '%') {
			one[0] = *pattern;
			append(text, one);
			continue;
		}
		switch (*++pattern) {
		case 'P':
			append(text, model->prefix);
			break;
		case 'B': /* a block has no %B: this ends */
			expand(model, tensor, is_mtp ? family->mtp_block : family->layer_block, text);
			break;
		case 'L':
			append_number(text, tensor->layer);
			break;
		case 'M':
			append_number(text, tensor->layer - model->layers);
			break;
		default:
			append_number(text, tensor->expert);
		}
	}
}

const char *gen_tensor_name(const struct gen_model *model, const struct gen_tensor *tensor, char text[GEN_NAME_BYTES])
{
	struct text to = {.to = text};

	text[0] = '\0';
	expand(model, tensor, tensor->pattern, &to);
	return text;
}

/* ---- dense tensors ---- */

static uint32_t extent(const struct gen_model *model, uint32_t layer, enum gen_extent which)
{
	switch (which) {
	case GEN_VOCAB:
		return model->vocab;
	case GEN_HIDDEN:
		return model->hidden;
	case GEN_INTERMEDIATE:
		return model->intermediate;
	case GEN_DENSE_INTERMEDIATE: /* another width than an expert's, as in real models */
		return 2 * model->intermediate;
	case GEN_EXPERTS:
		return gen_model_experts(model, layer);
	case GEN_LATENT:
		return model->latent != 0 ? model->latent : model->hidden;
	default:
		return 1;
	}
}

static void add_dense(struct gen_tensors *list, const struct gen_dense *dense, uint32_t layer)
{
	const struct gen_model *model = list->model;
	const struct gen_format_shape *shape = gen_format_shape(model->dense_format);
	struct gen_tensor tensor = {.pattern = dense->pattern, .layer = layer, .kind = dense->kind};

	tensor.rows = extent(model, layer, (enum gen_extent)dense->rows);
	tensor.columns = extent(model, layer, (enum gen_extent)dense->columns);
	tensor.rank = tensor.rows == 1 ? 1 : 2;
	tensor.dimension[0] = tensor.rows == 1 ? tensor.columns : tensor.rows;
	tensor.dimension[1] = tensor.columns;
	gen_tensors_add(list, tensor, shape->weight,
			dense->kind == GEN_DENSE ? shape->weight.fill : GEN_FILL_STRUCTURE);
}

static int is_wanted(const struct gen_model *model, const struct gen_dense *dense, uint32_t layer)
{
	switch (dense->where) {
	case GEN_EACH:
		return 1;
	case GEN_SPARSE:
		return gen_model_experts(model, layer) > 0;
	case GEN_DENSE_ONLY:
		return gen_model_experts(model, layer) == 0;
	default:
		return 0;
	}
}

static void add_outer(struct gen_tensors *list)
{
	const struct gen_family *family = list->model->family;
	uint32_t i;

	for (i = 0; i < family->dense_count; i++)
		if (family->dense[i].where == GEN_OUTER)
			add_dense(list, &family->dense[i], 0);
}

static void add_dense_layer(struct gen_tensors *list, uint32_t layer)
{
	const struct gen_family *family = list->model->family;
	uint32_t i;

	for (i = 0; i < family->dense_count; i++)
		if (is_wanted(list->model, &family->dense[i], layer))
			add_dense(list, &family->dense[i], layer);
}

/* ---- the list ---- */

/* Fisher and Yates, among the experts' tensors of layers [first, end). */
static void scatter(struct gen_tensors *list, uint32_t first, uint32_t end)
{
	uint64_t *place = malloc((list->count + 1) * sizeof *place), i, j, n = 0;
	uint64_t key = gen_key(list->model->seed, "scattered");
	struct gen_tensor other;

	if (place == NULL) {
		list->result = -ENOMEM;
		return;
	}
	for (i = 0; i < list->count; i++)
		if (gen_tensor_is_expert(&list->tensor[i]) && list->tensor[i].layer >= first &&
		    list->tensor[i].layer < end)
			place[n++] = i;
	for (i = n; i > 1; i--) {
		j = gen_word(key, i) % i;
		other = list->tensor[place[i - 1]];
		list->tensor[place[i - 1]] = list->tensor[place[j]];
		list->tensor[place[j]] = other;
	}
	free(place);
}

static void add_all(struct gen_tensors *list)
{
	const struct gen_model *model = list->model;
	uint32_t layer;

	if (model->unaligned)
		add_outer(list);
	for (layer = 0; layer < model->layers; layer++) {
		if (model->unaligned)
			add_dense_layer(list, layer);
		gen_tensors_add_experts(list, layer);
	}
	if (!model->unaligned) {
		add_outer(list);
		for (layer = 0; layer < model->layers; layer++)
			add_dense_layer(list, layer);
	}
	for (layer = model->layers; layer < gen_model_rows(model); layer++) {
		if (model->unaligned)
			add_dense_layer(list, layer);
		gen_tensors_add_experts(list, layer);
		if (!model->unaligned)
			add_dense_layer(list, layer);
	}
}

int64_t gen_tensor_list(const struct gen_model *model, struct gen_tensor **ret_tensors)
{
	struct gen_tensors list = {.model = model};

	add_all(&list);
	if (model->scattered && list.result == 0) {
		scatter(&list, 0, model->layers); /* MTP rows may have shards of their own */
		scatter(&list, model->layers, gen_model_rows(model));
	}
	if (list.result < 0) {
		free(list.tensor);
		return list.result;
	}
	*ret_tensors = list.tensor;
	return (int64_t)list.count;
}
