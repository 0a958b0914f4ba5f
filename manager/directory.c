/* SPDX-License-Identifier: Apache-2.0 */
/* From a model's catalog to the segments that clients map; see directory.h. */
#include "manager/directory.h"

#include "base/size.h"
#include "model/view.h"
#include "shm/word.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void fill_shape(struct cnre_catalog_shape *to, const struct model_shape *from)
{
	to->payload_bytes = from->payload_bytes;
	to->slab_bytes = from->slab_bytes;
	for (uint32_t role = 0; role < CNRE_ROLE_COUNT; role++) {
		const struct model_part_shape *part = &from->part[role];

		to->part[role] = (struct cnre_catalog_part){
			.bytes = part->bytes,
			.rows = part->rows,
			.columns = part->columns,
			.dtype = part->dtype,
			.block_rows = part->block_rows,
			.block_columns = part->block_columns,
		};
	}
}

static void fill_head(struct cnre_catalog *head, const struct model_catalog *from)
{
	(void)snprintf(head->family, sizeof head->family, "%s", from->family);
	(void)snprintf(head->name, sizeof head->name, "%s", from->source != NULL ? from->source->name : from->name);
	if (from->view != NULL) {
		(void)snprintf(head->view, sizeof head->view, "%s", from->view->name);
		head->view_version = from->view->version;
	}
	memcpy(head->identity, from->fingerprint.identity, sizeof head->identity);
	head->layer_count = from->layer_count;
	head->expert_count = from->expert_count;
	head->top_k = from->top_k;
	head->object_count = from->object_count;
	head->shape_count = from->shape_count;
	head->capabilities = from->capabilities;
	head->payload_bytes_min = from->payload_bytes_min;
	head->payload_bytes_max = from->payload_bytes_max;
	head->payload_bytes_total = from->payload_bytes_total;
	head->slab_bytes_max = from->slab_bytes_max;
	head->layers_off = cnre_size_align_up(sizeof *head, 64);
	head->shapes_off =
		cnre_size_align_up(head->layers_off + from->layer_count * sizeof(struct cnre_catalog_layer), 64);
	head->objects_off =
		cnre_size_align_up(head->shapes_off + from->shape_count * sizeof(struct cnre_catalog_shape), 64);
}

static void fill_catalog(void *base, const struct cnre_catalog *head, const struct model_catalog *from)
{
	struct cnre_catalog_layer *layers = (void *)((char *)base + head->layers_off);
	struct cnre_catalog_shape *shapes = (void *)((char *)base + head->shapes_off);
	struct cnre_catalog_object *objects = (void *)((char *)base + head->objects_off);

	memcpy(base, head, sizeof *head);
	for (uint32_t i = 0; i < from->layer_count; i++)
		layers[i] = (struct cnre_catalog_layer){from->layer[i].first_object, from->layer[i].expert_count};
	for (uint32_t i = 0; i < from->shape_count; i++)
		fill_shape(&shapes[i], &from->shape[i]);
	for (uint32_t i = 0; i < from->object_count; i++) {
		struct model_plan plan;

		model_plan(from, i, &plan);
		objects[i].shape = from->object[i].shape;
		memcpy(objects[i].part_off, plan.part_off, sizeof objects[i].part_off);
	}
}

static int build_catalog(struct served_model *model)
{
	struct cnre_catalog head = {0};
	uint64_t bytes;
	int r;

	fill_head(&head, model->catalog);
	bytes = cnre_size_align_up(head.objects_off +
					   (uint64_t)model->catalog->object_count * sizeof(struct cnre_catalog_object),
				   CNRE_PAGE_BYTES);
	r = cnre_segment_create(&model->catalog_segment, "cnre-catalog", bytes, CNRE_BACKING_4K, -1, 0);
	if (r < 0)
		return r;
	cnre_segment_fill_header(&head.header, CNRE_SEGMENT_CATALOG, bytes);
	fill_catalog(model->catalog_segment.base, &head, model->catalog);
	cnre_segment_publish(model->catalog_segment.base);
	return 0;
}

int directory_build(struct served_model *model)
{
	uint64_t bytes = cnre_size_align_up(sizeof(struct cnre_directory) +
						    (uint64_t)model->catalog->object_count * sizeof(struct cnre_entry),
					    CNRE_PAGE_BYTES);
	struct cnre_directory *directory;
	int r;

	r = build_catalog(model);
	if (r < 0)
		return r;
	r = cnre_segment_create(&model->directory_segment, "cnre-directory", bytes, CNRE_BACKING_4K, -1, 0);
	if (r < 0)
		goto drop_catalog;
	directory = model->directory_segment.base;
	cnre_segment_fill_header(&directory->header, CNRE_SEGMENT_DIRECTORY, bytes);
	directory->object_count = model->catalog->object_count;
	/* Fresh pages are zero: every entry is ABSENT, generation 0. */
	cnre_segment_publish(&directory->header);
	model->directory = directory;
	return 0;

drop_catalog:
	cnre_segment_close(&model->catalog_segment);
	return r;
}

void directory_close(struct served_model *model)
{
	cnre_segment_close(&model->directory_segment);
	cnre_segment_close(&model->catalog_segment);
	model->directory = NULL;
}
