/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of tensors; see tensor.h. By default all experts come first, so that where an expert's size is a multiple of
 * 4096 every one of them begins at such a multiple; packed as converters do it, each layer's dense tensors come first.
 */
#include "tools/gen/tensor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const names[] = {
	[GEN_EMBED] = "model.embed_tokens.weight",
	[GEN_LM_HEAD] = "lm_head.weight",
	[GEN_NORM] = "model.norm.weight",
	[GEN_INPUT_NORM] = "input_layernorm.weight",
	[GEN_POST_NORM] = "post_attention_layernorm.weight",
	[GEN_Q] = "self_attn.q_proj.weight",
	[GEN_K] = "self_attn.k_proj.weight",
	[GEN_V] = "self_attn.v_proj.weight",
	[GEN_O] = "self_attn.o_proj.weight",
	[GEN_Q_NORM] = "self_attn.q_norm.weight",
	[GEN_K_NORM] = "self_attn.k_norm.weight",
	[GEN_ROUTER] = "mlp.gate.weight",
	[GEN_MERGED] = "merged_weight",
	[GEN_SCALES] = "qs",
	[GEN_EXPERT_GATE] = "gate_proj.weight",
	[GEN_EXPERT_UP] = "up_proj.weight",
	[GEN_EXPERT_DOWN] = "down_proj.weight",
};

struct list {
	const struct gen_model *model;
	struct gen_tensor *tensor;
	uint64_t count;
};

int gen_tensor_is_expert(const struct gen_tensor *tensor)
{
	return tensor->kind >= GEN_MERGED;
}

int gen_tensor_continues(const struct gen_tensor *tensor)
{
	return tensor->kind == GEN_SCALES || tensor->kind == GEN_EXPERT_UP || tensor->kind == GEN_EXPERT_DOWN;
}

const char *gen_tensor_name(const struct gen_tensor *tensor, char text[GEN_NAME_BYTES])
{
	if (tensor->kind <= GEN_NORM)
		(void)snprintf(text, GEN_NAME_BYTES, "%s", names[tensor->kind]);
	else if (!gen_tensor_is_expert(tensor))
		(void)snprintf(text, GEN_NAME_BYTES, "model.layers.%u.%s", tensor->layer, names[tensor->kind]);
	else
		(void)snprintf(text, GEN_NAME_BYTES, "model.layers.%u.mlp.experts.%u.%s", tensor->layer, tensor->expert,
			       names[tensor->kind]);
	return text;
}

static void add(struct list *list, struct gen_tensor tensor, enum gen_format format)
{
	static const char *const dtypes[] = {
		[GEN_INT8_ROW] = "I8", [GEN_BF16] = "BF16", [GEN_F16] = "F16", [GEN_F32] = "F32"};
	static const uint8_t sizes[] = {[GEN_INT8_ROW] = 1, [GEN_BF16] = 2, [GEN_F16] = 2, [GEN_F32] = 4};

	tensor.dtype = dtypes[format];
	tensor.element_bytes = sizes[format];
	tensor.bytes = (uint64_t)tensor.rows * tensor.columns * tensor.element_bytes; /* bounded extents: below 2^40 */
	list->tensor[list->count++] = tensor;
}

static void add_dense(struct list *list, enum gen_kind kind, uint32_t layer, uint32_t rows, uint32_t columns)
{
	add(list, (struct gen_tensor){.kind = (uint8_t)kind, .layer = layer, .rows = rows, .columns = columns},
	    list->model->dense_format);
}

static void add_outer(struct list *list)
{
	const struct gen_model *model = list->model;

	add_dense(list, GEN_EMBED, 0, model->vocab, model->hidden);
	add_dense(list, GEN_LM_HEAD, 0, model->vocab, model->hidden);
	add_dense(list, GEN_NORM, 0, 1, model->hidden);
}

static void add_dense_layer(struct list *list, uint32_t layer)
{
	uint32_t hidden = list->model->hidden;

	add_dense(list, GEN_INPUT_NORM, layer, 1, hidden);
	add_dense(list, GEN_POST_NORM, layer, 1, hidden);
	add_dense(list, GEN_Q, layer, hidden, hidden);
	add_dense(list, GEN_K, layer, hidden, hidden);
	add_dense(list, GEN_V, layer, hidden, hidden);
	add_dense(list, GEN_O, layer, hidden, hidden);
	add_dense(list, GEN_Q_NORM, layer, 1, hidden);
	add_dense(list, GEN_K_NORM, layer, 1, hidden);
	add_dense(list, GEN_ROUTER, layer, list->model->experts, hidden);
}

static void add_expert(struct list *list, uint32_t layer, uint32_t expert)
{
	uint32_t hidden = list->model->hidden, intermediate = list->model->intermediate;
	enum gen_format format = (enum gen_format)list->model->expert_format[layer];
	struct gen_tensor tensor = {.layer = layer, .expert = expert, .rows = 1};

	if (format == GEN_INT8_ROW) {
		tensor.kind = GEN_MERGED;
		tensor.columns = 3 * intermediate;
		tensor.rows = hidden; /* stored with one dimension; see the header's shape */
		add(list, tensor, GEN_INT8_ROW);
		tensor.kind = GEN_SCALES;
		tensor.rows = 1;
		tensor.columns = 2 * intermediate + hidden;
		add(list, tensor, GEN_F32);
		return;
	}
	tensor.rows = intermediate;
	tensor.columns = hidden;
	tensor.kind = GEN_EXPERT_GATE;
	add(list, tensor, format);
	tensor.kind = GEN_EXPERT_UP;
	add(list, tensor, format);
	tensor.rows = hidden;
	tensor.columns = intermediate;
	tensor.kind = GEN_EXPERT_DOWN;
	add(list, tensor, format);
}

static void add_experts(struct list *list, uint32_t layer)
{
	uint32_t expert;

	for (expert = 0; expert < list->model->experts; expert++)
		add_expert(list, layer, expert);
}

int64_t gen_tensor_list(const struct gen_model *model, struct gen_tensor **ret_tensors)
{
	struct list list = {.model = model};
	uint32_t layer;

	list.tensor = calloc(3 + (size_t)model->layers * (9 + 3 * (size_t)model->experts), sizeof *list.tensor);
	if (list.tensor == NULL)
		return -ENOMEM;
	if (model->unaligned)
		add_outer(&list);
	for (layer = 0; layer < model->layers; layer++) {
		if (model->unaligned)
			add_dense_layer(&list, layer);
		add_experts(&list, layer);
	}
	if (!model->unaligned) {
		add_outer(&list);
		for (layer = 0; layer < model->layers; layer++)
			add_dense_layer(&list, layer);
	}
	*ret_tensors = list.tensor;
	return (int64_t)list.count;
}
