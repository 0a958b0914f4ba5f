/* SPDX-License-Identifier: Apache-2.0 */
/* A client's wish for a residency policy, which holds for everybody: followed where --client-policy lets it be. */
#ifndef CNRE_MANAGER_CLIENT_POLICY_H
#define CNRE_MANAGER_CLIENT_POLICY_H

#include "manager/session.h"
#include "shm/wire.h"

/* Answers one request on the session's socket. 0, or -errno when the answer could not be sent. */
int client_policy_answer(struct session *session, const struct cnre_wire_policy *asked);

#endif
