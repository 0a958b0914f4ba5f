/* SPDX-License-Identifier: Apache-2.0 */
/* See checkpoint.h. */
#include "tools/inspect/checkpoint.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FURTHER_MAX 16u

static const char *word(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text == NULL ? "" : text;
}

static const char *setting(const json_t *status, const char *name)
{
	const json_t *line;
	size_t i;

	json_array_foreach (json_object_get(status, "settings"), i, line)
		if (strcmp(word(line, "name"), name) == 0)
			return word(line, "value");
	return "none";
}

/* ---- catalogs ---- */

static int open_catalog(struct checkpoint_model *model, const json_t *status, const json_t *from, char *message)
{
	const char *further[FURTHER_MAX], *family = setting(status, "family");
	struct model_source source = {.directory = word(from, "directory"), .further = further};
	const json_t *place;
	size_t i;

	json_array_foreach (json_object_get(from, "directories"), i, place)
		if (i > 0 && source.further_count < FURTHER_MAX)
			further[source.further_count++] = word(place, "directory");
	if (strcmp(family, "none") != 0)
		source.family_file = family;
	return model_catalog_open_source(&model->catalog, &source, message);
}

static int fill_ranges(struct checkpoint_model *model)
{
	const struct model_catalog *catalog = model->catalog;

	model->ranges = calloc(catalog->shard_count, sizeof model->ranges[0]);
	if (model->ranges == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < catalog->shard_count; i++)
		model->ranges[i].header_bytes = catalog->shard[i].data_off;
	for (uint32_t i = 0; i < catalog->object_count; i++) {
		const struct model_object *object = &catalog->object[i];
		const struct model_shape *shape = &catalog->shape[object->shape];

		for (uint32_t role = 0; role < MODEL_ROLES; role++) {
			const struct range range = {
				.begin = object->piece[role].file_off, .bytes = shape->part[role].bytes, .object = i};

			if (range.bytes > 0 && range_map_add(&model->ranges[object->piece[role].shard], &range) < 0)
				return -ENOMEM;
		}
	}
	for (uint32_t i = 0; i < catalog->shard_count; i++)
		range_map_sort(&model->ranges[i]);
	return 0;
}

static int open_model(struct checkpoint *checkpoint, const json_t *status, const json_t *models, uint32_t index, char *message)
{
	struct checkpoint_model *model = &checkpoint->model[index];
	const json_t *from = json_array_get(models, index);
	int r;

	model->files_of = index;
	for (uint32_t i = 0; i < index; i++)
		if (strcmp(word(json_array_get(models, i), "directory"), word(from, "directory")) == 0) {
			model->files_of = checkpoint->model[i].files_of;
			return 0;
		}
	r = open_catalog(model, status, from, message);
	if (r == 0 && (r = fill_ranges(model)) < 0)
		(void)snprintf(message, CHECKPOINT_MESSAGE_BYTES, "out of memory");
	return r;
}

/* ---- files ---- */

static int add_file(struct checkpoint *checkpoint, uint32_t model, uint32_t shard, const char *path, int is_mirror)
{
	struct checkpoint_file *grown, *file;
	int r;

	if (checkpoint->file_count == CHECKPOINT_FILES_MAX)
		return -E2BIG;
	grown = reallocarray(checkpoint->file, checkpoint->file_count + 1, sizeof *grown);
	if (grown == NULL)
		return -ENOMEM;
	checkpoint->file = grown;
	file = &grown[checkpoint->file_count];
	*file = (struct checkpoint_file){.path = strdup(path), .model = model, .shard = shard, .is_mirror = is_mirror};
	if (file->path == NULL)
		return -ENOMEM;
	r = file_extents_add(&checkpoint->map, path, checkpoint->file_count, &file->place);
	if (r == -ENOENT && is_mirror) { /* a copy of some shards only */
		free(file->path);
		return 0;
	}
	file->status = r;
	checkpoint->file_count++;
	return r == -ENOMEM || r == -E2BIG ? r : 0;
}

/* The copies of a model's shards in one directory: in a folder with the checkpoint's own name, or in it directly. */
static int add_mirror(struct checkpoint *checkpoint, uint32_t model, const char *directory)
{
	const struct model_catalog *catalog = checkpoint->model[model].catalog;
	char name[512], path[4096 + 512];
	struct stat status;
	int r = 0;

	(void)snprintf(name, sizeof name, "%s", catalog->directory);
	(void)snprintf(path, sizeof path, "%.3000s/%.500s", directory, basename(name));
	if (stat(path, &status) < 0 || !S_ISDIR(status.st_mode))
		(void)snprintf(path, sizeof path, "%.3500s", directory);
	for (uint32_t i = 0; r == 0 && i < catalog->shard_count; i++) {
		char file[sizeof path + 300];

		(void)snprintf(file, sizeof file, "%s/%.255s", path, catalog->shard[i].name);
		r = add_file(checkpoint, model, i, file, 1);
	}
	return r;
}

static int add_files(struct checkpoint *checkpoint, const json_t *status)
{
	int r = 0;

	for (uint32_t m = 0; r == 0 && m < checkpoint->model_count; m++) {
		const struct model_catalog *catalog = checkpoint->model[m].catalog;
		const json_t *mirror;
		size_t i;

		if (catalog == NULL)
			continue;
		for (uint32_t k = 0; r == 0 && k < catalog->shard_count; k++)
			r = add_file(checkpoint, m, k, catalog->shard[k].path, 0);
		json_array_foreach (json_object_get(status, "mirrors"), i, mirror)
			if (r == 0)
				r = add_mirror(checkpoint, m, word(mirror, "directory"));
	}
	extent_map_sort(&checkpoint->map);
	return r;
}

int checkpoint_open(struct checkpoint *checkpoint, const json_t *status, char message[CHECKPOINT_MESSAGE_BYTES])
{
	const json_t *models = json_object_get(status, "models");
	int r = 0;

	*checkpoint = (struct checkpoint){.file = NULL};
	for (size_t i = 0; r == 0 && i < json_array_size(models) && i < CHECKPOINT_MODELS_MAX; i++) {
		r = open_model(checkpoint, status, models, (uint32_t)i, message);
		checkpoint->model_count++;
	}
	if (r == 0 && (r = add_files(checkpoint, status)) < 0)
		(void)snprintf(message, CHECKPOINT_MESSAGE_BYTES, r == -E2BIG ? "too many files or extents" : "out of memory");
	return r;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
	for (uint32_t i = 0; i < checkpoint->file_count; i++)
		free(checkpoint->file[i].path);
	for (uint32_t i = 0; i < checkpoint->model_count; i++) {
		struct checkpoint_model *model = &checkpoint->model[i];

		for (uint32_t k = 0; model->ranges != NULL && k < model->catalog->shard_count; k++)
			range_map_done(&model->ranges[k]);
		free(model->ranges);
		model_catalog_close(model->catalog);
	}
	free(checkpoint->file);
	extent_map_done(&checkpoint->map);
	*checkpoint = (struct checkpoint){.file = NULL};
}

struct checkpoint_piece checkpoint_cut(const struct checkpoint *checkpoint, uint64_t device, uint64_t begin, uint64_t bytes)
{
	struct extent_piece extent = extent_map_cut(&checkpoint->map, device, begin, bytes);
	struct checkpoint_piece piece = {.file = extent.file, .file_off = extent.file_off, .bytes = extent.bytes};
	const struct checkpoint_file *file;
	struct range_piece range;

	if (extent.file == EXTENT_NO_FILE)
		return piece;
	file = &checkpoint->file[extent.file];
	range = range_map_cut(&checkpoint->model[file->model].ranges[file->shard], extent.file_off, extent.bytes);
	piece.kind = range.kind;
	piece.object = range.object;
	piece.bytes = range.bytes;
	return piece;
}

uint32_t checkpoint_file_of(const struct checkpoint *checkpoint, uint64_t device, uint64_t inode)
{
	for (uint32_t i = 0; i < checkpoint->file_count; i++)
		if (checkpoint->file[i].place.device == device && checkpoint->file[i].place.inode == inode)
			return i;
	return EXTENT_NO_FILE;
}
