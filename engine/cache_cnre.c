/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experts from the shared manager. A layer's selection is one batch: begun whole, waited for in the router's order
 * (sums of floats depend on the order), each lease given back right after its use. The felt wait is libcnre's own
 * account.
 */
#include "engine/expert_source.h"

#include "cnre/cnre.h"
#include "engine/stop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ATTACH_TIMEOUT_NS (600 * INT64_C(1000000000)) /* a manager that starts touches all its memory first */
#define WAIT_TIMEOUT_NS (300 * INT64_C(1000000000))   /* a drive that hangs this long is as good as gone */
#define WAIT_SLICE_NS (1 * INT64_C(1000000000))       /* how long ^C may go unseen if a read hangs; libcnre looks 4 times */
#define ADVICE_BYTES 288
#define SOCKET_PATH_MAX 107                           /* sun_path, without its zero */

_Static_assert(EXPERT_PARTS == CNRE_DOWN_SCALE + 1, "the engine numbers parts as cnre.h numbers roles");

struct cnre_source {
	struct expert_source source;
	const struct config *config;
	struct cnre *client;
	struct cnre_batch *batch;                   /* NULL between batches */
	struct cnre_expert lease[CONFIG_TOP_K_MAX]; /* lease 0: not held */
	uint32_t count;
};

static int begin(struct expert_source *source, uint32_t layer, const uint32_t *experts, uint32_t count)
{
	struct cnre_source *cnre = (struct cnre_source *)source;

	if (count > cnre->config->top_k)
		return -EINVAL;
	memset(cnre->lease, 0, count * sizeof *cnre->lease);
	cnre->count = count;
	return cnre_batch_begin(cnre->client, layer, experts, count, 1, &cnre->batch);
}

static int wait_for(struct expert_source *source, uint32_t index, struct expert *ret_expert)
{
	struct cnre_source *cnre = (struct cnre_source *)source;
	struct cnre_expert *lease = &cnre->lease[index];
	struct expert_part part[EXPERT_PARTS];
	int64_t left_ns = WAIT_TIMEOUT_NS;
	int error;

	do {
		error = cnre_batch_wait(cnre->batch, index, WAIT_SLICE_NS, lease);
		left_ns -= WAIT_SLICE_NS;
	} while (error == -ETIMEDOUT && left_ns > 0 && !stop_is_asked());
	if (error < 0)
		return error;
	for (uint32_t i = 0; i < EXPERT_PARTS; i++)
		part[i] = (struct expert_part){lease->part[i].data, lease->part[i].bytes, lease->part[i].dtype};
	return expert_make(cnre->config, part, ret_expert);
}

static void release(struct expert_source *source, uint32_t index)
{
	struct cnre_source *cnre = (struct cnre_source *)source;

	if (cnre->lease[index].lease != 0)
		(void)cnre_release(cnre->client, &cnre->lease[index]); /* our own lease: never refused */
	cnre->lease[index].lease = 0;
}

static void end(struct expert_source *source)
{
	struct cnre_source *cnre = (struct cnre_source *)source;

	for (uint32_t i = 0; i < cnre->count; i++)
		release(source, i);
	if (cnre->batch)
		(void)cnre_batch_end(cnre->batch);
	cnre->batch = NULL;
	cnre->count = 0;
}

static void token_end(struct expert_source *source, uint32_t token_count)
{
	cnre_token_end(((struct cnre_source *)source)->client, token_count);
}

static int counters(struct expert_source *source, struct source_counters *ret_counters)
{
	struct cnre_source *cnre = (struct cnre_source *)source;
	struct cnre_stats stats = {.size = sizeof stats};
	int error = cnre_stats(cnre->client, &stats);

	if (error < 0)
		return error;
	*ret_counters = (struct source_counters){
		.hits = stats.hits,
		.misses = stats.misses,
		.joins = stats.joins,
		.felt_wait_ns = stats.wait_ns,
		.bytes_read = stats.bytes_read,
		.has_bytes_read = true,
		.resident_bytes = stats.resident_bytes,
	};
	return 0;
}

static void close_source(struct expert_source *source)
{
	struct cnre_source *cnre = (struct cnre_source *)source;

	end(source);
	cnre_detach(cnre->client);
	free(cnre);
}

static const struct expert_source_ops cnre_ops = {begin, wait_for, release, end, token_end, counters, close_source};

/* As libcnre: the option, else the variable; NULL: it looked in the usual places and could start one. */
static const char *given_socket(const struct cnre_source_options *options)
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
	case -EPROTO:
		return "manager and library are of different versions; upgrade the older one";
	default:
		return "see the manager's log";
	}
}

static void advise(int error, const struct cnre_source_options *options, char advice[ADVICE_BYTES])
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

/* A model that answers to the same name but not to the same numbers would be silent garbage. */
static int check_model(const struct cnre_source *cnre, char *message)
{
	const struct config *config = cnre->config;
	struct cnre_model_info info = {.size = sizeof info};
	int error = cnre_model(cnre->client, &info);

	if (error < 0)
		return engine_fail(message, error, "cannot ask about the attached model: %s", strerror(-error));
	if (info.layer_count != config->layers || info.expert_count != config->experts)
		return engine_fail(message, -ESTALE,
				   "the manager has %u layers of %u experts, config.json says %u of %u; "
				   "restart it on this directory",
				   info.layer_count, info.expert_count, config->layers, config->experts);
	return 0;
}

int cache_cnre_open(struct expert_source **ret_source, const struct config *config,
		    const struct cnre_source_options *options, char message[ENGINE_MESSAGE_BYTES])
{
	const struct cnre_options attach = {
		.size = sizeof attach,
		.socket = options->socket,
		.name = options->name,
		.timeout_ns = ATTACH_TIMEOUT_NS,
		.reserve_bytes = options->reserve_bytes,
		.private_bytes = options->private_bytes,
	};
	struct cnre_source *cnre = calloc(1, sizeof *cnre);
	char advice[ADVICE_BYTES];
	int error;

	if (!cnre)
		return engine_fail(message, -ENOMEM, "out of memory");
	cnre->source.ops = &cnre_ops;
	cnre->config = config;
	error = cnre_attach(&cnre->client, options->model, &attach);
	if (error < 0) {
		advise(error, options, advice);
		(void)engine_fail(message, error, "cannot attach %.160s: %s: %s", options->model, strerror(-error),
				  advice);
		free(cnre);
		return error;
	}
	error = check_model(cnre, message);
	if (error < 0)
		close_source(&cnre->source);
	else
		*ret_source = &cnre->source;
	return error;
}
