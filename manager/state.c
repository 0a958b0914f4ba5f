/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of the state segment; see state.h. Crash note: an entry is valid from the store of its session number, which
 * comes last, until that number is cleared, which comes first.
 */
#include "manager/state.h"

#include <string.h>

void state_enter_session(struct manager *manager, const struct session *session)
{
	struct cnre_state_session *entry = &manager->state->session[session->slot];

	entry->uid = session->peer.uid;
	entry->gid = session->peer.gid;
	entry->pid = (uint32_t)session->peer.pid;
	entry->reserve_slabs = session->reserve_slabs;
	entry->model = session->model->number;
	memcpy(entry->name, session->name, sizeof entry->name);
	/* For whoever maps the segment after our death the kernel keeps our stores in order; the compiler must, too. */
	__asm__ volatile("" ::: "memory");
	/* [N1] relaxed: the number makes the entry valid; no other process reads it while we live. */
	atomic_store_explicit(&entry->session, session->number, memory_order_relaxed);
}

void state_leave_session(struct manager *manager, const struct session *session)
{
	/* [N2] relaxed: nothing is freed behind it in this segment. */
	atomic_store_explicit(&manager->state->session[session->slot].session, 0, memory_order_relaxed);
}

uint32_t state_next_session(struct manager *manager)
{
	uint32_t number = ++manager->state->next_session;

	return number != 0 ? number : ++manager->state->next_session; /* after 2^32 attaches */
}
