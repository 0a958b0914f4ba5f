/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper and managers that do as they are told: this program is started again as the manager (by its argv[0]), looks
 * up in a plan what the n-th start of all has to do, and writes down that it was started.
 */
#include "manager/keeper.h"

#include "base/clock.h"
#include "manager/store.h"
#include "tests/support/child.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(manager_keeper, .timeout = 60);

#define FAKE "fake-manager"
enum { NOBODY = 65534, STARTS_MAX = 32, DESCRIPTORS = 40, MS = 1000000 };

/* ---- the manager, or its second keeper ---- */

static int open_in(const char *folder, const char *name, int flags)
{
	char path[256];

	(void)snprintf(path, sizeof path, "%s/%s", folder, name);
	return open(path, flags | O_CLOEXEC, 0666);
}

/* The number of this start. One line each: pid, time, descriptors. */
static off_t write_down(const char *folder)
{
	int fd = open_in(folder, "starts", O_RDWR | O_CREAT | O_APPEND);
	const char *passed = getenv("LISTEN_FDS");
	char line[64];

	(void)snprintf(line, sizeof line, "%10d %20lld %10s\n", (int)getpid(), (long long)cnre_clock_now_ns(),
		       passed != NULL ? passed : "0");
	(void)!write(fd, line, strlen(line));
	return lseek(fd, 0, SEEK_END) / (off_t)strlen(line) - 1;
}

static void put_descriptors(struct store *store)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	char name[KEEP_NAME_BYTES];

	for (int i = 0; i < DESCRIPTORS; i++) {
		(void)snprintf(name, sizeof name, "pool%d", i);
		if (store_put(store, name, fd) < 0)
			_exit(3);
	}
}

/* r serves until it is killed; p the same, with descriptors; anything else fails. */
static int be_manager(const char *folder)
{
	off_t number = write_down(folder);
	struct store *store;
	char act = 'f';

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)!pread(open_in(folder, "plan", O_RDONLY), &act, 1, number);
	if ((act != 'r' && act != 'p') || store_open(&store) < 0)
		return 1;
	if (act == 'p')
		put_descriptors(store);
	store_notify(store, "READY=1");
	if (store_barrier(store) < 0)
		return 1;
	(void)!write(open_in(folder, "ready", O_WRONLY | O_CREAT | O_APPEND), "r", 1);
	for (;;)
		(void)pause();
}

static int be_keeper(char **argv)
{
	char pid[16];
	int status = 1;

	(void)snprintf(pid, sizeof pid, "%d", (int)getpid());
	(void)!write(open_in(argv[1], "keeper", O_WRONLY | O_CREAT), pid, strlen(pid));
	return keeper_run_for_manager(argv, &status) ? status : 9;
}

__attribute__((constructor)) static void be_started(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[0], FAKE) == 0)
		_exit(getenv(KEEPER_FOR_ENVIRONMENT) != NULL ? be_keeper(argv) : be_manager(argv[1]));
}

/* ---- the test's side ---- */

static char folder[64];

static void make_folder(void)
{
	(void)snprintf(folder, sizeof folder, "/tmp/cnre-test-XXXXXX");
	cr_assert_not_null(mkdtemp(folder));
	cr_assert_eq(chmod(folder, 0777), 0);
}

static void remove_folder(void)
{
	static const char *const names[] = {"starts", "plan", "ready", "keeper", "log"};
	char path[128];

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		(void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
		(void)unlink(path);
	}
	(void)rmdir(folder);
}

static void write_plan(const char *plan)
{
	int fd = open_in(folder, "plan", O_WRONLY | O_CREAT | O_TRUNC);

	cr_assert_eq(write(fd, plan, strlen(plan)), (ssize_t)strlen(plan));
	(void)close(fd);
}

static int run_keeper(void *unused)
{
	char *argv[] = {(char *)FAKE, folder, NULL};

	(void)unused;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)dup2(open_in(folder, "log", O_WRONLY | O_CREAT | O_APPEND), STDERR_FILENO);
	return keeper_run(argv, -1);
}

/* Root is under no limit of processes. */
static int become_nobody(void)
{
	return geteuid() != 0 || (setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0 &&
				  prctl(PR_SET_DUMPABLE, 1) == 0);
}

static int run_keeper_as_nobody(void *unused)
{
	return become_nobody() ? run_keeper(unused) : 9;
}

struct start {
	int pid, descriptors;
	long long at_ns;
};

static int read_starts(struct start start[STARTS_MAX])
{
	char path[128];
	FILE *file;
	int count = 0;

	(void)snprintf(path, sizeof path, "%s/starts", folder);
	file = fopen(path, "re");
	while (file != NULL && count < STARTS_MAX &&
	       fscanf(file, "%d %lld %d", &start[count].pid, &start[count].at_ns, &start[count].descriptors) == 3)
		count++;
	if (file != NULL)
		(void)fclose(file);
	return count;
}

/* The suite's time-out ends what never comes. */
static struct start await_start(int count)
{
	struct start start[STARTS_MAX];

	while (read_starts(start) < count)
		(void)usleep(1000);
	return start[count - 1];
}

static void await_ready(off_t count)
{
	char path[128];
	struct stat status;

	(void)snprintf(path, sizeof path, "%s/ready", folder);
	while (stat(path, &status) < 0 || status.st_size < count)
		(void)usleep(1000);
}

static int log_has(const char *text)
{
	static char content[1 << 16];
	int fd = open_in(folder, "log", O_RDONLY);
	ssize_t n = read(fd, content, sizeof content - 1);

	(void)close(fd);
	content[n > 0 ? n : 0] = '\0';
	return strstr(content, text) != NULL;
}

static void await_log(const char *text)
{
	while (!log_has(text))
		(void)usleep(1000);
}

Test(manager_keeper, failed_starts_follow_more_and_more_slowly_and_a_signal_ends_the_pause, .init = make_folder,
     .fini = remove_folder)
{
	struct start start[STARTS_MAX];
	int64_t told_ns;
	pid_t keeper;

	write_plan("r");
	keeper = child_start(run_keeper, NULL);
	await_ready(1);
	cr_assert_eq(kill(await_start(1).pid, SIGKILL), 0);
	await_log("in 3200 ms");
	cr_assert_eq(read_starts(start), 7);
	for (int i = 2; i < 7; i++)
		cr_expect_geq(start[i].at_ns - start[i - 1].at_ns, (KEEPER_BACKOFF_NS << (i - 2)), "start %d", i);
	told_ns = cnre_clock_now_ns();
	cr_assert_eq(kill(keeper, SIGTERM), 0);
	cr_expect_eq(child_wait(keeper), 0, "it was told to end, and nothing is left to do");
	cr_expect_lt(cnre_clock_now_ns() - told_ns, 1500LL * MS, "it slept on: the pause is 3.2 s");
	cr_expect_eq(read_starts(start), 7);
}

Test(manager_keeper, giving_up_comes_late_and_says_what_to_do, .init = make_folder, .fini = remove_folder)
{
	struct start start[STARTS_MAX];
	pid_t keeper;

	write_plan("r");
	keeper = child_start(run_keeper, NULL);
	await_ready(1);
	cr_assert_eq(kill(await_start(1).pid, SIGKILL), 0);
	cr_expect_eq(child_wait(keeper), 1);
	cr_expect_eq(read_starts(start), 1 + KEEPER_FAILED_STARTS_MAX);
	cr_expect_geq(start[KEEPER_FAILED_STARTS_MAX].at_ns - start[1].at_ns, 10000LL * MS);
	cr_expect(log_has("giving up: the manager could not be started 8 times"));
	cr_expect(log_has("start cnre-managerd again"));
}

Test(manager_keeper, a_manager_that_never_served_is_not_started_again, .init = make_folder, .fini = remove_folder)
{
	struct start start[STARTS_MAX];

	write_plan("f");
	cr_expect_eq(child_wait(child_start(run_keeper, NULL)), 1, "the manager's own status");
	cr_expect_eq(read_starts(start), 1);
}

struct wanted {
	pid_t keeper;
	int resource;
	rlim_t soft;
	int by_nobody; /* only its own user may, or who has CAP_SYS_RESOURCE */
};

static int limit(void *argument)
{
	const struct wanted *wanted = argument;
	struct rlimit limit;

	if ((wanted->by_nobody && !become_nobody()) || prlimit(wanted->keeper, wanted->resource, NULL, &limit) < 0)
		return 1;
	limit.rlim_cur = wanted->soft < limit.rlim_max ? wanted->soft : limit.rlim_max;
	return prlimit(wanted->keeper, wanted->resource, &limit, NULL) < 0;
}

static void limit_processes(pid_t keeper, rlim_t soft)
{
	struct wanted wanted = {keeper, RLIMIT_NPROC, soft, 1};

	cr_assert_eq(child_run(limit, &wanted), 0);
}

static void limit_descriptors(pid_t keeper, rlim_t soft)
{
	struct wanted wanted = {keeper, RLIMIT_NOFILE, soft, 0};

	cr_assert_eq(child_run(limit, &wanted), 0);
}

Test(manager_keeper, a_fork_that_fails_is_tried_again, .init = make_folder, .fini = remove_folder)
{
	pid_t keeper;

	write_plan("rr");
	keeper = child_start(run_keeper_as_nobody, NULL);
	await_ready(1);
	limit_processes(keeper, 0);
	cr_assert_eq(kill(await_start(1).pid, SIGKILL), 0);
	await_log("cannot start a manager");
	limit_processes(keeper, RLIM_INFINITY);
	await_ready(2);
	cr_assert_eq(kill(keeper, SIGTERM), 0);
	cr_expect_eq(child_wait(keeper), 0);
}

Test(manager_keeper, too_low_a_limit_of_descriptors_is_said_and_loses_none, .init = make_folder, .fini = remove_folder)
{
	pid_t keeper;

	write_plan("pfr");
	keeper = child_start(run_keeper, NULL);
	await_ready(1);
	limit_descriptors(keeper, DESCRIPTORS + 10);
	cr_assert_eq(kill(await_start(1).pid, SIGKILL), 0);
	await_log("cannot hand over 40 descriptors");
	cr_expect(log_has("raise the limit"));
	limit_descriptors(keeper, RLIM_INFINITY);
	cr_expect_eq(await_start(2).descriptors, DESCRIPTORS);
	cr_expect_eq(await_start(3).descriptors, DESCRIPTORS, "a start that failed uses nothing up");
	await_ready(2);
	cr_assert_eq(kill(keeper, SIGTERM), 0);
	cr_expect_eq(child_wait(keeper), 0);
}

/* ---- a keeper that its manager started ---- */

static pid_t await_second_keeper(void)
{
	char text[16] = "";

	while (strtol(text, NULL, 10) <= 0) {
		int fd = open_in(folder, "keeper", O_RDONLY);

		if (fd >= 0)
			(void)!read(fd, text, sizeof text - 1);
		(void)close(fd);
		(void)usleep(1000);
	}
	return (pid_t)strtol(text, NULL, 10);
}

/* A manager that starts a keeper, which is stopped then, and fills its socket. */
static struct store *begin_with_a_deaf_keeper(void)
{
	char *argv[] = {(char *)FAKE, folder, NULL};
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), small = 1;
	struct keeper_link link;
	struct store *store;

	(void)dup2(open_in(folder, "log", O_WRONLY | O_CREAT | O_APPEND), STDERR_FILENO);
	if (store_open(&store) < 0 || keeper_start(argv, &link) < 0)
		_exit(9);
	(void)setsockopt(link.socket, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
	(void)kill(await_second_keeper(), SIGSTOP);
	store_use(store, &link);
	for (int i = 0; i < 1000; i++) {
		char name[KEEP_NAME_BYTES];

		(void)snprintf(name, sizeof name, "pool%d", i);
		if (store_put(store, name, fd) == -ETIMEDOUT)
			return store;
	}
	_exit(8);
}

static int end_gracefully(void *unused)
{
	struct store *store = begin_with_a_deaf_keeper();

	(void)unused;
	store_stopping(store);
	return 0;
}

static int die(void *unused)
{
	(void)begin_with_a_deaf_keeper();
	(void)unused;
	return 0; /* without a word: as good as dead */
}

static void await_end(pid_t pid)
{
	struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};

	if (end.fd < 0)
		return;
	if (poll(&end, 1, 20000) != 1) {
		(void)kill(pid, SIGTERM); /* leave nothing behind */
		cr_assert_fail("the keeper lives on");
	}
	(void)close(end.fd);
}

Test(manager_keeper, a_stop_whose_message_was_lost_is_a_stop, .init = make_folder, .fini = remove_folder)
{
	struct start start[STARTS_MAX];
	pid_t keeper;

	write_plan("r");
	cr_assert_eq(child_wait(child_start(end_gracefully, NULL)), 0);
	keeper = await_second_keeper();
	cr_assert_eq(kill(keeper, SIGCONT), 0);
	await_end(keeper);
	cr_expect_eq(read_starts(start), 0, "a new world began after a graceful stop");
}

Test(manager_keeper, an_end_without_a_word_is_a_death_also_to_a_keeper_that_is_no_parent, .init = make_folder,
     .fini = remove_folder)
{
	pid_t keeper;

	write_plan("r");
	cr_assert_eq(child_wait(child_start(die, NULL)), 0);
	keeper = await_second_keeper();
	cr_assert_eq(kill(keeper, SIGCONT), 0);
	cr_expect_gt(await_start(1).descriptors, 0);
	await_ready(1);
	cr_assert_eq(kill(keeper, SIGTERM), 0);
	await_end(keeper);
}
