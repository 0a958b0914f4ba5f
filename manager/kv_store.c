/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, turns and closing of the KV store; see kv.h. */
#include "manager/kv_inner.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/places.h"
#include "base/size.h"
#include "manager/adopt.h"
#include "manager/fence.h"
#include "manager/kv_access.h"
#include "manager/kv_transfer.h"
#include "manager/loop.h"
#include "manager/session.h"
#include "manager/settings.h"
#include "manager/store.h"
#include "model/family.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>

/* ---- opening ---- */

static void disk_finished(struct loop_source *source, uint32_t events)
{
	struct kv_store *store = (struct kv_store *)((char *)source - offsetof(struct kv_store, disk_source));

	(void)events;
	(void)kv_disk_reap(store->disk);
}

static void copier_finished(struct loop_source *source, uint32_t events)
{
	struct kv_store *store = (struct kv_store *)((char *)source - offsetof(struct kv_store, copier_source));

	(void)events;
	(void)worker_reap(store->copier);
}

static int open_copier(struct kv_store *store, char message[KV_MESSAGE_BYTES])
{
	int r = worker_open_background(&store->copier, WORKER_THREADS_MAX);

	if (r == 0) {
		store->copier_source = (struct loop_source){.fd = worker_event_fd(store->copier), .ready = copier_finished};
		r = loop_add(store->manager->loop, &store->copier_source, EPOLLIN);
	}
	if (r < 0)
		(void)snprintf(message, KV_MESSAGE_BYTES, "no threads for KV prefixes: %s: see TasksMax and ulimit -u", strerror(-r));
	return r;
}

static int open_disk(struct kv_store *store, char message[KV_MESSAGE_BYTES])
{
	const struct settings *settings = store->manager->settings;
	int fence = fence_hold_fd(store->manager);
	const struct kv_disk_setup setup = {.directory = settings->kv_dir,
					    .plain = settings->io == SETTINGS_IO_POOL,
					    .held_fd = fence > 0 ? fence : 0};
	char reason[KV_DISK_MESSAGE_BYTES];
	int r;

	if (settings->kv_dir == NULL)
		return 0;
	r = kv_disk_open(&store->disk, &setup, reason);
	if (r < 0) {
		(void)snprintf(message, KV_MESSAGE_BYTES, "--kv-dir %.240s", reason);
		return r;
	}
	store->disk_limit_bytes = settings->kv_disk_bytes;
	store->disk_source = (struct loop_source){.fd = kv_disk_event_fd(store->disk), .ready = disk_finished};
	r = loop_add(store->manager->loop, &store->disk_source, EPOLLIN);
	if (r < 0)
		(void)snprintf(message, KV_MESSAGE_BYTES, "--kv-dir cannot be watched: %s", strerror(-r));
	return r;
}

/* Folders that were left by managers before: who opens their namespace finds what is in them at once. */
static void open_folders(struct kv_store *store)
{
	char **names = NULL;
	int count = store->disk == NULL ? 0 : kv_disk_list_folders(store->disk, &names);

	for (int i = 0; i < count; i++) {
		struct kv_namespace *space;

		if (store->space_count < KV_FOLDERS_AT_START && kv_access_is_name(names[i]))
			(void)kv_namespace_named(store, names[i], &space); /* else when somebody opens it */
		free(names[i]);
	}
	free(names);
}

static void read_settings(struct kv_store *store)
{
	const struct manager *manager = store->manager;

	store->budget_bytes = manager->settings->kv_ram_bytes;
	if (manager->adopted && manager->state->kv_budget_bytes >= KV_RAM_MIN)
		store->budget_bytes = manager->state->kv_budget_bytes; /* `set kv-ram` outlives who was told */
	store->budget_bytes &= ~(uint64_t)(EXTENT_GRAIN - 1);
	store->staging_bytes = cnre_size_align_up(manager->settings->kv_staging_bytes, CNRE_PAGE_BYTES);
	store->blocks_max = manager->settings->kv_blocks;
	store->log_limit.burst = KV_LOG_LINES;
}

/*
 * Clients read them at attach, and those without a directory of their own what the weights are, as of our start. Adopted
 * catalogs say it already.
 */
static int tell_catalog(const struct kv_store *store, const struct served_model *model)
{
	struct cnre_catalog *catalog = model->catalog_segment.base;
	unsigned char digest[CNRE_DIGEST_BYTES];
	int r = store->manager->adopted ? 0 : cnre_places_digest_payload(model->catalog->places, digest);

	catalog->capabilities |= MODEL_CAP_KV_PREFIX | (store->disk != NULL ? MODEL_CAP_KV_PERSISTENCE : 0u);
	if (r == 0 && !store->manager->adopted)
		memcpy(catalog->payload, digest, sizeof catalog->payload);
	return r;
}

static int tell_catalogs(const struct kv_store *store, char message[KV_MESSAGE_BYTES])
{
	for (uint32_t i = 0; i < store->manager->model_count; i++) {
		int r = tell_catalog(store, &store->manager->model[i]);

		if (r < 0) {
			(void)snprintf(message, KV_MESSAGE_BYTES, "the weights of %.100s cannot be identified: %s: check its shards and their permissions",
				       store->manager->model[i].catalog->name, strerror(-r));
			return r;
		}
	}
	return 0;
}

int kv_open(struct manager *manager, char message[KV_MESSAGE_BYTES])
{
	struct kv_store *store;
	int r;

	if (manager->settings == NULL)
		return 0;
	if (kv_settings_unused(manager->settings) != NULL)
		cnre_log(CNRE_LOG_WARNING, "%s", kv_settings_unused(manager->settings));
	if (manager->settings->kv_ram_bytes == 0)
		return 0;
	r = kv_settings_check_ram(manager->settings, message);
	if (r < 0)
		return r;
	store = calloc(1, sizeof *store);
	if (store == NULL) {
		(void)snprintf(message, KV_MESSAGE_BYTES, "out of memory for the KV store: free some");
		return -ENOMEM;
	}
	store->manager = manager;
	store->copier_source.fd = store->disk_source.fd = -1;
	manager->kv = store;
	read_settings(store);
	r = kv_access_open(&store->access, &manager->settings->kv_allow, message);
	if (r == 0)
		r = open_copier(store, message);
	if (r == 0)
		r = open_disk(store, message);
	if (r == 0 && manager->adopted) {
		r = kv_adopt_namespaces(store);
		if (r < 0) {
			adopt_refuse(manager, strerror(-r)); /* else each successor would find the same and fail */
			(void)snprintf(message, KV_MESSAGE_BYTES, "the KV prefixes of the manager before cannot be taken over: %s: the next start begins anew", strerror(-r));
		}
	}
	if (r == 0)
		r = tell_catalogs(store, message);
	if (r < 0)
		return r; /* closed with the manager */
	open_folders(store);
	cnre_counter_set(&manager->counters->kv_budget_bytes, store->budget_bytes);
	return 0;
}

void kv_persist(struct manager *manager)
{
	struct kv_store *store = manager->kv;

	for (uint32_t i = 0; store != NULL && i < CNRE_KV_NAMESPACES_MAX; i++) {
		if (store->space[i] == NULL)
			continue;
		kv_namespace_persist(store->space[i]);
		kv_memory_persist(store->space[i]);
		for (struct kv_session *client = store->space[i]->sessions; client != NULL; client = client->next)
			kv_session_persist(client);
	}
}

/* ---- the turn ---- */

/* One after another begins, so that none is always last. */
static int serve_clients(struct kv_store *store, int is_log_due)
{
	uint32_t words_left = KV_LOG_PER_TURN;
	int busy = 0;

	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++) {
		struct kv_namespace *space = store->space[(store->turn + i) % CNRE_KV_NAMESPACES_MAX];

		for (struct kv_session *client = space == NULL ? NULL : space->sessions, *next; client != NULL; client = next) {
			next = client->next;
			if (is_log_due)
				words_left -= kv_uses_follow(client, words_left < KV_LOG_SHARE ? words_left : KV_LOG_SHARE);
			busy |= kv_publish_serve(client);
		}
	}
	kv_session_drain(store);
	store->turn++;
	store->has_more = words_left == 0;
	if (words_left < KV_LOG_PER_TURN)
		store->log_heard_ns = cnre_clock_now_ns();
	return busy;
}

static void count_levels(const struct kv_store *store)
{
	struct cnre_counters *counters = store->manager->counters;
	uint64_t blocks = 0, bytes = 0;

	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++) {
		if (store->space[i] == NULL)
			continue;
		blocks += store->space[i]->resident_blocks;
		bytes += store->space[i]->resident_bytes;
	}
	cnre_counter_set(&counters->kv_resident_blocks, blocks);
	cnre_counter_set(&counters->kv_resident_bytes, bytes);
}

int kv_turn(struct manager *manager)
{
	struct kv_store *store = manager->kv;
	int64_t now_ns;
	int busy, is_log_due;

	if (store == NULL)
		return 0;
	now_ns = cnre_clock_now_ns();
	is_log_due = now_ns >= store->log_due_ns || store->has_more;
	busy = serve_clients(store, is_log_due);
	if (is_log_due)
		store->log_due_ns = now_ns + (now_ns - store->log_heard_ns < KV_LOG_IDLE_NS ? KV_LOG_EVERY_NS : KV_LOG_IDLE_NS);
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
		if (store->space[i] != NULL)
			kv_files_pump(store->space[i], now_ns);
	if (now_ns >= store->trim_due_ns) {
		store->trim_due_ns = now_ns + KV_TRIM_EVERY_NS;
		kv_evict_enforce(store);
		for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
			if (store->space[i] != NULL)
				kv_entry_sweep(store->space[i]);
		kv_memory_trim(store);
	}
	kv_transfer_turn(store);
	count_levels(store);
	return busy;
}

int kv_any_pending(const struct manager *manager)
{
	const struct kv_store *store = manager->kv;

	for (uint32_t i = 0; store != NULL && i < CNRE_KV_NAMESPACES_MAX; i++) {
		if (store->space[i] == NULL)
			continue;
		for (const struct kv_session *client = store->space[i]->sessions; client != NULL; client = client->next)
			if (cnre_kv_channel_is_pending(client->channel))
				return 1;
	}
	return 0;
}

static int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t deadline_of(const struct kv_namespace *space)
{
	const struct kv_store *store = space->store;
	int64_t deadline_ns = CNRE_NEVER;

	if (space->session_count > 0)
		deadline_ns = store->log_due_ns;
	if (space->doomed_count > 0)
		deadline_ns = earlier(deadline_ns, store->trim_due_ns);
	if (space->folder == NULL)
		return deadline_ns;
	if (!space->scan.is_under_way && space->doomed_files == 0)
		deadline_ns = earlier(deadline_ns, space->scan.next_ns);
	if (space->may_save > 0 && space->saves < KV_SAVES_MAX)
		deadline_ns = 0; /* there is more to look at, now */
	return earlier(deadline_ns, space->save_due_ns);
}

int64_t kv_deadline_ns(const struct manager *manager)
{
	const struct kv_store *store = manager->kv;
	int64_t deadline_ns = CNRE_NEVER;

	if (store == NULL)
		return CNRE_NEVER;
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
		if (store->space[i] != NULL)
			deadline_ns = earlier(deadline_ns, deadline_of(store->space[i]));
	if (kv_memory_has_too_much(store))
		deadline_ns = earlier(deadline_ns, store->trim_due_ns);
	return deadline_ns;
}

/* ---- settings ---- */

uint64_t kv_pin_bytes_max(const struct kv_store *store)
{
	return store->budget_bytes / KV_PIN_SHARE;
}

uint64_t kv_budget_bytes(const struct manager *manager)
{
	return manager->kv == NULL ? 0 : manager->kv->budget_bytes;
}

int kv_set_budget(struct manager *manager, uint64_t bytes)
{
	struct kv_store *store = manager->kv;

	bytes &= ~(uint64_t)(EXTENT_GRAIN - 1);
	if (store == NULL)
		return -ENOTSUP;
	if (bytes < KV_RAM_MIN)
		return -EINVAL;
	store->budget_bytes = bytes;
	manager->state->kv_budget_bytes = bytes;
	cnre_counter_set(&manager->counters->kv_budget_bytes, bytes);
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
		if (store->space[i] != NULL)
			/* [G3] relaxed: a limit that the library keeps within; ours is twice as wide. */
			atomic_store_explicit(&store->space[i]->directory->pin_bytes_max, kv_pin_bytes_max(store),
					      memory_order_relaxed);
	kv_memory_trim(store);
	return kv_memory_has_too_much(store);
}

static uint64_t inherited_bytes(const struct manager *manager)
{
	uint64_t bytes = 0;
	const char *name;

	for (uint32_t i = 0; store_name_at(manager->store, i, &name); i++) {
		unsigned space, segment;
		struct stat status;
		int fd;

		if (sscanf(name, "kv%u.p%u", &space, &segment) != 2)
			continue;
		fd = store_peek(manager->store, name);
		if (fd >= 0 && fstat(fd, &status) == 0)
			bytes += (uint64_t)status.st_size;
	}
	return bytes;
}

uint64_t kv_claim_bytes(const struct manager *manager)
{
	uint64_t budget_bytes = manager->kv == NULL ? manager->settings->kv_ram_bytes : manager->kv->budget_bytes;
	uint64_t held_bytes = manager->kv == NULL ? inherited_bytes(manager) : kv_memory_bytes(manager->kv);

	return held_bytes < budget_bytes ? budget_bytes - held_bytes : 0;
}

/* ---- closing ---- */

#define CLOSE_SLICE_MS 100

/* Waits for a worker or the disk, a slice at most. */
static void wait_some(struct kv_store *store)
{
	struct pollfd ready[] = {{.fd = worker_event_fd(store->copier), .events = POLLIN},
				 {.fd = worker_event_fd(store->manager->writer), .events = POLLIN},
				 {.fd = store->disk == NULL ? -1 : kv_disk_event_fd(store->disk), .events = POLLIN}};

	(void)poll(ready, CNRE_COUNT_OF(ready), CLOSE_SLICE_MS);
	(void)worker_reap(store->copier);
	(void)worker_reap(store->manager->writer);
	if (store->disk != NULL)
		(void)kv_disk_reap(store->disk);
}

static int is_copying(const struct kv_store *store)
{
	int making = 0;

	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
		making |= store->space[i] != NULL && store->space[i]->making.is_under_way;
	return making || store->copies > 0 || store->draining != NULL;
}

/* Copies end by themselves; files only if their drive lets them. */
static void finish(struct kv_store *store)
{
	int64_t end_ns = cnre_clock_deadline_ns(KV_CLOSE_NS);

	while (is_copying(store)) {
		kv_session_drain(store);
		wait_some(store);
	}
	while (kv_transfer_is_at_work(store) && cnre_clock_left_ns(end_ns) > 0)
		wait_some(store); /* a job of the writer, which reads the pool */
	while (store->disk != NULL && kv_files_are_due(store) && cnre_clock_left_ns(end_ns) > 0) {
		for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++) {
			if (store->space[i] == NULL)
				continue;
			kv_entry_sweep(store->space[i]);
			kv_files_pump(store->space[i], cnre_clock_now_ns());
		}
		wait_some(store);
	}
}

void kv_leave(struct manager *manager)
{
	struct kv_store *store = manager->kv;

	if (store == NULL)
		return;
	if (store->copier != NULL)
		finish(store);
	if (store->copier_source.fd >= 0)
		loop_remove(manager->loop, &store->copier_source);
	store->copier_source.fd = -1;
	store->copier = worker_close(store->copier);
	if (store->disk_source.fd >= 0)
		loop_remove(manager->loop, &store->disk_source);
	store->disk_source.fd = -1;
	if (store->disk != NULL && kv_disk_close(store->disk, KV_CLOSE_NS) < 0)
		cnre_log(CNRE_LOG_WARNING, "kv: the drive of --kv-dir does not answer: what was not saved is lost");
	else
		store->disk = NULL;
}

void kv_close(struct manager *manager)
{
	struct kv_store *store = manager->kv;

	kv_leave(manager);
	if (store == NULL || store->disk != NULL || kv_transfer_is_at_work(store))
		return; /* their jobs name this memory */
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
		if (store->space[i] != NULL)
			kv_namespace_close(store->space[i]);
	kv_transfer_close(store);
	store->access = kv_access_close(store->access);
	free(store);
	manager->kv = NULL;
}
