/* SPDX-License-Identifier: Apache-2.0 */
/* Who goes from a device; nothing is copied back, since what lies there is a copy. */
#include "manager/vram_inner.h"

#include "manager/object.h"
#include "manager/probe.h"
#include "shm/ledger.h"
#include "shm/word.h"

#include <errno.h>

/*
 * R1, as residency_evict, on the ledgers of this model and device: those of clients that ended count until no kernel of theirs
 * can run any more. A lease is given back only after the stream that reads passed that point, so nobody reads the place when
 * the next upload writes there.
 * Crash note: none is needed, since entry, ledger and memory end with this process (R29).
 */
int vram_evict(struct vram_device *device, uint32_t owner)
{
	struct vram *vram = device->vram;
	struct vram_table *table = vram_table_of(device, owner);
	struct cnre_entry *entry = vram_entry_of(device, owner);
	uint32_t object = owner - table->model->first_owner, word = object_word(entry), generation = cnre_word_generation(word);

	if (cnre_word_state(word) != CNRE_STATE_READY)
		return -EBUSY;
	if (vram_any_lease(table, object)) {
		device->is_blocked = 1;
		return -EBUSY;
	}
	cnre_ledger_store_evicting(entry, cnre_word_pack(generation, CNRE_LOAD_OK, CNRE_STATE_EVICTING));
	if (vram_any_lease(table, object)) {
		object_settle(entry, generation, CNRE_LOAD_OK, CNRE_STATE_READY);
		device->refused++;
		device->is_blocked = 1;
		return -EBUSY;
	}
	object_settle(entry, generation + 1, CNRE_LOAD_OK, CNRE_STATE_ABSENT);
	vram_arena_give(device, object_place(entry));
	tier_removed(vram->tier, owner);
	probe_migrate(vram->manager, owner, PROBE_TIER_VRAM, vram_is_in_ram(vram->manager, owner) ? PROBE_TIER_RAM : PROBE_TIER_ABSENT, 0);
	device->evictions++;
	cnre_counter_add(&vram->manager->counters->vram_evictions, 1);
	vram_count(vram);
	return 0;
}

/* ---- damaged ones ---- */

static int is_gone(struct vram *vram, uint32_t owner)
{
	uint32_t number = tier_device_of(vram->tier, owner);

	return number == TIER_NO_DEVICE || vram_evict(&vram->device[number], owner) == 0;
}

void vram_evict_suspects(struct vram *vram)
{
	for (uint32_t i = vram->suspect_count; i-- > 0;)
		if (is_gone(vram, vram->suspect[i]))
			vram->suspect[i] = vram->suspect[--vram->suspect_count];
}

/* Where as many are held already, the scrub comes by this one again. */
void vram_suspect(struct manager *manager, uint32_t owner)
{
	struct vram *vram = manager->vram;

	if (vram == NULL || vram->tier == NULL || is_gone(vram, owner) || vram->suspect_count == VRAM_SUSPECTS_MAX)
		return;
	vram->suspect[vram->suspect_count++] = owner;
}
