/* SPDX-License-Identifier: Apache-2.0 */
/* The catalog of a checkpoint in a view, and plans in it; see view.h. Each view has a file of its own. */
#include "model/view.h"

#include "base/check.h"
#include "base/message.h"
#include "base/size.h"
#include "model/objects.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct model_view *model_view_find(const struct model_catalog *catalog, const char *name)
{
	for (uint32_t i = 0; catalog->views != NULL && catalog->views[i] != NULL; i++)
		if (strcmp(catalog->views[i]->name, name) == 0)
			return catalog->views[i];
	return NULL;
}

const char *model_view_list(const struct model_catalog *catalog, char *text, size_t text_bytes)
{
	size_t used = 0;

	(void)snprintf(text, text_bytes, "none");
	for (uint32_t i = 0; catalog->views != NULL && catalog->views[i] != NULL && used < text_bytes; i++)
		used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", i == 0 ? "" : ", ", catalog->views[i]->name);
	return text;
}

/* ---- places ---- */

/* Parts in the order of their roles, whatever the order in the file: so they lie alike in all objects of a shape. */
static uint64_t place_parts(const struct model_shape *shape, uint32_t part_off[MODEL_ROLES])
{
	uint64_t end = 0, to;

	for (uint32_t role = 0; role < MODEL_ROLES; role++) {
		part_off[role] = 0;
		if (shape->part[role].bytes == 0)
			continue;
		to = cnre_size_align_up(end, MODEL_PART_ALIGNMENT);
		CNRE_CHECK(to <= UINT32_MAX); /* take_shape refuses larger objects */
		part_off[role] = (uint32_t)to;
		end = to + shape->part[role].bytes;
	}
	return end;
}

/* Where a part of the checkpoint lands: a move says it, or it lands where it stays. */
static uint32_t landing_of(const struct model_plan *plan, uint32_t role)
{
	for (uint32_t i = 0; i < plan->move_count; i++)
		if (plan->move[i].to_off == plan->part_off[role])
			return (uint32_t)plan->move[i].from_off;
	return plan->part_off[role];
}

void model_view_plan(const struct model_catalog *catalog, uint32_t object, struct model_plan *plan)
{
	const struct model_shape *raw = &catalog->source->shape[catalog->object[object].shape];
	const struct model_shape *shape = &catalog->shape[catalog->object[object].shape];
	uint64_t bytes;

	for (uint32_t role = 0; role < MODEL_ROLES; role++)
		plan->raw_off[role] = raw->part[role].bytes > 0 ? landing_of(plan, role) : 0;
	plan->move_count = 0;
	bytes = cnre_size_align_up(place_parts(shape, plan->part_off) + MODEL_TAIL_BYTES, MODEL_READ_ALIGNMENT);
	if (plan->slab_bytes < bytes)
		plan->slab_bytes = bytes;
}

uint64_t model_view_image_bytes(const struct model_catalog *catalog)
{
	uint32_t part_off[MODEL_ROLES];
	uint64_t most = 0, bytes;

	for (uint32_t i = 0; i < catalog->shape_count; i++) {
		bytes = place_parts(&catalog->shape[i], part_off);
		if (most < bytes)
			most = bytes;
	}
	return most;
}

void model_view_prepare(const struct model_catalog *catalog, uint32_t object, const struct model_plan *plan,
			const char *slab, char *image)
{
	const unsigned char *from[MODEL_ROLES];
	unsigned char *to[MODEL_ROLES];

	for (uint32_t role = 0; role < MODEL_ROLES; role++) {
		from[role] = (const unsigned char *)slab + plan->raw_off[role];
		to[role] = (unsigned char *)image + plan->part_off[role];
	}
	catalog->view->prepare(&catalog->source->shape[catalog->object[object].shape], from, to);
}

/* ---- the catalog ---- */

/* What the view makes of one shape; its bytes are the view's word, so they are added up with care. */
static int take_shape(const struct model_view *view, const struct model_shape *raw, struct model_shape *ret_shape)
{
	int r = view->shape(raw, ret_shape);

	ret_shape->payload_bytes = 0;
	for (uint32_t role = 0; role < MODEL_ROLES && r == 0; role++) {
		if (ret_shape->part[role].bytes > MODEL_OBJECT_BYTES_MAX)
			r = -E2BIG;
		ret_shape->payload_bytes += ret_shape->part[role].bytes;
	}
	if (r == 0 && ret_shape->payload_bytes > MODEL_OBJECT_BYTES_MAX)
		r = -E2BIG;
	return r;
}

/* An object to explain a refusal with. */
static const struct model_object *first_of_shape(const struct model_catalog *catalog, uint32_t shape)
{
	uint32_t i = 0;

	while (i + 1 < catalog->object_count && catalog->object[i].shape != shape)
		i++;
	return &catalog->object[i];
}

static int take_shapes(struct model_catalog *catalog, char *message)
{
	for (uint32_t i = 0; i < catalog->shape_count; i++) {
		const struct model_object *object = first_of_shape(catalog, i);
		int r = take_shape(catalog->view, &catalog->source->shape[i], &catalog->shape[i]);

		if (r < 0)
			return cnre_message(message, MODEL_MESSAGE_BYTES, r, "%s: layer %u expert %u: %s",
					    catalog->source->name, object->layer, object->expert,
					    r == -E2BIG ? "it would be larger than an expert may be in this view"
							: "it is of a format that this view is not for");
	}
	return 0;
}

static void name_view(struct model_catalog *catalog)
{
	int room = (int)(sizeof catalog->name - sizeof ":" - strlen(catalog->view->name));

	(void)snprintf(catalog->name, sizeof catalog->name, "%.*s:%s", room, catalog->source->name, catalog->view->name);
}

int model_view_open(struct model_catalog **ret_catalog, const struct model_catalog *source, const struct model_view *view,
		    char message[MODEL_MESSAGE_BYTES])
{
	struct model_catalog *catalog = malloc(sizeof *catalog);
	int r;

	CNRE_CHECK(source->source == NULL && strlen(view->name) < MODEL_VIEW_NAME_BYTES && view->version > 0);
	message[0] = '\0';
	if (catalog == NULL)
		return cnre_message(message, MODEL_MESSAGE_BYTES, -ENOMEM, "%s: out of memory", source->name);
	*catalog = *source;
	catalog->view = view;
	catalog->source = source;
	name_view(catalog);
	catalog->payload_bytes_max = catalog->payload_bytes_total = 0;
	catalog->slab_bytes_max = catalog->slab_bytes_total = 0;
	catalog->shape = calloc(catalog->shape_count, sizeof *catalog->shape);
	r = catalog->shape != NULL ? take_shapes(catalog, message)
				   : cnre_message(message, MODEL_MESSAGE_BYTES, -ENOMEM, "%s: out of memory", source->name);
	if (r == 0)
		model_objects_size(catalog);
	if (r == 0 && catalog->slab_bytes_max > MODEL_OBJECT_BYTES_MAX)
		r = cnre_message(message, MODEL_MESSAGE_BYTES, -E2BIG, "%s: an expert needs a slab of %llu bytes in this view",
				 source->name, (unsigned long long)catalog->slab_bytes_max);
	if (r < 0)
		(void)model_view_close(catalog);
	else
		*ret_catalog = catalog;
	return r;
}

struct model_catalog *model_view_close(struct model_catalog *catalog)
{
	free(catalog->shape);
	free(catalog);
	return NULL;
}
