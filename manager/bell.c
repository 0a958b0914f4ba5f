/* SPDX-License-Identifier: Apache-2.0 */
/* Doorbells over the ring's futex operations, or over threads (bell_thread.c); see bell.h. */
#include "manager/bell.h"

#include "manager/bell_thread.h"
#include "manager/loader.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>

#define OPERATION_FUTEX_WAIT 51u /* IORING_OP_FUTEX_WAIT, Linux 6.7; liburing 2.3 has no name for it */
#define FUTEX2_SIZE_U32_FLAG 0x02
#define MATCH_ANY 0xffffffffull

struct bell {
	struct manager *manager;
	struct io_uring *ring; /* NULL: threads */
	struct bell_threads *threads;
};

/* User data of a bell: session number in the high half, slot above the lowest bit, which is 1 for the core's own. Slot
 * CNRE_SESSIONS_MAX and more never occurs, so the loop's own poll (1: slot 0 of session 0) cannot be taken for one. */
static uint64_t user_data_of(const struct session *session)
{
	return (uint64_t)session->number << 32 | (uint64_t)session->slot << 1 | 1;
}

/* Whether this kernel has the operation: tried for real, with a value that differs, so that it ends at once. */
static int ring_has_futex(struct io_uring *ring)
{
	struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
	int has = probe != NULL && probe->last_op >= OPERATION_FUTEX_WAIT &&
		  (probe->ops[OPERATION_FUTEX_WAIT].flags & IO_URING_OP_SUPPORTED) != 0;

	io_uring_free_probe(probe);
	return has;
}

int bell_open(struct manager *manager, struct bell **ret_bell)
{
	struct bell *bell = calloc(1, sizeof *bell);
	int r;

	if (bell == NULL)
		return -ENOMEM;
	bell->manager = manager;
	bell->ring = loader_ring(manager->loader);
	if (bell->ring != NULL && (getenv("CNRE_TEST_NO_RING_FUTEX") != NULL || !ring_has_futex(bell->ring)))
		bell->ring = NULL;
	if (bell->ring == NULL) {
		r = bell_threads_open(&bell->threads, manager->loop);
		if (r < 0) {
			free(bell);
			return r;
		}
	}
	*ret_bell = bell;
	return 0;
}

struct bell *bell_close(struct bell *bell)
{
	if (bell != NULL) {
		bell_threads_close(bell->threads);
		free(bell);
	}
	return NULL;
}

const char *bell_way(const struct bell *bell)
{
	return bell->ring != NULL ? "io_uring" : bell_threads_way(bell->threads);
}

int bell_add(struct bell *bell, struct session *session)
{
	session->bell_armed = 0;
	if (bell->threads != NULL)
		return bell_threads_add(bell->threads, session->slot, &session->channel->bell);
	return 0;
}

static void cancel(struct io_uring *ring, const struct session *session)
{
	struct io_uring_sqe *entry = io_uring_get_sqe(ring);

	if (entry == NULL) {
		(void)io_uring_submit(ring);
		entry = io_uring_get_sqe(ring);
	}
	if (entry == NULL)
		return; /* the wait then stays in the ring until the manager ends; its user data is known to nobody */
	io_uring_prep_cancel64(entry, user_data_of(session), 0);
	io_uring_sqe_set_data64(entry, UINT64_MAX);
}

void bell_remove(struct bell *bell, struct session *session)
{
	if (bell->threads != NULL)
		bell_threads_remove(bell->threads, session->slot);
	else if (session->bell_armed)
		cancel(bell->ring, session);
	session->bell_armed = 0;
}

static void arm(struct io_uring *ring, struct session *session)
{
	struct io_uring_sqe *entry = io_uring_get_sqe(ring);
	/* [B1] relaxed: any value is right: a ring after this load changes it, and the kernel then does not sleep. */
	uint32_t value = atomic_load_explicit(&session->channel->bell, memory_order_relaxed);

	if (entry == NULL) {
		(void)io_uring_submit(ring);
		entry = io_uring_get_sqe(ring);
		if (entry == NULL)
			return;
	}
	memset(entry, 0, sizeof *entry);
	entry->opcode = OPERATION_FUTEX_WAIT;
	entry->fd = FUTEX2_SIZE_U32_FLAG;
	entry->addr = (uint64_t)(uintptr_t)&session->channel->bell;
	entry->off = value;
	((uint64_t *)entry)[6] = MATCH_ANY; /* addr3, which this header does not name */
	io_uring_sqe_set_data64(entry, user_data_of(session));
	session->bell_armed = 1;
}

int bell_prepare(struct bell *bell)
{
	struct session_table *table = bell->manager->sessions;
	int all = 1;

	for (uint32_t i = 0; bell->ring != NULL && i < table->active_count; i++) {
		if (!table->active[i]->bell_armed)
			arm(bell->ring, table->active[i]);
		all &= table->active[i]->bell_armed;
	}
	/* [B3] relaxed: ordered by [B2]. */
	atomic_store_explicit(&bell->manager->page->awake, 0, memory_order_relaxed);
	/* [B2] seq_cst fence, pairs with [Q7]: a post that our last look misses finds awake = 0 and rings. */
	atomic_thread_fence(memory_order_seq_cst);
	return all;
}

void bell_awake(struct bell *bell)
{
	/* [B4] relaxed: a client that still sees 0 rings once too often. */
	atomic_store_explicit(&bell->manager->page->awake, 1, memory_order_relaxed);
}

void bell_ring_fired(struct bell *bell, uint64_t user_data, int result)
{
	uint32_t slot = (uint32_t)(user_data & 0xffffffff) >> 1;
	struct session *session;

	(void)result; /* woken, value differed or cancelled: in each case the channel is looked at and the bell armed again */
	if (slot >= CNRE_SESSIONS_MAX)
		return;
	session = bell->manager->sessions->by_slot[slot];
	if (session != NULL && session->number == user_data >> 32)
		session->bell_armed = 0;
}
