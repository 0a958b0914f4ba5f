/* SPDX-License-Identifier: Apache-2.0 */
/* Options of cnre_attach; see options.h. */
#include "client/options.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct cnre_options defaults = {.size = sizeof defaults, .timeout_ns = -1};

/* A program of a later version may pass a longer struct: fine as long as it asks for nothing that we do not know. */
static int has_unknown(const struct cnre_options *given)
{
	const unsigned char *bytes = (const unsigned char *)given;

	for (size_t i = sizeof *given; i < given->size; i++)
		if (bytes[i] != 0)
			return 1;
	return 0;
}

int cnre_options_read(const struct cnre_options *given, struct cnre_options *ret_options)
{
	struct cnre_options options = defaults;

	if (given != NULL) {
		if (given->size < sizeof given->size || given->size > 65536 || has_unknown(given))
			return -EINVAL;
		memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
	}
	if (options.name == NULL)
		options.name = program_invocation_short_name;
	if (options.view == NULL)
		options.view = "";
	if (strlen(options.view) >= CNRE_NAME_BYTES)
		return -ENOTSUP; /* no view has such a name */
	*ret_options = options;
	return 0;
}

static int is_directory(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* The engine reads its own weights from there, too: so it is this process's environment that counts, not the manager's. */
static int find_shards(struct cnre_attach_request *request)
{
	struct cnre_places *places;
	int r = cnre_places_open_list(&places, request->path, getenv(CNRE_PLACES_VARIABLE), NULL, 0);

	if (r < 0)
		return r;
	r = cnre_places_identify(places, &request->fingerprint, NULL, 0);
	if (r < 0)
		(void)cnre_places_close(places);
	else
		request->places = places;
	return r;
}

int cnre_options_find_model(struct cnre_attach_request *request, const char *model)
{
	if (model[0] == '\0' || strlen(model) >= CNRE_WIRE_MODEL_MAX)
		return -EINVAL;
	request->model = model;
	request->by_path = strchr(model, '/') != NULL || is_directory(model);
	if (!request->by_path)
		return 0;
	if (realpath(model, request->path) == NULL)
		return -errno;
	request->model = request->path;
	return find_shards(request);
}

static void copy_text(char *to, size_t size, const char *from)
{
	size_t bytes = strlen(from);

	memcpy(to, from, bytes < size ? bytes : size - 1); /* the rest is zero already */
}

void cnre_options_fill_hello(const struct cnre_attach_request *request, struct cnre_wire_hello *ret_hello)
{
	memset(ret_hello, 0, sizeof *ret_hello);
	ret_hello->flags = request->options.flags & ~(uint32_t)CNRE_VRAM_OR_RAM; /* the library's own business */
	ret_hello->by_path = (uint32_t)request->by_path;
	ret_hello->reserve_bytes = request->options.reserve_bytes;
	ret_hello->private_bytes = request->options.private_bytes;
	copy_text(ret_hello->name, sizeof ret_hello->name, request->options.name);
	copy_text(ret_hello->view, sizeof ret_hello->view, request->options.view);
	copy_text(ret_hello->model, sizeof ret_hello->model, request->model);
	memcpy(ret_hello->identity, request->fingerprint.identity, sizeof ret_hello->identity);
	memcpy(ret_hello->config, request->fingerprint.config, sizeof ret_hello->config);
	memcpy(ret_hello->names, request->fingerprint.names, sizeof ret_hello->names);
}
