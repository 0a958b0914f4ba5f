/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who gives memory to whom. Nothing is taken from a namespace that would have less than who gets it, so no segment goes to
 * and fro; users divide the budget before namespaces do, or one who opens many would have it all; and what nobody has open
 * gives first to who has nothing.
 */
#include "manager/kv_inner.h"

#include <string.h>

/* Segments that are not being given back already, and wait for leases to end. */
static int is_open(const struct kv_segment *segment)
{
	return segment->is_live && !segment->is_closing;
}

uint32_t kv_share_segment(const struct kv_namespace *space)
{
	for (uint32_t i = space->segments_made; i-- > 0;)
		if (is_open(&space->segment[i]))
			return i;
	return CNRE_KV_NONE;
}

uint64_t kv_share_bytes(const struct kv_namespace *space)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < space->segments_made; i++)
		bytes += is_open(&space->segment[i]) ? space->segment[i].memory.bytes : 0;
	return bytes;
}

static uint32_t count_open(const struct kv_namespace *space)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < space->segments_made; i++)
		count += is_open(&space->segment[i]) != 0;
	return count;
}

struct kv_namespace *kv_share_largest(const struct kv_store *store)
{
	struct kv_namespace *found = NULL;
	uint64_t most = 0;

	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++) {
		uint64_t bytes = store->space[i] == NULL ? 0 : kv_share_bytes(store->space[i]);

		if (bytes > most)
			found = store->space[i];
		most = bytes > most ? bytes : most;
	}
	return found;
}

/* Whose a namespace is says its name, up to the dot; each shared one is its own. */
static int is_same_owner(const struct kv_namespace *a, const struct kv_namespace *b)
{
	size_t n = strcspn(a->name, ".");

	if (a->name[0] != 'u')
		return a == b;
	return strncmp(a->name, b->name, n) == 0 && (b->name[n] == '.' || b->name[n] == '\0');
}

static uint64_t owner_bytes(const struct kv_namespace *space)
{
	const struct kv_store *store = space->store;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
		if (store->space[i] != NULL && is_same_owner(space, store->space[i]))
			bytes += kv_share_bytes(store->space[i]);
	return bytes;
}

/* The largest namespace of the owner with most. */
static struct kv_namespace *richest(const struct kv_store *store)
{
	struct kv_namespace *found = NULL;
	uint64_t most = 0;

	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++) {
		struct kv_namespace *space = store->space[i];
		uint64_t bytes = space == NULL || kv_share_bytes(space) == 0 ? 0 : owner_bytes(space);

		if (bytes > most || (bytes == most && bytes > 0 && kv_share_bytes(space) > kv_share_bytes(found)))
			found = space;
		most = bytes > most ? bytes : most;
	}
	return found;
}

/* The only segment of one that nobody has open, or one of several. */
static struct kv_namespace *spare(const struct kv_store *store)
{
	struct kv_namespace *found = NULL;

	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++) {
		struct kv_namespace *space = store->space[i];
		uint32_t segments = space == NULL ? 0 : count_open(space);

		if (segments == 0 || (space->session_count > 0 && segments == 1))
			continue;
		if (found == NULL || (space->session_count == 0) > (found->session_count == 0) ||
		    ((space->session_count == 0) == (found->session_count == 0) &&
		     kv_share_bytes(space) > kv_share_bytes(found)))
			found = space;
	}
	return found;
}

static uint64_t last_bytes(const struct kv_namespace *space)
{
	return space->segment[kv_share_segment(space)].memory.bytes;
}

/* Who gets it has no more than who gives it, afterwards: so it does not come back. */
static int is_fair(const struct kv_namespace *from, const struct kv_namespace *to)
{
	uint64_t bytes = last_bytes(from), from_bytes = owner_bytes(from);

	return from_bytes >= bytes && from_bytes - bytes >= owner_bytes(to) + bytes;
}

struct kv_namespace *kv_share_giver(const struct kv_namespace *space)
{
	const struct kv_store *store = space->store;
	uint64_t share = store->budget_bytes / store->space_count;
	struct kv_namespace *other = kv_share_largest(store);

	if (other == NULL)
		return NULL;
	if (space->pool_bytes < share && other != space && kv_share_bytes(other) > share &&
	    kv_share_bytes(other) - last_bytes(other) >= share / 2)
		return other;
	if (space->pool_bytes == 0)
		return spare(store);
	other = richest(store);
	return other != NULL && !is_same_owner(space, other) && is_fair(other, space) ? other : NULL;
}
