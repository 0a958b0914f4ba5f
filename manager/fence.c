/* SPDX-License-Identifier: Apache-2.0 */
/* Fences of this and of dead incarnations; see fence.h. */
#include "manager/fence.h"

#include "base/log.h"
#include "manager/kv.h"
#include "manager/loader.h"
#include "manager/loop.h"
#include "manager/pool.h"
#include "manager/reservation.h"
#include "manager/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define FENCES_MAX 32u /* dead incarnations whose reads may still land */

struct fence {
	struct loop_source source; /* first; .fd < 0: free */
	struct manager *manager;
	uint32_t epoch;
};

struct fences {
	int own_read, own_write; /* -1: none */
	uint32_t quarantined;
	struct fence dead[FENCES_MAX];
};

static const char *name_of(uint32_t epoch, char name[KEEP_NAME_BYTES])
{
	(void)snprintf(name, KEEP_NAME_BYTES, "fence%u", epoch);
	return name;
}

/* [F1] and [F2]: no other process reads the table while we live; a successor maps it after our death. */
static uint32_t fence_of(const struct cnre_state_quarantine *slab)
{
	/* [F1] relaxed: our own word. */
	return atomic_load_explicit(&slab->fence, memory_order_relaxed);
}

static void set_fence(struct cnre_state_quarantine *slab, uint32_t epoch)
{
	__asm__ volatile("" ::: "memory"); /* the rest of the entry stays on its side of this store */
	/* [F2] relaxed: the kernel keeps our stores in program order for whoever maps the segment next. */
	atomic_store_explicit(&slab->fence, epoch, memory_order_relaxed);
	__asm__ volatile("" ::: "memory");
}

/* The last read of a dead incarnation has landed: its slabs are ordinary room again. */
static void release(struct manager *manager, uint32_t epoch)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < CNRE_QUARANTINES_MAX; i++) {
		struct cnre_state_quarantine *slab = &manager->state->quarantine[i];

		if (fence_of(slab) != epoch)
			continue;
		pool_give(manager->pool, slab->place);
		set_fence(slab, 0);
		manager->fences->quarantined--;
		count++;
	}
	cnre_log(CNRE_LOG_INFO, "fence: no read of incarnation %u is on its way any more; %u slabs are free again",
		 epoch, count);
	reservation_apply(manager);
	kv_fence_fell(manager, epoch);
}

int fence_hold_fd(const struct manager *manager)
{
	return manager->fences == NULL ? -1 : manager->fences->own_write;
}

static void fence_fell(struct loop_source *source, uint32_t events)
{
	struct fence *fence = (struct fence *)source;
	char name[KEEP_NAME_BYTES];

	(void)events;
	loop_remove(fence->manager->loop, source);
	(void)close(source->fd);
	source->fd = -1;
	/* Crash note: killed between the two, the next incarnation finds a fence that fell and nothing behind it. */
	release(fence->manager, fence->epoch);
	store_remove(fence->manager->store, name_of(fence->epoch, name));
}

static int watch_dead(struct manager *manager, uint32_t epoch, int fd)
{
	for (uint32_t i = 0; i < FENCES_MAX; i++) {
		struct fence *fence = &manager->fences->dead[i];
		int r;

		if (fence->source.fd >= 0)
			continue;
		*fence = (struct fence){.source = {.fd = fd, .ready = fence_fell}, .manager = manager, .epoch = epoch};
		r = loop_add(manager->loop, &fence->source, 0); /* EPOLLHUP is always told */
		if (r < 0)
			fence->source.fd = -1; /* the caller closes it */
		return r;
	}
	return -ENOSPC;
}

static int watch_inherited(struct manager *manager)
{
	const char *found;
	uint32_t index = 0;

	while (store_name_at(manager->store, index, &found)) {
		char name[KEEP_NAME_BYTES];
		unsigned epoch;
		int fd, r;

		(void)snprintf(name, sizeof name, "%s", found);
		if (sscanf(name, "fence%u", &epoch) != 1) {
			index++;
			continue;
		}
		fd = store_take(manager->store, name);
		r = watch_dead(manager, epoch, fd);
		if (r < 0) {
			(void)close(fd); /* its slabs then stay quarantined: safe, and said */
			cnre_log(CNRE_LOG_WARNING,
				 "fence: cannot watch incarnation %u: %s: its slabs stay in quarantine", epoch,
				 strerror(-r));
		}
	}
	return 0;
}

/* Without it a successor waits for no fence, and what this incarnation was reading stays in quarantine: safe. */
static void put(struct manager *manager, uint32_t epoch, int fd)
{
	char name[KEEP_NAME_BYTES];
	int r = store_has(manager->store, name_of(epoch, name)) ? 0 : store_put(manager->store, name, fd);

	if (r < 0)
		cnre_log(CNRE_LOG_WARNING, "fence: cannot be stored: %s: see LimitNOFILE", strerror(-r));
}

static int open_own(struct manager *manager)
{
	int fds[2], r;

	if (store_kind(manager->store) == STORE_NONE)
		return 0; /* nobody comes after us */
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	manager->fences->own_read = fds[0];
	manager->fences->own_write = fds[1];
	r = loader_hold(manager->loader, fds[1]);
	if (r == 0) {
		put(manager, manager->state->epoch, fds[0]);
		return 0;
	}
	cnre_log(
		CNRE_LOG_WARNING,
		"fence: the ring holds no files (%s): slabs that are being read when this manager is killed stay in quarantine; raise LimitMEMLOCK",
		strerror(-r));
	(void)close(fds[0]);
	manager->fences->own_read = -1;
	return 0;
}

int fence_open(struct manager *manager)
{
	struct fences *fences = calloc(1, sizeof *fences);

	if (fences == NULL)
		return -ENOMEM;
	fences->own_read = fences->own_write = -1;
	for (uint32_t i = 0; i < FENCES_MAX; i++)
		fences->dead[i].source.fd = -1;
	for (uint32_t i = 0; i < CNRE_QUARANTINES_MAX; i++)
		fences->quarantined += fence_of(&manager->state->quarantine[i]) != 0;
	manager->fences = fences;
	(void)watch_inherited(manager);
	return open_own(manager);
}

void fence_close(struct manager *manager)
{
	struct fences *fences = manager->fences;

	if (fences == NULL)
		return;
	for (uint32_t i = 0; i < FENCES_MAX; i++) {
		if (fences->dead[i].source.fd < 0)
			continue;
		loop_remove(manager->loop, &fences->dead[i].source);
		(void)close(fences->dead[i].source.fd);
	}
	if (fences->own_read >= 0)
		(void)close(fences->own_read);
	if (fences->own_write >= 0)
		(void)close(fences->own_write);
	free(fences);
	manager->fences = NULL;
}

static int enter(struct manager *manager, uint64_t place, uint64_t bytes, uint32_t epoch)
{
	for (uint32_t i = 0; i < CNRE_QUARANTINES_MAX; i++) {
		struct cnre_state_quarantine *slab = &manager->state->quarantine[i];

		if (fence_of(slab) != 0)
			continue;
		slab->place = place;
		slab->bytes = bytes;
		set_fence(slab, epoch);
		return 0;
	}
	return -ENOSPC;
}

int fence_quarantine(struct manager *manager, uint64_t place, uint64_t bytes, uint32_t epoch)
{
	int r = enter(manager, place, bytes, epoch);

	if (r == 0 && manager->fences != NULL)
		manager->fences->quarantined++;
	return r;
}

int fence_remember(struct manager *manager, uint64_t place, uint64_t bytes)
{
	return enter(manager, place, bytes, manager->state->epoch);
}

void fence_forget(struct manager *manager, uint64_t place)
{
	for (uint32_t i = 0; i < CNRE_QUARANTINES_MAX; i++) {
		struct cnre_state_quarantine *slab = &manager->state->quarantine[i];

		if (fence_of(slab) == manager->state->epoch && slab->place == place)
			set_fence(slab, 0);
	}
}

int fence_has(const struct manager *manager, uint64_t place)
{
	for (uint32_t i = 0; i < CNRE_QUARANTINES_MAX; i++)
		if (fence_of(&manager->state->quarantine[i]) != 0 && manager->state->quarantine[i].place == place)
			return 1;
	return 0;
}

void fence_persist(struct manager *manager)
{
	if (manager->fences->own_read >= 0)
		put(manager, manager->state->epoch, manager->fences->own_read);
	for (uint32_t i = 0; i < FENCES_MAX; i++)
		if (manager->fences->dead[i].source.fd >= 0)
			put(manager, manager->fences->dead[i].epoch, manager->fences->dead[i].source.fd);
}

static int is_watched(const struct manager *manager, uint32_t epoch)
{
	for (uint32_t i = 0; i < FENCES_MAX; i++)
		if (manager->fences->dead[i].source.fd >= 0 && manager->fences->dead[i].epoch == epoch)
			return 1;
	return 0;
}

void fence_tell_unwatched(const struct manager *manager)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < CNRE_QUARANTINES_MAX; i++) {
		uint32_t epoch = fence_of(&manager->state->quarantine[i]);

		count += epoch != 0 && !is_watched(manager, epoch);
	}
	if (count > 0)
		cnre_log(
			CNRE_LOG_WARNING,
			"fence: %u slabs stay in quarantine as long as their clients' world lasts: no fence says when the last read of "
			"their manager has landed",
			count);
}

uint32_t fence_quarantined(const struct manager *manager)
{
	return manager->fences != NULL ? manager->fences->quarantined : 0;
}
