/* SPDX-License-Identifier: Apache-2.0 */
/* Listing the directories of a checkpoint; see places.h. */
#include "engine/places.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int is_shard(const struct dirent *entry)
{
	const char *suffix = strrchr(entry->d_name, '.');

	return entry->d_name[0] != '.' && suffix && strcmp(suffix, ".safetensors") == 0;
}

static int is_taken(const struct places *places, const char *name)
{
	for (uint32_t i = 0; i < places->count; i++)
		if (strcmp(places->shard[i].name, name) == 0)
			return 1;
	return 0;
}

static int add(struct places *places, const char *directory, const char *name, char *message)
{
	struct place *shard = &places->shard[places->count];

	if (is_taken(places, name))
		return 0;
	if (places->count == PLACES_SHARDS_MAX)
		return engine_fail(message, -E2BIG, "%.300s: more than %u shards", directory, PLACES_SHARDS_MAX);
	shard->name = strdup(name);
	if (asprintf(&shard->path, "%s/%s", directory, name) < 0)
		shard->path = NULL; /* asprintf leaves it undefined */
	places->count++;
	return shard->name && shard->path ? 0 : engine_fail(message, -ENOMEM, "out of memory for file names");
}

static int add_directory(struct places *places, const char *directory, char *message)
{
	struct dirent **entries = NULL;
	int count = scandir(directory, &entries, is_shard, alphasort), error = 0;

	if (count < 0) {
		error = -errno;
		return engine_fail(message, error, "cannot list %.300s: %s", directory, strerror(-error));
	}
	for (int i = 0; i < count && error == 0; i++)
		error = add(places, directory, entries[i]->d_name, message);
	while (count > 0)
		free(entries[--count]);
	free(entries);
	return error;
}

/* The folder in it with the name of the checkpoint's own directory goes before the directory itself. */
static int add_further(struct places *places, const char *name, const char *directory, char *message)
{
	char named[PATH_MAX];
	struct stat status;
	int length = snprintf(named, sizeof named, "%s/%s", directory, name);

	if (length < (int)sizeof named && stat(named, &status) == 0 && S_ISDIR(status.st_mode))
		directory = named;
	return add_directory(places, directory, message);
}

static int add_list(struct places *places, const char *name, char *list, char *message)
{
	int error = 0;

	for (uint32_t count = 0; *list != '\0' && error == 0; count++) {
		size_t length = strcspn(list, ":");
		int is_last = list[length] == '\0';

		if (length == 0)
			return engine_fail(message, -EINVAL, PLACES_VARIABLE ": an empty name in it; leave it out");
		if (count == PLACES_FURTHER_MAX)
			return engine_fail(message, -E2BIG, PLACES_VARIABLE ": more than %u directories",
					   PLACES_FURTHER_MAX);
		list[length] = '\0';
		error = add_further(places, name, list, message);
		list += length + !is_last;
	}
	return error;
}

static int by_name(const void *left, const void *right)
{
	return strcmp(((const struct place *)left)->name, ((const struct place *)right)->name);
}

static int list_all(struct places *places, const char *directory, const char *further, char *message)
{
	char *real = realpath(directory, NULL), *list = strdup(further ? further : "");
	int error = 0;

	if (!real)
		error = -errno;
	if (error < 0)
		(void)engine_fail(message, error, "cannot list %.300s: %s", directory, strerror(-error));
	else if (!list)
		error = engine_fail(message, -ENOMEM, "out of memory for file names");
	if (error == 0)
		error = add_directory(places, directory, message);
	if (error == 0)
		error = add_list(places, strrchr(real, '/') + 1, list, message);
	free(list);
	free(real);
	return error;
}

int places_list(struct places *ret_places, const char *directory, const char *further,
		char message[ENGINE_MESSAGE_BYTES])
{
	struct places places = {.shard = calloc(PLACES_SHARDS_MAX, sizeof *places.shard)};
	int error;

	if (!places.shard)
		return engine_fail(message, -ENOMEM, "out of memory for file names");
	error = list_all(&places, directory, further, message);
	if (error < 0) {
		places_free(&places);
		return error;
	}
	qsort(places.shard, places.count, sizeof *places.shard, by_name);
	*ret_places = places;
	return 0;
}

void places_free(struct places *places)
{
	for (uint32_t i = 0; i < places->count; i++) {
		free(places->shard[i].name);
		free(places->shard[i].path);
	}
	free(places->shard);
	*places = (struct places){0};
}
