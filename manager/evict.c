/* SPDX-License-Identifier: Apache-2.0 */
/* Who goes, and a slab for who comes: eviction by the policy's order, within what may be resident. */
#include "manager/residency_inner.h"

#include "base/crash.h"
#include "manager/fence.h"
#include "manager/probe.h"
#include "shm/ledger.h"

#include <errno.h>

/*
 * R1: first the ledgers without touching the state, so that hot leased objects stay READY; then EVICTING, all ledgers
 * again in one step of this thread, and ABSENT with a new generation or READY again.
 * Crash note: killed after EVICTING: no reader starts on it; adoption scans and decides. Killed after ABSENT: sleepers
 * miss their wake; adoption wakes every word.
 */
int residency_evict(void *context, uint32_t owner)
{
	struct manager *manager = context;
	struct cnre_entry *entry = entry_of(manager, owner);
	uint32_t word = object_word(entry), generation = cnre_word_generation(word);

	if (cnre_word_state(word) != CNRE_STATE_READY || is_pinned(manager, owner) || is_leased(manager, owner))
		return -EBUSY;
	cnre_ledger_store_evicting(entry, cnre_word_pack(generation, CNRE_LOAD_OK, CNRE_STATE_EVICTING));
	CNRE_CRASH_POINT("evict-evicting");
	if (is_leased(manager, owner)) {
		object_settle(entry, generation, CNRE_LOAD_OK, CNRE_STATE_READY);
		cnre_counter_add(&manager->counters->evictions_refused, 1);
		return -EBUSY;
	}
	object_settle(entry, generation + 1, CNRE_LOAD_OK, CNRE_STATE_ABSENT);
	CNRE_CRASH_POINT("evict-absent");
	policy_remove(manager->residency->policy, owner);
	object_judge_prefetch(manager, owner, PREFETCH_WASTED);
	object_discharge(manager, owner);
	object_count(manager, owner, -1);
	pool_give(manager->pool, object_place(entry));
	CNRE_CRASH_POINT("evict-given");
	cnre_counter_add(&manager->counters->evictions, 1);
	cnre_counter_add(&manager->counters->bytes_evicted, slab_bytes_of(manager, owner));
	layer_count_of(manager, owner)->evictions++;
	layer_count_of(manager, owner)->bytes_evicted += slab_bytes_of(manager, owner);
	probe_evict(manager, owner);
	return 0;
}

int residency_is_busy(void *context, uint32_t owner)
{
	struct manager *manager = context;

	if (owner == FENCE_OWNER)
		return 1; /* late reads may land in it */
	return cnre_word_state(object_word(entry_of(manager, owner))) != CNRE_STATE_READY ||
	       is_pinned(manager, owner) || is_leased(manager, owner);
}

static uint64_t held_to_bytes(const struct residency *residency)
{
	uint64_t least_bytes = UINT64_MAX;

	for (int who = 0; who < RESIDENCY_HOLDS; who++)
		if (residency->held_to_bytes[who] < least_bytes)
			least_bytes = residency->held_to_bytes[who];
	return least_bytes;
}

uint64_t evict_target_bytes(const struct manager *manager)
{
	const struct residency *residency = manager->residency;
	struct pool_status status;
	uint64_t promised_bytes, held_bytes = held_to_bytes(residency);

	if (held_bytes >= residency->budget_bytes)
		return residency->budget_bytes;
	pool_get_status(manager->pool, &status);
	promised_bytes = status.guaranteed * manager->window_bytes;
	if (promised_bytes >= residency->budget_bytes)
		return residency->budget_bytes;
	return held_bytes > promised_bytes ? held_bytes : promised_bytes;
}

/* Whether there is room for it without anybody going. */
static int has_room(const struct manager *manager, uint32_t owner, uint64_t bytes)
{
	const struct residency *residency = manager->residency;

	return residency->used_bytes + bytes <= evict_target_bytes(manager) && !policy_must_replace(residency->policy, owner);
}

int evict_pays(struct manager *manager, uint32_t owner)
{
	struct policy *policy = manager->residency->policy;
	uint32_t victim;

	if (has_room(manager, owner, slab_bytes_of(manager, owner)))
		return 1;
	policy_seek(policy, owner);
	for (uint32_t tries = 0; tries < RESIDENCY_VICTIM_TRIES && (victim = policy_next(policy)) != POLICY_NONE; tries++)
		if (!residency_is_busy(manager, victim))
			return policy_prefers(policy, owner, victim, 0);
	return 0;
}

/* Evicts the first of the policy's victims for an object that can go. 0, or -EBUSY: all are leased or on their way. */
static int evict_first(struct manager *manager, uint32_t object)
{
	struct policy *policy = manager->residency->policy;
	uint32_t owner;

	policy_seek(policy, object);
	while ((owner = policy_next(policy)) != POLICY_NONE)
		if (residency_evict(manager, owner) == 0)
			return 0;
	return -EBUSY;
}

/*
 * Makes room for an object, or (POLICY_NONE) for a smaller budget. Where its pool has nobody who can go, anybody goes:
 * what R15 promises to clients is more than a policy's wish.
 */
static int evict_one(struct manager *manager, uint32_t object)
{
	int r = evict_first(manager, object);

	return r == 0 || object == POLICY_NONE ? r : evict_first(manager, POLICY_NONE);
}

int evict_down_to(struct manager *manager, uint64_t bytes, uint32_t object)
{
	while (manager->residency->used_bytes > bytes)
		if (evict_one(manager, object) < 0)
			return -EBUSY;
	return 0;
}

int evict_find_room(struct manager *manager, uint32_t owner)
{
	const struct residency *residency = manager->residency;
	uint64_t place, bytes = slab_bytes_of(manager, owner);
	int r;

	if (residency->used_bytes + bytes > evict_target_bytes(manager))
		return -ENOSPC;
	if (policy_must_replace(residency->policy, owner))
		return -EBUSY;
	r = pool_take(manager->pool, bytes, owner, &place); /* the next one of so many bytes gets the same place */
	if (r < 0)
		return -ENOSPC;
	pool_give(manager->pool, place);
	return 0;
}

int evict_take_slab(struct manager *manager, uint32_t owner, uint64_t *ret_place)
{
	uint64_t bytes = slab_bytes_of(manager, owner), target = evict_target_bytes(manager);

	if (policy_must_replace(manager->residency->policy, owner))
		(void)evict_first(manager,
				  owner); /* a layer whose objects are all leased is over its capacity for a while */
	if (bytes > target || evict_down_to(manager, target - bytes, owner) < 0)
		return -ENOSPC;
	for (uint32_t tries = 0; tries < RESIDENCY_VICTIM_TRIES; tries++) {
		if (pool_take(manager->pool, bytes, owner, ret_place) == 0)
			return 0;
		if (evict_one(manager, owner) < 0)
			break;
	}
	if (pool_make_room(manager->pool, bytes) < 0)
		return -ENOSPC;
	return pool_take(manager->pool, bytes, owner, ret_place);
}
