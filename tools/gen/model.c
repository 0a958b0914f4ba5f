/* SPDX-License-Identifier: Apache-2.0 */
/* Names and checks of a model to generate; see model.h. */
#include "tools/gen/model.h"

#include "base/check.h"
#include "base/message.h"
#include "tools/gen/family.h"

#include <errno.h>
#include <string.h>

#define HEAD_MAX 128u
#define FIELD(field) offsetof(struct gen_model, field)

const struct gen_number gen_numbers[GEN_NUMBERS] = {
	{"layers", FIELD(layers), 1, GEN_LAYERS_MAX, 0, 1},
	{"experts", FIELD(experts), 1, GEN_EXPERTS_MAX, 0, 1},
	{"top-k", FIELD(top_k), 1, GEN_EXPERTS_MAX, 0, 1},
	{"hidden", FIELD(hidden), 1, GEN_EXTENT_MAX, 0, 1},
	{"intermediate", FIELD(intermediate), 1, GEN_EXTENT_MAX, 0, 1},
	{"vocab", FIELD(vocab), 1, GEN_VOCAB_MAX, 0, 1},
	{"heads", FIELD(heads), 1, GEN_EXTENT_MAX, 0, 0},
	{"dense-layers", FIELD(dense_layers), 0, GEN_LAYERS_MAX, GEN_TAKES_DENSE_LAYERS, 0},
	{"mtp", FIELD(mtp), 0, GEN_MTP_MAX, GEN_TAKES_MTP, 0},
	{"mtp-experts", FIELD(mtp_experts), 1, GEN_EXPERTS_MAX, GEN_TAKES_MTP_EXPERTS, 0},
	{"latent", FIELD(latent), 1, GEN_EXTENT_MAX, GEN_TAKES_LATENT, 0},
};

static const char *const popularity_names[] = {
	[GEN_UNIFORM] = "uniform",
	[GEN_GLM] = "glm",
	[GEN_OLMOE] = "olmoe",
};
static const char *const shard_names_names[] = {[GEN_NAMES_HF] = "hf", [GEN_NAMES_CONVERTER] = "converter"};
static const char *const config_names[] = {[GEN_CONFIG_NESTED] = "nested", [GEN_CONFIG_FLAT] = "flat"};

static int find_name(const char *const *names, size_t count, const char *text)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (strcmp(text, names[i]) == 0)
			return (int)i;
	return -EINVAL;
}

const char *gen_popularity_name(enum gen_popularity popularity)
{
	return (size_t)popularity < CNRE_COUNT_OF(popularity_names) ? popularity_names[popularity] : NULL;
}

const char *gen_shard_names_name(enum gen_shard_names names)
{
	return (size_t)names < CNRE_COUNT_OF(shard_names_names) ? shard_names_names[names] : NULL;
}

const char *gen_config_name(enum gen_config config)
{
	return (size_t)config < CNRE_COUNT_OF(config_names) ? config_names[config] : NULL;
}

int gen_popularity_parse(const char *text, enum gen_popularity *ret_popularity)
{
	int i = find_name(popularity_names, CNRE_COUNT_OF(popularity_names), text);

	if (i >= 0)
		*ret_popularity = (enum gen_popularity)i;
	return i < 0 ? i : 0;
}

int gen_shard_names_parse(const char *text, enum gen_shard_names *ret_names)
{
	int i = find_name(shard_names_names, CNRE_COUNT_OF(shard_names_names), text);

	if (i >= 0)
		*ret_names = (enum gen_shard_names)i;
	return i < 0 ? i : 0;
}

int gen_config_parse(const char *text, enum gen_config *ret_config)
{
	int i = find_name(config_names, CNRE_COUNT_OF(config_names), text);

	if (i >= 0)
		*ret_config = (enum gen_config)i;
	return i < 0 ? i : 0;
}

uint32_t gen_model_default_heads(uint32_t hidden)
{
	uint32_t head = hidden / 4 < HEAD_MAX ? hidden / 4 : HEAD_MAX;

	while (head > 2 && (hidden % head != 0 || head % 2 != 0))
		head--;
	return head == 0 ? 1 : hidden / head;
}

/* ---- extents ---- */

uint32_t gen_model_rows(const struct gen_model *model)
{
	return model->layers + model->mtp;
}

uint32_t gen_model_experts(const struct gen_model *model, uint32_t layer)
{
	if (layer >= model->layers)
		return model->mtp_experts != 0 ? model->mtp_experts : model->experts;
	return layer < model->dense_layers ? 0 : model->experts;
}

enum gen_format gen_model_format(const struct gen_model *model, uint32_t layer, enum gen_matrix matrix)
{
	return (enum gen_format)(model->matrix_format[matrix] != GEN_FORMATS ? model->matrix_format[matrix]
									     : model->expert_format[layer]);
}

static uint32_t width(const struct gen_model *model)
{
	return model->latent != 0 ? model->latent : model->hidden;
}

uint32_t gen_model_matrix_rows(const struct gen_model *model, enum gen_matrix matrix)
{
	return matrix == GEN_DOWN ? width(model) : model->intermediate;
}

uint32_t gen_model_matrix_columns(const struct gen_model *model, enum gen_matrix matrix)
{
	return matrix == GEN_DOWN ? model->intermediate : width(model);
}

/* ---- checks ---- */

static int check_counts(const struct gen_model *model, char message[GEN_MESSAGE_BYTES])
{
	if ((uint64_t)gen_model_rows(model) * model->experts > GEN_OBJECTS_MAX ||
	    (uint64_t)model->mtp * model->mtp_experts > GEN_OBJECTS_MAX)
		return cnre_message(message, GEN_MESSAGE_BYTES, -EINVAL,
				    "%u layers of %u experts are more than %u objects", gen_model_rows(model),
				    model->experts, GEN_OBJECTS_MAX);
	if (gen_model_rows(model) > GEN_LAYERS_MAX)
		return cnre_message(message, GEN_MESSAGE_BYTES, -EINVAL, "--layers %u and --mtp %u are more than %u",
				    model->layers, model->mtp, GEN_LAYERS_MAX);
	if (model->dense_layers >= model->layers)
		return cnre_message(message, GEN_MESSAGE_BYTES, -EINVAL,
				    "--dense-layers %u leaves no layer with experts among %u", model->dense_layers,
				    model->layers);
	if (model->top_k > model->experts)
		return cnre_message(message, GEN_MESSAGE_BYTES, -EINVAL, "--top-k %u is more than --experts %u",
				    model->top_k, model->experts);
	if (model->mtp_experts != 0 && model->mtp == 0)
		return cnre_message(message, GEN_MESSAGE_BYTES, -EINVAL, "--mtp-experts %u needs --mtp",
				    model->mtp_experts);
	return 0;
}

/* What only a model that an engine runs has to keep to. */
static int check_structure(const struct gen_model *model, char message[GEN_MESSAGE_BYTES])
{
	if ((model->family->takes & GEN_TAKES_POPULARITY) == 0) {
		if (model->popularity == GEN_UNIFORM)
			return 0;
		return cnre_message(
			message, GEN_MESSAGE_BYTES, -EINVAL,
			"--popularity %s: only the dense weights of olmoe are made so that they route: leave it "
			"out for %s",
			gen_popularity_name(model->popularity), model->family->name);
	}
	if (model->hidden % model->heads != 0 || (model->hidden / model->heads) % 2 != 0)
		return cnre_message(message, GEN_MESSAGE_BYTES, -EINVAL,
				    "--hidden %u does not divide into %u heads of even size: give another --heads",
				    model->hidden, model->heads);
	if (model->popularity != GEN_UNIFORM && (model->heads < 4 || model->hidden < 64))
		return cnre_message(message, GEN_MESSAGE_BYTES, -EINVAL,
				    "--popularity %s needs --hidden 64 and --heads 4 at least",
				    gen_popularity_name(model->popularity));
	return 0;
}

static int check_matrix(const struct gen_model *model, enum gen_format format, enum gen_matrix matrix,
			char message[GEN_MESSAGE_BYTES])
{
	uint32_t columns = gen_model_matrix_columns(model, matrix);
	uint32_t multiple = gen_format_shape(format)->multiple;

	/* Packed without gaps between rows, a row has to end with a byte. */
	if (model->family->is_merged && multiple < gen_format_shape(format)->group)
		multiple = gen_format_shape(format)->group;
	if (columns % multiple == 0)
		return 0;
	return cnre_message(message, GEN_MESSAGE_BYTES, -EINVAL,
			    "format %s needs rows of a multiple of %u weights, not %u: change --%s",
			    gen_format_name(format), multiple, columns,
			    matrix == GEN_DOWN  ? "intermediate"
			    : model->latent > 0 ? "latent"
						: "hidden");
}

static int check_format(const struct gen_model *model, uint32_t layer, enum gen_matrix matrix,
			char message[GEN_MESSAGE_BYTES])
{
	enum gen_format format = gen_model_format(model, layer, matrix);
	char list[256];

	if ((model->family->formats & GEN_FORMAT_BIT(format)) == 0)
		return cnre_message(message, GEN_MESSAGE_BYTES, -EINVAL,
				    "%s has no experts in format %s: choose one of %s", model->family->name,
				    gen_format_name(format),
				    gen_format_list(model->family->formats, list, sizeof list));
	if (gen_family_arrangement(model->family, format) !=
	    gen_family_arrangement(model->family, gen_model_format(model, layer, GEN_GATE)))
		return cnre_message(message, GEN_MESSAGE_BYTES, -EINVAL,
				    "--matrix-format: %s keeps format %s in other tensors than the rest of an expert",
				    model->family->name, gen_format_name(format));
	return check_matrix(model, format, matrix, message);
}

static int check_formats(const struct gen_model *model, char message[GEN_MESSAGE_BYTES])
{
	uint32_t layer, matrix;
	int result = 0;

	for (layer = 0; layer < gen_model_rows(model); layer++)
		for (matrix = 0; matrix < GEN_MATRICES && result == 0; matrix++)
			if (gen_model_experts(model, layer) > 0)
				result = check_format(model, layer, (enum gen_matrix)matrix, message);
	if (result == 0 && (GEN_PLAIN & GEN_FORMAT_BIT(model->dense_format)) == 0)
		result = cnre_message(message, GEN_MESSAGE_BYTES, -EINVAL, "--dense-format is one of bf16, f16, f32");
	return result;
}

int gen_model_check(const struct gen_model *model, char message[GEN_MESSAGE_BYTES])
{
	int result = check_counts(model, message);

	if (result == 0)
		result = check_structure(model, message);
	if (result == 0)
		result = check_formats(model, message);
	return result;
}
