/* SPDX-License-Identifier: Apache-2.0 */
/* The state segment (R3): what a restarted manager must know about sessions. No client ever gets it. */
#ifndef CNRE_MANAGER_STATE_H
#define CNRE_MANAGER_STATE_H

#include "manager/session.h"

/* Enters a session before its channel is passed, and takes it out when it has ended. */
void state_enter_session(struct manager *manager, const struct session *session);
/* WELCOME is on its way. */
void state_welcomed(struct manager *manager, const struct session *session);
void state_leave_session(struct manager *manager, const struct session *session);

/* What ended sessions added up to, after it changed; and back from the segment at adoption. */
void state_save_retired(struct manager *manager);
void state_load_retired(struct manager *manager);
/* Hits in VRAM of attached clients and their bytes, each time they are counted; and those of one that has ended, when it is retired. */
void state_save_vram(struct manager *manager, uint64_t live_hits, uint64_t live_bytes);
void state_retire_vram(struct manager *manager, const struct session_totals *totals);

/* The next session number, never 0 and not in use. */
uint32_t state_next_session(struct manager *manager);

#endif
