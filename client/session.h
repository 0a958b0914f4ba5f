/* SPDX-License-Identifier: Apache-2.0 */
/* One session with a manager: finding or starting it, HELLO, DETACH. */
#ifndef CNRE_CLIENT_SESSION_H
#define CNRE_CLIENT_SESSION_H

#include "client/endpoint.h"
#include "client/options.h"

/*
 * Connects to one endpoint, starting its manager where that is allowed, and says HELLO until there is an answer. On 0
 * the socket is open and the fixed segments are mapped; on failure nothing is left.
 */
int cnre_session_open(struct cnre *client, const struct cnre_attach_request *request,
		      const struct cnre_endpoint *endpoint);

/* Says DETACH, waits for the answer for CNRE_DETACH_NS at most, closes the socket. All but the page must be unmapped. */
void cnre_session_close(struct cnre *client);

#endif
