/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes into the descriptor store, under which name: all that the next incarnation needs (adopt.c takes it out
 * again). Names: page counters state catalogN directoryN poolN listen lock fenceN, and for each session cN.chan cN.led
 * cN.sock cN.pid. A failure to store is logged: the manager serves on, but what is not stored will not survive it.
 */
#ifndef CNRE_MANAGER_PERSIST_H
#define CNRE_MANAGER_PERSIST_H

#include "manager/session.h"

/* The manager's own segments, the models', the listener. */
void persist_core(struct manager *manager);
/* The listening socket and its lock, and in the state segment what they are bound to. */
void persist_listener(struct manager *manager);
/* The path was bound again: another socket listens. */
void persist_new_listener(struct manager *manager);
/* Whatever the store has not: after a new keeper came, or one answers again that did not take all. */
void persist_everything(struct manager *manager);

void persist_segment(struct manager *manager, uint32_t segment, const struct cnre_segment *memory);
void persist_forget_segment(struct manager *manager, uint32_t segment);

/*
 * R10: before the client gets its descriptors. 0, or -errno: then the client must not be served, and nothing of it is
 * left in the store. -ENOSPC: the store, or the string of its names, is full; -ETIMEDOUT: whoever keeps it does not answer.
 */
int persist_session(struct manager *manager, struct session *session);
/* Its pidfd, which was found only at adoption. */
void persist_process(struct manager *manager, struct session *session);
void persist_forget_session(struct manager *manager, struct session *session);
/* The socket hung up while the process lives. */
void persist_forget_socket(struct manager *manager, struct session *session);

#endif
