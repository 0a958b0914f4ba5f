/* SPDX-License-Identifier: Apache-2.0 */
/* Expert tensors to objects; see objects.h. */
#include "model/objects.h"

#include "base/check.h"
#include "base/message.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 256

struct found { /* a tensor of one of the family's names */
	uint64_t file_off, bytes;
	uint32_t shard;
	uint8_t is_there, dtype, is_matrix;
	uint64_t rows, columns; /* of a matrix */
};

struct model_objects {
	const struct family *family;
	struct family_extents extents;
	char *message;
	struct found *found; /* [layer][expert, or extents.experts: all of the layer][name] */
};

__attribute__((format(printf, 3, 4))) static int fail(const struct model_objects *objects, int error,
						      const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)cnre_message_list(objects->message, MODEL_MESSAGE_BYTES, error, format, arguments);
	va_end(arguments);
	return error;
}

int model_objects_open(struct model_objects **ret_objects, const struct family *family,
		       const struct family_extents *extents, char message[MODEL_MESSAGE_BYTES])
{
	struct model_objects *objects = calloc(1, sizeof *objects);

	CNRE_CHECK(family->name_count <= FAMILY_NAMES_MAX);
	CNRE_CHECK(extents->layers <= MODEL_LAYERS_MAX && extents->experts <= MODEL_EXPERTS_MAX);
	if (objects != NULL)
		objects->found = calloc((size_t)extents->layers * (extents->experts + 1),
					family->name_count * sizeof *objects->found);
	if (objects == NULL || objects->found == NULL) {
		(void)model_objects_close(objects);
		return cnre_message(message, MODEL_MESSAGE_BYTES, -ENOMEM, "out of memory for %u layers of %u experts",
				    extents->layers, extents->experts);
	}
	objects->family = family;
	objects->extents = *extents;
	objects->message = message;
	*ret_objects = objects;
	return 0;
}

struct model_objects *model_objects_close(struct model_objects *objects)
{
	if (objects == NULL)
		return NULL;
	free(objects->found);
	free(objects);
	return NULL;
}

/* expert may be extents.experts: the tensors of the whole layer. */
static struct found *found_at(const struct model_objects *objects, uint32_t layer, uint32_t expert, uint32_t name)
{
	size_t row = (size_t)layer * (objects->extents.experts + 1) + expert;

	return &objects->found[row * objects->family->name_count + name];
}

static int check_place(const struct model_objects *objects, const char *shard, const char *tensor, uint32_t layer,
		       uint32_t expert)
{
	const struct family_extents *extents = &objects->extents;

	if (layer >= extents->layers)
		return fail(objects, -EBADMSG, "%s: tensor %.200s: layer %u, but config.json says %s %u", shard, tensor,
			    layer, objects->family->layers_key, extents->layers);
	if (expert != UINT32_MAX && expert >= extents->experts)
		return fail(objects, -EBADMSG, "%s: tensor %.200s: expert %u, but config.json says %s %u", shard,
			    tensor, expert, objects->family->experts_key, extents->experts);
	return 0;
}

static int add_tensor(struct model_objects *objects, const struct model_catalog *catalog, uint32_t shard,
		      const struct safetensors *file, const struct safetensors_tensor *tensor)
{
	const char *text = safetensors_name(file, tensor), *shard_name = catalog->shard[shard].name;
	const uint64_t *dimension = safetensors_dimensions(file, tensor);
	uint32_t layer = 0, expert = 0;
	struct found *found;
	int name, result;

	name = family_match(objects->family, text, &layer, &expert);
	if (name < 0)
		return 0; /* dense, the engine's own affair */
	result = check_place(objects, shard_name, text, layer, expert);
	if (result < 0)
		return result;
	found = found_at(objects, layer, expert == UINT32_MAX ? objects->extents.experts : expert, (uint32_t)name);
	if (found->is_there)
		return fail(objects, -EBADMSG, "%s: tensor %.200s is in %.100s too (duplicate): remove one", shard_name,
			    text, catalog->shard[found->shard].name);
	*found = (struct found){.file_off = file->data_off + tensor->begin,
				.bytes = tensor->end - tensor->begin,
				.shard = shard,
				.is_there = 1,
				.dtype = tensor->dtype,
				.is_matrix = tensor->rank == 2};
	if (tensor->rank == 2) {
		found->rows = dimension[0];
		found->columns = dimension[1];
	}
	return 0;
}

int model_objects_add(struct model_objects *objects, const struct model_catalog *catalog, uint32_t shard,
		      const struct safetensors *file)
{
	uint32_t i;
	int result = 0;

	for (i = 0; i < file->tensor_count && result == 0; i++)
		result = add_tensor(objects, catalog, shard, file, &file->tensor[i]);
	return result;
}

/* ---- one object ---- */

static uint32_t extent(const struct family_extents *extents, uint8_t which)
{
	switch (which) {
	case FAMILY_HIDDEN:
		return extents->hidden;
	case FAMILY_INTERMEDIATE:
		return extents->intermediate;
	default:
		return 1;
	}
}

static uint32_t element_bytes(uint8_t dtype)
{
	switch (dtype) {
	case MODEL_BF16:
	case MODEL_F16:
		return 2;
	case MODEL_F32:
		return 4;
	case MODEL_I64:
		return 8;
	default:
		return 1;
	}
}

static void set_part(const struct family_extents *extents, const struct family_slice *slice, uint8_t dtype,
		     struct model_part_shape *part)
{
	uint32_t per_element = slice->columns_per_element == 0 ? 1 : slice->columns_per_element;

	part->rows = extent(extents, slice->rows);
	part->columns = (extent(extents, slice->columns) + per_element - 1) / per_element;
	part->dtype = dtype;
	part->block_rows = slice->block_rows;
	part->block_columns = slice->block_columns;
	part->bytes = (uint64_t)part->rows * part->columns * element_bytes(dtype); /* extents are bounded: below 2^43 */
}

/* The tensor of an expert under a name; found on its own, or as the expert's share of the layer's tensor. */
static int find_tensor(const struct model_objects *objects, uint32_t layer, uint32_t expert, uint32_t name,
		       struct found *ret_found)
{
	const struct found *own = found_at(objects, layer, expert, name);
	const struct found *shared = found_at(objects, layer, objects->extents.experts, name);

	if (own->is_there) {
		*ret_found = *own;
		return 1;
	}
	if (!shared->is_there || shared->bytes % objects->extents.experts != 0)
		return 0;
	*ret_found = *shared;
	ret_found->is_matrix = 0;
	ret_found->bytes = shared->bytes / objects->extents.experts;
	ret_found->file_off += ret_found->bytes * expert;
	return 1;
}

/* Cuts one tensor into parts. 1 it fits, 0 it has another dtype, shape or length. */
static int cut_tensor(const struct model_objects *objects, const struct family_tensor *tensor,
		      const struct found *found, struct model_shape *shape, struct model_object *object)
{
	uint8_t dtype = tensor->dtype == MODEL_DTYPE_OTHER ? found->dtype : tensor->dtype;
	const struct model_part_shape *part = NULL;
	uint64_t done = 0;
	uint32_t i, role;

	if ((tensor->stored & FAMILY_STORED(found->dtype)) == 0)
		return 0;
	for (i = 0; i < tensor->slice_count; i++) {
		role = tensor->slice[i].role;
		set_part(&objects->extents, &tensor->slice[i], dtype, &shape->part[role]);
		part = &shape->part[role];
		object->piece[role].shard = found->shard;
		object->piece[role].file_off = found->file_off + done;
		done += part->bytes;
	}
	if (tensor->slice_count == 1 && found->is_matrix &&
	    (found->rows != part->rows || found->columns != part->columns))
		return 0;
	return done == found->bytes;
}

/* 1: the object consists of exactly the tensors of this format. */
static int try_format(const struct model_objects *objects, const struct family_format *format,
		      struct model_shape *shape, struct model_object *object)
{
	struct found found;
	uint32_t i, wanted = 0;

	memset(shape, 0, sizeof *shape);
	memset(object->piece, 0, sizeof object->piece);
	for (i = 0; i < format->tensor_count; i++) {
		wanted |= 1u << format->tensor[i].name;
		if (!find_tensor(objects, object->layer, object->expert, format->tensor[i].name, &found) ||
		    !cut_tensor(objects, &format->tensor[i], &found, shape, object))
			return 0;
	}
	for (i = 0; i < objects->family->name_count; i++)
		if ((wanted & 1u << i) == 0 && find_tensor(objects, object->layer, object->expert, i, &found))
			return 0;
	return 1;
}

static uint32_t count_present(const struct model_objects *objects, const struct family_format *format,
			      const struct model_object *object)
{
	struct found found;
	uint32_t i, count = 0;

	for (i = 0; i < format->tensor_count; i++)
		count += (uint32_t)find_tensor(objects, object->layer, object->expert, format->tensor[i].name, &found);
	return count;
}

/* The format that the object has most tensors of: the one to explain a failure with. */
static const struct family_format *nearest_format(const struct model_objects *objects,
						  const struct model_object *object)
{
	const struct family_format *best = &objects->family->formats[0];
	uint32_t i, count, best_count = 0;

	for (i = 0; i < objects->family->format_count; i++) {
		count = count_present(objects, &objects->family->formats[i], object);
		if (count > best_count) {
			best = &objects->family->formats[i];
			best_count = count;
		}
	}
	return best;
}

static uint64_t wanted_bytes(const struct model_objects *objects, const struct family_tensor *tensor, uint8_t stored)
{
	struct model_part_shape part;
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; i < tensor->slice_count; i++) {
		set_part(&objects->extents, &tensor->slice[i],
			 tensor->dtype == MODEL_DTYPE_OTHER ? stored : tensor->dtype, &part);
		bytes += part.bytes;
	}
	return bytes;
}

/* No format fits: say which tensor is missing, has the wrong form, or is too many. */
static int explain(const struct model_objects *objects, const struct model_catalog *catalog,
		   const struct model_object *object)
{
	const struct family_format *format = nearest_format(objects, object);
	const struct family_tensor *tensor;
	struct model_object scratch = *object;
	struct model_shape shape = {0};
	struct found found;
	char name[NAME_BYTES];
	uint32_t i;

	for (i = 0; i < format->tensor_count; i++) {
		tensor = &format->tensor[i];
		(void)family_make_name(objects->family, tensor->name, object->layer, object->expert, name, sizeof name);
		if (!find_tensor(objects, object->layer, object->expert, tensor->name, &found))
			return fail(objects, -EBADMSG,
				    "tensor %s is missing in all %u shards: the checkpoint is incomplete, "
				    "download it again",
				    name, catalog->shard_count);
		if (!cut_tensor(objects, tensor, &found, &shape, &scratch))
			return fail(objects, -EBADMSG,
				    "%s: tensor %s: %llu bytes in a dtype or shape that format %s does not "
				    "have (it needs %llu): convert the checkpoint again",
				    catalog->shard[found.shard].name, name, (unsigned long long)found.bytes,
				    format->name, (unsigned long long)wanted_bytes(objects, tensor, found.dtype));
	}
	return fail(objects, -EBADMSG, "layer %u expert %u has tensors of two formats: convert the checkpoint again",
		    object->layer, object->expert);
}

/* ---- all objects ---- */

static int add_shape(const struct model_objects *objects, struct model_catalog *catalog,
		     const struct model_shape *shape, uint32_t *ret_index)
{
	uint32_t i, role;

	for (i = catalog->shape_count; i-- > 0;) /* newest first: neighbours are alike */
		if (memcmp(catalog->shape[i].part, shape->part, sizeof shape->part) == 0) {
			*ret_index = i;
			return 0;
		}
	if (catalog->shape_count == MODEL_SHAPES_MAX)
		return fail(objects, -E2BIG, "experts of more than %u shapes", MODEL_SHAPES_MAX);
	catalog->shape[catalog->shape_count] = *shape;
	for (role = 0; role < MODEL_ROLES; role++)
		catalog->shape[catalog->shape_count].payload_bytes += shape->part[role].bytes;
	if (catalog->shape[catalog->shape_count].payload_bytes > MODEL_OBJECT_BYTES_MAX)
		return fail(objects, -E2BIG, "an expert of %llu bytes, more than the bound of %llu",
			    (unsigned long long)catalog->shape[catalog->shape_count].payload_bytes,
			    (unsigned long long)MODEL_OBJECT_BYTES_MAX);
	*ret_index = catalog->shape_count++;
	return 0;
}

static int add_object(const struct model_objects *objects, struct model_catalog *catalog, uint32_t layer,
		      uint32_t expert)
{
	struct model_object *object = &catalog->object[catalog->object_count];
	struct model_shape shape;
	uint32_t i;
	int result;

	object->layer = layer;
	object->expert = expert;
	for (i = 0; i < objects->family->format_count; i++)
		if (try_format(objects, &objects->family->formats[i], &shape, object))
			break;
	if (i == objects->family->format_count)
		return explain(objects, catalog, object);
	result = add_shape(objects, catalog, &shape, &object->shape);
	if (result == 0)
		catalog->object_count++;
	return result;
}

static int layer_is_sparse(const struct model_objects *objects, uint32_t layer)
{
	const struct found *found = found_at(objects, layer, 0, 0);
	size_t i, count = (size_t)(objects->extents.experts + 1) * objects->family->name_count;

	for (i = 0; i < count; i++)
		if (found[i].is_there)
			return 1;
	return 0;
}

/* A layer without any expert tensor is dense; any other must have all its experts. */
static int add_layers(const struct model_objects *objects, struct model_catalog *catalog)
{
	uint32_t layer, expert;
	int result = 0;

	for (layer = 0; layer < catalog->layer_count; layer++) {
		catalog->layer[layer].first_object = catalog->object_count;
		if (!layer_is_sparse(objects, layer))
			continue;
		catalog->layer[layer].expert_count = objects->extents.experts;
		catalog->expert_count = objects->extents.experts;
		for (expert = 0; expert < objects->extents.experts && result == 0; expert++)
			result = add_object(objects, catalog, layer, expert);
		if (result < 0)
			return result;
	}
	return 0;
}

void model_objects_size(struct model_catalog *catalog)
{
	struct model_shape *shape;
	struct model_plan plan;
	uint32_t i;

	for (i = 0; i < catalog->object_count; i++) {
		model_plan(catalog, i, &plan);
		shape = &catalog->shape[catalog->object[i].shape];
		if (shape->slab_bytes < plan.slab_bytes)
			shape->slab_bytes = plan.slab_bytes;
	}
	catalog->payload_bytes_min = UINT64_MAX;
	for (i = 0; i < catalog->object_count; i++) { /* at most 2^20 objects of little more than 2^30 bytes */
		shape = &catalog->shape[catalog->object[i].shape];
		catalog->payload_bytes_total += shape->payload_bytes;
		catalog->slab_bytes_total += shape->slab_bytes;
		if (catalog->payload_bytes_min > shape->payload_bytes)
			catalog->payload_bytes_min = shape->payload_bytes;
		if (catalog->payload_bytes_max < shape->payload_bytes)
			catalog->payload_bytes_max = shape->payload_bytes;
		if (catalog->slab_bytes_max < shape->slab_bytes)
			catalog->slab_bytes_max = shape->slab_bytes;
	}
}

int model_objects_finish(const struct model_objects *objects, struct model_catalog *catalog)
{
	char name[NAME_BYTES];
	int result;

	catalog->layer_count = objects->extents.layers;
	catalog->layer = calloc(catalog->layer_count, sizeof *catalog->layer);
	catalog->object = calloc((size_t)objects->extents.layers * objects->extents.experts, sizeof *catalog->object);
	catalog->shape = calloc(MODEL_SHAPES_MAX, sizeof *catalog->shape);
	if (catalog->layer == NULL || catalog->object == NULL || catalog->shape == NULL)
		return fail(objects, -ENOMEM, "out of memory for %u layers of %u experts", objects->extents.layers,
			    objects->extents.experts);
	result = add_layers(objects, catalog);
	if (result < 0)
		return result;
	if (catalog->object_count == 0)
		return fail(objects, -ENOTSUP, "no routed experts in a known format: no tensor is named like %s",
			    family_make_name(objects->family, 0, 0, 0, name, sizeof name));
	model_objects_size(catalog);
	if (catalog->slab_bytes_max > MODEL_OBJECT_BYTES_MAX)
		return fail(objects, -E2BIG, "an expert needs a slab of %llu bytes, more than the bound of %llu",
			    (unsigned long long)catalog->slab_bytes_max, (unsigned long long)MODEL_OBJECT_BYTES_MAX);
	return 0;
}
