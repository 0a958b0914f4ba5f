/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the model of a HELLO; see match.h. */
#include "manager/match.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int same(const unsigned char *a, const unsigned char *b)
{
	return memcmp(a, b, CNRE_IDENTITY_BYTES) == 0;
}

/* The same checkpoint in another revision: the path is ours, or the config or the set of shards is the same. */
static int is_relative(const struct model_catalog *catalog, const struct cnre_wire_hello *hello, const char *path)
{
	return strcmp(catalog->directory, path) == 0 || same(catalog->fingerprint.config, hello->config) ||
	       (catalog->fingerprint.shard_count > 1 && same(catalog->fingerprint.names, hello->names));
}

/* Which of the two sides lacks a setting, if it is that; else what differs. */
static int refuse_revision(const struct model_catalog *catalog, const struct cnre_wire_hello *hello, const char *path,
			   char *message, size_t message_bytes)
{
	const struct cnre_fingerprint *own = &catalog->fingerprint;
	uint32_t further = own->shard_count - catalog->places->place[0].shard_count;

	if (further > 0 && !same(own->names, hello->names) && same(own->first, hello->names))
		(void)snprintf(message, message_bytes,
			       "%.80s has %u of its %u shards in further directories, and the engine did not look there: set CNRE_DIRS in its environment to what --dir says here",
			       path, further, own->shard_count);
	else if (!same(own->names, hello->names))
		(void)snprintf(message, message_bytes,
			       "%.60s and the served %.60s have other shards: use the same revision, and in the engine's environment the CNRE_DIRS that --dir says here",
			       path, catalog->directory);
	else
		(void)snprintf(message, message_bytes,
			       "%.80s differs from the served %.80s in config, shard name, size or header: use the same revision, or restart the manager",
			       path, catalog->directory);
	return -ESTALE;
}

static int match_by_path(struct manager *manager, const struct cnre_wire_hello *hello, const char *path,
			 struct served_model **ret_model, char *message, size_t message_bytes)
{
	uint32_t found = manager->model_count;

	/* Of two that differ in payload alone the identity says nothing: then the path decides. */
	for (uint32_t i = manager->model_count; i-- > 0;)
		if (same(manager->model[i].catalog->fingerprint.identity, hello->identity) &&
		    (found == manager->model_count || strcmp(manager->model[found].catalog->directory, path) != 0))
			found = i;
	if (found < manager->model_count) {
		*ret_model = &manager->model[found];
		return 0;
	}
	for (uint32_t i = 0; i < manager->model_count; i++) {
		if (is_relative(manager->model[i].catalog, hello, path))
			return refuse_revision(manager->model[i].catalog, hello, path, message, message_bytes);
	}
	(void)snprintf(message, message_bytes, "%.120s is not served here: start cnre-managerd with --model for it",
		       path);
	return -ENOENT;
}

int match_model(struct manager *manager, const struct cnre_wire_hello *hello, struct served_model **ret_model,
		char *message, size_t message_bytes)
{
	char model[CNRE_WIRE_MODEL_MAX];

	(void)snprintf(model, sizeof model, "%.*s", (int)sizeof hello->model - 1, hello->model);
	if (hello->by_path)
		return match_by_path(manager, hello, model, ret_model, message, message_bytes);
	for (uint32_t i = 0; i < manager->model_count; i++) {
		if (strcmp(manager->model[i].catalog->name, model) == 0) {
			*ret_model = &manager->model[i];
			return 0;
		}
	}
	(void)snprintf(message, message_bytes, "no model \"%.80s\" is served here: see cnrectl status", model);
	return -ENOENT;
}
