/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread and libmicrohttpd; see metrics_server.h. The library has no thread of its own here, so that ends can be set. It is
 * loaded when it is first needed: with the libraries that it brings it would add 20 ms to every start of every manager, which
 * the clients of one that is restarted wait for.
 */
#include "manager/metrics_server.h"

#include "base/clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define OPENMETRICS_TYPE "application/openmetrics-text"
#define INDEX "cnre-managerd: see /metrics\n"
#define NOT_IN_TIME "the manager did not answer in time\n"

#define LIBRARY "libmicrohttpd.so.12"
#define FUNCTIONS(F) \
	F(start_daemon) F(stop_daemon) F(quiesce_daemon) F(get_daemon_info) F(get_timeout) F(run) F(get_connection_info) \
	F(lookup_connection_value) F(create_response_from_buffer) F(add_response_header) F(queue_response) F(destroy_response)

static struct {
#define F(name) __typeof__(MHD_##name) *name;
	FUNCTIONS(F)
#undef F
} mhd; /* all NULL, or all there */

struct place {
	int fd;                           /* of a connection that is open; -1: none */
	int64_t ends_ns;                  /* then it is cut */
};

struct metrics_server {
	struct metrics_server_setup setup;
	struct MHD_Daemon *daemon;
	int epoll_fd, stop_fd;
	struct place place[METRICS_CONNECTIONS_MAX];
	int has_free_place;               /* since the last run: the library accepts again at the next one, and no event says so */
	pthread_t thread;
};

/* ---- answers ---- */

static enum MHD_Result send_and_free(struct MHD_Connection *connection, unsigned status, struct MHD_Response *response, const char *type)
{
	enum MHD_Result result;

	if (response == NULL)
		return MHD_NO; /* out of memory: hangs up */
	(void)mhd.add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	(void)mhd.add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close"); /* a place is nobody's for long */
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		(void)mhd.add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	result = mhd.queue_response(connection, status, response);
	mhd.destroy_response(response);
	return result;
}

static enum MHD_Result say(struct MHD_Connection *connection, unsigned status, const char *text)
{
	return send_and_free(connection, status,
			     mhd.create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_PERSISTENT),
			     "text/plain; charset=utf-8");
}

static enum MHD_Result send_metrics(struct metrics_server *server, struct MHD_Connection *connection)
{
	const char *accepts = mhd.lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
	int is_openmetrics = accepts != NULL && strstr(accepts, OPENMETRICS_TYPE) != NULL;
	struct MHD_Response *response;
	size_t bytes;
	char *text = server->setup.text(server->setup.context, is_openmetrics, server->stop_fd, &bytes);

	if (text == NULL)
		return say(connection, MHD_HTTP_SERVICE_UNAVAILABLE, NOT_IN_TIME);
	response = mhd.create_response_from_buffer(bytes, text, MHD_RESPMEM_MUST_FREE);
	if (response == NULL)
		free(text);
	return send_and_free(connection, MHD_HTTP_OK, response,
			     is_openmetrics ? OPENMETRICS_TYPE "; version=1.0.0; charset=utf-8"
					    : "text/plain; version=0.0.4; charset=utf-8");
}

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url, const char *method,
			      const char *version, const char *upload, size_t *upload_bytes, void **request)
{
	(void)version;
	(void)upload;
	(void)upload_bytes;
	(void)request;
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return say(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET is answered\n");
	if (strcmp(url, "/metrics") == 0)
		return send_metrics(context, connection);
	if (strcmp(url, "/") == 0)
		return say(connection, MHD_HTTP_OK, INDEX);
	return say(connection, MHD_HTTP_NOT_FOUND, "there is only /metrics\n");
}

/* ---- connections and their time ---- */

/* Tells of the end before the descriptor is closed, so a number in the table is that connection's. */
static void connection_changed(void *context, struct MHD_Connection *connection, void **ret_place, enum MHD_ConnectionNotificationCode code)
{
	struct metrics_server *server = context;
	const union MHD_ConnectionInfo *socket = mhd.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct place *place = *ret_place;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED && place != NULL)
		place->fd = -1;
	server->has_free_place |= code == MHD_CONNECTION_NOTIFY_CLOSED;
	if (code != MHD_CONNECTION_NOTIFY_STARTED || socket == NULL)
		return;
	for (uint32_t i = 0; i < METRICS_CONNECTIONS_MAX; i++) {
		place = &server->place[i];
		if (place->fd >= 0)
			continue;
		*place = (struct place){.fd = socket->connect_fd, .ends_ns = cnre_clock_now_ns() + METRICS_CONNECTION_NS};
		*ret_place = place;
		return;
	}
}

/* The library's own time-out begins anew with each byte. */
static void cut_late(struct metrics_server *server)
{
	int64_t now_ns = cnre_clock_now_ns();

	for (uint32_t i = 0; i < METRICS_CONNECTIONS_MAX; i++)
		if (server->place[i].fd >= 0 && server->place[i].ends_ns <= now_ns) {
			(void)shutdown(server->place[i].fd, SHUT_RDWR); /* the library sees it as its end */
			server->place[i].ends_ns = CNRE_NEVER;
		}
}

static int timeout_ms(const struct metrics_server *server)
{
	int64_t deadline_ns = CNRE_NEVER, left_ns;
	MHD_UNSIGNED_LONG_LONG library_ms;

	if (server->has_free_place)
		return 0;
	for (uint32_t i = 0; i < METRICS_CONNECTIONS_MAX; i++)
		if (server->place[i].fd >= 0 && server->place[i].ends_ns < deadline_ns)
			deadline_ns = server->place[i].ends_ns;
	left_ns = cnre_clock_left_ns(deadline_ns);
	if (mhd.get_timeout(server->daemon, &library_ms) == MHD_YES && library_ms < (uint64_t)INT_MAX &&
	    (left_ns == CNRE_NEVER || (int64_t)library_ms * CNRE_NS_PER_MS < left_ns))
		return (int)library_ms;
	return left_ns == CNRE_NEVER ? -1 : (int)((left_ns + CNRE_NS_PER_MS - 1) / CNRE_NS_PER_MS);
}

static void *serve(void *argument)
{
	struct metrics_server *server = argument;

	for (;;) {
		struct pollfd ready[2] = {{.fd = server->epoll_fd, .events = POLLIN}, {.fd = server->stop_fd, .events = POLLIN}};
		int n = poll(ready, 2, timeout_ms(server));

		if (ready[1].revents != 0 || (n < 0 && errno != EINTR))
			return NULL;
		cut_late(server);
		server->has_free_place = 0;
		(void)mhd.run(server->daemon);
	}
}

/* ---- life ---- */

/* Never unloaded. */
static int load_library(void)
{
	void *library = mhd.run != NULL ? NULL : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (mhd.run != NULL)
		return 0;
	if (library == NULL)
		return -ELIBACC;
#define F(name) *(void **)&mhd.name = dlsym(library, "MHD_" #name);
	FUNCTIONS(F)
#undef F
#define F(name) || mhd.name == NULL
	if (0 FUNCTIONS(F)) {
		memset(&mhd, 0, sizeof mhd);
		(void)dlclose(library);
		return -ELIBBAD;
	}
#undef F
	return 0;
}

static int start_daemon(struct metrics_server *server)
{
	const union MHD_DaemonInfo *epoll;

	server->daemon = mhd.start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, answer, server, MHD_OPTION_LISTEN_SOCKET,
					  server->setup.listen_fd, MHD_OPTION_CONNECTION_LIMIT, METRICS_CONNECTIONS_MAX,
					  MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)METRICS_CONNECTION_BYTES,
					  MHD_OPTION_NOTIFY_CONNECTION, connection_changed, server, MHD_OPTION_END);
	if (server->daemon == NULL)
		return -ENOMEM;
	epoll = mhd.get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	if (epoll == NULL)
		return -ENOTSUP;
	server->epoll_fd = epoll->epoll_fd;
	return 0;
}

/* Signals are the core thread's business. */
static int start_thread(struct metrics_server *server)
{
	sigset_t all, before;
	int r;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&server->thread, NULL, serve, server);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -r;
}

int metrics_server_open(struct metrics_server **ret_server, const struct metrics_server_setup *setup)
{
	struct metrics_server *server;
	int r = load_library();

	if (r < 0)
		return r;
	server = calloc(1, sizeof *server);
	if (server == NULL)
		return -ENOMEM;
	server->setup = *setup;
	for (uint32_t i = 0; i < METRICS_CONNECTIONS_MAX; i++)
		server->place[i].fd = -1;
	server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = server->stop_fd < 0 ? -errno : start_daemon(server);
	if (r == 0)
		r = start_thread(server);
	if (r < 0) {
		if (server->daemon != NULL) {
			(void)mhd.quiesce_daemon(server->daemon); /* the listening socket stays the caller's */
			mhd.stop_daemon(server->daemon);
		}
		if (server->stop_fd >= 0)
			(void)close(server->stop_fd);
		free(server);
		return r;
	}
	*ret_server = server;
	return 0;
}

struct metrics_server *metrics_server_close(struct metrics_server *server)
{
	if (server == NULL)
		return NULL;
	(void)eventfd_write(server->stop_fd, 1);
	(void)pthread_join(server->thread, NULL);
	mhd.stop_daemon(server->daemon); /* closes the listening socket and all connections */
	(void)close(server->stop_fd);
	free(server);
	return NULL;
}
