/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control plane: JSON requests of cnrectl and their answers: {"verb":"status"|"stats"|"clients"|"layers"|"experts"|"reset"},
 * {"verb":"set","key":"ram","value":"80G"}, {"verb":"policy","name":"cost"}, {"verb":"trace","action":"record"} with a
 * file opened for writing beside it, and {"verb":"usage","action":"import"} and {"verb":"warm","action":"start"} with one
 * for reading. Asking is for everyone who may connect; changing is for root and the manager's own user.
 */
#ifndef CNRE_MANAGER_CONTROL_H
#define CNRE_MANAGER_CONTROL_H

#include "manager/manager.h"
#include "manager/peer.h"
#include "shm/wire.h"

/*
 * Another policy from now on, and for successors too. 0, or -ENOENT (no such policy), -EINVAL (it has a pool a layer, and
 * --pool says another), -ENOMEM. `who` is for the log.
 */
int control_set_policy(struct manager *manager, const char *name, const char *who);

/*
 * Answers one request on the peer's socket, or lets it wait for a survey as the peer's question. fd: what came with it, or
 * -1; closed here where nobody takes it over. 0, or -errno when the answer could not be sent.
 */
int control_answer(struct manager *manager, struct peer *peer, const struct cnre_wire_control *request, int fd);

/* Once a turn. */
void control_reply_tick(int64_t now_ns);

/*
 * Questions are answered on the core thread, some take it milliseconds, and any user may ask many at once. So after each
 * one it is CONTROL_PAUSE_FACTOR times as long there for others before the next is read. 1: the next message on the socket is a
 * request, and not its time yet; it stays there.
 */
#define CONTROL_PAUSE_FACTOR 3
#define CONTROL_PAUSE_MOST_NS 100000000 /* this process may have been stopped meanwhile */
int control_must_wait(const struct manager *manager, int socket);

#endif
