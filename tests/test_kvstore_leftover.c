/* SPDX-License-Identifier: Apache-2.0 */
/* kvstore/leftover.c: what dead writers left goes, what somebody may still be writing stays. */
#include "kvstore/leftover.h"

#include "tests/support/child.h"
#include "tests/support/kv_samples.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY "abababababababababababababababababababababababababababababababab"
#define FOREIGN_BOOT "00000000-1111-2222-3333-444444444444"
#define DAY_S (24 * 60 * 60)

static char directory[64];
static int root_fd;

static void begin(void)
{
	char path[96];

	strcpy(directory, "/var/tmp/cnre-kv-XXXXXX");
	cr_assert(mkdtemp(directory) != NULL);
	(void)snprintf(path, sizeof path, "%s/f", directory);
	cr_assert_eq(mkdir(path, 0700), 0);
	(void)snprintf(path, sizeof path, "%s/f/ab", directory);
	cr_assert_eq(mkdir(path, 0700), 0);
	root_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void end(void)
{
	(void)close(root_fd);
	kv_sample_remove_tree(directory);
}

TestSuite(kvstore_leftover, .init = begin, .fini = end, .timeout = 60);

/* A file that was changed so long ago. */
static void put(const char *path, int age_s)
{
	struct timespec times[2];
	int fd = openat(root_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	(void)clock_gettime(CLOCK_REALTIME, &times[0]);
	times[0].tv_sec -= age_s;
	times[1] = times[0];
	cr_assert(fd >= 0 && futimens(fd, times) == 0);
	(void)close(fd);
}

static int is_there(const char *path)
{
	return faccessat(root_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- writers ---- */

static int ends[2];

/* A writer that is at it until `ends` closes; it tells the parent its file's name. */
static int write_on(void *argument)
{
	char fresh[FANOUT_PATH_BYTES];
	int fd;

	(void)argument;
	leftover_name("f/ab/" KEY, fresh);
	fd = openat(root_fd, fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || write(ends[1], fresh, sizeof fresh) != (ssize_t)sizeof fresh)
		return 1;
	(void)pause();
	return 0;
}

static pid_t start_writer(char fresh[FANOUT_PATH_BYTES])
{
	pid_t child;

	cr_assert_eq(pipe(ends), 0);
	child = child_start(write_on, NULL);
	cr_assert_eq(read(ends[0], fresh, FANOUT_PATH_BYTES), (ssize_t)FANOUT_PATH_BYTES);
	(void)close(ends[0]);
	(void)close(ends[1]);
	return child;
}

static void kill_writer(pid_t child)
{
	(void)kill(child, SIGKILL);
	cr_assert_eq(child_wait(child), -SIGKILL);
}

Test(kvstore_leftover, a_file_goes_with_its_writer)
{
	char fresh[FANOUT_PATH_BYTES];
	pid_t child = start_writer(fresh);

	cr_assert_eq(leftover_sweep(root_fd), 0);
	cr_assert(is_there(fresh));
	kill_writer(child);
	cr_assert_eq(leftover_sweep(root_fd), 1);
	cr_assert(!is_there(fresh));
}

/* Its writer is pid 1 to itself. In a child, since nobody leaves a namespace for pids. 0, or what went wrong. */
static int sweep_beside_another_namespace(void *argument)
{
	char fresh[FANOUT_PATH_BYTES];
	pid_t writer;
	int was_kept;

	(void)argument;
	if (unshare(CLONE_NEWPID) < 0)
		return 77;
	if (pipe(ends) < 0)
		return 1;
	writer = child_start(write_on, NULL);
	if (read(ends[0], fresh, sizeof fresh) != (ssize_t)sizeof fresh || strstr(fresh, ".1.") == NULL)
		return 2;
	was_kept = leftover_sweep(root_fd) == 0 && is_there(fresh);
	(void)kill(writer, SIGKILL);
	(void)child_wait(writer);
	if (!was_kept)
		return 3;
	return leftover_sweep(root_fd) == 1 ? 0 : 4;
}

Test(kvstore_leftover, a_writer_of_another_pid_namespace_is_known_by_its_lock)
{
	int r = child_run(sweep_beside_another_namespace, NULL);

	if (r == 77) {
		end();
		cr_skip("a pid namespace needs root");
	}
	cr_assert_eq(r, 0, "%d", r);
}

Test(kvstore_leftover, our_own_file_stays_and_that_of_our_pid_before_goes)
{
	char fresh[FANOUT_PATH_BYTES], before[FANOUT_PATH_BYTES];
	int fd;

	leftover_name("f/ab/" KEY, fresh);
	leftover_name("f/ab/" KEY, before);
	cr_assert_str_neq(fresh, before);
	fd = openat(root_fd, fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	cr_assert(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
	put(before, 0);
	cr_assert_eq(leftover_sweep(root_fd), 1);
	cr_assert(is_there(fresh) && !is_there(before));
	(void)close(fd);
}

Test(kvstore_leftover, a_file_of_another_host_goes_after_a_day)
{
	put("f/ab/" KEY ".tmp." FOREIGN_BOOT ".1.5", DAY_S + 60);
	put("f/ab/" KEY ".tmp." FOREIGN_BOOT ".1.6", DAY_S - 60);
	cr_assert_eq(leftover_sweep(root_fd), 1);
	cr_assert(!is_there("f/ab/" KEY ".tmp." FOREIGN_BOOT ".1.5"));
	cr_assert(is_there("f/ab/" KEY ".tmp." FOREIGN_BOOT ".1.6"));
}

Test(kvstore_leftover, other_files_stay)
{
	static const char *const names[] = {"f/ab/" KEY, "f/ab/x.tmp.y.1.1", "f/" KEY ".tmp." FOREIGN_BOOT ".1.5",
					    "f/ab/" KEY ".tmp", "f/ab/readme"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		put(names[i], 10 * DAY_S);
	cr_assert_eq(leftover_sweep(root_fd), 0);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		cr_assert(is_there(names[i]));
}
