/* SPDX-License-Identifier: Apache-2.0 */
/* What metrics.c, metrics_collect.c and metrics_clients.c share. Private to them. */
#ifndef CNRE_MANAGER_METRICS_INNER_H
#define CNRE_MANAGER_METRICS_INNER_H

#include "manager/loop.h"
#include "manager/metrics.h"
#include "manager/metrics_server.h"
#include "manager/metrics_snapshot.h"
#include "manager/session.h"
#include "manager/socket_path.h"
#include "manager/survey.h"

#include <stdatomic.h>

struct metrics {
	struct manager *manager;
	struct metrics_server *server;    /* NULL: a successor that could not listen */
	struct socket_path socket;        /* .path "": internet. Its descriptor is the server's */
	char fault[METRICS_MESSAGE_BYTES];
	struct loop_source asked;         /* eventfd: the server's thread asks */
	int answered_fd;                  /* eventfd: the core has answered */
	struct survey_question question;
	_Atomic uint32_t is_cores;        /* 1: the snapshot is the core's, until it has answered; 0: the server's thread's */
	struct metrics_snapshot snapshot;

	/* The core's own. */
	int64_t started_unix_ns;
	struct metrics_histogram service[MANAGER_MODELS_MAX], wait[MANAGER_MODELS_MAX];
	struct metrics_histogram read[LOADER_DRIVES_MAX];
	struct metrics_client ended[METRICS_CLIENTS_MAX]; /* what sessions did that ended, by name */
	uint32_t client_count;            /* names that have a place */
};

/* On the core thread, when a survey is over: clients, then all else. */
void metrics_close_clients(struct metrics *metrics);
void metrics_collect(struct manager *manager, struct metrics_snapshot *snapshot);

#endif
