/* SPDX-License-Identifier: Apache-2.0 */
/* One object's entry in its directory, of which this process is the only writer, and what it counts for. */
#include "manager/residency_inner.h"

#include "base/crash.h"
#include "shm/futex.h"

uint32_t object_word(const struct cnre_entry *entry)
{
	/* [D1] relaxed: the core thread is the only writer, so this is its own last store. */
	return atomic_load_explicit(&entry->state, memory_order_relaxed);
}

uint64_t object_place(const struct cnre_entry *entry)
{
	/* [D10] relaxed: only this thread writes it. */
	return atomic_load_explicit(&entry->place, memory_order_relaxed);
}

uint32_t object_starter(const struct cnre_entry *entry)
{
	/* [D11] relaxed: only this thread writes it. */
	return atomic_load_explicit(&entry->starter, memory_order_relaxed);
}

void object_settle(struct cnre_entry *entry, uint32_t generation, enum cnre_load_error error, enum cnre_state state)
{
	/* [D2] release, pairs with [L2] in shm/ledger.h: READY carries the bytes of the slab, its place and the load's statistics. */
	atomic_store_explicit(&entry->state, cnre_word_pack(generation, error, state), memory_order_release);
	CNRE_CRASH_POINT("state-stored");
	(void)cnre_futex_wake_all(&entry->state);
}

void object_mark_loading(struct cnre_entry *entry, uint64_t place, uint32_t starter)
{
	/* [D3] relaxed: carried to readers by READY ([D2]). */
	atomic_store_explicit(&entry->starter, starter, memory_order_relaxed);
	/* [D4] relaxed: as [D3]; a reader uses a place only after it saw READY under its own lease. */
	atomic_store_explicit(&entry->place, place, memory_order_relaxed);
	CNRE_CRASH_POINT("load-placed");
	/* [D5] release, pairs with [L2] in shm/ledger.h: after a restart LOADING implies a valid place. */
	atomic_store_explicit(
		&entry->state,
		cnre_word_pack(cnre_word_generation(object_word(entry)), CNRE_LOAD_OK, CNRE_STATE_LOADING),
		memory_order_release);
}

void object_note_attempt(struct cnre_entry *entry, const struct load *load, int64_t ended_ns)
{
	/* [D6] relaxed: only this thread writes it. */
	uint32_t sequence = atomic_load_explicit(&entry->load_sequence, memory_order_relaxed);

	/* [D7] relaxed: carried by [D2]. */
	atomic_store_explicit(&entry->load_sequence, sequence + 1, memory_order_relaxed);
	/* [D8] relaxed: as [D7]. */
	atomic_store_explicit(&entry->read_bytes, (uint32_t)load->bytes_read, memory_order_relaxed);
	/* [D9] relaxed: as [D7]. */
	atomic_store_explicit(&entry->service_ns, (uint64_t)(ended_ns - load->begun_ns), memory_order_relaxed);
}

void object_fail(struct manager *manager, uint32_t owner, enum cnre_load_error error)
{
	struct cnre_entry *entry = entry_of(manager, owner);

	cnre_counter_add(&manager->counters->load_errors, 1);
	layer_count_of(manager, owner)->load_errors++;
	object_settle(entry, cnre_word_generation(object_word(entry)) + 1, error, CNRE_STATE_ABSENT);
}

void object_charge(struct manager *manager, uint32_t owner)
{
	struct residency *residency = manager->residency;

	residency->used_bytes += slab_bytes_of(manager, owner);
	cnre_counter_set(&manager->counters->resident_bytes, residency->used_bytes);
	cnre_counter_set(&manager->page->resident_bytes, residency->used_bytes);
}

void object_discharge(struct manager *manager, uint32_t owner)
{
	struct residency *residency = manager->residency;
	uint64_t bytes = slab_bytes_of(manager, owner);

	CNRE_CHECK(residency->used_bytes >= bytes);
	residency->used_bytes -= bytes;
	cnre_counter_set(&manager->counters->resident_bytes, residency->used_bytes);
	cnre_counter_set(&manager->page->resident_bytes, residency->used_bytes);
}

void object_count(struct manager *manager, uint32_t owner, int change)
{
	struct residency *residency = manager->residency;
	_Atomic uint64_t *objects = &manager->counters->resident_objects;

	layer_count_of(manager, owner)->resident += (uint64_t)(int64_t)change;
	residency->resident_of_model[model_of(manager, owner)->number] += (uint32_t)change;
	residency->bytes_of_model[model_of(manager, owner)->number] += slab_bytes_of(manager, owner) * (uint64_t)(int64_t)change;
	cnre_counter_set(objects, cnre_counter_get(objects) + (uint64_t)(int64_t)change);
}

void object_prefetch(struct manager *manager, uint32_t owner)
{
	struct cnre_counters *counters = manager->counters;

	manager->residency->prefetched[owner] = 1;
	cnre_counter_add(&counters->prefetches_issued, 1);
	cnre_counter_add(&counters->prefetches_unused, 1);
	layer_count_of(manager, owner)->prefetches++;
}

void object_judge_prefetch(struct manager *manager, uint32_t owner, enum prefetch_end end)
{
	struct cnre_counters *counters = manager->counters;
	_Atomic uint64_t *const ended[] = {
		[PREFETCH_USED] = &counters->prefetches_used,
		[PREFETCH_LATE] = &counters->prefetches_late,
		[PREFETCH_WASTED] = &counters->prefetches_wasted,
		[PREFETCH_FAILED] = &counters->prefetches_failed,
	};

	if (!manager->residency->prefetched[owner])
		return;
	manager->residency->prefetched[owner] = 0;
	cnre_counter_add(ended[end], 1);
	layer_count_of(manager, owner)->prefetches_ended[end]++;
	cnre_counter_set(&counters->prefetches_unused, cnre_counter_get(&counters->prefetches_unused) - 1);
}

void object_reject(struct manager *manager, uint32_t owner)
{
	cnre_counter_add(&manager->counters->rejections, 1);
	layer_count_of(manager, owner)->rejections++;
}
