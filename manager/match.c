/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the model of a HELLO; see match.h. */
#include "manager/match.h"

#include "model/view.h"

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
		if (manager->model[i].checkpoint == NULL &&
		    same(manager->model[i].catalog->fingerprint.identity, hello->identity) &&
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

static int match_by_name(struct manager *manager, const char *name, struct served_model **ret_model, char *message,
			 size_t message_bytes)
{
	for (uint32_t i = 0; i < manager->model_count; i++) {
		if (manager->model[i].checkpoint == NULL && strcmp(manager->model[i].catalog->name, name) == 0) {
			*ret_model = &manager->model[i];
			return 0;
		}
	}
	(void)snprintf(message, message_bytes, "no model \"%.80s\" is served here: see cnrectl status", name);
	return -ENOENT;
}

static struct served_model *find_view(struct manager *manager, const struct served_model *checkpoint, const char *view)
{
	for (uint32_t i = 0; i < manager->model_count; i++)
		if (manager->model[i].checkpoint == checkpoint && strcmp(manager->model[i].catalog->view->name, view) == 0)
			return &manager->model[i];
	return NULL;
}

/* The views that are known, since the name that was asked for is the client's, and this goes into the log. */
static int refuse_view(const struct model_catalog *catalog, char *message, size_t message_bytes)
{
	char known[96];

	(void)snprintf(message, message_bytes,
		       "%.64s is not served in the view that was asked for: this manager knows %.96s; start it with --view, "
		       "or use NULL for the checkpoint's own bytes",
		       catalog->name, model_view_list(catalog, known, sizeof known));
	return -ENOTSUP;
}

int match_model(struct manager *manager, const struct cnre_wire_hello *hello, struct served_model **ret_model,
		char *message, size_t message_bytes)
{
	char name[CNRE_WIRE_MODEL_MAX], view[CNRE_NAME_BYTES];
	struct served_model *model, *in_view;
	int r;

	(void)snprintf(name, sizeof name, "%.*s", (int)sizeof hello->model - 1, hello->model);
	(void)snprintf(view, sizeof view, "%.*s", (int)sizeof hello->view - 1, hello->view);
	r = hello->by_path ? match_by_path(manager, hello, name, &model, message, message_bytes)
			   : match_by_name(manager, name, &model, message, message_bytes);
	if (r < 0)
		return r;
	in_view = view[0] == '\0' ? model : find_view(manager, model, view);
	if (in_view == NULL)
		return refuse_view(model->catalog, message, message_bytes);
	*ret_model = in_view;
	return 0;
}
