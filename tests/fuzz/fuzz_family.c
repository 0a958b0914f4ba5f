/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: a shard's header from a stranger as a checkpoint of any family. What is taken must lie inside the file: every
 * part of every expert, and every read of its plan. Eleven bytes choose family and extents, the rest is the header.
 */
#include "model/objects.h"

#include "base/check.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX_BYTES 11u

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static const struct family *choose_family(uint8_t byte)
{
	uint32_t count = 0;

	while (family_table[count] != NULL)
		count++;
	return family_table[byte % count];
}

static struct family_extents choose_extents(const uint8_t *bytes)
{
	return (struct family_extents){
		.layers = 1 + bytes[1] % 4,
		.experts = 1 + bytes[2] % 8,
		.top_k = 1,
		.hidden = 1 + bytes[3],
		.intermediate = 1 + bytes[4],
		.mtp_experts = 1 + bytes[5] % 8,
		.mtp_top_k = 1,
		.group = bytes[6] & 64,
		.dense_layers = UINT32_MAX,
		.layers_key = "layers",
		.experts_key = "experts",
	};
}

static void check_object(const struct model_catalog *catalog, uint32_t index, uint64_t file_bytes)
{
	const struct model_object *object = &catalog->object[index];
	const struct model_shape *shape = &catalog->shape[object->shape];
	struct model_plan plan;

	CNRE_CHECK(model_catalog_find(catalog, object->layer, object->expert) == (int64_t)index);
	for (uint32_t role = 0; role < MODEL_ROLES; role++)
		CNRE_CHECK(shape->part[role].bytes == 0 ||
			   (object->piece[role].shard == 0 && object->piece[role].file_off <= file_bytes &&
			    shape->part[role].bytes <= file_bytes - object->piece[role].file_off));
	model_plan(catalog, index, &plan);
	CNRE_CHECK(plan.run_count > 0 && plan.slab_bytes <= shape->slab_bytes);
	for (uint32_t i = 0; i < plan.run_count; i++)
		CNRE_CHECK(plan.run[i].file_off + plan.run[i].needed_bytes <= file_bytes);
}

static void check_catalog(const struct model_catalog *catalog, uint64_t file_bytes)
{
	uint32_t objects = 0;

	for (uint32_t i = 0; i < catalog->layer_count; i++) {
		CNRE_CHECK(catalog->layer[i].first_object == objects);
		objects += catalog->layer[i].expert_count;
	}
	CNRE_CHECK(objects == catalog->object_count && objects > 0);
	for (uint32_t i = 0; i < objects; i++)
		check_object(catalog, i, file_bytes);
}

static void collect(const struct family *family, const struct family_extents *extents, const struct safetensors *file)
{
	static struct model_shard shard = {.name = (char *)"shard"};
	struct model_catalog catalog = {.shard = &shard, .shard_count = 1};
	char message[MODEL_MESSAGE_BYTES] = "";
	struct model_objects *objects = NULL;
	int r = model_objects_open(&objects, family, extents, message);

	if (r == 0)
		r = model_objects_add(objects, &catalog, 0, file);
	if (r == 0)
		r = model_objects_finish(objects, &catalog);
	CNRE_CHECK(r == 0 || (r < 0 && message[0] != '\0' && strchr(message, '\n') == NULL));
	if (r == 0)
		check_catalog(&catalog, file->file_bytes);
	(void)model_objects_close(objects);
	free(catalog.layer);
	free(catalog.object);
	free(catalog.shape);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
	char message[SAFETENSORS_MESSAGE_BYTES] = "";
	struct safetensors *file = NULL;
	struct family_extents extents;
	uint64_t data_bytes = 0;
	char *text;

	if (count < PREFIX_BYTES)
		return -1;
	extents = choose_extents(bytes);
	for (unsigned i = 0; i < 4; i++)
		data_bytes |= (uint64_t)bytes[7 + i] << 8 * i;
	text = malloc(count - PREFIX_BYTES + 1);
	CNRE_CHECK(text != NULL);
	memcpy(text, bytes + PREFIX_BYTES, count - PREFIX_BYTES);
	text[count - PREFIX_BYTES] = '\0';
	if (safetensors_parse(&file, text, count - PREFIX_BYTES, data_bytes, "shard", message) == 0)
		collect(choose_family(bytes[0]), &extents, file);
	(void)safetensors_close(file);
	return 0;
}
