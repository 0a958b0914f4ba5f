/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint directory to a catalog; see catalog.h. The steps are in read_checkpoint; each leaves its own message. */
#include "model/catalog.h"

#include "base/file.h"
#include "base/message.h"
#include "model/config.h"
#include "model/family.h"
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

static int read_family(const struct model_config *config, const struct family **ret_family, char *message)
{
	const char *model_type = model_config_text(config, "model_type");
	char known[128];

	if (model_type == NULL)
		return cnre_message(message, MODEL_MESSAGE_BYTES, -EBADMSG, "config.json: model_type is missing");
	*ret_family = family_find(model_type);
	if (*ret_family == NULL)
		return cnre_message(message, MODEL_MESSAGE_BYTES, -ENOTSUP,
				    "config.json: model_type %.64s is not known; known are: %s", model_type,
				    family_list(known, sizeof known));
	return 0;
}

static int read_extents(const struct model_config *config, const struct family *family, struct family_extents *extents,
			char *message)
{
	int result;

	result = model_config_count(config, family->layers_key, MODEL_LAYERS_MAX, &extents->layers, message);
	if (result == 0)
		result = model_config_count(config, family->experts_key, MODEL_EXPERTS_MAX, &extents->experts, message);
	if (result == 0)
		result = model_config_count(config, family->top_k_key, extents->experts, &extents->top_k, message);
	if (result == 0)
		result = model_config_count(config, family->hidden_key, MODEL_EXTENT_MAX, &extents->hidden, message);
	if (result == 0)
		result = model_config_count(config, family->intermediate_key, MODEL_EXTENT_MAX, &extents->intermediate,
					    message);
	if (result == 0 && (uint64_t)extents->layers * extents->experts > MODEL_OBJECTS_MAX)
		return cnre_message(message, MODEL_MESSAGE_BYTES, -E2BIG,
				    "config.json: %s %u times %s %u, more than %u", family->layers_key, extents->layers,
				    family->experts_key, extents->experts, MODEL_OBJECTS_MAX);
	return result;
}

static int read_config(int directory_fd, const struct family **ret_family, struct family_extents *extents,
		       char *message)
{
	struct model_config *config = NULL;
	int result;

	result = model_config_open(&config, directory_fd, message);
	if (result < 0)
		return result;
	result = read_family(config, ret_family, message);
	if (result == 0)
		result = read_extents(config, *ret_family, extents, message);
	(void)model_config_close(config);
	return result;
}

static int name_shard(struct model_catalog *catalog, const char *name)
{
	struct model_shard *shard = &catalog->shard[catalog->shard_count++];

	shard->name = strdup(name);
	if (asprintf(&shard->path, "%s/%s", catalog->directory, name) < 0)
		shard->path = NULL; /* asprintf leaves it undefined */
	return shard->name != NULL && shard->path != NULL ? 0 : -ENOMEM;
}

static int read_shard(struct model_catalog *catalog, int directory_fd, const char *name, struct model_objects *objects,
		      char *message)
{
	struct safetensors *file = NULL;
	uint32_t index = catalog->shard_count;
	int result;

	if (name_shard(catalog, name) < 0)
		return fail(message, -ENOMEM, name);
	result = safetensors_open(&file, directory_fd, name, CNRE_SHARD_HEADER_MAX, message);
	if (result < 0)
		return result;
	catalog->shard[index].bytes = file->file_bytes;
	catalog->shard[index].data_off = file->data_off;
	result = model_objects_add(objects, catalog, index, file);
	(void)safetensors_close(file);
	return result;
}

static int read_shards(struct model_catalog *catalog, int directory_fd, struct model_objects *objects, char *message)
{
	char **names = NULL;
	int i, count, result = 0;

	count = cnre_fingerprint_list_shards(catalog->directory, &names);
	if (count < 0)
		return fail(message, count, catalog->directory);
	if (count == 0)
		result = cnre_message(message, MODEL_MESSAGE_BYTES, -ENOENT,
				      "%.300s: no *.safetensors file: name the directory of a checkpoint",
				      catalog->directory);
	else
		catalog->shard = calloc((size_t)count, sizeof *catalog->shard);
	if (result == 0 && catalog->shard == NULL)
		result = fail(message, -ENOMEM, catalog->directory);
	for (i = 0; i < count && result == 0; i++)
		result = read_shard(catalog, directory_fd, names[i], objects, message);
	cnre_fingerprint_free_names(names, count);
	return result;
}

/* After the headers were read, so that a shard which appeared or went meanwhile is noticed. */
static int read_identity(struct model_catalog *catalog, char *message)
{
	int result;

	result = cnre_fingerprint_directory(catalog->directory, &catalog->fingerprint, message, MODEL_MESSAGE_BYTES);
	if (result == 0 && catalog->fingerprint.shard_count != catalog->shard_count)
		return cnre_message(message, MODEL_MESSAGE_BYTES, -EBADMSG,
				    "%.300s: shards came or went while it was read: stop what writes it",
				    catalog->directory);
	return result;
}

static int read_checkpoint(struct model_catalog *catalog, int directory_fd, char *message)
{
	const struct family *family = NULL;
	struct family_extents extents = {0};
	struct model_objects *objects = NULL;
	int result;

	result = read_config(directory_fd, &family, &extents, message);
	if (result < 0)
		return result;
	(void)snprintf(catalog->family, sizeof catalog->family, "%s", family->name);
	catalog->top_k = extents.top_k;
	catalog->capabilities = family->capabilities;
	catalog->views = family->views;
	result = model_objects_open(&objects, family, &extents, message);
	if (result < 0)
		return result;
	result = read_shards(catalog, directory_fd, objects, message);
	if (result == 0)
		result = model_objects_finish(objects, catalog);
	if (result == 0)
		result = read_identity(catalog, message);
	(void)model_objects_close(objects);
	return result;
}

static int open_in(struct model_catalog *catalog, const struct model_source *source, char *message)
{
	const char *directory = source->directory, *slash;
	int fd, result;

	catalog->directory = realpath(directory, NULL);
	if (catalog->directory == NULL)
		return fail(message, -errno, directory);
	slash = strrchr(catalog->directory, '/');
	(void)snprintf(catalog->name, sizeof catalog->name, "%.*s", (int)sizeof catalog->name - 1, slash + 1);
	fd = open(catalog->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return fail(message, -errno, directory);
	result = read_checkpoint(catalog, fd, message);
	(void)close(fd);
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
	free(catalog);
	return NULL;
}

int64_t model_catalog_find(const struct model_catalog *catalog, uint32_t layer, uint32_t expert)
{
	if (layer >= catalog->layer_count || expert >= catalog->layer[layer].expert_count)
		return -ENOENT;
	return (int64_t)catalog->layer[layer].first_object + expert;
}
