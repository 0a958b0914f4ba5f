/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which block goes: the one whose value (kvstore/value.h) is least, leaves first, since a block without its parent is found
 * by nobody. What is leased, or being written or read, stays.
 */
#include "manager/kv_inner.h"

#include "base/clock.h"
#include "base/log.h"
#include "manager/session.h"
#include "shm/ledger.h"

#include <errno.h>
#include <string.h>

/* With a file, or in memory: whichever is asked for, and not in use by ourselves. */
static int is_candidate(const struct kv_namespace *space, uint32_t index, int on_disk)
{
	const struct cnre_kv_entry *entry = &space->entry[index];

	if (!kv_is_indexed(entry) || space->note[index].doing != 0)
		return 0;
	return on_disk ? kv_is_on_disk(entry) : kv_state(entry) == CNRE_STATE_READY;
}

/* Whether it would be missed: where memory is given back and a file stays, only children in memory count. */
static int is_in_the_way(const struct kv_namespace *space, uint32_t child, int on_disk)
{
	enum cnre_state state = kv_state(&space->entry[child]);

	return on_disk ? kv_is_on_disk(&space->entry[child]) : state == CNRE_STATE_READY || state == CNRE_STATE_LOADING;
}

static uint32_t child_in_the_way(const struct kv_namespace *space, uint32_t index, int on_disk)
{
	uint32_t child = CNRE_KV_NONE;

	do
		child = cnre_kv_index_child(space->directory, space->entry[index].key, child);
	while (child != CNRE_KV_NONE && !is_in_the_way(space, child, on_disk));
	return child;
}

/* From a block down to one without children. CNRE_KV_NONE: that one cannot go, or the way is too long. */
static uint32_t descend(const struct kv_namespace *space, uint32_t index, int on_disk)
{
	for (uint32_t i = 0; i < KV_DESCENTS_MAX; i++) {
		uint32_t child = child_in_the_way(space, index, on_disk);

		if (child == CNRE_KV_NONE)
			return is_candidate(space, index, on_disk) && !kv_is_leased(space, index) ? index : CNRE_KV_NONE;
		index = child;
	}
	return CNRE_KV_NONE;
}

static double value_of(const struct kv_namespace *space, uint32_t index, int64_t now_ns)
{
	const struct cnre_kv_entry *entry = &space->entry[index];

	return kv_value(&space->note[index].use, entry->compute_ns, entry->bytes, now_ns);
}

/*
 * One pass over the entries. A leaf below a cheap block is worth less than others by how it came to be used: with its
 * parents, or not at all. The least valuable candidates are tried in turn, since the first may be leased.
 */
#define TRIED 16u

struct best {
	uint32_t index[TRIED];
	double value[TRIED];
	uint32_t count;
};

static void keep(struct best *best, uint32_t index, double value)
{
	uint32_t at = best->count < TRIED ? best->count++ : TRIED - 1;

	while (at > 0 && best->value[at - 1] > value) {
		best->value[at] = best->value[at - 1];
		best->index[at] = best->index[at - 1];
		at--;
	}
	best->value[at] = value;
	best->index[at] = index;
}

uint32_t kv_evict_choose(struct kv_namespace *space, int on_disk)
{
	int64_t now_ns = cnre_clock_now_ns();
	struct best best = {.count = 0};

	for (uint32_t i = 0; i < space->entry_count; i++) {
		double value;

		if (!is_candidate(space, i, on_disk))
			continue;
		value = value_of(space, i, now_ns);
		/* Ledgers last: a look at one for each client, at few entries. */
		if ((best.count < TRIED || value < best.value[TRIED - 1]) && !kv_is_leased(space, i))
			keep(&best, i, value);
	}
	for (uint32_t i = 0; i < best.count; i++) {
		uint32_t leaf = descend(space, best.index[i], on_disk);

		if (leaf != CNRE_KV_NONE)
			return leaf;
	}
	return CNRE_KV_NONE;
}

int kv_evict_one(struct kv_namespace *space)
{
	for (uint32_t i = 0; i < TRIED; i++) {
		uint32_t index = kv_evict_choose(space, 0);

		if (index == CNRE_KV_NONE)
			return -ENOSPC;
		if (kv_entry_evict(space, index) == 0)
			return 0; /* else somebody leased it just now */
	}
	return -ENOSPC;
}

/* ---- who holds more than may be held ---- */

static uint64_t leased_bytes(const struct kv_session *client)
{
	const struct kv_namespace *space = client->space;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < space->entry_count; i++) {
		int is_held = CNRE_LEDGER_LEASES(cnre_ledger_scan(&client->ledger[i])) > 0;

		bytes += is_held && kv_state(&space->entry[i]) != (enum cnre_state)CNRE_KV_STATE_FREE ?
				 kv_room(space->entry[i].bytes) :
				 0;
	}
	return bytes;
}

/* The library holds less than pin_bytes_max and one block at any time, however its threads interleave. */
static int is_in_breach(const struct kv_session *client)
{
	uint64_t allowed = 2 * client->space->directory->pin_bytes_max;

	return leased_bytes(client) > allowed && leased_bytes(client) > allowed;
}

void kv_evict_enforce(struct kv_namespace *space)
{
	struct kv_session *next;

	for (struct kv_session *client = space->sessions; client != NULL; client = next) {
		next = client->next;
		if (!is_in_breach(client))
			continue;
		space->tally.breaches++;
		if (cnre_log_allowed(&space->store->log_limit, cnre_clock_now_ns()))
			cnre_log(CNRE_LOG_WARNING,
				 "kv: session %u leases more of %.64s than it may (%llu bytes): its leases there no longer count",
				 client->number, space->name, (unsigned long long)space->directory->pin_bytes_max);
		kv_session_end(client, 1);
	}
}
