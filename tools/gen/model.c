/* SPDX-License-Identifier: Apache-2.0 */
/* Names and checks of a model to generate; see model.h. */
#include "tools/gen/model.h"

#include "base/check.h"
#include "base/message.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define HEAD_MAX 128u

static const char *const format_names[] = {
	[GEN_INT8_ROW] = "int8-row",
	[GEN_BF16] = "bf16",
	[GEN_F16] = "f16",
	[GEN_F32] = "f32",
};
static const char *const popularity_names[] = {
	[GEN_UNIFORM] = "uniform",
	[GEN_GLM] = "glm",
	[GEN_OLMOE] = "olmoe",
};

const char *gen_format_name(enum gen_format format)
{
	return (size_t)format < CNRE_COUNT_OF(format_names) ? format_names[format] : NULL;
}

const char *gen_popularity_name(enum gen_popularity popularity)
{
	return (size_t)popularity < CNRE_COUNT_OF(popularity_names) ? popularity_names[popularity] : NULL;
}

int gen_format_parse(const char *text, enum gen_format *ret_format)
{
	size_t i;

	for (i = 0; i < CNRE_COUNT_OF(format_names); i++)
		if (strcmp(text, format_names[i]) == 0) {
			*ret_format = (enum gen_format)i;
			return 0;
		}
	return -EINVAL;
}

int gen_popularity_parse(const char *text, enum gen_popularity *ret_popularity)
{
	size_t i;

	for (i = 0; i < CNRE_COUNT_OF(popularity_names); i++)
		if (strcmp(text, popularity_names[i]) == 0) {
			*ret_popularity = (enum gen_popularity)i;
			return 0;
		}
	return -EINVAL;
}

uint32_t gen_model_default_heads(uint32_t hidden)
{
	uint32_t head = hidden / 4 < HEAD_MAX ? hidden / 4 : HEAD_MAX;

	while (head > 2 && (hidden % head != 0 || head % 2 != 0))
		head--;
	return head == 0 ? 1 : hidden / head;
}

int gen_model_check(const struct gen_model *model, char message[GEN_MESSAGE_BYTES])
{
	if ((uint64_t)model->layers * model->experts > GEN_OBJECTS_MAX)
		return cnre_message(message, GEN_MESSAGE_BYTES, -EINVAL,
				    "%u layers of %u experts are more than %u objects", model->layers, model->experts,
				    GEN_OBJECTS_MAX);
	if (model->top_k > model->experts)
		return cnre_message(message, GEN_MESSAGE_BYTES, -EINVAL, "--top-k %u is more than --experts %u",
				    model->top_k, model->experts);
	if (model->hidden % model->heads != 0 || (model->hidden / model->heads) % 2 != 0)
		return cnre_message(message, GEN_MESSAGE_BYTES, -EINVAL,
				    "--hidden %u does not divide into %u heads of even size: give another --heads",
				    model->hidden, model->heads);
	if (model->popularity != GEN_UNIFORM && (model->heads < 4 || model->hidden < 64))
		return cnre_message(message, GEN_MESSAGE_BYTES, -EINVAL,
				    "--popularity %s needs --hidden 64 and --heads 4 at least",
				    gen_popularity_name(model->popularity));
	if (model->dense_format == GEN_INT8_ROW)
		return cnre_message(message, GEN_MESSAGE_BYTES, -EINVAL, "--dense-format is one of bf16, f16, f32");
	return 0;
}
