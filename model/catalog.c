/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint directory to a catalog; see catalog.h. The steps are in read_checkpoint; each leaves its own message. */
#include "model/catalog.h"

#include "base/file.h"
#include "base/message.h"
#include "model/config.h"
#include "model/extents.h"
#include "model/family.h"
#include "model/family_file.h"
#include "model/objects.h"
#include "model/safetensors.h"
#include "model/view.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(MODEL_MESSAGE_BYTES == SAFETENSORS_MESSAGE_BYTES, "one buffer for all");
_Static_assert(MODEL_MESSAGE_BYTES == MODEL_CONFIG_MESSAGE_BYTES, "one buffer for all");

static int fail(char *message, int error, const char *what)
{
	return cnre_message(message, MODEL_MESSAGE_BYTES, error, "%s: %s", what, strerror(-error));
}

static int read_family(const struct model_config *config, const struct family_file *file,
		       const struct family **ret_family, char *message)
{
	const char *model_type = model_config_text(config, "model_type");
	const struct family *own = file != NULL ? family_file_family(file) : NULL;
	char known[320];

	if (model_type == NULL)
		return cnre_message(message, MODEL_MESSAGE_BYTES, -EBADMSG, "config.json: model_type is missing");
	*ret_family = own != NULL && family_has_type(own, model_type) ? own : family_find(model_type);
	if (*ret_family == NULL)
		return cnre_message(
			message, MODEL_MESSAGE_BYTES, -ENOTSUP,
			"config.json: model_type %.64s is not known: describe it in a file (--family); known are: %s",
			model_type, family_list(known, sizeof known));
	return 0;
}

static int read_config(int directory_fd, const struct family_file *file, const struct family **ret_family,
		       struct family_extents *extents, char *message)
{
	struct model_config *config = NULL;
	int result;

	result = model_config_open(&config, directory_fd, message);
	if (result < 0)
		return result;
	result = read_family(config, file, ret_family, message);
	if (result == 0)
		result = extents_read(config, directory_fd, *ret_family, extents, message);
	(void)model_config_close(config);
	return result;
}

static int name_shard(struct model_catalog *catalog, const struct cnre_place_shard *place)
{
	struct model_shard *shard = &catalog->shard[catalog->shard_count++];

	shard->name = strdup(place->name);
	shard->path = strdup(place->path);
	return shard->name != NULL && shard->path != NULL ? 0 : -ENOMEM;
}

/* What is wrong with a tensor is said by the shard's name; if that lies elsewhere, where is said too. */
static int add_directory(const struct model_catalog *catalog, uint32_t place, int error, char *message)
{
	char said[MODEL_MESSAGE_BYTES];

	if (error >= 0 || place == 0)
		return error;
	(void)snprintf(said, sizeof said, "%s", message);
	return cnre_message(message, MODEL_MESSAGE_BYTES, error, "%.150s/%s", catalog->places->place[place].path, said);
}

/* Messages call a shard of the checkpoint's own directory by its name, one of another directory by its path. */
static int read_shard(struct model_catalog *catalog, int directory_fd, const struct cnre_place_shard *place,
		      struct model_objects *objects, char *message)
{
	struct safetensors *file = NULL;
	uint32_t index = catalog->shard_count;
	int result;

	if (name_shard(catalog, place) < 0)
		return fail(message, -ENOMEM, place->name);
	if (place->place == 0)
		result = safetensors_open(&file, directory_fd, place->name, CNRE_SHARD_HEADER_MAX, message);
	else
		result = safetensors_open(&file, AT_FDCWD, place->path, CNRE_SHARD_HEADER_MAX, message);
	if (result < 0)
		return result;
	catalog->shard[index].bytes = file->file_bytes;
	catalog->shard[index].data_off = file->data_off;
	result = add_directory(catalog, place->place, model_objects_add(objects, catalog, index, file), message);
	(void)safetensors_close(file);
	return result;
}

/* By name over all directories, so that no order and no identity depends on where a shard lies. */
static int read_shards(struct model_catalog *catalog, int directory_fd, struct model_objects *objects, char *message)
{
	const struct cnre_places *places = catalog->places;
	int result = 0;

	if (places->shard_count == 0)
		return cnre_message(message, MODEL_MESSAGE_BYTES, -ENOENT,
				    "%.300s: no *.safetensors file: name the directory of a checkpoint",
				    catalog->directory);
	catalog->shard = calloc(places->shard_count, sizeof *catalog->shard);
	if (catalog->shard == NULL)
		return fail(message, -ENOMEM, catalog->directory);
	for (uint32_t i = 0; i < places->shard_count && result == 0; i++)
		result = read_shard(catalog, directory_fd, &places->shard[i], objects, message);
	return result;
}

static int list_places(struct model_catalog *catalog, const struct model_source *source, char *message)
{
	struct cnre_places *places;
	int result = cnre_places_open(&places, source->directory, source->further, source->further_count, message,
				      MODEL_MESSAGE_BYTES);

	if (result < 0)
		return result;
	(void)cnre_places_close(catalog->places);
	catalog->places = places;
	return 0;
}

/* After the headers were read, and of a new listing, so that a shard which appeared or went meanwhile is noticed. */
static int read_identity(struct model_catalog *catalog, const struct model_source *source, char *message)
{
	int result = list_places(catalog, source, message);

	if (result == 0)
		result = cnre_places_identify(catalog->places, &catalog->fingerprint, message, MODEL_MESSAGE_BYTES);
	if (result == 0 && catalog->fingerprint.shard_count != catalog->shard_count)
		return cnre_message(message, MODEL_MESSAGE_BYTES, -EBADMSG,
				    "%.300s: shards came or went while it was read: stop what writes it",
				    catalog->directory);
	return result;
}

static int read_checkpoint(struct model_catalog *catalog, int directory_fd, const struct model_source *source,
			   const struct family_file *file, char *message)
{
	const struct family *family = NULL;
	struct family_extents extents = {0};
	struct model_objects *objects = NULL;
	int result;

	result = read_config(directory_fd, file, &family, &extents, message);
	if (result < 0)
		return result;
	(void)snprintf(catalog->family, sizeof catalog->family, "%s", family->name);
	catalog->is_described = file != NULL && family == family_file_family(file);
	catalog->top_k = extents.top_k;
	catalog->capabilities = family->capabilities;
	catalog->state = family->state;
	catalog->views = family->views;
	result = model_objects_open(&objects, family, &extents, message);
	if (result < 0)
		return result;
	result = read_shards(catalog, directory_fd, objects, message);
	if (result == 0)
		result = model_objects_finish(objects, catalog);
	if (result == 0)
		result = read_identity(catalog, source, message);
	(void)model_objects_close(objects);
	return result;
}

static int open_in(struct model_catalog *catalog, const struct model_source *source, char *message)
{
	const char *slash;
	struct family_file *file = NULL;
	int fd, result = list_places(catalog, source, message);

	if (result < 0)
		return result;
	catalog->directory = strdup(catalog->places->place[0].path);
	if (catalog->directory == NULL)
		return fail(message, -ENOMEM, source->directory);
	slash = strrchr(catalog->directory, '/');
	(void)snprintf(catalog->name, sizeof catalog->name, "%.*s", (int)sizeof catalog->name - 1, slash + 1);
	if (source->family_file != NULL) {
		result = family_file_open(&file, source->family_file, message);
		if (result < 0)
			return result;
	}
	fd = open(catalog->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	result = fd < 0 ? fail(message, -errno, source->directory) : read_checkpoint(catalog, fd, source, file, message);
	if (fd >= 0)
		(void)close(fd);
	(void)family_file_close(file);
	return result;
}

int model_catalog_open(struct model_catalog **ret_catalog, const char *directory, char message[MODEL_MESSAGE_BYTES])
{
	const struct model_source source = {.directory = directory};

	return model_catalog_open_source(ret_catalog, &source, message);
}

int model_catalog_open_source(struct model_catalog **ret_catalog, const struct model_source *source,
			      char message[MODEL_MESSAGE_BYTES])
{
	struct model_catalog *catalog = calloc(1, sizeof *catalog);
	int result;

	message[0] = '\0';
	if (catalog == NULL)
		return fail(message, -ENOMEM, source->directory);
	result = open_in(catalog, source, message);
	if (result < 0) {
		(void)model_catalog_close(catalog);
		return result;
	}
	*ret_catalog = catalog;
	return 0;
}

struct model_catalog *model_catalog_close(struct model_catalog *catalog)
{
	uint32_t i;

	if (catalog == NULL)
		return NULL;
	if (catalog->source != NULL)
		return model_view_close(catalog);
	for (i = 0; i < catalog->shard_count; i++) {
		free(catalog->shard[i].name);
		free(catalog->shard[i].path);
	}
	free(catalog->shard);
	free(catalog->shape);
	free(catalog->object);
	free(catalog->layer);
	free(catalog->directory);
	(void)cnre_places_close(catalog->places);
	free(catalog);
	return NULL;
}

int64_t model_catalog_find(const struct model_catalog *catalog, uint32_t layer, uint32_t expert)
{
	if (layer >= catalog->layer_count || expert >= catalog->layer[layer].expert_count)
		return -ENOENT;
	return (int64_t)catalog->layer[layer].first_object + expert;
}
