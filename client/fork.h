/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process has attached, and what fork() must not take along (R12): each client has an owner mark in a
 * MADV_WIPEONFORK page, and pthread_atfork closes the sockets in the child, so that the manager sees only one process
 * at the other end.
 */
#ifndef CNRE_CLIENT_FORK_H
#define CNRE_CLIENT_FORK_H

#include "client/client.h"

/* A new owner mark. 0, or -ENOMEM, -ENOTSUP (a kernel before 4.14). */
int cnre_owner_open(const _Atomic uint32_t **ret_owner);
void cnre_owner_close(const _Atomic uint32_t *owner);

/*
 * Enters an attached client, so that a child closes its socket. 0, -ENOMEM, or -EBUSY: this process has the same model
 * attached on the same socket, in the same view.
 */
int cnre_registry_enter(struct cnre *client);
void cnre_registry_leave(struct cnre *client);

/* Detached with leases out: stays known for fork, but the model may be attached again. */
void cnre_registry_linger(struct cnre *client);

/*
 * Whether this process has the model attached on that socket in that view ("": as in the checkpoint): asked before a second
 * session takes a reservation. The model is named by its identity, or by the name it is served under where identity is
 * NULL. Another view is other objects, with a directory and leases of their own, so both may be attached.
 */
int cnre_registry_has(const char *socket_path, const unsigned char *identity, const char *name, const char *view);

#endif
