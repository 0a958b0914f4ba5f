/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics for Prometheus and others (--metrics), off by default. A scrape is answered by a thread that reads nothing of the
 * core's: it asks for a snapshot and waits METRICS_WAIT_NS at most; the core takes up the question among its turns, counts
 * as for `cnrectl stats` (survey.h), fills in numbers, and never waits for that thread. Who asks within METRICS_FRESH_NS is
 * given the same numbers, so scrapers can ask as often as they like.
 *
 *   metrics_address.c   where to listen, and where not        metrics_collect.c   the core's half: numbers
 *   metrics_server.c    HTTP (libmicrohttpd)                  metrics_text.c      the server's half: text
 *   metrics.c           between the two threads               metrics_clients.c   clients by name
 */
#ifndef CNRE_MANAGER_METRICS_H
#define CNRE_MANAGER_METRICS_H

#include "manager/manager.h"

#include <stddef.h>
#include <stdint.h>

#define METRICS_WAIT_NS 2000000000ll
#define METRICS_FRESH_NS 500000000ll
#define METRICS_MESSAGE_BYTES 256u

struct metrics;
struct session;
struct session_count;
struct session_totals;

/* What --metrics says is a place to listen, or NULL. 0, or -EINVAL with one line. */
int metrics_check(const char *address, char *message, size_t message_bytes);

/*
 * metrics_open - listens at settings->metrics, if it is set
 *
 * After the models are known and the loop is there. A Unix socket has mode and group of the control socket. 0, also where
 * metrics are off, or -errno with one line. For a successor nothing of it is a reason not to start, since clients go on: then
 * it is 0, logged, and among what is degraded.
 */
int metrics_open(struct manager *manager, char message[METRICS_MESSAGE_BYTES]);
/* Before the survey: a question may be waiting. */
void metrics_close(struct manager *manager);
/* Why a successor has no metrics, or NULL. */
const char *metrics_fault(const struct manager *manager);

/* ---- what happens, told by those to whom it does; nothing is done where metrics are off ---- */

void metrics_load_done(struct manager *manager, uint32_t owner, int64_t service_ns);
void metrics_visit_waited(struct manager *manager, const struct session *session, int64_t wait_ns);
void metrics_read_done(struct manager *manager, uint32_t drive, int64_t ns);
void metrics_session_ended(struct manager *manager, const struct session *session, const struct session_totals *totals);

/* ---- of a survey that was asked for them: it begins (perhaps anew), and a session is counted ---- */

void metrics_survey_begins(struct manager *manager);
void metrics_take_session(struct manager *manager, const struct session *session, const struct session_count *count);

#endif
