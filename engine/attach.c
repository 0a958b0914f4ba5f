/* SPDX-License-Identifier: Apache-2.0 */
/* See attach.h. */
#include "engine/attach.h"

#include "engine/matrix.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ATTACH_TIMEOUT_NS (600 * INT64_C(1000000000)) /* a manager that starts touches all its memory first */
#define ADVICE_BYTES 288
#define SOCKET_PATH_MAX 107 /* sun_path, without its zero */

/* As libcnre: the option, else the variable; NULL: it looked in the usual places and could start one. */
static const char *given_socket(const struct attach_options *options)
{
	const char *socket = options->socket ? options->socket : getenv("CNRE_SOCKET");

	return socket && socket[0] != '\0' ? socket : NULL;
}

static void advise_without_manager(const char *socket, char advice[ADVICE_BYTES])
{
	const unsigned user = (unsigned)geteuid();

	if (!socket)
		snprintf(advice, ADVICE_BYTES,
			 "no manager runs and none could be started; the newest *.log in %s/run/user/%u/cnre or "
			 "/tmp/cnre-%u says why",
			 getenv("XDG_RUNTIME_DIR") ? "$XDG_RUNTIME_DIR/cnre, " : "", user, user);
	else if (strcmp(socket, "none") == 0)
		snprintf(advice, ADVICE_BYTES,
			 "the socket \"none\" stands for no manager; name that of a cnre-managerd, give none at all, "
			 "or take another --cache");
	else
		snprintf(advice, ADVICE_BYTES,
			 "nobody answers at the socket %.120s; start cnre-managerd --model DIR --socket PATH, or leave "
			 "the socket out",
			 socket);
}

static const char *advice_of(int error)
{
	switch (error) {
	case -ENOENT:
		return "the manager does not serve this model; start it with --model DIR, or give another --socket";
	case -ENOSPC:
		return "the manager cannot promise that much; lower --reserve or give the manager more --ram";
	case -ESTALE:
		return "the manager serves another revision of this checkpoint; restart it on this directory";
	case -EACCES:
		return "the socket's permissions keep this user out; join the group that owns it";
	case -ENOTSUP:
		return "the manager does not serve it in this view, or at all; start it with --view, or leave --view out here";
	case -EPROTO:
		return "manager and library are of different versions; upgrade the older one";
	default:
		return "see the manager's log";
	}
}

static void advise(int error, const struct attach_options *options, char advice[ADVICE_BYTES])
{
	const char *socket = given_socket(options);

	if (error == -ECONNREFUSED)
		advise_without_manager(socket, advice);
	else if (error == -EINVAL && socket && strlen(socket) > SOCKET_PATH_MAX)
		snprintf(advice, ADVICE_BYTES,
			 "the socket's path is longer than %d bytes; use a shorter one, such as a link to its folder",
			 SOCKET_PATH_MAX);
	else
		snprintf(advice, ADVICE_BYTES, "%s", advice_of(error));
}

/* A model that answers to the same name but not to the same numbers, or a layout of another version, would be silent garbage. */
static int check_model(struct cnre *client, const struct config *config, const char *view, char *message)
{
	struct cnre_model_info info = {.size = sizeof info};
	int error = cnre_model(client, &info);

	if (error < 0)
		return engine_fail(message, error, "cannot ask about the attached model: %s", strerror(-error));
	if (info.layer_count != config->layers || info.expert_count != config->experts)
		return engine_fail(message, -ESTALE,
				   "the manager has %u layers of %u experts, config.json says %u of %u; "
				   "restart it on this directory",
				   info.layer_count, info.expert_count, config->layers, config->experts);
	if (view && info.view_version != MATRIX_ROWS16_VERSION)
		return engine_fail(message, -ENOTSUP,
				   "the manager's view %s is of version %u, this engine reads version %u; upgrade the older one, "
				   "or leave --view out",
				   view, info.view_version, MATRIX_ROWS16_VERSION);
	return 0;
}

int attach_open(struct cnre **ret_client, const struct config *config, const struct attach_options *options,
		char message[ENGINE_MESSAGE_BYTES])
{
	const struct cnre_options attach = {
		.size = sizeof attach,
		.socket = options->socket,
		.name = options->name,
		.timeout_ns = ATTACH_TIMEOUT_NS,
		.reserve_bytes = options->reserve_bytes,
		.flags = options->is_without_experts ? CNRE_NO_EXPERTS : 0,
		.private_bytes = options->private_bytes,
		.view = options->view,
	};
	struct cnre *client;
	char advice[ADVICE_BYTES];
	int error = cnre_attach(&client, options->model, &attach);

	if (error < 0) {
		advise(error, options, advice);
		return engine_fail(message, error, "cannot attach %.160s: %s: %s", options->model, strerror(-error),
				   advice);
	}
	error = check_model(client, config, options->view, message);
	if (error < 0)
		cnre_detach(client);
	else
		*ret_client = client;
	return error;
}
