/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Doorbells (R14). Each client has a futex word in its own channel and rings it only when the page says that the
 * manager is not awake. The manager sleeps on all of them at once: as futex operations of the ring where the kernel has
 * them (Linux 6.7), otherwise by threads that sleep in futex_waitv, 127 bells each (Linux 5.16), or one bell each in plain
 * FUTEX_WAIT, and write an eventfd.
 *
 * Ordering map:
 *   [B1] relaxed load bell, armed before the last look   -> kernel compares it
 *   [B2] seq_cst fence (manager)  <-> [Q7] seq_cst fence (client, shm/ring.c)   no lost bell
 */
#ifndef CNRE_MANAGER_BELL_H
#define CNRE_MANAGER_BELL_H

#include "manager/session.h"

struct bell;

/* Which way was found: for status. */
const char *bell_way(const struct bell *bell);

int bell_open(struct manager *manager, struct bell **ret_bell);
struct bell *bell_close(struct bell *bell);

int bell_add(struct bell *bell, struct session *session);
/* After this nothing dereferences the session's channel for its bell. */
void bell_remove(struct bell *bell, struct session *session);

/*
 * Before sleeping: every bell is armed, then awake = 0 and the fence [B2]. 1: the caller looks at all channels once more
 * and may sleep; 0: the ring had no room for some bell, which nobody would hear: do not sleep.
 */
int bell_prepare(struct bell *bell);
/* The caller is up: awake = 1. */
void bell_awake(struct bell *bell);

/* A completion of the ring that is a bell's. */
void bell_ring_fired(struct bell *bell, uint64_t user_data, int result);

#endif
