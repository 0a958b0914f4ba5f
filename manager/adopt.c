/* SPDX-License-Identifier: Apache-2.0 */
/* Adoption of a dead incarnation's world; see adopt.h. Sessions are rebuilt in session.c, objects in adopt_objects.c. */
#include "manager/adopt.h"

#include "base/log.h"
#include "manager/fence.h"
#include "manager/kv.h"
#include "manager/pool.h"
#include "manager/residency.h"
#include "manager/session.h"
#include "manager/store.h"
#include "model/view.h"
#include "shm/futex.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- before anything is mapped ---- */

uint64_t adopt_pool_bytes(struct manager *manager)
{
	uint64_t bytes = 0;
	const char *name;

	for (uint32_t i = 0; store_name_at(manager->store, i, &name); i++) {
		unsigned number;
		struct stat status;
		int fd;

		if (sscanf(name, "pool%u", &number) != 1)
			continue;
		fd = store_peek(manager->store, name);
		if (fd >= 0 && fstat(fd, &status) == 0)
			bytes += (uint64_t)status.st_size;
	}
	return bytes;
}

/* ---- segments ---- */

static int take_segment(struct manager *manager, const char *name, enum cnre_segment_kind kind, uint64_t min_bytes,
			struct cnre_segment *ret_segment)
{
	int fd = store_take(manager->store, name), r;

	if (fd < 0)
		return fd;
	r = cnre_segment_map(ret_segment, fd, kind, min_bytes, 1);
	if (r < 0) {
		(void)close(fd);
		return r;
	}
	ret_segment->fd = fd;
	return 0;
}

static int take_numbered(struct manager *manager, const char *what, uint32_t number, enum cnre_segment_kind kind,
			 uint64_t min_bytes, struct cnre_segment *ret_segment)
{
	char name[KEEP_NAME_BYTES];

	(void)snprintf(name, sizeof name, "%s%u", what, number);
	return take_segment(manager, name, kind, min_bytes, ret_segment);
}

/* The bytes of residents lie as the view of that version says; empty and 0: as in the checkpoint. */
static int is_same_view(const struct cnre_catalog *catalog, const struct model_view *view)
{
	return strncmp(catalog->view, view != NULL ? view->name : "", sizeof catalog->view) == 0 &&
	       catalog->view_version == (view != NULL ? view->version : 0);
}

/* The checkpoint may have been replaced meanwhile: then the residents are another model's. */
static int is_same_model(const struct served_model *model)
{
	const struct cnre_catalog *catalog = model->catalog_segment.base;

	return is_same_view(catalog, model->catalog->view) && memcmp(catalog->identity, model->catalog->fingerprint.identity, sizeof catalog->identity) == 0 &&
	       catalog->object_count == model->catalog->object_count &&
	       catalog->slab_bytes_max == model->catalog->slab_bytes_max &&
	       model->directory->object_count == model->catalog->object_count;
}

static int take_model(struct manager *manager, struct served_model *model)
{
	uint64_t directory_bytes =
		sizeof(struct cnre_directory) + (uint64_t)model->catalog->object_count * sizeof(struct cnre_entry);
	int r = take_numbered(manager, "catalog", model->number, CNRE_SEGMENT_CATALOG, sizeof(struct cnre_catalog),
			      &model->catalog_segment);

	if (r == 0)
		r = take_numbered(manager, "directory", model->number, CNRE_SEGMENT_DIRECTORY, directory_bytes,
				  &model->directory_segment);
	if (r < 0)
		return r;
	model->directory = model->directory_segment.base;
	return is_same_model(model) ? 0 : -ESTALE;
}

static int take_own(struct manager *manager)
{
	int r = take_segment(manager, "page", CNRE_SEGMENT_PAGE, sizeof(struct cnre_page), &manager->page_segment);

	if (r == 0)
		r = take_segment(manager, "counters", CNRE_SEGMENT_COUNTERS, sizeof(struct cnre_counters),
				 &manager->counters_segment);
	if (r == 0)
		r = take_segment(manager, "state", CNRE_SEGMENT_STATE, sizeof(struct cnre_state_table),
				 &manager->state_segment);
	if (r < 0)
		return r;
	manager->page = manager->page_segment.base;
	manager->counters = manager->counters_segment.base;
	manager->state = manager->state_segment.base;
	return manager->state->model_count == manager->model_count ? 0 : -ESTALE;
}

static void give_up(struct manager *manager)
{
	static const struct cnre_segment none = {.fd = -1};

	for (uint32_t i = 0; i < manager->model_count; i++) {
		cnre_segment_close(&manager->model[i].catalog_segment);
		cnre_segment_close(&manager->model[i].directory_segment);
		manager->model[i].catalog_segment = manager->model[i].directory_segment = none;
		manager->model[i].directory = NULL;
	}
	cnre_segment_close(&manager->page_segment);
	cnre_segment_close(&manager->counters_segment);
	cnre_segment_close(&manager->state_segment);
	manager->page_segment = manager->counters_segment = manager->state_segment = none;
}

int adopt_segments(struct manager *manager)
{
	int r = take_own(manager);

	if (r == -ENOENT)
		return 0;
	for (uint32_t i = 0; i < manager->model_count && r == 0; i++)
		r = take_model(manager, &manager->model[i]);
	if (r == 0) {
		manager->state->epoch++;
		return 1;
	}
	cnre_log(
		CNRE_LOG_WARNING,
		"adopt: what the former manager left does not fit (%s): starting anew; its clients keep what they hold and attach again",
		r == -ESTALE ? "other models or views" : strerror(-r));
	give_up(manager);
	store_drop_inherited(manager->store);
	return 0;
}

int adopt_pool(struct manager *manager)
{
	char name[KEEP_NAME_BYTES];
	const char *found;
	uint32_t index = 0;

	while (store_name_at(manager->store, index, &found)) {
		struct cnre_segment memory;
		unsigned number;
		int r;

		(void)snprintf(name, sizeof name, "%s", found);
		if (sscanf(name, "pool%u", &number) != 1) {
			index++;
			continue;
		}
		r = take_segment(manager, name, 0, CNRE_PAGE_BYTES, &memory);
		if (r < 0)
			return r;
		r = pool_adopt_segment(manager->pool, number, &memory);
		if (r < 0) {
			cnre_segment_close(&memory);
			return r;
		}
	}
	return 0;
}

/* ---- clients and objects ---- */

static int claim_quarantines(struct manager *manager)
{
	for (uint32_t i = 0; i < CNRE_QUARANTINES_MAX; i++) {
		const struct cnre_state_quarantine *slab = &manager->state->quarantine[i];
		int r;

		/* [H1] relaxed: written by a dead process; nobody else writes it. */
		if (atomic_load_explicit(&slab->fence, memory_order_relaxed) == 0)
			continue;
		r = pool_claim(manager->pool, slab->place, slab->bytes, FENCE_OWNER);
		if (r < 0)
			return r;
	}
	return 0;
}

static uint32_t session_in(const struct manager *manager, uint32_t slot)
{
	/* [H2] relaxed: as [H1]; the number says that the rest of the entry is there. */
	return atomic_load_explicit(&manager->state->session[slot].session, memory_order_relaxed);
}

/* An entry that session_adopt failed for and left is of a client that may hold leases which no scan would see. */
static int adopt_sessions(struct manager *manager)
{
	for (uint32_t slot = 0; slot < CNRE_SESSIONS_MAX; slot++) {
		uint32_t number = session_in(manager, slot);
		int r = number == 0 ? 0 : session_adopt(manager, slot), is_dropped = session_in(manager, slot) == 0;

		if (r < 0)
			cnre_log(CNRE_LOG_WARNING, "adopt: session %u: %s: %s", number, strerror(-r),
				 is_dropped ? "it is ended" : "its leases cannot be seen");
		if (r < 0 && !is_dropped)
			return r;
	}
	return 0;
}

/* Everybody looks again: the dead manager may have died between a store and its wake (R6). */
static void announce(struct manager *manager)
{
	/* [H4] relaxed: a client that sees the new epoch only posts again; requests and states have their own order. */
	atomic_store_explicit(&manager->page->epoch, manager->state->epoch, memory_order_relaxed);
	(void)cnre_futex_wake_all(&manager->page->epoch);
	for (uint32_t m = 0; m < manager->model_count; m++)
		for (uint32_t i = 0; i < manager->model[m].directory->object_count; i++)
			(void)cnre_futex_wake_all(&manager->model[m].directory->entry[i].state);
}

int adopt_clients_and_objects(struct manager *manager)
{
	int r = claim_quarantines(manager);

	if (r < 0)
		return r;
	r = adopt_sessions(manager);
	if (r == 0)
		r = residency_adopt(manager);
	if (r == 0)
		r = kv_adopt_blocks(manager);
	if (r < 0)
		return r;
	session_adopt_requests(manager);
	announce(manager);
	cnre_log(CNRE_LOG_NOTICE, "adopted: incarnation %u, %u clients, %llu experts resident, %u slabs in quarantine",
		 manager->state->epoch, manager->sessions->active_count,
		 (unsigned long long)cnre_counter_get(&manager->counters->resident_objects),
		 fence_quarantined(manager));
	fence_tell_unwatched(manager);
	return 0;
}

void adopt_refuse(struct manager *manager, const char *why)
{
	cnre_log(CNRE_LOG_ERROR, "adopt: %s: what the former manager left cannot be trusted: the next one starts anew",
		 why);
	store_drop_inherited(manager->store);
	(void)store_barrier(manager->store);
}
