/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of the state segment; see state.h. Crash note: an entry is valid from the store of its session number, which
 * comes last, until that number is cleared, which comes first.
 */
#include "manager/state.h"

#include "base/crash.h"

#include <string.h>

void state_enter_session(struct manager *manager, const struct session *session)
{
	struct cnre_state_session *entry = &manager->state->session[session->slot];

	entry->uid = session->peer.uid;
	entry->gid = session->peer.gid;
	entry->pid = (uint32_t)session->peer.pid;
	entry->reserve_slabs = session->reserve_slabs;
	entry->model = session->model->number;
	entry->attached_ns = session->attached_ns;
	entry->hello_id = session->hello_id;
	entry->welcomed = 0;
	memcpy(entry->name, session->name, sizeof entry->name);
	/* For whoever maps the segment after our death the kernel keeps our stores in order; the compiler must, too. */
	__asm__ volatile("" ::: "memory");
	CNRE_CRASH_POINT("session-filled");
	/* [N1] relaxed: the number makes the entry valid; no other process reads it while we live. */
	atomic_store_explicit(&entry->session, session->number, memory_order_relaxed);
}

void state_welcomed(struct manager *manager, const struct session *session)
{
	manager->state->session[session->slot].welcomed = 1;
}

void state_leave_session(struct manager *manager, const struct session *session)
{
	/* [N2] relaxed: nothing is freed behind it in this segment. */
	atomic_store_explicit(&manager->state->session[session->slot].session, 0, memory_order_relaxed);
}

static int is_in_use(const struct manager *manager, uint32_t number)
{
	for (uint32_t i = 0; i < CNRE_SESSIONS_MAX; i++)
		/* [N3] relaxed: our own word. */
		if (atomic_load_explicit(&manager->state->session[i].session, memory_order_relaxed) == number)
			return 1;
	return 0;
}

/* After 2^32 attaches numbers come again, and the first client may be there still. */
uint32_t state_next_session(struct manager *manager)
{
	uint32_t number;

	do
		number = ++manager->state->next_session;
	while (number == 0 || is_in_use(manager, number)); /* at most once for each of CNRE_SESSIONS_MAX */
	return number;
}

void state_save_retired(struct manager *manager)
{
	const struct session_totals *from = &manager->sessions->retired;
	uint64_t *to = manager->state->retired;

	to[0] = from->accesses;
	to[1] = from->misses;
	to[2] = from->joins;
	to[3] = from->failures;
	to[4] = from->wait_ns;
	manager->state->retired_bytes = from->bytes;
	manager->state->retired_vram_hits = from->vram_hits;
}

void state_load_retired(struct manager *manager)
{
	const uint64_t *from = manager->state->retired;

	manager->sessions->retired = (struct session_totals){
		.accesses = from[0], .misses = from[1], .joins = from[2], .failures = from[3], .wait_ns = from[4],
		.bytes = manager->state->retired_bytes};
	/* Ledgers of VRAM end with their manager, so what clients had counted there, as far as anybody was told, is over too. */
	manager->sessions->retired.vram_hits = manager->state->retired_vram_hits + manager->state->live_vram_hits;
	manager->sessions->retired.accesses += manager->state->live_vram_hits;
	manager->sessions->retired.bytes += manager->state->live_vram_bytes;
	manager->state->live_vram_hits = manager->state->live_vram_bytes = 0;
	state_save_retired(manager);
}

void state_save_vram(struct manager *manager, uint64_t live_hits, uint64_t live_bytes)
{
	manager->state->live_vram_hits = live_hits;
	manager->state->live_vram_bytes = live_bytes;
}

static void take_off(uint64_t *sum, uint64_t part)
{
	*sum -= part < *sum ? part : *sum;
}

/* They count among the retired from now on. */
void state_retire_vram(struct manager *manager, const struct session_totals *totals)
{
	take_off(&manager->state->live_vram_hits, totals->vram_hits);
	take_off(&manager->state->live_vram_bytes, totals->vram_bytes);
}
