/* SPDX-License-Identifier: Apache-2.0 */
/* Printing a table of keys; see config.h. */
#include "tools/gen/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct printing {
	const struct gen_model *model;
	FILE *out;
	uint32_t depth;
	int is_first;
};

static void print_name(struct printing *printing, const char *name)
{
	(void)fprintf(printing->out, "%s\n%*s\"%s\": ", printing->is_first ? "" : ",", (int)printing->depth, "", name);
	printing->is_first = 0;
}

static void print_sparse_layers(const struct printing *printing)
{
	uint32_t layer;

	(void)fputc('[', printing->out);
	for (layer = 0; layer < printing->model->layers; layer++)
		(void)fprintf(printing->out, "%s%d", layer == 0 ? "" : ", ", layer >= printing->model->dense_layers);
	(void)fputc(']', printing->out);
}

static uint32_t field(const struct gen_model *model, const struct gen_key *key)
{
	return *(const uint32_t *)((const char *)model + key->field_off);
}

static const struct gen_format_shape *shape_of(const struct gen_model *model, enum gen_matrix matrix)
{
	return gen_format_shape(gen_model_format(model, model->dense_layers, matrix));
}

static void print_value(const struct printing *printing, const struct gen_key *key)
{
	const struct gen_model *model = printing->model;

	switch (key->kind) {
	case GEN_KEY_LITERAL:
		(void)fputs(key->text, printing->out);
		return;
	case GEN_KEY_WIDTH:
		(void)fprintf(printing->out, "%u", gen_model_matrix_rows(model, GEN_DOWN));
		return;
	case GEN_KEY_SPARSE_LAYERS:
		print_sparse_layers(printing);
		return;
	case GEN_KEY_GROUP:
		(void)fprintf(printing->out, "%u", shape_of(model, GEN_GATE)->block_columns);
		return;
	case GEN_KEY_DOWN_BITS:
		(void)fprintf(printing->out, "%u",
			      8u * shape_of(model, GEN_DOWN)->group_elements / shape_of(model, GEN_DOWN)->group);
		return;
	case GEN_KEY_DOWN_GROUP:
		(void)fprintf(printing->out, "%u", shape_of(model, GEN_DOWN)->block_columns);
		return;
	default:
		(void)fprintf(printing->out, "%u", (key->kind == GEN_KEY_FIELD_TWICE ? 2 : 1) * field(model, key));
	}
}

static void end_object(struct printing *printing)
{
	printing->depth--;
	(void)fprintf(printing->out, "\n%*s}", (int)printing->depth, "");
	printing->is_first = 0;
}

static void begin_object(struct printing *printing)
{
	(void)fputc('{', printing->out);
	printing->depth++;
	printing->is_first = 1;
}

static int is_left_out(const struct gen_model *model, const struct gen_key *key)
{
	if (key->only == (model->config == GEN_CONFIG_FLAT ? GEN_ONLY_NESTED : GEN_ONLY_FLAT))
		return 1;
	if (key->kind == GEN_KEY_DOWN_BITS || key->kind == GEN_KEY_DOWN_GROUP)
		return shape_of(model, GEN_DOWN) == shape_of(model, GEN_GATE);
	return key->kind == GEN_KEY_FIELD_IF && field(model, key) == 0;
}

/* A flat one is what lies between OBJECT and END. */
static void print_keys(struct printing *printing, const struct gen_key *keys)
{
	int is_flat = printing->model->config == GEN_CONFIG_FLAT, is_inside = 0, has_object = 0;
	const struct gen_key *key;

	for (key = keys; key->kind != GEN_KEY_LAST; key++)
		has_object |= key->kind == GEN_KEY_OBJECT;
	for (key = keys; key->kind != GEN_KEY_LAST; key++) {
		if (key->kind == GEN_KEY_OBJECT || key->kind == GEN_KEY_END) {
			is_inside = key->kind == GEN_KEY_OBJECT;
			if (is_flat)
				continue;
			if (is_inside) {
				print_name(printing, key->name);
				begin_object(printing);
			} else {
				end_object(printing);
			}
		} else if ((!is_flat || !has_object || is_inside) && !is_left_out(printing->model, key)) {
			print_name(printing, key->name);
			print_value(printing, key);
		}
	}
}

int gen_config_print(const struct gen_model *model, const struct gen_key *keys, char **ret_text, size_t *ret_bytes)
{
	struct printing printing = {.model = model};
	char *text = NULL;
	size_t bytes = 0;

	printing.out = open_memstream(&text, &bytes);
	if (printing.out == NULL)
		return -ENOMEM;
	begin_object(&printing);
	print_keys(&printing, keys);
	end_object(&printing);
	(void)fputc('\n', printing.out);
	if (fclose(printing.out) != 0) {
		free(text);
		return -ENOMEM;
	}
	*ret_text = text;
	*ret_bytes = bytes;
	return 0;
}
