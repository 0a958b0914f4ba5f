/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the thread that answers scrapers and the core; see metrics.h. The snapshot belongs to one of them at a time, and
 * a word says to whom. No lock is taken, so neither can hold up the other.
 *
 * Ordering map:
 *   [OM1] release store 1 (server) -> [OM2] acquire load (core)    the server reads the snapshot no more
 *   [OM3] release store 0 (core)   -> [OM4] [OM5] acquire (server) the snapshot is filled
 */
#include "manager/metrics.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"
#include "manager/metrics_address.h"
#include "manager/metrics_inner.h"
#include "manager/settings.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* ---- the server's thread ---- */

/* 1: the core has answered, what was asked now or before. 0: not in time, or the thread is to end. */
static int wait_for_core(struct metrics *metrics, int stop_fd)
{
	int64_t deadline_ns = cnre_clock_now_ns() + METRICS_WAIT_NS;
	eventfd_t drained;

	for (;;) {
		struct pollfd ready[2] = {{.fd = metrics->answered_fd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
		int64_t left_ns = cnre_clock_left_ns(deadline_ns);

		/* [OM4] acquire, pairs with [OM3]: the numbers before the word. */
		if (atomic_load_explicit(&metrics->is_cores, memory_order_acquire) == 0)
			return 1;
		if (left_ns == 0 || ready[1].revents != 0)
			return 0;
		(void)poll(ready, 2, (int)(left_ns / CNRE_NS_PER_MS) + 1);
		if (ready[1].revents != 0)
			return 0;
		(void)eventfd_read(metrics->answered_fd, &drained);
	}
}

static char *give_text(void *context, int is_openmetrics, int stop_fd, size_t *ret_bytes)
{
	struct metrics *metrics = context;
	/* [OM5] acquire, pairs with [OM3]: as [OM4]. An earlier question may be unanswered still. */
	int is_ours = atomic_load_explicit(&metrics->is_cores, memory_order_acquire) == 0;

	if (is_ours && (metrics->snapshot.made_ns == 0 || cnre_clock_now_ns() - metrics->snapshot.made_ns >= METRICS_FRESH_NS)) {
		/* [OM1] release, pairs with [OM2]: what was read of the snapshot was read before. */
		atomic_store_explicit(&metrics->is_cores, 1, memory_order_release);
		(void)eventfd_write(metrics->asked.fd, 1);
	}
	return wait_for_core(metrics, stop_fd) ? metrics_text(&metrics->snapshot, is_openmetrics, ret_bytes) : NULL;
}

/* ---- the core ---- */

static void answer(struct survey_question *question, const char *text, size_t bytes)
{
	struct metrics *metrics = (struct metrics *)((char *)question - offsetof(struct metrics, question));

	(void)text; /* of stats and clients */
	(void)bytes;
	metrics_close_clients(metrics);
	metrics_collect(metrics->manager, &metrics->snapshot);
	/* [OM3] release, pairs with [OM4] and [OM5]: the numbers before the word. */
	atomic_store_explicit(&metrics->is_cores, 0, memory_order_release);
	(void)eventfd_write(metrics->answered_fd, 1);
}

static void asked(struct loop_source *source, uint32_t events)
{
	struct metrics *metrics = (struct metrics *)((char *)source - offsetof(struct metrics, asked));
	eventfd_t drained;

	(void)events;
	(void)eventfd_read(source->fd, &drained);
	/* [OM2] acquire, pairs with [OM1]: the server's thread is done with the snapshot. */
	if (atomic_load_explicit(&metrics->is_cores, memory_order_acquire) == 0 || metrics->question.link != NULL)
		return;
	metrics->question = (struct survey_question){.kind = SURVEY_METRICS, .answer = answer};
	survey_ask(metrics->manager, &metrics->question);
}

void metrics_load_done(struct manager *manager, uint32_t owner, int64_t service_ns)
{
	struct metrics *metrics = manager->metrics;
	uint32_t i = manager->model_count;
	const struct served_model *model;

	if (metrics == NULL || metrics->server == NULL)
		return;
	while (--i > 0 && manager->model[i].first_owner > owner)
		;
	model = &manager->model[i];
	metrics_observe(&metrics->service[model->number], service_ns);
}

void metrics_read_done(struct manager *manager, uint32_t drive, int64_t ns)
{
	if (manager->metrics != NULL)
		metrics_observe(&manager->metrics->read[drive], ns);
}

void metrics_visit_waited(struct manager *manager, const struct session *session, int64_t wait_ns)
{
	if (manager->metrics != NULL)
		metrics_observe(&manager->metrics->wait[session->model->number], wait_ns);
}

/* ---- life ---- */

int metrics_check(const char *address, char *message, size_t message_bytes)
{
	struct metrics_address parsed;

	return address == NULL ? 0 : metrics_address_parse(address, &parsed, message, message_bytes);
}

/* A descriptor, or -errno with one line. */
static int listen_at(struct metrics *metrics, const struct settings *settings, char *message)
{
	struct metrics_address address;
	char why[256];
	int r = metrics_address_parse(settings->metrics, &address, message, METRICS_MESSAGE_BYTES);

	if (r < 0)
		return r;
	if (address.path == NULL) {
		r = metrics_address_listen(&address);
		return r >= 0 ? r
			      : cnre_message(message, METRICS_MESSAGE_BYTES, r,
					     "--metrics: cannot listen on %.80s: %s: free the port or name another one",
					     settings->metrics, strerror(-r));
	}
	r = socket_path_open_stream(&metrics->socket, address.path, settings->socket_mode, settings->socket_group, why);
	return r < 0 ? cnre_message(message, METRICS_MESSAGE_BYTES, r, "--metrics: %.240s", why) : metrics->socket.fd;
}

static int start(struct metrics *metrics, const struct settings *settings, char *message)
{
	int fd = listen_at(metrics, settings, message), r;

	if (fd < 0)
		return fd;
	r = metrics_server_open(&metrics->server, &(struct metrics_server_setup){.listen_fd = fd, .context = metrics, .text = give_text});
	if (r == 0) {
		metrics->socket.fd = -1; /* the server's now */
		return 0;
	}
	if (metrics->socket.path[0] == '\0')
		(void)close(fd);
	return cnre_message(message, METRICS_MESSAGE_BYTES, r, "--metrics: cannot start to answer: %s: %s", strerror(-r),
			    r == -ELIBACC || r == -ELIBBAD ? "install libmicrohttpd12, or leave --metrics out"
							   : "free memory, descriptors or threads");
}

static int make(struct metrics *metrics, struct manager *manager)
{
	struct timespec now;

	metrics->manager = manager;
	metrics->socket.fd = metrics->socket.lock_fd = -1;
	metrics->asked = (struct loop_source){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .ready = asked};
	metrics->answered_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (metrics->asked.fd < 0 || metrics->answered_fd < 0)
		return -EMFILE;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	metrics->started_unix_ns = now.tv_sec * CNRE_NS_PER_S + now.tv_nsec;
	return loop_add(manager->loop, &metrics->asked, EPOLLIN);
}

int metrics_open(struct manager *manager, char message[METRICS_MESSAGE_BYTES])
{
	struct metrics *metrics;
	int r;

	if (manager->settings == NULL || manager->settings->metrics == NULL)
		return 0;
	metrics = calloc(1, sizeof *metrics);
	if (metrics == NULL)
		return cnre_message(message, METRICS_MESSAGE_BYTES, -ENOMEM, "--metrics: out of memory");
	metrics->asked.fd = metrics->answered_fd = -1;
	manager->metrics = metrics;
	r = make(metrics, manager);
	if (r < 0)
		r = cnre_message(message, METRICS_MESSAGE_BYTES, r, "--metrics: cannot begin: %s", strerror(-r));
	else
		r = start(metrics, manager->settings, message);
	if (r == 0 || !manager->adopted)
		return r; /* serve_close closes what there is */
	cnre_log(CNRE_LOG_ERROR, "%s", message);
	(void)snprintf(metrics->fault, sizeof metrics->fault, "%s", message);
	return 0;
}

void metrics_close(struct manager *manager)
{
	struct metrics *metrics = manager->metrics;

	if (metrics == NULL)
		return;
	if (metrics->server != NULL)
		socket_path_unlink(&metrics->socket);
	metrics->server = metrics_server_close(metrics->server);
	survey_forget(&metrics->question);
	if (metrics->asked.fd >= 0) {
		loop_remove(manager->loop, &metrics->asked);
		(void)close(metrics->asked.fd);
	}
	if (metrics->answered_fd >= 0)
		(void)close(metrics->answered_fd);
	socket_path_close(&metrics->socket);
	free(metrics);
	manager->metrics = NULL;
}

const char *metrics_fault(const struct manager *manager)
{
	return manager->metrics == NULL || manager->metrics->fault[0] == '\0' ? NULL : manager->metrics->fault;
}
