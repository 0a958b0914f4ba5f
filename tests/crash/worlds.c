/* SPDX-License-Identifier: Apache-2.0 */
/* The two worlds of crash.h: one in which a client dies, one in which the manager does. */
#include "cnre/cnre.h"
#include "tests/crash/crash.h"
#include "tests/support/child.h"
#include "tests/support/truth.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CLEAN_SECONDS 8
#define VICTIM_TRIES 6
#define WORKERS 2
#define LATER_PASS 24u                    /* more passes than any start has */
#define ROUNDS_MAX 200                    /* of work before a point of the manager counts as not reached */

static void rest(long ns)
{
	(void)nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static enum crash_result fail(struct crash *crash, const char *why)
{
	(void)snprintf(crash->reason, sizeof crash->reason, "%s", why);
	return CRASH_FAILED;
}

void crash_set_point(struct crash *crash, const char *point, unsigned pass)
{
	(void)snprintf(crash->at, sizeof crash->at, "CNRE_CRASH_AT=%s:%u", point, pass);
	(void)snprintf(crash->once, sizeof crash->once, "%s/once", crash->daemon.directory);
	(void)snprintf(crash->once_setting, sizeof crash->once_setting, "CNRE_CRASH_ONCE=%s", crash->once);
	(void)unlink(crash->once);
}

int crash_was_reached(const struct crash *crash)
{
	return access(crash->once, F_OK) == 0;
}

static int start_manager(struct crash *crash)
{
	const char *const options[] = {"--ram", crash->ram, "--kv-ram", "16M", NULL};

	return daemon_start(&crash->daemon, options);
}

static long long number_of(struct crash *crash, const char *verb, const char *path)
{
	json_t *answer = daemon_ask(&crash->daemon, verb);
	long long number = daemon_number(answer, path);

	json_decref(answer);
	return number;
}

static int is_quiet(struct crash *crash, long long clients)
{
	json_t *stats = daemon_ask(&crash->daemon, "stats");
	int quiet = daemon_number(stats, "clients") == clients && daemon_number(stats, "loads_in_flight") == 0 &&
		    daemon_number(stats, "loads_queued") == 0 &&
		    daemon_number(stats, "reserved_slabs") == (clients > 0 ? crash->reserved_slabs : 0);

	json_decref(stats);
	return quiet;
}

int crash_is_clean(struct crash *crash, long long clients, long long kept)
{
	const char *const reset[] = {"--socket", crash->daemon.socket, "reset", NULL};

	for (int i = 0; i < CLEAN_SECONDS * 20; i++) {
		if (is_quiet(crash, clients) && daemon_run("cnrectl", reset, NULL, 0) == 0 &&
		    number_of(crash, "stats", "resident_objects") == kept &&
		    number_of(crash, "status", "pool.used_bytes") == kept * crash->slab_bytes)
			return 1;
		rest(50000000); /* the end of a process is an event of the manager's, not of ours */
	}
	return 0;
}

/* ---- a client dies ---- */

static struct cnre *bystander;            /* attached to the one manager of all client points */
static struct cnre_expert held;           /* its lease, all the time */

static int open_client_world(struct crash *crash)
{
	const char *failed;

	if (bystander != NULL)
		return 0;
	if (start_manager(crash) < 0) {
		(void)snprintf(crash->reason, sizeof crash->reason, "%s", crash->daemon.reason);
		return -1;
	}
	failed = crash_attach(crash, &bystander);
	if (failed == NULL && cnre_acquire(bystander, 0, 0, -1, &held) < 0)
		failed = "the bystander gets no lease";
	crash->slab_bytes = number_of(crash, "status", "pool.window_bytes");
	crash->reserved_slabs = number_of(crash, "stats", "reserved_slabs");
	if (failed != NULL)
		(void)fail(crash, failed);
	return failed == NULL ? 0 : -1;
}

void crash_client_world_close(struct crash *crash)
{
	if (bystander != NULL) {
		(void)cnre_release(bystander, &held);
		cnre_detach(bystander);
	}
	bystander = NULL;
	(void)daemon_stop(&crash->daemon, 20);
}

static int be_victim(void *argument)
{
	struct crash *crash = argument;
	struct cnre *client;

	(void)putenv(crash->at);
	(void)putenv(crash->once_setting);
	if (crash_attach(crash, &client) != NULL || crash_work(crash, client, 0) != NULL || crash_kv_work(client) != NULL)
		return 1;
	cnre_detach(client);
	return 0;
}

/* Some points are passed only by who waits long: then the manager is stopped now and then. */
static int run_victim(struct crash *crash, int slowly)
{
	pid_t victim = child_start(be_victim, crash);
	pid_t manager = daemon_manager_pid(&crash->daemon);
	siginfo_t end = {0};

	if (victim < 0)
		return -SIGABRT;
	while (slowly && waitid(P_PID, (id_t)victim, &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid == 0) {
		(void)kill(manager, SIGSTOP);
		rest(3000000);
		(void)kill(manager, SIGCONT);
		rest(1000000);
	}
	return child_wait(victim);
}

static int every_expert_is_right(const struct crash *crash)
{
	for (uint32_t layer = 0; layer < CRASH_LAYERS; layer++)
		for (uint32_t expert = 0; expert < CRASH_EXPERTS; expert++)
			if (truth_check_one(crash->truth, bystander, layer, expert) != 0)
				return 0;
	return truth_compare(crash->truth, &held) == 0;
}

enum crash_result crash_client_point(struct crash *crash, const char *point, unsigned pass)
{
	const char *failed;
	int end = 0;

	crash_set_point(crash, point, pass);
	if (open_client_world(crash) < 0)
		return CRASH_FAILED;
	for (int i = 0; i < VICTIM_TRIES && end == 0; i++) {
		if (!crash_is_clean(crash, 1, 1))
			return fail(crash, "the world was not clean before");
		end = run_victim(crash, i > 0);
	}
	if (end == 0)
		return CRASH_NOT_REACHED;
	if (end != -SIGKILL || !crash_was_reached(crash))
		return fail(crash, "the client failed before it came to the point");
	if (!crash_is_clean(crash, 1, 1))
		return fail(crash, "something is still leased, reserved or on its way seconds after the death");
	if (!every_expert_is_right(crash))
		return fail(crash, "another client gets no or wrong bytes");
	if (!crash_is_kv(point))
		return CRASH_OK;
	failed = crash_kv_judge(crash, bystander);
	return failed == NULL ? CRASH_OK : fail(crash, failed);
}

/* ---- the manager dies ---- */

struct worker {
	struct crash *crash;
	uint32_t seed;
};

/* Works until the point was reached, and once more behind it. */
static int be_worker(void *argument)
{
	const struct worker *worker = argument;
	int was_reached = 0;

	for (uint32_t round = 0; round < ROUNDS_MAX && !was_reached; round++) {
		struct cnre *client;
		const char *failed;

		was_reached = crash_was_reached(worker->crash);
		failed = crash_attach(worker->crash, &client);
		if (failed == NULL) {
			failed = crash_work(worker->crash, client, worker->seed + round);
			cnre_detach(client);
		}
		if (failed != NULL) {
			(void)fprintf(stderr, "    client: %s\n", failed);
			return 1;
		}
	}
	return was_reached ? 0 : 2;
}

/* Budget down and up, so that segments go and come; refusals are answers, too. */
static void move_budget(struct crash *crash, int low)
{
	const char *const arguments[] = {"--socket", crash->daemon.socket, "set", "ram", low ? crash->low_ram : crash->ram, NULL};

	(void)daemon_run("cnrectl", arguments, NULL, 0);
}

static int run_workers(struct crash *crash)
{
	struct worker worker[WORKERS];
	pid_t pid[WORKERS];
	int low = 1, living = WORKERS, worst = 0;

	for (int i = 0; i < WORKERS; i++) {
		worker[i] = (struct worker){.crash = crash, .seed = (uint32_t)i * 7};
		pid[i] = child_start(be_worker, &worker[i]);
	}
	while (living > 0) {
		move_budget(crash, low);
		low = !low;
		rest(10000000);
		for (int i = 0; i < WORKERS; i++) {
			siginfo_t end = {0};
			int status;

			if (pid[i] <= 0 || waitid(P_PID, (id_t)pid[i], &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid == 0)
				continue;
			status = child_wait(pid[i]);
			pid[i] = 0;
			living--;
			worst = status == 1 || status < 0 || worst == 0 ? (worst == 1 || worst < 0 ? worst : status) : worst;
		}
	}
	move_budget(crash, 0);
	return worst;
}

static enum crash_result judge_manager(struct crash *crash, int worst, int died_before_ready)
{
	long long epoch = number_of(crash, "status", "epoch");

	if (worst == 2)
		return CRASH_NOT_REACHED;
	if (worst != 0)
		return fail(crash, "a client saw more than a pause");
	if (!died_before_ready && epoch != 2) {
		(void)snprintf(crash->reason, sizeof crash->reason, "epoch is %lld, not 2: nothing was taken over", epoch);
		return CRASH_FAILED;
	}
	return crash_is_clean(crash, 0, 0) ? CRASH_OK : fail(crash, "leases, reservations or slabs are lost seconds after the death");
}

int crash_start_dying_manager(struct crash *crash, const char *point, unsigned pass)
{
	int status;

	crash_set_point(crash, point, pass);
	crash->daemon.environment[0] = crash->at;
	crash->daemon.environment[1] = crash->once_setting;
	status = start_manager(crash);
	crash->daemon.environment[0] = crash->daemon.environment[1] = NULL;
	if (status < 0)
		(void)fail(crash, crash->daemon.reason);
	return status;
}

/* A manager that dies before it was ever ready is not started again by anybody; what it left must not keep the next out. */
static enum crash_result crash_start_again(struct crash *crash, const char *point, unsigned pass)
{
	if (start_manager(crash) < 0)
		return fail(crash, crash->daemon.reason);
	if (!crash_is_clean(crash, 0, 0) || daemon_stop(&crash->daemon, 20) != 0)
		return fail(crash, "a new start after the death does not serve");
	return pass < LATER_PASS ? crash_manager_point(crash, point, pass + LATER_PASS) : CRASH_OK;
}

enum crash_result crash_manager_point(struct crash *crash, const char *point, unsigned pass)
{
	enum crash_result result;
	int died_before_ready, status;

	if (!daemon_has_keeper()) {
		(void)fail(crash, "this cnre-managerd has no keeper");
		return CRASH_SKIPPED;
	}
	status = crash_start_dying_manager(crash, point, pass);
	if (status < 0 && crash_was_reached(crash))
		return crash_start_again(crash, point, pass);
	if (status < 0)
		return CRASH_FAILED;
	died_before_ready = crash_was_reached(crash);
	result = judge_manager(crash, run_workers(crash), died_before_ready);
	status = daemon_stop(&crash->daemon, 20);
	return result == CRASH_OK && status != 0 ? fail(crash, "the manager does not end properly") : result;
}
