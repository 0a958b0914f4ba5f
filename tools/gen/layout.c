/* SPDX-License-Identifier: Apache-2.0 */
/* Shards and headers; see layout.h. */
#include "tools/gen/layout.h"

#include "base/check.h"
#include "base/size.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 4096u

/* Bytes of a tensor and of those that must follow it in the same shard. */
static uint64_t together_bytes(const struct gen_layout *layout, uint32_t tensor)
{
	uint64_t bytes = layout->tensor[tensor].bytes;

	if (layout->model->unaligned)
		return bytes; /* as converters do: a shard may end between any two tensors */
	while (++tensor < layout->tensor_count && layout->tensor[tensor].continues)
		bytes += layout->tensor[tensor].bytes;
	return bytes;
}

static int belongs_to_mtp(const struct gen_layout *layout, uint32_t tensor)
{
	return layout->model->shard_names == GEN_NAMES_CONVERTER &&
	       layout->tensor[tensor].layer >= layout->model->layers;
}

static int starts_shard(const struct gen_layout *layout, uint32_t tensor)
{
	const struct gen_shard *open;

	if (layout->shard_count == 0)
		return 1;
	open = &layout->shard[layout->shard_count - 1];
	if (open->is_mtp != belongs_to_mtp(layout, tensor))
		return 1;
	if (!layout->model->unaligned && layout->tensor[tensor].continues)
		return 0;
	return open->data_bytes + together_bytes(layout, tensor) > layout->model->shard_bytes;
}

static int divide(struct gen_layout *layout)
{
	struct gen_shard *shard;
	uint32_t i;

	for (i = 0; i < layout->tensor_count; i++) {
		if (starts_shard(layout, i)) {
			if (layout->shard_count == GEN_SHARDS_MAX)
				return -E2BIG;
			layout->shard[layout->shard_count].is_mtp = belongs_to_mtp(layout, i);
			layout->shard[layout->shard_count++].first_tensor = i;
		}
		shard = &layout->shard[layout->shard_count - 1];
		shard->tensor_count++;
		shard->data_bytes += layout->tensor[i].bytes;
	}
	return 0;
}

int gen_layout_open(struct gen_layout *layout, const struct gen_model *model)
{
	int64_t count;
	int result;

	memset(layout, 0, sizeof *layout);
	layout->model = model;
	count = gen_tensor_list(model, &layout->tensor);
	if (count < 0)
		return (int)count;
	layout->tensor_count = (uint32_t)count;
	layout->shard = calloc(GEN_SHARDS_MAX, sizeof *layout->shard);
	result = layout->shard == NULL ? -ENOMEM : divide(layout);
	if (result < 0)
		gen_layout_done(layout);
	return result;
}

void gen_layout_done(struct gen_layout *layout)
{
	free(layout->shard);
	free(layout->tensor);
	memset(layout, 0, sizeof *layout);
}

static uint32_t count_before_mtp(const struct gen_layout *layout)
{
	uint32_t i;

	for (i = 0; i < layout->shard_count && !layout->shard[i].is_mtp; i++)
		;
	return i;
}

const char *gen_layout_shard_name(const struct gen_layout *layout, uint32_t shard, char text[GEN_NAME_BYTES])
{
	if (layout->model->shard_names == GEN_NAMES_HF)
		(void)snprintf(text, GEN_NAME_BYTES, "model-%05u-of-%05u.safetensors", shard + 1, layout->shard_count);
	else if (layout->shard[shard].is_mtp)
		(void)snprintf(text, GEN_NAME_BYTES, "out-mtp-%05u.safetensors", shard - count_before_mtp(layout));
	else
		(void)snprintf(text, GEN_NAME_BYTES, "out-%05u.safetensors", shard);
	return text;
}

int gen_layout_is_shard_name(const char *name)
{
	static const char *const forms[] = {"out-mtp-%5u.safetensors%n", "out-%5u.safetensors%n"};
	unsigned number, of;
	int end = 0;
	size_t i;

	if (sscanf(name, "model-%5u-of-%5u.safetensors%n", &number, &of, &end) == 2 && end > 0 && name[end] == '\0')
		return 1;
	for (i = 0; i < CNRE_COUNT_OF(forms); i++) {
		end = 0;
		if (sscanf(name, forms[i], &number, &end) == 1 && end > 0 && name[end] == '\0')
			return 1;
	}
	return 0;
}

static void print_tensor(FILE *out, const struct gen_model *model, const struct gen_tensor *tensor, uint64_t begin)
{
	char name[GEN_NAME_BYTES];
	uint32_t i;

	(void)fprintf(out, "\"%s\":{\"dtype\":\"%s\",\"shape\":[", gen_tensor_name(model, tensor, name), tensor->dtype);
	for (i = 0; i < tensor->rank; i++)
		(void)fprintf(out, "%s%llu", i == 0 ? "" : ",", (unsigned long long)tensor->dimension[i]);
	(void)fprintf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin,
		      (unsigned long long)(begin + tensor->bytes));
}

static void print_header(FILE *out, const struct gen_layout *layout, uint32_t shard)
{
	const struct gen_shard *the = &layout->shard[shard];
	uint64_t begin = 0;
	uint32_t i;

	(void)fprintf(out, "%8s{", ""); /* room for the length */
	for (i = 0; i < the->tensor_count; i++) {
		(void)fputs(i == 0 ? "" : ",", out);
		print_tensor(out, layout->model, &layout->tensor[the->first_tensor + i], begin);
		begin += layout->tensor[the->first_tensor + i].bytes;
	}
	(void)fputc('}', out);
	while (ftell(out) % (layout->model->unaligned ? 8 : ALIGNMENT) != 0)
		(void)fputc(' ', out);
}

int gen_layout_header(const struct gen_layout *layout, uint32_t shard, char **ret_text, size_t *ret_bytes)
{
	char *text = NULL;
	size_t bytes = 0;
	unsigned i;
	FILE *out = open_memstream(&text, &bytes);

	if (out == NULL)
		return -ENOMEM;
	print_header(out, layout, shard);
	if (fclose(out) != 0) {
		free(text);
		return -ENOMEM;
	}
	for (i = 0; i < 8; i++)
		text[i] = (char)((bytes - 8) >> 8 * i);
	*ret_text = text;
	*ret_bytes = bytes;
	return 0;
}

static int walk_tensor(const struct gen_tensor *tensor, struct gen_payload *payload, void *chunk, gen_step *step,
		       void *context)
{
	uint64_t unit = gen_payload_unit(tensor), offset, bytes;
	int result = 0;

	for (offset = 0; offset < tensor->bytes && result == 0; offset += bytes) {
		bytes = GEN_CHUNK_BYTES / unit * unit;
		if (bytes > tensor->bytes - offset)
			bytes = tensor->bytes - offset;
		gen_payload_fill(payload, tensor, offset, bytes, chunk);
		result = step(context, tensor, offset, chunk, (size_t)bytes);
	}
	return result;
}

int gen_layout_walk(const struct gen_layout *layout, uint32_t shard, struct gen_payload *payload, gen_step *step,
		    void *context)
{
	const struct gen_shard *the = &layout->shard[shard];
	void *chunk = aligned_alloc(ALIGNMENT, GEN_CHUNK_BYTES);
	char *header = NULL;
	size_t bytes = 0;
	uint32_t i;
	int result;

	result = chunk == NULL ? -ENOMEM : gen_layout_header(layout, shard, &header, &bytes);
	if (result == 0)
		result = step(context, NULL, 0, header, bytes);
	for (i = 0; i < the->tensor_count && result == 0; i++)
		result = walk_tensor(&layout->tensor[the->first_tensor + i], payload, chunk, step, context);
	free(header);
	free(chunk);
	return result;
}
