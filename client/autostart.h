/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a per-user manager on demand. */
#ifndef CNRE_CLIENT_AUTOSTART_H
#define CNRE_CLIENT_AUTOSTART_H

#include "client/endpoint.h"

#include <stdint.h>

/*
 * cnre_autostart - start a manager for one model and leave it running
 *
 * The manager is a grandchild in a session of its own: it is never this process's zombie and outlives it. It inherits
 * the environment, from which it takes its settings, and no descriptor but its log as standard error. The log is emptied
 * first; that no program was found, or that it could not be run, stands there, too.
 * A view ("": none) is one that it shall serve if it knows it; if not, it serves all the same, and attach says so.
 * *ret_life is a descriptor that hangs up when the manager has ended. Two starts at once are harmless: the manager
 * itself takes a lock, and the second one leaves.
 * Returns:  0, or -ENOENT (no cnre-managerd found: set $CNRE_MANAGERD), -ENOMEM, -EAGAIN, -EMFILE, …
 */
int cnre_autostart(const char *model_directory, const struct cnre_endpoint *endpoint, uint64_t private_bytes,
		   const char *view, int *ret_life);

/* 1 when the manager that was started has ended. */
int cnre_autostart_has_ended(int life);

/* 1 when some manager holds the lock of this endpoint ("SOCKET.lock"): it serves, or is about to. */
int cnre_autostart_is_locked(const struct cnre_endpoint *endpoint);

#endif
