/* SPDX-License-Identifier: Apache-2.0 */
/* Expert tensors to objects; see objects.h. */
#include "model/objects.h"

#include "base/message.h"
#include "model/cut.h"
#include "model/found.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#define NAME_BYTES 256

struct model_objects {
	const struct family *family;
	struct family_extents extents;
	struct found_table found;
	char *message;
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

	if (objects == NULL || found_open(&objects->found, family, extents) < 0) {
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
	found_close(&objects->found);
	free(objects);
	return NULL;
}

/* ---- tensors ---- */

struct tensor { /* one that is looked at, and where its name puts it */
	const char *shard, *name;
	struct family_place place;
	uint32_t row;
};

static int check_place(const struct model_objects *objects, const struct tensor *tensor)
{
	const struct family_extents *extents = &objects->extents;
	uint32_t experts = tensor->row < extents->layers ? extents->experts : extents->mtp_experts;

	if (tensor->place.is_mtp ? tensor->place.number >= objects->family->mtp_rows
				 : tensor->row >= objects->found.rows)
		return fail(objects, -EBADMSG, "%s: tensor %.200s: layer %u, but config.json says %s %u", tensor->shard,
			    tensor->name, tensor->place.number, extents->layers_key, extents->layers);
	if (tensor->place.expert != UINT32_MAX && tensor->place.expert >= experts)
		return fail(objects, -EBADMSG, "%s: tensor %.200s: expert %u, but config.json says %s %u",
			    tensor->shard, tensor->name, tensor->place.expert, extents->experts_key, experts);
	return 0;
}

static void set_dimensions(struct found *found, const uint64_t *dimension, uint8_t rank)
{
	if (rank > FOUND_RANK_MAX)
		return;
	found->rank = rank;
	for (uint8_t i = 0; i < rank; i++)
		found->dimension[i] = dimension[i] < UINT32_MAX ? (uint32_t)dimension[i] : UINT32_MAX;
}

static int add_expert_tensor(struct model_objects *objects, const struct model_catalog *catalog, uint32_t shard,
			     const struct safetensors *file, const struct safetensors_tensor *tensor,
			     const struct tensor *at)
{
	int is_shared = at->place.expert == UINT32_MAX;
	struct found *found;
	int result = check_place(objects, at);

	if (result < 0)
		return result;
	found = found_at(&objects->found, at->row, is_shared ? objects->found.experts : at->place.expert,
			 at->place.name);
	if (found->is_there)
		return fail(objects, -EBADMSG, "%s: tensor %.200s is in %.100s too (duplicate): remove one", at->shard,
			    at->name, catalog->shard[found->shard].name);
	*found = (struct found){.file_off = file->data_off + tensor->begin,
				.bytes = tensor->end - tensor->begin,
				.shard = shard,
				.is_there = 1,
				.dtype = tensor->dtype,
				.stem = (uint8_t)at->place.stem,
				.is_shared = (uint8_t)is_shared};
	set_dimensions(found, safetensors_dimensions(file, tensor), tensor->rank);
	return 0;
}

/* A router has one row an expert. What it says of layers that are not there, or of more experts, is nobody's business. */
static void add_router(struct model_objects *objects, const struct safetensors *file,
		       const struct safetensors_tensor *tensor, const struct family_place *place)
{
	uint32_t row = place->number + (place->is_mtp ? objects->extents.layers : 0);

	if (tensor->rank != 2 || row >= objects->found.rows)
		return;
	if (safetensors_dimensions(file, tensor)[0] <= objects->found.experts)
		objects->found.routed[row] = (uint32_t)safetensors_dimensions(file, tensor)[0];
}

static int add_tensor(struct model_objects *objects, const struct model_catalog *catalog, uint32_t shard,
		      const struct safetensors *file, const struct safetensors_tensor *tensor)
{
	struct tensor at = {.shard = catalog->shard[shard].name, .name = safetensors_name(file, tensor)};

	if (family_match(objects->family, at.name, &at.place)) {
		at.row = at.place.number + (at.place.is_mtp ? objects->extents.layers : 0);
		return add_expert_tensor(objects, catalog, shard, file, tensor, &at);
	}
	if (family_match_router(objects->family, at.name, &at.place))
		add_router(objects, file, tensor, &at.place);
	return 0; /* dense, the engine's own affair */
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

/* ---- objects ---- */

static int is_same_part(const struct model_part_shape *a, const struct model_part_shape *b)
{
	return a->bytes == b->bytes && a->rows == b->rows && a->columns == b->columns && a->dtype == b->dtype &&
	       a->block_rows == b->block_rows && a->block_columns == b->block_columns;
}

static int is_same_shape(const struct model_shape *a, const struct model_shape *b)
{
	for (uint32_t role = 0; role < MODEL_ROLES; role++)
		if (!is_same_part(&a->part[role], &b->part[role]))
			return 0;
	return 1; /* and so of one format */
}

static int add_shape(const struct model_objects *objects, struct model_catalog *catalog,
		     const struct model_shape *shape, uint32_t *ret_index)
{
	struct model_shape *added;
	uint32_t i, role;

	for (i = catalog->shape_count; i-- > 0;) /* newest first: neighbours are alike */
		if (is_same_shape(&catalog->shape[i], shape)) {
			*ret_index = i;
			return 0;
		}
	if (catalog->shape_count == MODEL_SHAPES_MAX)
		return fail(objects, -E2BIG, "experts of more than %u shapes", MODEL_SHAPES_MAX);
	added = &catalog->shape[catalog->shape_count];
	*added = *shape;
	for (role = 0; role < MODEL_ROLES; role++)
		added->payload_bytes += shape->part[role].bytes;
	if (added->payload_bytes > MODEL_OBJECT_BYTES_MAX)
		return fail(objects, -E2BIG, "an expert of %llu bytes, more than the bound of %llu",
			    (unsigned long long)added->payload_bytes, (unsigned long long)MODEL_OBJECT_BYTES_MAX);
	*ret_index = catalog->shape_count++;
	return 0;
}

static int add_object(const struct model_objects *objects, struct model_catalog *catalog, const struct cut_place *place)
{
	const struct cut cut = {.family = objects->family,
				.extents = &objects->extents,
				.found = &objects->found,
				.catalog = catalog,
				.message = objects->message};
	struct model_object *object = &catalog->object[catalog->object_count];
	struct model_shape shape;
	int result = cut_expert(&cut, place, &shape, object);

	if (result < 0)
		return result;
	object->layer = place->row;
	object->expert = place->expert;
	result = add_shape(objects, catalog, &shape, &object->shape);
	if (result == 0)
		catalog->object_count++;
	return result;
}

/* As config.json says, or fewer if the row's router does: a checkpoint may have been pruned unevenly. */
static uint32_t count_experts(const struct model_objects *objects, uint32_t row)
{
	const struct family_extents *extents = &objects->extents;
	uint32_t configured = row < extents->layers ? extents->experts : extents->mtp_experts;
	uint32_t routed = objects->found.routed[row];

	return routed > 0 && routed < configured ? routed : configured;
}

/* What lies beyond the router's rows would never be used: one of the two is wrong. */
static int check_none_beyond(const struct model_objects *objects, const struct model_catalog *catalog, uint32_t row,
			     uint32_t experts)
{
	const struct found *found;
	uint32_t expert, name;

	for (expert = experts; expert < objects->found.experts; expert++)
		for (name = 0; name < objects->found.names; name++) {
			found = found_at(&objects->found, row, expert, name);
			if (found->is_there)
				return fail(objects, -EBADMSG,
					    "%s: layer %u has tensors of expert %u, but its router has only %u rows: "
					    "convert the checkpoint again",
					    catalog->shard[found->shard].name, row, expert, experts);
		}
	return 0;
}

static uint32_t first_stem(const struct model_objects *objects, uint32_t row)
{
	const struct found *any = found_any(&objects->found, row);

	for (uint32_t other = 0; any == NULL && other < objects->found.rows; other++)
		any = found_any(&objects->found, other);
	return any != NULL ? any->stem : 0;
}

/* A layer without any expert tensor is dense, unless config.json says otherwise; any other must have all its experts. */
static int add_layer(const struct model_objects *objects, struct model_catalog *catalog, uint32_t row)
{
	const struct family_extents *extents = &objects->extents;
	struct model_layer *layer = &catalog->layer[row];
	struct cut_place place = {.row = row, .experts = count_experts(objects, row)};
	int result;

	layer->first_object = catalog->object_count;
	layer->top_k = row < extents->layers ? extents->top_k : extents->mtp_top_k;
	if (found_any(&objects->found, row) == NULL &&
	    (row < extents->dense_layers || row >= extents->layers || extents->dense_layers == UINT32_MAX))
		return 0;
	place.stem = first_stem(objects, row);
	result = check_none_beyond(objects, catalog, row, place.experts);
	for (; place.expert < place.experts && result == 0; place.expert++)
		result = add_object(objects, catalog, &place);
	if (result < 0)
		return result;
	layer->expert_count = place.experts;
	if (catalog->expert_count < place.experts)
		catalog->expert_count = place.experts;
	return 0;
}

/* Layers, and as many of the rows after them as there are experts in. */
static uint32_t count_rows(const struct model_objects *objects)
{
	uint32_t rows = objects->found.rows;

	while (rows > objects->extents.layers && found_any(&objects->found, rows - 1) == NULL)
		rows--;
	return rows;
}

static int has_any(const struct model_objects *objects)
{
	for (uint32_t row = 0; row < objects->found.rows; row++)
		if (found_any(&objects->found, row) != NULL)
			return 1;
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

static int fail_none(const struct model_objects *objects)
{
	const struct family_place first = {0};
	char name[NAME_BYTES];

	return fail(objects, -ENOTSUP, "no routed experts in a known format: no tensor is named like %s",
		    family_make_name(objects->family, &first, name, sizeof name));
}

static int make_room(const struct model_objects *objects, struct model_catalog *catalog)
{
	catalog->layer = calloc(catalog->layer_count, sizeof *catalog->layer);
	catalog->object = calloc((size_t)catalog->layer_count * objects->found.experts, sizeof *catalog->object);
	catalog->shape = calloc(MODEL_SHAPES_MAX, sizeof *catalog->shape);
	if (catalog->layer != NULL && catalog->object != NULL && catalog->shape != NULL)
		return 0;
	return fail(objects, -ENOMEM, "out of memory for %u layers of %u experts", catalog->layer_count,
		    objects->found.experts);
}

int model_objects_finish(const struct model_objects *objects, struct model_catalog *catalog)
{
	uint32_t row;
	int result;

	if (!has_any(objects))
		return fail_none(objects);
	catalog->main_layer_count = objects->extents.layers;
	catalog->layer_count = count_rows(objects);
	result = make_room(objects, catalog);
	for (row = 0; row < catalog->layer_count && result == 0; row++)
		result = add_layer(objects, catalog, row);
	if (result < 0)
		return result;
	model_objects_size(catalog);
	if (catalog->slab_bytes_max > MODEL_OBJECT_BYTES_MAX)
		return fail(objects, -E2BIG, "an expert needs a slab of %llu bytes, more than the bound of %llu",
			    (unsigned long long)catalog->slab_bytes_max, (unsigned long long)MODEL_OBJECT_BYTES_MAX);
	return 0;
}
