/* SPDX-License-Identifier: Apache-2.0 */
/* A fence that the store does not take: said, safe, and stored when there is room. Late reads: test_system_late_dma.c. */
#include "manager/fence.h"

#include "manager/keeper.h"
#include "manager/loader.h"
#include "manager/loop.h"
#include "manager/store.h"
#include "tests/support/child.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(manager_fence, .timeout = 30);

static struct cnre_state_table table;
static struct manager manager = {.state = &table};

/* A store of one descriptor: a keeper with this limit can hand over no more. */
static int open_store_of_one(void)
{
	struct rlimit limit = {195, 195};
	int pair[2];

	(void)unsetenv("NOTIFY_SOCKET");
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0 || store_open(&manager.store) < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	store_use(manager.store, &(struct keeper_link){.socket = pair[0], .sign = -1});
	return store_put(manager.store, "page", pair[1]);
}

static int log_has(int log, const char *text)
{
	char content[4096];
	ssize_t n = pread(log, content, sizeof content - 1, 0);

	content[n > 0 ? n : 0] = '\0';
	return strstr(content, text) != NULL;
}

static int missing(void)
{
	struct store_status status;

	store_get_status(manager.store, &status);
	return (int)status.missing;
}

/* The incarnation before this one had no fence either, and left a slab. The number of what is not as it should be. */
static int refuse_and_take(void *unused)
{
	struct loader_setup setup = {.reads_in_flight_max = 1};
	int log = open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

	(void)unused;
	table.epoch = 2;
	table.quarantine[0].bytes = 4096;
	atomic_store_explicit(&table.quarantine[0].fence, 1, memory_order_relaxed);
	if (open_store_of_one() < 0 || loop_open(&manager.loop) < 0 || loader_open(&manager.loader, &setup) < 0 ||
	    dup2(log, STDERR_FILENO) < 0)
		return 1;
	if (fence_open(&manager) < 0)
		return 2; /* it is no reason not to serve */
	if (loader_ring(manager.loader) == NULL)
		return 77; /* threads hold no fence */
	if (missing() != 1 || store_has(manager.store, "fence2") || !log_has(log, "fence: cannot be stored"))
		return 3;
	fence_tell_unwatched(&manager);
	if (fence_quarantined(&manager) != 1 || !log_has(log, "1 slabs stay in quarantine"))
		return 4;
	store_remove(manager.store, "page");
	fence_persist(&manager);
	if (missing() != 0 || !store_has(manager.store, "fence2"))
		return 5;
	fence_close(&manager);
	return 0;
}

Test(manager_fence, one_that_cannot_be_stored_is_missing_until_there_is_room)
{
	int r = child_run(refuse_and_take, NULL);

	if (r == 77)
		cr_skip("io_uring is not allowed here");
	cr_expect_eq(r, 0);
}
