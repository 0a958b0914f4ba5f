/* SPDX-License-Identifier: Apache-2.0 */
/* A new keeper for one that died; see guard.h. */
#include "manager/guard.h"

#include "base/clock.h"
#include "base/log.h"
#include "manager/keeper.h"
#include "manager/loop.h"
#include "manager/persist.h"
#include "manager/store.h"

#include <errno.h>
#include <sys/epoll.h>

static struct guard {
	struct loop_source source; /* first; our end of the socket to the keeper */
	struct manager *manager;
	uint32_t restarts;
	int64_t next_look_ns;
} guard = {.source = {.fd = -1}};

static void keeper_ended(struct loop_source *source, uint32_t events)
{
	struct keeper_link link = {-1, -1};
	struct manager *manager = guard.manager;
	int r;

	if ((events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) == 0)
		return;
	loop_remove(manager->loop, source);
	source->fd = -1;
	if (manager->stopping)
		return;
	r = guard.restarts++ < GUARD_RESTARTS_MAX ? keeper_start(manager->argv, &link) : -EAGAIN;
	store_use(manager->store, &link);
	if (r < 0) {
		cnre_log(
			CNRE_LOG_ERROR,
			"the keeper ended and cannot be started again: this manager's death would now end its clients' sessions");
		return;
	}
	cnre_log(CNRE_LOG_WARNING, "the keeper ended: started another one");
	source->fd = link.socket;
	persist_everything(manager);
	(void)loop_add(manager->loop, source, EPOLLRDHUP);
}

int guard_open(struct manager *manager)
{
	int fd = store_keeper_socket(manager->store);

	guard = (struct guard){.source = {.fd = fd, .ready = keeper_ended}, .manager = manager};
	return fd < 0 ? 0 : loop_add(manager->loop, &guard.source, EPOLLRDHUP);
}

void guard_close(struct manager *manager)
{
	if (guard.source.fd >= 0)
		loop_remove(manager->loop, &guard.source);
	guard.source.fd = -1;
}

static int is_slow(const struct manager *manager)
{
	struct store_status status;

	store_get_status(manager->store, &status);
	return status.is_slow;
}

void guard_tick(struct manager *manager, int64_t now_ns)
{
	if (!is_slow(manager) || now_ns < guard.next_look_ns)
		return;
	guard.next_look_ns = now_ns + GUARD_LOOK_NS;
	if (!store_answers_again(manager->store))
		return;
	cnre_log(CNRE_LOG_NOTICE, "store: it answers again, and gets what it missed");
	persist_everything(manager);
}

int64_t guard_deadline_ns(const struct manager *manager)
{
	return is_slow(manager) ? guard.next_look_ns : CNRE_NEVER;
}
