/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at the channels of all clients: access logs, requests, demands that found no slot. */
#ifndef CNRE_MANAGER_CHANNEL_H
#define CNRE_MANAGER_CHANNEL_H

#include "manager/manager.h"

#define CHANNEL_REQUESTS_PER_TURN 16u     /* of one client, so that nobody waits behind a flood (R34) */
#define CHANNEL_LOG_PER_TURN 4096u

/* One turn over all clients. 1 if something was there, and more may be. */
int channel_serve_all(struct manager *manager);

/* Asks for everything that a client holds leases of and that is not there. */
struct session;
void channel_scan_wants(struct session *session);

/* Whether any client has posted what was not taken yet (the last look before sleeping). */
int channel_any_pending(struct manager *manager);

#endif
