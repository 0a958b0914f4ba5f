/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world of the points at which the path of the socket leads to nobody: a manager that nobody uses unlinked it on its
 * way out, or bound it again since it was removed, and is killed. The next incarnation must be found under that path,
 * serve, and leave by itself when it is idle in its turn.
 */
#include "cnre/cnre.h"
#include "tests/crash/crash.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_TRIES 800
#define IDLE_EXIT "1s" /* for the one after the death: long enough to be found */

static int wait_for(int (*is_true)(struct crash *crash), struct crash *crash)
{
	for (int i = 0; i < WAIT_TRIES; i++) {
		if (is_true(crash))
			return 1;
		(void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	return 0;
}

static int was_reached(struct crash *crash)
{
	return crash_was_reached(crash);
}

static int serves_again(struct crash *crash)
{
	struct cnre *client;
	const char *failed;

	if (access(crash->daemon.socket, F_OK) < 0 || crash_attach(crash, &client) != NULL)
		return 0;
	failed = crash_work(crash, client, 0);
	cnre_detach(client);
	return failed == NULL;
}

static int has_left(struct crash *crash)
{
	int status;

	if (waitpid(crash->daemon.pid, &status, WNOHANG) != crash->daemon.pid)
		return 0;
	crash->daemon.pid = 0;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 && access(crash->daemon.socket, F_OK) < 0;
}

static enum crash_result fail(struct crash *crash, const char *why)
{
	(void)snprintf(crash->reason, sizeof crash->reason, "%s", why);
	(void)daemon_stop(&crash->daemon, 20);
	return CRASH_FAILED;
}

/* So that the next incarnation binds it again. */
static void remove_path_and_kill(struct crash *crash)
{
	pid_t manager = daemon_manager_pid(&crash->daemon);

	(void)unlink(crash->daemon.socket);
	if (manager > 0)
		(void)kill(manager, SIGKILL);
}

/* A manager leaves once, so each point is passed once, whatever the pass. */
enum crash_result crash_listener_point(struct crash *crash, const char *point)
{
	const char *const options[] = {"--ram", crash->ram, "--idle-exit", IDLE_EXIT, NULL};
	int r;

	crash_set_point(crash, point, 1);
	crash->daemon.environment[0] = crash->at;
	crash->daemon.environment[1] = crash->once_setting;
	r = daemon_start(&crash->daemon, options);
	crash->daemon.environment[0] = crash->daemon.environment[1] = NULL;
	if (r < 0)
		return fail(crash, crash->daemon.reason);
	if (strcmp(point, "listen-bound") == 0)
		remove_path_and_kill(crash);
	if (!wait_for(was_reached, crash)) {
		(void)daemon_stop(&crash->daemon, 20);
		return CRASH_NOT_REACHED;
	}
	if (!wait_for(serves_again, crash))
		return fail(crash, "nobody serves after the death");
	return wait_for(has_left, crash) ? CRASH_OK : fail(crash, "it does not leave when it is idle, or not properly");
}
