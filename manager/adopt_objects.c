/* SPDX-License-Identifier: Apache-2.0 */
/* After a restart: every object as the dead manager left it. */
#include "manager/residency_inner.h"

#include "manager/fence.h"

static int adopt_resident(struct manager *manager, uint32_t owner)
{
	int r = pool_claim(manager->pool, object_place(entry_of(manager, owner)), slab_bytes_of(manager, owner), owner);

	if (r < 0)
		return r;
	object_charge(manager, owner);
	policy_add(manager->residency->policy, owner);
	object_count(manager, owner, 1);
	layer_count_of(manager, owner)->adopted++;
	return 0;
}

/*
 * R21: the slab is in quarantine, in the state segment, before its entry changes. Crash note: killed between the two,
 * the entry is LOADING and its slab quarantined; the next adoption finds both and only changes the entry.
 */
static int adopt_loading(struct manager *manager, uint32_t owner)
{
	struct cnre_entry *entry = entry_of(manager, owner);
	uint64_t place = object_place(entry), bytes = slab_bytes_of(manager, owner);
	int r = 0;

	if (!fence_has(manager, place)) {
		r = pool_claim(manager->pool, place, bytes, FENCE_OWNER);
		if (r == 0)
			r = fence_quarantine(manager, place, bytes, manager->state->serving_epoch);
	}
	if (r == 0)
		object_settle(entry, cnre_word_generation(object_word(entry)), CNRE_LOAD_OK, CNRE_STATE_ABSENT);
	return r;
}

static int adopt_evicting(struct manager *manager, uint32_t owner)
{
	struct cnre_entry *entry = entry_of(manager, owner);
	uint32_t generation = cnre_word_generation(object_word(entry));

	if (!is_leased(manager, owner)) {
		object_settle(entry, generation + 1, CNRE_LOAD_OK, CNRE_STATE_ABSENT);
		cnre_counter_add(&manager->counters->evictions, 1);
		cnre_counter_add(&manager->counters->bytes_evicted, slab_bytes_of(manager, owner));
		return 0;
	}
	object_settle(entry, generation, CNRE_LOAD_OK, CNRE_STATE_READY);
	return adopt_resident(manager, owner);
}

/*
 * A load is counted before its READY and an eviction after its ABSENT: whoever was killed in between had counted as loaded
 * what is not resident. It counts as evicted, so that loaded - evicted is what is resident, in bytes and in experts.
 */
static void balance(struct manager *manager)
{
	struct cnre_counters *counters = manager->counters;
	uint64_t loaded_bytes = cnre_counter_get(&counters->bytes_loaded), used_bytes = manager->residency->used_bytes;
	uint64_t admitted = cnre_counter_get(&counters->loads), resident = cnre_counter_get(&counters->resident_objects);

	if (loaded_bytes >= used_bytes && loaded_bytes - used_bytes > cnre_counter_get(&counters->bytes_evicted))
		cnre_counter_set(&counters->bytes_evicted, loaded_bytes - used_bytes);
	cnre_counter_set(&counters->admissions, admitted); /* whoever was killed between the two, or knew only one of them */
	if (admitted >= resident && admitted - resident > cnre_counter_get(&counters->evictions))
		cnre_counter_set(&counters->evictions, admitted - resident);
}

int residency_adopt(struct manager *manager)
{
	int r = 0;

	for (uint32_t owner = 0; owner < manager->owner_count && r == 0; owner++) {
		switch (cnre_word_state(object_word(entry_of(manager, owner)))) {
		case CNRE_STATE_READY:
			r = adopt_resident(manager, owner);
			break;
		case CNRE_STATE_LOADING:
			r = adopt_loading(manager, owner);
			break;
		case CNRE_STATE_EVICTING:
			r = adopt_evicting(manager, owner);
			break;
		default:
			break;
		}
	}
	if (r == 0) {
		balance(manager);
		layer_counts_adopted(manager);
	}
	return r;
}
