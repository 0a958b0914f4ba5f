/* SPDX-License-Identifier: Apache-2.0 */
/* Layers and experts of all files, and the renumbering by them; see trace_geometry.h. */
#include "tools/sim/trace_geometry.h"

#include "base/message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OF_ONE_MODEL "replay traces of one model together"

static int check_layers(const struct sim_merge *merge, struct sim_reader *reader)
{
	uint32_t i;
	int has;

	for (i = 0; i < SIM_LAYERS_MAX; i++) {
		has = reader->experts[i] != 0;
		if (has == (merge->experts[i] != 0))
			continue;
		return cnre_message(reader->message, reader->message_bytes, -EINVAL,
				    "%s and %s: mixed geometry: only %s has layer %u: " OF_ONE_MODEL, merge->first,
				    reader->path, has ? reader->path : merge->first, i);
	}
	return 0;
}

/* Headers must agree with each other, and rows with them. */
static int check_experts(const struct sim_merge *merge, struct sim_reader *reader)
{
	const char *other = merge->declared_by != NULL ? merge->declared_by : merge->first;
	uint32_t i, here, there;

	for (i = 0; i < SIM_LAYERS_MAX; i++) {
		here = reader->experts[i];
		there = merge->experts[i];
		if (here == there || (!reader->declared && here < there) ||
		    (merge->declared_by == NULL && there < here))
			continue;
		return cnre_message(
			reader->message, reader->message_bytes, -EINVAL,
			"%s and %s: mixed geometry: %u experts in layer %u of one, %u in the other: " OF_ONE_MODEL,
			other, reader->path, there, i, here);
	}
	return 0;
}

static int merge_top_k(struct sim_merge *merge, struct sim_reader *reader)
{
	if (reader->top_k == 0)
		return 0;
	if (merge->exact_by == NULL) {
		merge->exact_by = reader->path;
		merge->top_k = reader->top_k;
	}
	if (merge->top_k == reader->top_k)
		return 0;
	return cnre_message(reader->message, reader->message_bytes, -EINVAL,
			    "%s and %s: mixed geometry: %u experts in the rows of one, %u in the other: " OF_ONE_MODEL,
			    merge->exact_by, reader->path, merge->top_k, reader->top_k);
}

int sim_merge_add(struct sim_merge *merge, struct sim_reader *reader)
{
	uint32_t i;
	int result = 0;

	if (merge->first != NULL)
		result = check_layers(merge, reader);
	/* Two that only infer cannot contradict each other. */
	if (result == 0 && merge->first != NULL && (reader->declared || merge->declared_by != NULL))
		result = check_experts(merge, reader);
	if (result == 0)
		result = merge_top_k(merge, reader);
	if (result < 0)
		return result;
	for (i = 0; i < SIM_LAYERS_MAX; i++)
		if (merge->experts[i] < reader->experts[i])
			merge->experts[i] = reader->experts[i];
	for (i = 0; i <= SIM_ROW_EXPERTS_MAX; i++)
		merge->width_count[i] += reader->width_count[i];
	if (merge->first == NULL)
		merge->first = reader->path;
	if (reader->declared && merge->declared_by == NULL) {
		merge->declared_by = reader->path;
		memcpy(merge->resident_bytes, reader->resident_bytes, sizeof merge->resident_bytes);
		memcpy(merge->read_bytes, reader->read_bytes, sizeof merge->read_bytes);
	}
	return 0;
}

/* The usual width; the smaller of two that are as usual. */
static uint32_t usual_width(const struct sim_merge *merge)
{
	uint32_t width, usual = 1;

	for (width = 1; width <= SIM_ROW_EXPERTS_MAX; width++)
		if (merge->width_count[width] > merge->width_count[usual])
			usual = width;
	return usual;
}

static int add_layers(const struct sim_merge *merge, struct sim_reader *reader, struct sim_geometry *geometry)
{
	uint32_t i, experts, *count = &geometry->layer_count;

	for (i = 0; i < SIM_LAYERS_MAX; i++) {
		if (merge->experts[i] == 0)
			continue;
		experts = merge->declared_by == NULL && reader->load->experts != 0 ? reader->load->experts
										   : merge->experts[i];
		if (experts > SIM_OBJECTS_MAX - geometry->object_count)
			return cnre_message(reader->message, reader->message_bytes, -EINVAL,
					    "%s: more than %u experts in all layers: this is no trace", reader->path,
					    SIM_OBJECTS_MAX);
		geometry->number[*count] = i;
		geometry->experts[*count] = experts;
		geometry->resident_bytes[*count] = merge->resident_bytes[i];
		geometry->read_bytes[*count] = merge->read_bytes[i];
		geometry->first_object[*count] = geometry->object_count;
		geometry->object_count += experts;
		geometry->first_object[++*count] = geometry->object_count;
	}
	return 0;
}

int sim_merge_finish(const struct sim_merge *merge, struct sim_reader *reader, struct sim_geometry **ret_geometry)
{
	struct sim_geometry *geometry = calloc(1, sizeof *geometry);
	uint32_t i, k;
	int result;

	if (geometry == NULL)
		return sim_refuse_error(reader, -ENOMEM);
	result = add_layers(merge, reader, geometry);
	if (result == 0) {
		geometry->layer_of = calloc(geometry->object_count, sizeof geometry->layer_of[0]);
		if (geometry->layer_of == NULL)
			result = sim_refuse_error(reader, -ENOMEM);
	}
	if (result < 0) {
		sim_geometry_close(geometry);
		return result;
	}
	for (i = 0; i < geometry->layer_count; i++)
		for (k = geometry->first_object[i]; k < geometry->first_object[i + 1]; k++)
			geometry->layer_of[k] = i;
	geometry->top_k = merge->exact_by != NULL ? merge->top_k : usual_width(merge);
	*ret_geometry = geometry;
	return 0;
}

void sim_geometry_close(struct sim_geometry *geometry)
{
	if (geometry != NULL)
		free(geometry->layer_of);
	free(geometry);
}

struct numbering {
	uint32_t index[SIM_LAYERS_MAX], first_object[SIM_LAYERS_MAX]; /* by checkpoint number */
};

static void make_numbering(const struct sim_geometry *geometry, struct numbering *numbering)
{
	uint32_t i;

	memset(numbering, 0, sizeof *numbering);
	for (i = 0; i < geometry->layer_count; i++) {
		numbering->index[geometry->number[i]] = i;
		numbering->first_object[geometry->number[i]] = geometry->first_object[i];
	}
}

static int renumber_rows(void *context, void *piece, size_t bytes)
{
	const struct numbering *numbering = context;
	struct sim_row *row = piece;
	size_t i;

	for (i = 0; i < bytes / sizeof *row; i++)
		row[i].layer = numbering->index[row[i].layer];
	return 0;
}

static int renumber_objects(void *context, void *piece, size_t bytes)
{
	const struct numbering *numbering = context;
	uint32_t *object = piece;
	size_t i;

	for (i = 0; i < bytes / sizeof *object; i++)
		object[i] = numbering->first_object[object[i] >> 16] + (object[i] & 0xffff);
	return 0;
}

int sim_geometry_renumber(const struct sim_geometry *geometry, struct sim_store *rows, struct sim_store *objects)
{
	struct numbering numbering;
	int result;

	make_numbering(geometry, &numbering);
	result = sim_store_rewrite(rows, sizeof(struct sim_row), renumber_rows, &numbering);
	return result < 0 ? result : sim_store_rewrite(objects, sizeof(uint32_t), renumber_objects, &numbering);
}

void sim_geometry_renumber_objects(const struct sim_geometry *geometry, uint32_t *object, uint32_t count)
{
	struct numbering numbering;

	make_numbering(geometry, &numbering);
	if (count > 0)
		(void)renumber_objects(&numbering, object, count * sizeof *object);
}
