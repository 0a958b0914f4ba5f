/* SPDX-License-Identifier: Apache-2.0 */
/* Which served model a client means, in which view, and whether its checkpoint is the same revision as ours. */
#ifndef CNRE_MANAGER_MATCH_H
#define CNRE_MANAGER_MATCH_H

#include "manager/manager.h"
#include "shm/wire.h"

/*
 * By path: the content identity of the client's own directory decides. By name: the name of a served model (its
 * directory's last component).
 * Returns:  0, -ENOENT (not served), -ENOTSUP (served, but not in this view), or -ESTALE (served, but the client's
 *           directory holds another revision: dense weights of one and experts of the other would be silent garbage).
 *           message: one line for people.
 */
int match_model(struct manager *manager, const struct cnre_wire_hello *hello, struct served_model **ret_model, char *message,
		size_t message_bytes);

#endif
