/* SPDX-License-Identifier: Apache-2.0 */
/* The directories of a checkpoint and what lies in them; see places.h. Both manager and client link this file. */
#include "base/places.h"

#include "base/message.h"
#include "base/payload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Every listed name, before those that lose are taken out. */
struct listing {
	struct cnre_place_shard *shard; /* paths are not made yet */
	uint32_t count;
};

static int refuse(char *message, size_t message_bytes, int error, const char *directory)
{
	return cnre_message(message, message_bytes, error, "%.300s: %s", directory, strerror(-error));
}

static int is_directory(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* ---- which directory ---- */

/* D/NAME if that is a directory, else D; the path's memory is the caller's. */
static int find_named(const char *directory, const char *name, struct cnre_place *place)
{
	char *named;
	int r = 0;

	if (asprintf(&named, "%s/%s", directory, name) < 0)
		return -ENOMEM;
	place->is_named = is_directory(named);
	place->path = realpath(place->is_named ? named : directory, NULL);
	if (place->path == NULL)
		r = -errno;
	else if (!is_directory(place->path))
		r = -ENOTDIR;
	free(named);
	return r;
}

static int find_places(struct cnre_places *places, const char *directory, const char *const *further,
		       uint32_t further_count, char *message, size_t message_bytes)
{
	const char *name;
	int r = 0;

	places->place[0].path = realpath(directory, NULL);
	if (places->place[0].path == NULL)
		return refuse(message, message_bytes, -errno, directory);
	places->place_count = 1;
	name = strrchr(places->place[0].path, '/') + 1;
	if (further_count > CNRE_PLACES_FURTHER_MAX)
		return cnre_message(message, message_bytes, -E2BIG, "more than %u further directories",
				    CNRE_PLACES_FURTHER_MAX);
	for (uint32_t i = 0; i < further_count && r == 0; i++) {
		r = find_named(further[i], name, &places->place[places->place_count++]);
		if (r < 0)
			return cnre_message(message, message_bytes, r,
					    "further directory %.300s: %s: see --dir and " CNRE_PLACES_VARIABLE,
					    further[i], strerror(-r));
	}
	return r;
}

/* ---- what lies there ---- */

static int list_place(struct listing *listing, const struct cnre_places *places, uint32_t place, char *message,
		      size_t message_bytes)
{
	const char *path = places->place[place].path;
	struct cnre_place_shard *grown;
	char **names = NULL;
	int count = cnre_fingerprint_list_shards(path, &names);

	if (count == -E2BIG)
		return cnre_message(message, message_bytes, count, "%.300s: more than %d shards", path,
				    CNRE_SHARDS_MAX);
	if (count < 0)
		return refuse(message, message_bytes, count, path);
	grown = realloc(listing->shard, (listing->count + (size_t)count + 1) * sizeof *grown);
	if (grown == NULL) {
		cnre_fingerprint_free_names(names, count);
		return refuse(message, message_bytes, -ENOMEM, path);
	}
	listing->shard = grown;
	for (int i = 0; i < count; i++)
		grown[listing->count++] = (struct cnre_place_shard){.name = names[i], .place = place};
	free(names); /* the names are the listing's now */
	return 0;
}

static int by_name_then_place(const void *a, const void *b)
{
	const struct cnre_place_shard *first = a, *second = b;
	int order = strcmp(first->name, second->name);

	return order != 0 ? order : first->place < second->place ? -1 : first->place > second->place;
}

static void hide(struct cnre_places *places, const struct cnre_place_shard *shard, uint32_t by)
{
	struct cnre_place *place = &places->place[shard->place];

	if (place->hidden_count++ == 0) {
		place->hidden = shard->name;
		place->hidden_by = by;
	} else {
		free(shard->name);
	}
}

/* Of each name the first directory's; the rest of the list is given up. */
static void choose(struct cnre_places *places, struct listing *listing)
{
	uint32_t kept = 0;

	if (listing->count > 0)
		qsort(listing->shard, listing->count, sizeof *listing->shard, by_name_then_place);
	for (uint32_t i = 0; i < listing->count; i++) {
		if (kept > 0 && strcmp(listing->shard[i].name, listing->shard[kept - 1].name) == 0) {
			hide(places, &listing->shard[i], listing->shard[kept - 1].place);
			continue;
		}
		places->place[listing->shard[i].place].shard_count++;
		listing->shard[kept++] = listing->shard[i];
	}
	places->shard = listing->shard;
	places->shard_count = kept;
}

static int make_paths(struct cnre_places *places)
{
	for (uint32_t i = 0; i < places->shard_count; i++) {
		struct cnre_place_shard *shard = &places->shard[i];

		if (asprintf(&shard->path, "%s/%s", places->place[shard->place].path, shard->name) < 0) {
			shard->path = NULL; /* asprintf leaves it undefined */
			return -ENOMEM;
		}
	}
	return 0;
}

static int list_all(struct cnre_places *places, char *message, size_t message_bytes)
{
	struct listing listing = {.count = 0};
	int r = 0;

	for (uint32_t i = 0; i < places->place_count && r == 0; i++)
		r = list_place(&listing, places, i, message, message_bytes);
	choose(places, &listing); /* after a failure too: what there is then goes with the places */
	if (r == 0 && places->shard_count > CNRE_SHARDS_MAX)
		return cnre_message(message, message_bytes, -E2BIG, "%.300s: more than %d shards",
				    places->place[0].path, CNRE_SHARDS_MAX);
	if (r == 0 && make_paths(places) < 0)
		return refuse(message, message_bytes, -ENOMEM, places->place[0].path);
	return r;
}

int cnre_places_open(struct cnre_places **ret_places, const char *directory, const char *const *further,
		     uint32_t further_count, char *message, size_t message_bytes)
{
	struct cnre_places *places = calloc(1, sizeof *places);
	int r;

	if (places == NULL)
		return refuse(message, message_bytes, -ENOMEM, directory);
	r = find_places(places, directory, further, further_count, message, message_bytes);
	if (r == 0)
		r = list_all(places, message, message_bytes);
	if (r < 0)
		(void)cnre_places_close(places);
	else
		*ret_places = places;
	return r;
}

/* Cuts the list at its colons; at most one name more than is allowed, so that too many are seen. Count or -EINVAL. */
static int cut_list(char *list, const char **further)
{
	uint32_t count = 0;

	while (*list != '\0' && count <= CNRE_PLACES_FURTHER_MAX) {
		size_t length = strcspn(list, ":");
		int is_last = list[length] == '\0';

		if (length == 0)
			return -EINVAL;
		further[count++] = list;
		list[length] = '\0';
		list += length + !is_last;
	}
	return (int)count;
}

int cnre_places_open_list(struct cnre_places **ret_places, const char *directory, const char *list, char *message,
			  size_t message_bytes)
{
	const char *further[CNRE_PLACES_FURTHER_MAX + 1];
	char *copy = strdup(list == NULL ? "" : list);
	int count, r;

	if (copy == NULL)
		return refuse(message, message_bytes, -ENOMEM, directory);
	count = cut_list(copy, further);
	if (count < 0)
		r = cnre_message(message, message_bytes, count,
				 CNRE_PLACES_VARIABLE ": an empty name in it: leave it out");
	else
		r = cnre_places_open(ret_places, directory, further, (uint32_t)count, message, message_bytes);
	free(copy);
	return r;
}

struct cnre_places *cnre_places_close(struct cnre_places *places)
{
	if (places == NULL)
		return NULL;
	for (uint32_t i = 0; i < places->shard_count; i++) {
		free(places->shard[i].name);
		free(places->shard[i].path);
	}
	for (uint32_t i = 0; i < places->place_count; i++) {
		free(places->place[i].path);
		free(places->place[i].hidden);
	}
	free(places->shard);
	free(places);
	return NULL;
}

/* ---- what it is ---- */

/* The directories opened, and the shards in them, for one use. */
struct opened {
	int fd[CNRE_PLACES_MAX];
	struct cnre_shard_at *shard;
};

static void done(struct opened *opened, const struct cnre_places *places)
{
	for (uint32_t i = 0; i < places->place_count; i++)
		if (opened->fd[i] >= 0)
			(void)close(opened->fd[i]);
	free(opened->shard);
}

static int open_all(struct opened *opened, const struct cnre_places *places, char *message, size_t message_bytes)
{
	int r = 0;

	for (uint32_t i = 0; i < places->place_count; i++) {
		opened->fd[i] = r < 0 ? -1 : open(places->place[i].path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (r == 0 && opened->fd[i] < 0)
			r = refuse(message, message_bytes, -errno, places->place[i].path);
	}
	opened->shard = calloc((size_t)places->shard_count + 1, sizeof *opened->shard);
	if (r == 0 && opened->shard == NULL)
		r = refuse(message, message_bytes, -ENOMEM, places->place[0].path);
	for (uint32_t i = 0; i < places->shard_count && r == 0; i++) {
		const struct cnre_place_shard *shard = &places->shard[i];

		opened->shard[i] = (struct cnre_shard_at){.directory_fd = opened->fd[shard->place],
							  .name = shard->name,
							  .shown = shard->place == 0 ? shard->name : shard->path};
	}
	if (r < 0)
		done(opened, places);
	return r;
}

int cnre_places_identify(const struct cnre_places *places, struct cnre_fingerprint *ret_fingerprint, char *message,
			 size_t message_bytes)
{
	struct opened opened;
	int r;

	if (places->shard_count == 0)
		return cnre_message(message, message_bytes, -ENOENT,
				    "no *.safetensors file: name the directory of a checkpoint");
	r = open_all(&opened, places, message, message_bytes);
	if (r < 0)
		return r;
	r = cnre_fingerprint_shards(opened.fd[0], opened.shard, places->shard_count, ret_fingerprint, message,
				    message_bytes);
	done(&opened, places);
	return r;
}

int cnre_places_digest_payload(const struct cnre_places *places, unsigned char ret_digest[CNRE_DIGEST_BYTES])
{
	struct opened opened;
	int r = open_all(&opened, places, NULL, 0);

	if (r < 0)
		return r;
	r = cnre_payload_shards(opened.shard, places->shard_count, ret_digest);
	done(&opened, places);
	return r;
}
