/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the descriptor store and what is put under them; see persist.h. */
#include "manager/persist.h"

#include "base/log.h"
#include "manager/fence.h"
#include "manager/listener.h"
#include "manager/pool.h"
#include "manager/store.h"

#include <stdio.h>
#include <string.h>

static int put(struct manager *manager, const char *name, int fd)
{
	int r = fd < 0 ? 0 : store_put(manager->store, name, fd);

	if (r < 0)
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

void persist_core(struct manager *manager)
{
	int listen_fd, lock_fd;

	listener_descriptors(manager, &listen_fd, &lock_fd);
	(void)put(manager, "page", manager->page_segment.fd);
	(void)put(manager, "counters", manager->counters_segment.fd);
	(void)put(manager, "state", manager->state_segment.fd);
	for (uint32_t i = 0; i < manager->model_count; i++) {
		(void)put_numbered(manager, "catalog", i, manager->model[i].catalog_segment.fd);
		(void)put_numbered(manager, "directory", i, manager->model[i].directory_segment.fd);
	}
	if (store_kind(manager->store) == STORE_KEEPER) { /* systemd has its own, from the socket unit */
		(void)put(manager, "listen", listen_fd);
		(void)put(manager, "lock", lock_fd);
	}
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

/* Parts of a session, each a bit in `stored`: what is removed is what was put, so that the store's count stays true. */
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

	for (unsigned part = 0; part < PARTS; part++) {
		int r = fds[part] < 0 ? 0 : put(manager, session_name(session, part, name), fds[part]);

		if (r < 0)
			return r;
		session->stored |= fds[part] < 0 ? 0 : 1u << part;
	}
	return 0;
}

int persist_session(struct manager *manager, struct session *session)
{
	int r = put_session(manager, session);

	if (r == 0)
		r = store_barrier(manager->store);
	if (r < 0)
		persist_forget_session(manager, session);
	return r;
}

void persist_inherited(struct session *session)
{
	session->stored = 1u << PART_CHANNEL | 1u << PART_LEDGER | (session->peer.socket < 0 ? 0 : 1u << PART_SOCKET) |
			  (session->peer.pidfd < 0 ? 0 : 1u << PART_PROCESS);
}

static void forget_part(struct manager *manager, struct session *session, unsigned part)
{
	char name[KEEP_NAME_BYTES];

	if ((session->stored & 1u << part) != 0)
		store_remove(manager->store, session_name(session, part, name));
	session->stored &= ~(1u << part);
}

void persist_forget_socket(struct manager *manager, struct session *session)
{
	forget_part(manager, session, PART_SOCKET);
}

void persist_forget_session(struct manager *manager, struct session *session)
{
	for (unsigned part = 0; part < PARTS; part++)
		forget_part(manager, session, part);
}

/*
 * Of an attached client nothing is taken back when the new keeper does not take it: it lives and may hold leases, and a
 * successor that finds its entry but no ledger adopts nothing. One failure is enough: each may have taken a second.
 */
static int put_sessions(struct manager *manager)
{
	int r = 0;

	for (uint32_t i = 0; i < manager->sessions->active_count && r == 0; i++) {
		manager->sessions->active[i]->stored = 0; /* by the former keeper */
		r = put_session(manager, manager->sessions->active[i]);
	}
	return r;
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
	(void)put_sessions(manager); /* logged */
}
