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

static const char *session_name(const struct session *session, const char *what, char name[KEEP_NAME_BYTES])
{
	(void)snprintf(name, KEEP_NAME_BYTES, "c%u.%s", session->number, what);
	return name;
}

int persist_session(struct manager *manager, const struct session *session)
{
	char name[KEEP_NAME_BYTES];
	int r = put(manager, session_name(session, "chan", name), session->channel_segment.fd);

	if (r == 0)
		r = put(manager, session_name(session, "led", name), session->ledger_segment.fd);
	if (r == 0)
		r = put(manager, session_name(session, "sock", name), session->socket.fd);
	if (r == 0)
		r = put(manager, session_name(session, "pid", name), session->process.fd);
	if (r == 0)
		r = store_barrier(manager->store);
	if (r < 0)
		persist_forget_session(manager, session);
	return r;
}

void persist_forget_socket(struct manager *manager, const struct session *session)
{
	char name[KEEP_NAME_BYTES];

	store_remove(manager->store, session_name(session, "sock", name));
}

void persist_forget_session(struct manager *manager, const struct session *session)
{
	static const char *const parts[] = {"chan", "led", "sock", "pid"};
	char name[KEEP_NAME_BYTES];

	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		store_remove(manager->store, session_name(session, parts[i], name));
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
	for (uint32_t i = 0; i < manager->sessions->active_count; i++)
		(void)persist_session(manager, manager->sessions->active[i]);
}
