/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefixes in the worlds of crash.h, and the world of the points of their manager: a folder with files of a life before,
 * plain I/O, so that each step of a write is a place to die at, and a budget that moves, so that blocks go and come back.
 */
#include "cnre/cnre.h"
#include "tests/crash/crash.h"
#include "tests/support/child.h"
#include "tests/support/kv.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	CONVERSATIONS = 5,
	TOKENS = 20 * (int)KV_TEST_BLOCK + 5,
	KNOWN = 3, /* conversations in the folder from the beginning */
	WORKERS = 2,
	ROUNDS_MAX = 200,
	CLEAN_SECONDS = 20,
};

#define MUCH "16M"
#define LITTLE "4M" /* less than the conversations have */
#define TRIES_MAX 3
#define SHARED 40u /* tokens that all have in common: to the middle of a block */

int crash_is_kv(const char *point)
{
	return strncmp(point, "kv-", 3) == 0;
}

static enum crash_result fail(struct crash *crash, const char *why)
{
	(void)snprintf(crash->reason, sizeof crash->reason, "%s", why);
	return CRASH_FAILED;
}

static void rest(long ns)
{
	(void)nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* NULL, or what failed and how, until the next failure of this process. */
static const char *said(const char *call, int r)
{
	static char text[128];

	if (r >= 0)
		return NULL;
	(void)snprintf(text, sizeof text, "%s: %s", call, strerror(-r));
	return text;
}

static int open_kv(struct cnre *client, struct cnre_kv **ret_kv)
{
	struct cnre_kv_identity identity = kv_test_identity();

	return cnre_kv_open(client, NULL, &identity, ret_kv);
}

/* ---- work ---- */

/* A block that its reader waits for may be lost with the manager that read it: it is computed again then. */
static int is_lost(int r)
{
	return r == -EIO || r == -ESTALE || r == -ENOSPC;
}

static const char *use_one(struct cnre_kv *kv, unsigned seed)
{
	int32_t tokens[TOKENS];
	int r;

	kv_test_tokens(seed, SHARED, tokens, TOKENS);
	r = kv_test_commit(kv, tokens, TOKENS);
	if (r < 0 && !is_lost(r))
		return said("publish", r);
	r = kv_test_read(kv, tokens, TOKENS);
	return r < 0 && !is_lost(r) ? said("read", r) : NULL;
}

static const char *use_all(struct cnre_kv *kv, unsigned first)
{
	const char *failed = NULL;

	for (unsigned i = 0; i < CONVERSATIONS && failed == NULL; i++)
		failed = use_one(kv, 1 + (first + i) % CONVERSATIONS);
	return failed;
}

/* Given back at detach, or by nobody. */
static const char *hold_some(struct cnre_kv *kv)
{
	struct cnre_kv_chain *pinned, *staged;
	int32_t tokens[TOKENS];
	void *buffer;
	int r;

	kv_test_tokens(1, SHARED, tokens, TOKENS);
	r = cnre_kv_match(kv, tokens, TOKENS, NULL, 0, &pinned);
	if (r < 0)
		return said("match", r);
	r = cnre_kv_match(kv, NULL, 0, NULL, 0, &staged);
	if (r < 0)
		return said("match of nothing", r);
	r = cnre_kv_stage(staged, (const int32_t[]){1, 2, 3}, 3, NULL, 0, KV_TEST_BYTES, &buffer);
	if (r < 0)
		return said("stage", r);
	cnre_kv_release(staged);
	cnre_kv_release(pinned);
	return NULL;
}

const char *crash_kv_work(struct cnre *client)
{
	const char *failed;
	struct cnre_kv *kv;
	int r = open_kv(client, &kv);

	if (r < 0)
		return said("cnre_kv_open", r);
	failed = use_all(kv, 0);
	if (failed == NULL)
		failed = hold_some(kv);
	if (failed == NULL && cnre_kv_invalidate(kv) < 0) /* so that the next one has something to publish */
		failed = "invalidate failed";
	cnre_kv_close(kv);
	return failed;
}

/* ---- what must be ---- */

static long long kv_number(struct crash *crash, const char *field)
{
	json_t *answer = daemon_ask(&crash->daemon, "kv");
	long long number = daemon_number(json_array_get(json_object_get(answer, "namespaces"), 0), field);

	json_decref(answer);
	return number;
}

static int is_clean(struct crash *crash)
{
	for (int i = 0; i < CLEAN_SECONDS * 20; i++) {
		if (kv_number(crash, "pinned_blocks") == 0 && kv_number(crash, "forgotten_blocks") == 0)
			return 1;
		rest(50000000); /* the end of a process, and of a fence, are events of the manager's */
	}
	return 0;
}

static const char *compute_again(struct cnre_kv *kv)
{
	for (unsigned seed = 1; seed <= CONVERSATIONS; seed++) {
		int32_t tokens[TOKENS];
		int r;

		kv_test_tokens(seed, SHARED, tokens, TOKENS);
		r = kv_test_read(kv, tokens, TOKENS);
		if (r < 0 && !is_lost(r))
			return said("what is left is not right", r);
		r = kv_test_publish(kv, tokens, TOKENS);
		if (r < 0)
			return said("publishing again", r);
		r = kv_test_read(kv, tokens, TOKENS);
		if (r != TOKENS)
			return r < 0 ? said("reading again", r) : "what was published again is not all there";
	}
	return NULL;
}

const char *crash_kv_judge(struct crash *crash, struct cnre *client)
{
	const char *failed;
	struct cnre_kv *kv;
	int r = open_kv(client, &kv);

	if (r < 0)
		return said("cnre_kv_open after the death", r);
	failed = compute_again(kv);
	cnre_kv_close(kv);
	if (failed == NULL && !is_clean(crash))
		failed = "blocks are pinned, or forgotten and not free, seconds after the death";
	return failed;
}

/* ---- the manager dies ---- */

static int start_manager(struct crash *crash)
{
	const char *const options[] = {"--ram",       crash->ram, "--kv-ram", MUCH, "--kv-dir",
				       crash->kv_dir, "--io",     "pool",     NULL};
	int r = daemon_start(&crash->daemon, options);

	if (r < 0)
		(void)fail(crash, crash->daemon.reason);
	return r;
}

static void empty_folder(struct crash *crash)
{
	const char *const arguments[] = {"-rf", crash->kv_dir, NULL};

	(void)snprintf(crash->kv_dir, sizeof crash->kv_dir, "%s/kv", crash->daemon.directory);
	(void)daemon_run("/bin/rm", arguments, NULL, 0);
}

static int publish_known(struct crash *crash)
{
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];
	int r = crash_attach(crash, &client) == NULL ? open_kv(client, &kv) : -EPIPE;

	for (unsigned seed = 1; seed <= KNOWN && r >= 0; seed++) {
		kv_test_tokens(seed, SHARED, tokens, TOKENS);
		r = kv_test_publish(kv, tokens, TOKENS);
	}
	for (int i = 0;
	     i < CLEAN_SECONDS * 20 && r >= 0 && kv_number(crash, "disk_blocks") != kv_number(crash, "blocks"); i++)
		rest(50000000);
	if (r >= 0) {
		cnre_kv_close(kv);
		cnre_detach(client);
	}
	return r;
}

static int fill_folder(struct crash *crash)
{
	int r;

	empty_folder(crash);
	if (start_manager(crash) < 0)
		return -1;
	r = publish_known(crash);
	if (daemon_stop(&crash->daemon, 20) != 0 || r < 0) {
		(void)fail(crash, "the folder cannot be filled");
		return -1;
	}
	return 0;
}

struct worker {
	struct crash *crash;
	unsigned seed;
};

/* Works until the point was reached, and once more behind it. */
static int be_worker(void *argument)
{
	const struct worker *worker = argument;
	int was_reached = 0;

	for (unsigned round = 0; round < ROUNDS_MAX && !was_reached; round++) {
		struct cnre *client;
		struct cnre_kv *kv;
		const char *failed;
		int r;

		was_reached = crash_was_reached(worker->crash);
		failed = crash_attach(worker->crash, &client);
		if (failed == NULL) {
			r = open_kv(client, &kv);
			failed = r < 0 ? said("cnre_kv_open", r) : use_all(kv, worker->seed + round);
			if (failed == NULL && round % 3 == 2 && worker->seed == 0 && cnre_kv_invalidate(kv) < 0)
				failed = "invalidate failed";
			cnre_detach(client);
		}
		if (failed != NULL) {
			(void)fprintf(stderr, "    client: %s\n", failed);
			return 1;
		}
	}
	return was_reached ? 0 : 2;
}

/* Less memory than there are blocks, and more again; refusals are answers, too. */
static void move_budget(struct crash *crash, int low)
{
	const char *const arguments[] = {"--socket", crash->daemon.socket, "set", "kv-ram", low ? LITTLE : MUCH, NULL};

	(void)daemon_run("cnrectl", arguments, NULL, 0);
}

static int has_ended(pid_t pid)
{
	siginfo_t end = {0};

	return waitid(P_PID, (id_t)pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid != 0;
}

/* 0 all are well, 1 one is not, 2 none came to the point. */
static int run_workers(struct crash *crash)
{
	struct worker worker[WORKERS];
	pid_t pid[WORKERS];
	int failed = 0, reached = 0;

	for (int i = 0; i < WORKERS; i++) {
		worker[i] = (struct worker){.crash = crash, .seed = (unsigned)i * 2};
		pid[i] = child_start(be_worker, &worker[i]);
	}
	for (int low = 1; !has_ended(pid[0]) || !has_ended(pid[1]); low = !low) {
		move_budget(crash, low);
		rest(20000000);
	}
	move_budget(crash, 0);
	for (int i = 0; i < WORKERS; i++) {
		int end = child_wait(pid[i]);

		failed |= end != 0 && end != 2;
		reached |= end == 0;
	}
	return failed ? 1 : reached ? 0 : 2;
}

/* By a client of its own, in a process of its own: a library that is attached to nobody waits for nothing. */
static int be_judge(void *argument)
{
	struct crash *crash = argument;
	struct cnre *client;
	const char *failed = crash_attach(crash, &client);

	if (failed == NULL) {
		failed = crash_kv_judge(crash, client);
		cnre_detach(client);
	}
	if (failed != NULL)
		(void)fprintf(stderr, "    judge: %s\n", failed);
	return failed != NULL;
}

static enum crash_result judge_folder(struct crash *crash)
{
	json_t *answer;
	long long quarantined;

	if (daemon_stop(&crash->daemon, 20) != 0)
		return fail(crash, "the manager does not end properly");
	if (start_manager(crash) < 0)
		return CRASH_FAILED;
	if (child_run(be_judge, crash) != 0)
		return fail(crash, "what a cold start found is not right");
	answer = daemon_ask(&crash->daemon, "kv");
	quarantined = daemon_number(answer, "disk.quarantined");
	json_decref(answer);
	return quarantined == 0 ? CRASH_OK : fail(crash, "a file was half-written");
}

static enum crash_result run_and_judge(struct crash *crash, int died_before_ready)
{
	int worst = run_workers(crash);
	json_t *answer = daemon_ask(&crash->daemon, "status");
	long long epoch = daemon_number(answer, "epoch");

	json_decref(answer);
	if (worst == 2)
		return CRASH_NOT_REACHED;
	if (worst != 0)
		return fail(crash, "a client saw more than a pause");
	if (epoch != (died_before_ready ? 1 : 2)) {
		(void)snprintf(crash->reason, sizeof crash->reason, "epoch is %lld: more than one death", epoch);
		return CRASH_FAILED;
	}
	if (child_run(be_judge, crash) != 0)
		return fail(crash, "what is left is not right");
	return judge_folder(crash);
}

static enum crash_result try_point(struct crash *crash, const char *point, unsigned pass)
{
	enum crash_result result;
	int status, died_before_ready;

	if (fill_folder(crash) < 0)
		return CRASH_FAILED;
	crash_set_point(crash, point, pass);
	crash->daemon.environment[0] = crash->at;
	crash->daemon.environment[1] = crash->once_setting;
	status = start_manager(crash);
	crash->daemon.environment[0] = crash->daemon.environment[1] = NULL;
	died_before_ready = status < 0 && crash_was_reached(crash);
	if (died_before_ready) /* nobody starts it again but we */
		status = start_manager(crash);
	result = status < 0 ? CRASH_FAILED : run_and_judge(crash, died_before_ready);
	status = daemon_stop(&crash->daemon, 20);
	return result == CRASH_OK && status != 0 ? fail(crash, "the manager does not end properly") : result;
}

/*
 * What lies in files is found by a scan that begins with the manager. Where its drive is slow, the workers may have published
 * the same blocks before, and there is nothing left to find: whoever comes first, all is well, and the point is tried again.
 */
enum crash_result crash_kv_point(struct crash *crash, const char *point, unsigned pass)
{
	enum crash_result result = CRASH_NOT_REACHED;

	if (!daemon_has_keeper()) {
		(void)fail(crash, "this cnre-managerd has no keeper");
		return CRASH_SKIPPED;
	}
	for (int i = 0; i < TRIES_MAX && result == CRASH_NOT_REACHED; i++)
		result = try_point(crash, point, pass);
	return result;
}
