/* SPDX-License-Identifier: Apache-2.0 */
/* Owner marks and the process-wide list of clients; see fork.h. */
#include "client/fork.h"

#include "client/connection.h"
#include "client/vram.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cnre *registry;
static int handlers_installed; /* under registry_lock */

int cnre_owner_open(const _Atomic uint32_t **ret_owner)
{
	_Atomic uint32_t *owner =
		mmap(NULL, CNRE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (owner == MAP_FAILED)
		return -ENOMEM;
	if (madvise((void *)owner, CNRE_PAGE_BYTES, MADV_WIPEONFORK) < 0) {
		(void)munmap((void *)owner, CNRE_PAGE_BYTES);
		return -ENOTSUP;
	}
	/* [O3] relaxed: no other thread knows it yet. */
	atomic_store_explicit(owner, 1, memory_order_relaxed);
	*ret_owner = owner;
	return 0;
}

void cnre_owner_close(const _Atomic uint32_t *owner)
{
	if (owner != NULL)
		(void)munmap((void *)owner, CNRE_PAGE_BYTES);
}

static void before_fork(void)
{
	(void)pthread_mutex_lock(&registry_lock);
}

static void after_fork_in_parent(void)
{
	(void)pthread_mutex_unlock(&registry_lock);
}

/* The child has no session: it keeps the structs, whose every call is -ECHILD, until it detaches or execs. */
static void after_fork_in_child(void)
{
	for (struct cnre *c = registry; c != NULL; c = c->next) {
		cnre_connection_close(c); /* fstat and close: safe here */
		cnre_vram_close_in_child(c);
	}
	registry = NULL;
	(void)pthread_mutex_unlock(&registry_lock);
}

/* Registry lock held. */
static int has_locked(const char *socket_path, const unsigned char *identity, const char *name, const char *view)
{
	for (const struct cnre *c = registry; c != NULL; c = c->next) {
		const struct cnre_catalog *catalog = c->catalog;

		if (c->lingering || strcmp(c->socket_path, socket_path) != 0 ||
		    strncmp(catalog->view, view, sizeof catalog->view) != 0)
			continue;
		if (identity != NULL ? memcmp(catalog->identity, identity, sizeof catalog->identity) == 0
				     : strncmp(catalog->name, name, sizeof catalog->name) == 0)
			return 1;
	}
	return 0;
}

int cnre_registry_has(const char *socket_path, const unsigned char *identity, const char *name, const char *view)
{
	int found;

	(void)pthread_mutex_lock(&registry_lock);
	found = has_locked(socket_path, identity, name, view);
	(void)pthread_mutex_unlock(&registry_lock);
	return found;
}

int cnre_registry_enter(struct cnre *client)
{
	int r = 0;

	(void)pthread_mutex_lock(&registry_lock);
	if (has_locked(client->socket_path, client->catalog->identity, NULL, client->catalog->view))
		r = -EBUSY;
	if (r == 0 && !handlers_installed)
		r = -pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
	if (r == 0) {
		handlers_installed = 1;
		client->next = registry;
		registry = client;
	}
	(void)pthread_mutex_unlock(&registry_lock);
	return r;
}

void cnre_registry_leave(struct cnre *client)
{
	(void)pthread_mutex_lock(&registry_lock);
	for (struct cnre **link = &registry; *link != NULL; link = &(*link)->next)
		if (*link == client) {
			*link = client->next;
			break;
		}
	(void)pthread_mutex_unlock(&registry_lock);
}

void cnre_registry_linger(struct cnre *client)
{
	(void)pthread_mutex_lock(&registry_lock);
	client->lingering = 1;
	(void)pthread_mutex_unlock(&registry_lock);
}
