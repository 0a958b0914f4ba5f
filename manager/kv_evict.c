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

/* Nobody had the time to use it yet. */
static int is_young(const struct kv_namespace *space, uint32_t index, int64_t now_ns)
{
	return space->note[index].uses == 0 && space->note[index].young_until_ns > now_ns;
}

/* Of what is not young. */
static double average_uses(const struct kv_namespace *space, int on_disk, int64_t now_ns)
{
	uint32_t count = 0;
	double uses = 0;

	for (uint32_t i = 0; i < space->entry_count; i++) {
		if (!is_candidate(space, i, on_disk) || is_young(space, i, now_ns))
			continue;
		uses += kv_use_count(&space->note[i].use, now_ns);
		count++;
	}
	return count == 0 ? 0 : uses / count;
}

/*
 * A young block counts as the average one: with less than all others have, the next block of its own conversation would push
 * it out, and no new prefix would ever get in.
 */
static double value_of(const struct kv_namespace *space, uint32_t index, double average, int64_t now_ns)
{
	const struct cnre_kv_entry *entry = &space->entry[index];
	struct kv_use use = space->note[index].use;

	if (is_young(space, index, now_ns) && kv_use_count(&use, now_ns) < average)
		use = (struct kv_use){.count = average, .at_ns = now_ns};
	return kv_value(&use, entry->compute_ns, entry->bytes, now_ns);
}

/*
 * Two passes over the entries, which take up to two milliseconds: so what it finds serves the next evictions, too. A leaf below a
 * cheap block is worth less than others by how it came to be used: with its parents, or not at all.
 */
static void keep(struct kv_victims *victims, const struct kv_victim *victim)
{
	uint32_t at = victims->count < KV_VICTIMS ? victims->count++ : KV_VICTIMS - 1;

	for (; at > 0 && victims->victim[at - 1].value > victim->value; at--)
		victims->victim[at] = victims->victim[at - 1];
	victims->victim[at] = *victim;
}

static void look(const struct kv_namespace *space, int on_disk, struct kv_victims *ret_victims)
{
	int64_t now_ns = cnre_clock_now_ns();
	double average = average_uses(space, on_disk, now_ns);

	*ret_victims = (struct kv_victims){.looked_ns = now_ns};
	for (uint32_t i = 0; i < space->entry_count; i++) {
		struct kv_victim victim = {.index = i};

		if (!is_candidate(space, i, on_disk))
			continue;
		victim.value = value_of(space, i, average, now_ns);
		victim.uses = space->note[i].uses;
		victim.id = space->entry[i].id;
		/* Ledgers last: a look at one for each client, at few entries. */
		if ((ret_victims->count < KV_VICTIMS || victim.value < ret_victims->victim[KV_VICTIMS - 1].value) &&
		    !kv_is_leased(space, i))
			keep(ret_victims, &victim);
	}
}

static int is_as_it_was(const struct kv_namespace *space, const struct kv_victim *victim, int on_disk)
{
	return is_candidate(space, victim->index, on_disk) && space->entry[victim->index].id == victim->id &&
	       space->note[victim->index].uses == victim->uses;
}

/* The next of them that can go. */
static uint32_t choose(const struct kv_namespace *space, struct kv_victims *victims, int on_disk)
{
	for (; victims->next < victims->count; victims->next++) {
		const struct kv_victim *victim = &victims->victim[victims->next];
		uint32_t leaf = is_as_it_was(space, victim, on_disk) ? descend(space, victim->index, on_disk) : CNRE_KV_NONE;

		if (leaf != CNRE_KV_NONE)
			return leaf; /* and, if that was another, this one when its children are gone */
	}
	return CNRE_KV_NONE;
}

uint32_t kv_evict_choose(struct kv_namespace *space, int on_disk)
{
	struct kv_victims victims;

	look(space, on_disk, &victims);
	return choose(space, &victims, on_disk);
}

static uint32_t choose_in_memory(struct kv_namespace *space)
{
	uint32_t index = CNRE_KV_NONE;

	if (cnre_clock_now_ns() - space->victims.looked_ns < KV_VICTIMS_NS)
		index = choose(space, &space->victims, 0);
	if (index != CNRE_KV_NONE)
		return index;
	look(space, 0, &space->victims);
	return choose(space, &space->victims, 0);
}

int kv_evict_one(struct kv_namespace *space)
{
	for (uint32_t i = 0; i < KV_VICTIMS; i++) {
		uint32_t index = choose_in_memory(space);

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
	uint64_t allowed = 2 * kv_pin_bytes_max(client->space->store);

	return leased_bytes(client) > allowed && leased_bytes(client) > allowed;
}

static void enforce_in(struct kv_namespace *space)
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
				 client->number, space->name, (unsigned long long)kv_pin_bytes_max(space->store));
		kv_session_end(client, 1);
	}
}

void kv_evict_enforce(struct kv_store *store)
{
	if (!store->is_short)
		return;
	store->is_short = 0;
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
		if (store->space[i] != NULL)
			enforce_in(store->space[i]);
}
