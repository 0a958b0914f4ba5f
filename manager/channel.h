/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at the channels of all clients: access logs, requests, demands that found no slot. */
#ifndef CNRE_MANAGER_CHANNEL_H
#define CNRE_MANAGER_CHANNEL_H

#include "manager/manager.h"

#define CHANNEL_REQUESTS_PER_TURN 16u     /* of one client, so that nobody waits behind a flood (R34) */
/*
 * Log words of all clients in a turn, since a word costs up to a microsecond and others wait; who writes little leaves its
 * share to the next ones, and each has some. What is left is read so soon after.
 */
#define CHANNEL_LOG_PER_TURN 4096u
#define CHANNEL_LOG_SHARE_MIN 32u
#define CHANNEL_LOG_MORE_NS 1000000
/*
 * Hits ring no bell, so the logs of clients that only hit are looked at by time, before they are written over: at this
 * interval while somebody writes, and at the longer one while nobody does.
 */
#define CHANNEL_LOG_EVERY_NS 50000000
#define CHANNEL_LOG_IDLE_NS 1000000000

struct session;

/* One turn over all clients. 1 if something was there, and more may be. */
int channel_serve_all(struct manager *manager);

/* When the logs want to be looked at again; CNRE_NEVER: there are no clients. */
int64_t channel_deadline_ns(const struct manager *manager);

/* What a client that ends has written and nobody has read yet. */
void channel_finish(struct session *session);

/* Asks for everything that a client holds leases of and that is not there. */
void channel_scan_wants(struct session *session);

/* Whether any client has posted what was not taken yet (the last look before sleeping). */
int channel_any_pending(struct manager *manager);

#endif
