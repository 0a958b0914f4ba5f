/* SPDX-License-Identifier: Apache-2.0 */
/* See store.h: what is asked. */
#include "tools/route/store.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static int read_identity(const json_t *root, struct cnre_kv_identity *identity)
{
	const json_t *version = json_object_get(root, "version"), *tokens = json_object_get(root, "block_tokens"),
		     *bytes = json_object_get(root, "block_bytes_max");

	identity->position = json_string_value(json_object_get(root, "position"));
	identity->representation = json_string_value(json_object_get(root, "representation"));
	if (!identity->position || !identity->representation || !json_is_integer(version) || !json_is_integer(tokens) ||
	    !json_is_integer(bytes) || json_integer_value(bytes) < 0 ||
	    json_integer_value(version) != (json_int_t)(uint32_t)json_integer_value(version) ||
	    json_integer_value(tokens) != (json_int_t)(uint32_t)json_integer_value(tokens))
		return -EPROTO;
	identity->version = (uint32_t)json_integer_value(version);
	identity->block_tokens = (uint32_t)json_integer_value(tokens);
	identity->block_bytes_max = (uint64_t)json_integer_value(bytes);
	return 0;
}

int store_open_prefixes(struct cnre_kv **ret_kv, struct cnre *client, const struct route_options *options,
			const char *identity)
{
	struct cnre_kv_identity same = {.size = sizeof same, .salt = options->salt};
	json_t *root = json_loads(identity, 0, NULL);
	int error = json_is_object(root) ? read_identity(root, &same) : -EPROTO;

	if (error == 0)
		error = cnre_kv_open(client, options->kv_namespace, &same, ret_kv);
	json_decref(root);
	return error;
}

static int is_same(const json_t *first, const json_t *other, const char *key)
{
	return json_equal(json_object_get(first, key), json_object_get(other, key));
}

/* libcnre knows engines by the name that they gave it. */
static int check(const json_t *first, const json_t *other, const char *name, char *message)
{
	const char *own = json_string_value(json_object_get(other, "name"));

	if (!own || strcmp(own, name) != 0)
		(void)snprintf(message, ROUTE_MESSAGE_BYTES, "engine %s calls itself %.40s; start it with --name %s",
			       name, own ? own : "nothing", name);
	else if (!is_same(first, other, "position") || !is_same(first, other, "representation") ||
		 !is_same(first, other, "version"))
		(void)snprintf(message, ROUTE_MESSAGE_BYTES,
			       "engine %s computes other rows than the first one; they can share nothing", name);
	else
		return 0;
	return -EINVAL;
}

int store_check_identity(const char *first, const char *identity, const char *name, char message[ROUTE_MESSAGE_BYTES])
{
	json_t *one = json_loads(first, 0, NULL), *other = json_loads(identity, 0, NULL);
	int error = check(one, other, name, message);

	json_decref(one);
	json_decref(other);
	return error;
}

int store_ask(const struct store *store, const int32_t *tokens, size_t count, char ret_name[ROUTE_NAME_BYTES])
{
	char name[ROUTE_NAME_BYTES] = "";

	/* As an engine matches: one token remains to be computed. */
	if (!store->kv || count < 2 || cnre_kv_route(store->kv, tokens, count - 1, NULL, 0, name, sizeof name) <= 0 ||
	    name[0] == '\0')
		return 0;
	memcpy(ret_name, name, sizeof name);
	return 1;
}
