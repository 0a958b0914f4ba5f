/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Namespaces: made when the first client opens one, when a folder of files has its name, or taken over from the manager
 * before. They last as long as the manager: what is in one is worth something to who comes next.
 */
#include "manager/kv_inner.h"

#include "base/log.h"
#include "manager/kv_access.h"
#include "manager/peer.h"
#include "manager/session.h"
#include "manager/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(KV_MESSAGE_BYTES == 256u, "as long as an answer of the control plane");
_Static_assert(KV_DISK_FOLDER_BYTES <= CNRE_KV_NAME_BYTES, "every folder can be a namespace");

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* As many blocks as memory and files can hold, within a share of the budget: the index is memory, too. */
static uint32_t entries_for(const struct kv_store *store)
{
	uint64_t budget_bytes = store->budget_bytes, entry_bytes = sizeof(struct cnre_kv_entry), entries, files = 0;

	if (store->blocks_max > 0)
		return store->blocks_max;
	entries = least(budget_bytes / KV_BLOCK_BYTES_LEAST, budget_bytes / KV_INDEX_SHARE / entry_bytes);
	if (store->disk != NULL)
		files = least(store->disk_limit_bytes == 0 ? UINT64_MAX : store->disk_limit_bytes / KV_FILE_BYTES_LEAST,
			      budget_bytes / KV_FILES_SHARE / entry_bytes);
	entries += files;
	if (entries < KV_ENTRIES_MIN)
		return KV_ENTRIES_MIN;
	return (uint32_t)least(entries, KV_ENTRIES_DEFAULT_MAX);
}

static uint32_t power_of_two(uint32_t least)
{
	uint32_t power = 1;

	while (power < least)
		power *= 2;
	return power;
}

static void free_tables(struct kv_namespace *space)
{
	extent_map_done(&space->map);
	free(space->note);
	free(space->unused);
	free(space->doomed);
	free(space->segment);
	free(space);
}

static int allocate_tables(struct kv_namespace *space, uint32_t entries)
{
	space->entry_count = entries;
	space->note = calloc(entries, sizeof *space->note);
	space->unused = calloc(entries, sizeof *space->unused);
	space->doomed = calloc(entries, sizeof *space->doomed);
	space->segment = calloc(CNRE_KV_SEGMENTS_MAX, sizeof *space->segment);
	if (space->note == NULL || space->unused == NULL || space->doomed == NULL || space->segment == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < CNRE_KV_SEGMENTS_MAX; i++)
		space->segment[i].memory.fd = -1;
	return 0;
}

static int allocate(struct kv_store *store, uint32_t number, uint32_t entries, struct kv_namespace **ret_space)
{
	struct kv_namespace *space = calloc(1, sizeof *space);
	int r;

	if (space == NULL)
		return -ENOMEM;
	extent_map_init(&space->map, CNRE_SEGMENT_BYTES_MAX);
	space->store = store;
	space->number = number;
	space->directory_segment.fd = -1;
	r = allocate_tables(space, entries);
	if (r < 0) {
		free_tables(space);
		return r;
	}
	*ret_space = space;
	return 0;
}

static int create_directory(struct kv_namespace *space)
{
	uint32_t buckets = power_of_two(space->entry_count);
	uint64_t bytes = CNRE_KV_DIRECTORY_BYTES(space->entry_count, buckets);
	struct cnre_kv_directory *directory;
	int r = cnre_segment_create(&space->directory_segment, "cnre-kv-directory", bytes, CNRE_BACKING_4K, -1, 0);

	if (r < 0)
		return r;
	directory = space->directory_segment.base;
	cnre_segment_fill_header(&directory->header, CNRE_SEGMENT_KV_DIRECTORY, bytes);
	(void)snprintf(directory->name, sizeof directory->name, "%s", space->name);
	directory->number = space->number;
	directory->entry_count = space->entry_count;
	directory->bucket_count = buckets;
	/* [G2] relaxed: nobody has the segment yet. */
	atomic_store_explicit(&directory->pin_bytes_max, kv_pin_bytes_max(space->store), memory_order_relaxed);
	cnre_kv_index_init(directory);
	cnre_segment_publish(&directory->header);
	return 0;
}

static void use_directory(struct kv_namespace *space)
{
	space->directory = space->directory_segment.base;
	space->entry = cnre_kv_entries(space->directory);
}

static void enter(struct kv_namespace *space)
{
	struct kv_store *store = space->store;

	if (store->disk != NULL && kv_disk_folder(store->disk, space->name, &space->folder) < 0)
		space->folder = NULL;
	store->space[space->number] = space;
	store->space_count++;
}

void kv_namespace_persist(struct kv_namespace *space)
{
	struct store *store = space->store->manager->store;
	char name[KEEP_NAME_BYTES];

	(void)snprintf(name, sizeof name, "kv%u.dir", space->number);
	if (!store_has(store, name))
		(void)store_put(store, name, space->directory_segment.fd); /* else it is told of as missing */
}

static int make(struct kv_store *store, const char *name, uint32_t number, struct kv_namespace **ret_space)
{
	struct kv_namespace *space;
	int r = allocate(store, number, entries_for(store), &space);

	if (r < 0)
		return r;
	(void)snprintf(space->name, sizeof space->name, "%s", name);
	r = create_directory(space);
	if (r < 0) {
		free_tables(space);
		return r;
	}
	use_directory(space);
	for (uint32_t i = space->entry_count; i-- > 0;)
		space->unused[space->unused_count++] = i;
	enter(space);
	kv_namespace_persist(space);
	cnre_log(CNRE_LOG_INFO, "kv: namespace %.95s begins, %u blocks at most", space->name, space->entry_count);
	*ret_space = space;
	return 0;
}

int kv_namespace_named(struct kv_store *store, const char *name, struct kv_namespace **ret_space)
{
	uint32_t number = CNRE_KV_NAMESPACES_MAX;

	for (uint32_t i = CNRE_KV_NAMESPACES_MAX; i-- > 0;) {
		if (store->space[i] == NULL) {
			number = i;
		} else if (strcmp(store->space[i]->name, name) == 0) {
			*ret_space = store->space[i];
			return 0;
		}
	}
	return number == CNRE_KV_NAMESPACES_MAX ? -ENOSPC : make(store, name, number, ret_space);
}

/* One user alone cannot take all places. */
static int is_user_full(const struct kv_store *store, const char *name)
{
	size_t user = strcspn(name, ".");
	uint32_t count = 0;

	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++) {
		const char *other = store->space[i] == NULL ? "" : store->space[i]->name;

		if (strcmp(other, name) == 0)
			return 0;
		count += strncmp(other, name, user) == 0 && (other[user] == '.' || other[user] == '\0');
	}
	return name[0] == 'u' && count >= CNRE_KV_NAMESPACES_MAX / 4;
}

static int is_client_full(const struct session *session, const char *name)
{
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_PER_CLIENT; i++)
		if (session->kv[i] == NULL || strcmp(session->kv[i]->space->name, name) == 0)
			return 0;
	return 1;
}

int kv_namespace_find(struct kv_store *store, const struct session *session, const char *name, struct kv_namespace **ret_space,
		      char message[KV_MESSAGE_BYTES])
{
	const struct peer *peer = &session->peer;
	char full[CNRE_KV_NAME_BYTES];
	int r = kv_access_resolve(store->access, name, peer->uid, peer->gid, peer->socket, full, sizeof full, message);

	if (r < 0)
		return r;
	if (is_client_full(session, full)) {
		(void)snprintf(message, KV_MESSAGE_BYTES, "one client opens %u KV namespaces at most: tell more apart by salt",
			       CNRE_KV_NAMESPACES_PER_CLIENT);
		return -ENOSPC;
	}
	r = is_user_full(store, full) ? -ENOSPC : kv_namespace_named(store, full, ret_space);
	if (r == -ENOSPC)
		(void)snprintf(message, KV_MESSAGE_BYTES, "too many KV namespaces (%u, a quarter of them for one user): use others, and tell them apart by salt",
			       CNRE_KV_NAMESPACES_MAX);
	else if (r < 0)
		(void)snprintf(message, KV_MESSAGE_BYTES, "the manager has no memory for one more KV namespace");
	return r;
}

/* Of a former manager: it is ours, and still not believed where a wrong number would be a wild pointer. */
static int check_adopted(const struct cnre_kv_directory *directory, uint64_t segment_bytes, uint32_t number)
{
	uint32_t entries = directory->entry_count, buckets = directory->bucket_count;

	if (directory->number != number || number >= CNRE_KV_NAMESPACES_MAX || entries == 0 || entries > CNRE_KV_ENTRIES_MAX ||
	    buckets == 0 || buckets > 2 * CNRE_KV_ENTRIES_MAX || (buckets & (buckets - 1)) != 0)
		return -EBADMSG;
	if (memchr(directory->name, '\0', sizeof directory->name) == NULL)
		return -EBADMSG;
	return segment_bytes < CNRE_KV_DIRECTORY_BYTES(entries, buckets) ? -EBADMSG : 0;
}

int kv_namespace_adopt(struct kv_store *store, uint32_t number, int fd)
{
	struct cnre_segment segment;
	struct kv_namespace *space;
	int r = cnre_segment_map(&segment, fd, CNRE_SEGMENT_KV_DIRECTORY, sizeof(struct cnre_kv_directory), 1);

	if (r < 0) {
		(void)close(fd);
		return r;
	}
	segment.fd = fd;
	r = check_adopted(segment.base, segment.bytes, number);
	if (r == 0)
		r = store->space[number] != NULL ? -EBADMSG : 0;
	if (r == 0)
		r = allocate(store, number, ((const struct cnre_kv_directory *)segment.base)->entry_count, &space);
	if (r < 0) {
		cnre_segment_close(&segment);
		return r;
	}
	space->directory_segment = segment;
	use_directory(space);
	(void)snprintf(space->name, sizeof space->name, "%s", space->directory->name);
	/* [G1] relaxed: a dead manager's word. */
	space->segments_made = atomic_load_explicit(&space->directory->segment_count, memory_order_relaxed);
	if (space->segments_made > CNRE_KV_SEGMENTS_MAX)
		space->segments_made = CNRE_KV_SEGMENTS_MAX;
	enter(space);
	return 0;
}

void kv_namespace_close(struct kv_namespace *space)
{
	for (uint32_t i = 0; i < CNRE_KV_SEGMENTS_MAX; i++)
		cnre_segment_close(&space->segment[i].memory);
	cnre_segment_close(&space->directory_segment);
	free_tables(space);
}
