/* SPDX-License-Identifier: Apache-2.0 */
/* See engines.h. One lock for all: it is taken a few times a request. */
#include "tools/route/engines.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_BYTES_MAX (16u << 20) /* of a million tokens */

struct pending {
	char id[ROUTE_ID_BYTES];
	const char *why;
};

struct engine {
	struct engines *engines;
	const struct route_place *place;
	int fd;
	FILE *answers; /* fd, for reading */
	pthread_t thread;
	bool has_thread, is_gone;
	struct pending pending[ENGINES_PENDING_MAX]; /* a ring: the oldest is at first */
	uint32_t first, count;
};

struct engines {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* an answer came, or an engine went */
	FILE *output;
	struct engine engine[ROUTE_ENGINES_MAX];
	uint32_t count;
};

/* ---- connecting ---- */

static int dial(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, error;

	if (strlen(path) >= sizeof address.sun_path)
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
		return fd;
	error = -errno;
	(void)close(fd); /* nothing was written */
	return error;
}

static int open_engine(struct engine *engine, char *message)
{
	const struct route_place *place = engine->place;

	engine->fd = dial(place->socket);
	if (engine->fd < 0) {
		(void)snprintf(message, ROUTE_MESSAGE_BYTES,
			       "cannot connect to engine %s at %.100s: %s; start it with cnre-olmoe --name %s --serve "
			       "--listen SOCKET",
			       place->name, place->socket, strerror(-engine->fd), place->name);
		return engine->fd;
	}
	engine->answers = fdopen(engine->fd, "r");
	return engine->answers ? 0 : -ENOMEM;
}

int engines_open(struct engines **ret_engines, const struct route_options *options, FILE *output,
		 char message[ROUTE_MESSAGE_BYTES])
{
	struct engines *engines = calloc(1, sizeof *engines);
	int error = engines ? 0 : -ENOMEM;

	(void)snprintf(message, ROUTE_MESSAGE_BYTES, "out of memory");
	if (!engines)
		return error;
	(void)pthread_mutex_init(&engines->lock, NULL); /* default attributes: cannot fail */
	(void)pthread_cond_init(&engines->changed, NULL);
	engines->output = output;
	for (uint32_t i = 0; i < options->place_count && error == 0; i++) {
		engines->engine[i] = (struct engine){.engines = engines, .place = &options->place[i], .fd = -1};
		engines->count++;
		error = open_engine(&engines->engine[i], message);
	}
	if (error < 0)
		engines_close(engines);
	else
		*ret_engines = engines;
	return error;
}

static void close_engine(struct engine *engine)
{
	if (engine->fd >= 0)
		(void)shutdown(engine->fd, SHUT_WR); /* it ends the connection after its last answer */
	if (engine->has_thread)
		(void)pthread_join(engine->thread, NULL);
	if (engine->answers)
		(void)fclose(engine->answers); /* read only */
	else if (engine->fd >= 0)
		(void)close(engine->fd); /* nothing was written */
}

void engines_close(struct engines *engines)
{
	if (!engines)
		return;
	for (uint32_t i = 0; i < engines->count; i++)
		close_engine(&engines->engine[i]);
	(void)pthread_cond_destroy(&engines->changed);
	(void)pthread_mutex_destroy(&engines->lock);
	free(engines);
}

/* ---- answers ---- */

/* Takes object. */
static void print_locked(struct engines *engines, json_t *object)
{
	if (object)
		(void)json_dumpf(object, engines->output, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
	(void)putc('\n', engines->output); /* main asks for errors at the end */
	(void)fflush(engines->output);
	json_decref(object);
}

static struct pending take_oldest_locked(struct engine *engine)
{
	struct pending oldest = engine->pending[engine->first];

	engine->first = (engine->first + 1) % ENGINES_PENDING_MAX;
	engine->count--;
	return oldest;
}

/* The engine's answer with its name; 0, or -EPROTO: no JSON object, or nothing was asked. */
static int pass_on(struct engine *engine, const char *line)
{
	struct engines *engines = engine->engines;
	json_t *answer = json_loads(line, 0, NULL);
	int error = 0;

	(void)pthread_mutex_lock(&engines->lock);
	if (!json_is_object(answer) || engine->count == 0) {
		json_decref(answer);
		error = -EPROTO;
	} else {
		const struct pending pending = take_oldest_locked(engine);

		(void)json_object_set_new(answer, "engine", json_string(engine->place->name));
		(void)json_object_set_new(answer, "routed_by", json_string(pending.why));
		print_locked(engines, answer);
	}
	(void)pthread_cond_broadcast(&engines->changed);
	(void)pthread_mutex_unlock(&engines->lock);
	return error;
}

static void lose_all(struct engine *engine)
{
	struct engines *engines = engine->engines;

	(void)pthread_mutex_lock(&engines->lock);
	engine->is_gone = true;
	while (engine->count > 0) {
		const struct pending pending = take_oldest_locked(engine);

		print_locked(engines,
			     json_pack("{s:s, s:s, s:s}", "id", pending.id, "error",
				       "the engine is gone; send the request again", "engine", engine->place->name));
	}
	(void)pthread_cond_broadcast(&engines->changed);
	(void)pthread_mutex_unlock(&engines->lock);
}

static void *read_answers(void *argument)
{
	struct engine *engine = argument;
	size_t room = 0;
	char *line = NULL;
	ssize_t length;

	while ((length = getline(&line, &room, engine->answers)) > 0)
		if (length > (ssize_t)ANSWER_BYTES_MAX || pass_on(engine, line) < 0)
			break;
	lose_all(engine);
	free(line);
	return NULL;
}

int engines_start(struct engines *engines)
{
	for (uint32_t i = 0; i < engines->count; i++) {
		struct engine *engine = &engines->engine[i];
		int error = -pthread_create(&engine->thread, NULL, read_answers, engine);

		if (error < 0)
			return error;
		engine->has_thread = true;
	}
	return 0;
}

void engines_refuse(struct engines *engines, const char *id, const char *reason)
{
	(void)pthread_mutex_lock(&engines->lock);
	print_locked(engines,
		     id[0] ? json_pack("{s:s, s:s}", "id", id, "error", reason) : json_pack("{s:s}", "error", reason));
	(void)pthread_mutex_unlock(&engines->lock);
}

/* ---- requests ---- */

/* 0 or -EPIPE. */
static int send_all(int fd, const char *text, size_t length)
{
	while (length > 0) {
		ssize_t sent = send(fd, text, length, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return -EPIPE;
		text += sent;
		length -= (size_t)sent;
	}
	return 0;
}

int engines_identity(struct engines *engines, uint32_t engine, char ret_line[ENGINES_IDENTITY_BYTES],
		     char message[ROUTE_MESSAGE_BYTES])
{
	static const char question[] = "identity\n";
	struct engine *asked = &engines->engine[engine];

	if (send_all(asked->fd, question, sizeof question - 1) == 0 &&
	    fgets(ret_line, ENGINES_IDENTITY_BYTES, asked->answers))
		return 0;
	(void)snprintf(message, ROUTE_MESSAGE_BYTES, "engine %s ended the connection; see what it says",
		       asked->place->name);
	return -EPIPE;
}

int engines_find(struct engines *engines, const char *name)
{
	for (uint32_t i = 0; i < engines->count; i++)
		if (strcmp(engines->engine[i].place->name, name) == 0)
			return engines_is_alive(engines, i) ? (int)i : -ENOENT;
	return -ENOENT;
}

int engines_is_alive(struct engines *engines, uint32_t engine)
{
	int is_alive;

	(void)pthread_mutex_lock(&engines->lock);
	is_alive = !engines->engine[engine].is_gone;
	(void)pthread_mutex_unlock(&engines->lock);
	return is_alive;
}

int engines_least_busy(struct engines *engines)
{
	int best = -ENOTCONN;

	(void)pthread_mutex_lock(&engines->lock);
	for (uint32_t i = 0; i < engines->count; i++)
		if (!engines->engine[i].is_gone && (best < 0 || engines->engine[i].count < engines->engine[best].count))
			best = (int)i;
	(void)pthread_mutex_unlock(&engines->lock);
	return best;
}

/* A place in the engine's ring, as soon as there is one. 0 or -EPIPE. */
static int add_pending(struct engine *engine, const char *id, const char *why)
{
	struct engines *engines = engine->engines;
	int error = 0;

	(void)pthread_mutex_lock(&engines->lock);
	while (engine->count == ENGINES_PENDING_MAX && !engine->is_gone)
		(void)pthread_cond_wait(&engines->changed, &engines->lock);
	if (engine->is_gone) {
		error = -EPIPE;
	} else {
		struct pending *pending = &engine->pending[(engine->first + engine->count) % ENGINES_PENDING_MAX];

		*pending = (struct pending){.why = why};
		(void)snprintf(pending->id, sizeof pending->id, "%s", id);
		engine->count++;
	}
	(void)pthread_mutex_unlock(&engines->lock);
	return error;
}

int engines_send(struct engines *engines, uint32_t engine, const char *line, const char *id, const char *why)
{
	int error = add_pending(&engines->engine[engine], id, why);

	if (error == 0 && send_all(engines->engine[engine].fd, line, strlen(line)) < 0)
		(void)shutdown(engines->engine[engine].fd, SHUT_RDWR); /* its thread says that the request is lost */
	return error;
}
