/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking over namespaces from a manager that died. Segments first, then clients, then blocks: nothing is evicted before
 * every ledger is seen (R10). A block that was being read at the death keeps its memory, in which that read may still land
 * (R20), and is found by nobody; when the fence of that incarnation falls, it goes.
 */
#include "manager/kv_inner.h"

#include "base/log.h"
#include "manager/keep_wire.h"
#include "manager/session.h"
#include "manager/store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The next inherited name of the form; 1 and its numbers, or 0. */
static int find_name(const struct store *store, const char *form, char name[KEEP_NAME_BYTES], unsigned *first, unsigned *second)
{
	const char *found;
	int end;

	for (uint32_t i = 0; store_name_at(store, i, &found); i++) {
		end = 0;
		*second = 0;
		(void)snprintf(name, KEEP_NAME_BYTES, "%s", found);
		if (sscanf(name, form, first, second, &end) >= 1 && end > 0 && name[end] == '\0')
			return 1;
	}
	return 0;
}

static int find_directory(const struct store *store, char name[KEEP_NAME_BYTES], unsigned *number)
{
	const char *found;
	int end;

	for (uint32_t i = 0; store_name_at(store, i, &found); i++) {
		end = 0;
		(void)snprintf(name, KEEP_NAME_BYTES, "%s", found);
		if (sscanf(name, "kv%u.dir%n", number, &end) == 1 && end > 0 && name[end] == '\0')
			return 1;
	}
	return 0;
}

int kv_adopt_namespaces(struct kv_store *store)
{
	struct store *kept = store->manager->store;
	char name[KEEP_NAME_BYTES];
	unsigned number, segment;
	int r = 0;

	while (r == 0 && find_directory(kept, name, &number))
		r = kv_namespace_adopt(store, number, store_take(kept, name));
	while (r == 0 && find_name(kept, "kv%u.p%u%n", name, &number, &segment)) {
		int fd = store_take(kept, name);

		if (number < CNRE_KV_NAMESPACES_MAX && store->space[number] != NULL)
			r = kv_memory_adopt(store->space[number], segment, fd);
		else
			(void)close(fd); /* of a namespace that was being made */
	}
	return r;
}

int kv_adopt_session(struct session *session)
{
	struct kv_store *store = session->manager->kv;
	char name[KEEP_NAME_BYTES];
	int r = 0;

	for (uint32_t i = 0; store != NULL && r == 0 && i < CNRE_KV_NAMESPACES_MAX; i++) {
		(void)snprintf(name, sizeof name, "c%u.kv%u.ch", session->number, i);
		if (store->space[i] != NULL && store_peek(session->manager->store, name) >= 0)
			r = kv_session_adopt(session, store->space[i]);
	}
	return r;
}

/* ---- blocks ---- */

static int claim(struct kv_namespace *space, uint32_t index)
{
	uint64_t place = kv_place(&space->entry[index]), bytes = kv_room(space->entry[index].bytes);
	uint32_t segment = cnre_place_segment(place);

	if (segment >= CNRE_KV_SEGMENTS_MAX || !space->segment[segment].is_live)
		return -EBADMSG;
	return extent_claim(&space->map, segment, cnre_place_offset(place), bytes, index);
}

static void doom(struct kv_namespace *space, uint32_t index)
{
	cnre_kv_index_remove(space->directory, index);
	kv_entry_doom(space, index);
}

static int adopt_resident(struct kv_namespace *space, uint32_t index)
{
	struct cnre_kv_entry *entry = &space->entry[index];
	int r = claim(space, index);

	if (r < 0)
		return r;
	space->resident_blocks++;
	space->resident_bytes += kv_room(entry->bytes);
	if (kv_state(entry) != CNRE_STATE_READY)
		kv_entry_set(space, index, CNRE_STATE_READY, CNRE_LOAD_OK, 0); /* killed in the middle of an eviction */
	if (!kv_is_indexed(entry))
		doom(space, index);
	return 0;
}

static int adopt_entry(struct kv_namespace *space, uint32_t index)
{
	struct cnre_kv_entry *entry = &space->entry[index];
	enum cnre_state state = kv_state(entry);

	if (state == (enum cnre_state)CNRE_KV_STATE_FREE) {
		space->unused[space->unused_count++] = index;
		return 0;
	}
	if (entry->token_count == 0 || entry->token_count > CNRE_KV_TOKENS_MAX || entry->bytes == 0)
		return -EBADMSG;
	if (kv_is_on_disk(entry)) {
		space->disk_blocks++;
		space->disk_bytes += KV_BLOCK_HEADER_BYTES + entry->bytes;
	}
	if (space->folder == NULL)
		kv_set_on_disk(space, index, 0); /* started without --kv-dir: nobody could read it */
	if (state == CNRE_STATE_LOADING) {
		if (kv_is_indexed(entry))
			kv_set_on_disk(space, index, 0); /* the file is good and found again; else it goes with the block */
		doom(space, index);
		return claim(space, index);
	}
	if (state != CNRE_STATE_ABSENT && kv_place(entry) != KV_NO_PLACE)
		return adopt_resident(space, index);
	if (state != CNRE_STATE_ABSENT)
		kv_entry_set(space, index, CNRE_STATE_ABSENT, CNRE_LOAD_OK, 0);
	if (!kv_is_indexed(entry) || !kv_is_on_disk(entry))
		doom(space, index);
	return 0;
}

static int adopt_space(struct kv_namespace *space)
{
	(void)cnre_kv_index_rebuild(space->directory);
	for (uint32_t i = space->entry_count; i-- > 0;) {
		int r = adopt_entry(space, i);

		if (r < 0)
			return r;
	}
	kv_files_new(space);
	return 0;
}

int kv_adopt_blocks(struct manager *manager)
{
	struct kv_store *store = manager->kv;
	uint32_t blocks = 0;
	int r = 0;

	for (uint32_t i = 0; store != NULL && r == 0 && i < CNRE_KV_NAMESPACES_MAX; i++) {
		if (store->space[i] == NULL)
			continue;
		r = adopt_space(store->space[i]);
		blocks += store->space[i]->resident_blocks;
	}
	if (r == 0 && blocks > 0)
		cnre_log(CNRE_LOG_NOTICE, "adopted: %u KV blocks in %u namespaces", blocks, store->space_count);
	return r;
}

void kv_fence_fell(struct manager *manager, uint32_t epoch)
{
	struct kv_store *store = manager->kv;

	for (uint32_t s = 0; store != NULL && s < CNRE_KV_NAMESPACES_MAX; s++) {
		struct kv_namespace *space = store->space[s];

		for (uint32_t i = 0; space != NULL && i < space->doomed_count; i++) {
			uint32_t index = space->doomed[i];

			if (kv_state(&space->entry[index]) != CNRE_STATE_LOADING || kv_loader_epoch(&space->entry[index]) != epoch)
				continue;
			kv_memory_give(space, kv_place(&space->entry[index]));
			kv_entry_absent(space, index);
		}
	}
}
