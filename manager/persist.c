/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the descriptor store and what is put under them; see persist.h. */
#include "manager/persist.h"

#include "base/clock.h"
#include "base/log.h"
#include "manager/fence.h"
#include "manager/kv.h"
#include "manager/listener.h"
#include "manager/pool.h"
#include "manager/store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Whatever numbers they have come to, the names of all that one manager stores are one string of the next one's environment. */
_Static_assert(CNRE_SESSIONS_MAX * 4 * sizeof "c4294967295.chan" + CNRE_SEGMENTS_MAX * sizeof "pool4095" +
			       MANAGER_MODELS_MAX * (sizeof "catalog15" + sizeof "directory15") +
			       (STORE_OTHERS_MAX + 5) * KEEP_NAME_BYTES <=
		       KEEP_NAMES_BYTES_MAX,
	       "LISTEN_FDNAMES");

#define LOG_LINES 20u /* in 10 s: what is missing in all stands in the status */

static struct cnre_log_limit log_limit = {.burst = LOG_LINES};

/* No name is ever given to another descriptor here, so what is there stays. A slow store was told of when it became so. */
static int put(struct manager *manager, const char *name, int fd)
{
	int r = fd < 0 || store_has(manager->store, name) ? 0 : store_put(manager->store, name, fd);

	if (r < 0 && r != -ETIMEDOUT && cnre_log_allowed(&log_limit, cnre_clock_now_ns()))
		cnre_log(CNRE_LOG_ERROR,
			 "store: %s: %s: it will not survive a restart; see FileDescriptorStoreMax and LimitNOFILE",
			 name, strerror(-r));
	return r;
}

static int put_numbered(struct manager *manager, const char *what, uint32_t number, int fd)
{
	char name[KEEP_NAME_BYTES];

	(void)snprintf(name, sizeof name, "%s%u", what, number);
	return put(manager, name, fd);
}

/* systemd has its own, from the socket unit. */
void persist_listener(struct manager *manager)
{
	int listen_fd, lock_fd;

	if (store_kind(manager->store) != STORE_KEEPER)
		return;
	listener_descriptors(manager, &listen_fd, &lock_fd);
	(void)put(manager, "lock", lock_fd);
	if (put(manager, "listen", listen_fd) == 0)
		listener_note_path(manager);
}

void persist_new_listener(struct manager *manager)
{
	int listen_fd, lock_fd;

	if (store_kind(manager->store) != STORE_KEEPER)
		return;
	listener_descriptors(manager, &listen_fd, &lock_fd);
	/* Instead of the former ones; a failure is seen as missing. */
	(void)store_put(manager->store, "lock", lock_fd);
	(void)store_put(manager->store, "listen", listen_fd);
	persist_listener(manager);
}

void persist_core(struct manager *manager)
{
	(void)put(manager, "page", manager->page_segment.fd);
	(void)put(manager, "counters", manager->counters_segment.fd);
	(void)put(manager, "state", manager->state_segment.fd);
	for (uint32_t i = 0; i < manager->model_count; i++) {
		(void)put_numbered(manager, "catalog", i, manager->model[i].catalog_segment.fd);
		(void)put_numbered(manager, "directory", i, manager->model[i].directory_segment.fd);
	}
	persist_listener(manager);
}

void persist_segment(struct manager *manager, uint32_t segment, const struct cnre_segment *memory)
{
	(void)put_numbered(manager, "pool", segment, memory->fd);
}

void persist_forget_segment(struct manager *manager, uint32_t segment)
{
	char name[KEEP_NAME_BYTES];

	(void)snprintf(name, sizeof name, "pool%u", segment);
	store_remove(manager->store, name);
}

enum { PART_CHANNEL, PART_LEDGER, PART_SOCKET, PART_PROCESS, PARTS };

static const char *const part_name[PARTS] = {"chan", "led", "sock", "pid"};

static const char *session_name(const struct session *session, unsigned part, char name[KEEP_NAME_BYTES])
{
	(void)snprintf(name, KEEP_NAME_BYTES, "c%u.%s", session->number, part_name[part]);
	return name;
}

static int put_session(struct manager *manager, struct session *session)
{
	const int fds[PARTS] = {session->channel_segment.fd, session->ledger_segment.fd, session->socket.fd,
				session->process.fd};
	char name[KEEP_NAME_BYTES];
	int r = 0;

	for (unsigned part = 0; part < PARTS && r == 0; part++)
		r = put(manager, session_name(session, part, name), fds[part]);
	return r;
}

int persist_session(struct manager *manager, struct session *session)
{
	int r = store_has_room(manager->store, PARTS) ? put_session(manager, session) : -ENOSPC;

	if (r == 0)
		r = store_barrier(manager->store);
	if (r < 0)
		persist_forget_session(manager, session);
	return r;
}

void persist_process(struct manager *manager, struct session *session)
{
	char name[KEEP_NAME_BYTES];

	(void)put(manager, session_name(session, PART_PROCESS, name), session->process.fd);
}

void persist_forget_socket(struct manager *manager, struct session *session)
{
	char name[KEEP_NAME_BYTES];

	store_remove(manager->store, session_name(session, PART_SOCKET, name));
}

void persist_forget_session(struct manager *manager, struct session *session)
{
	char name[KEEP_NAME_BYTES];

	for (unsigned part = 0; part < PARTS; part++)
		store_remove(manager->store, session_name(session, part, name));
}

/*
 * Of an attached client nothing is taken back when the store does not take it: it lives and may hold leases, and a
 * successor that finds its entry but no ledger adopts nothing.
 */
static void put_sessions(struct manager *manager)
{
	for (uint32_t i = 0; i < manager->sessions->active_count; i++)
		(void)put_session(manager, manager->sessions->active[i]); /* logged */
}

void persist_everything(struct manager *manager)
{
	struct pool_status pool;

	persist_core(manager);
	fence_persist(manager);
	pool_get_status(manager->pool, &pool);
	for (uint32_t i = 0; i < pool.segments_made; i++)
		if (pool_segment(manager->pool, i) != NULL)
			persist_segment(manager, i, pool_segment(manager->pool, i));
	put_sessions(manager);
	kv_persist(manager);
}
