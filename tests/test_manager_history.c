/* SPDX-License-Identifier: Apache-2.0 */
/* Histories of uses: merged, never lost, never written over what is no history. */
#include "manager/history.h"

#include "manager/worker.h"
#include "model/usage.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(manager_history, .timeout = 60);

enum { LAYERS = 2, EXPERTS = 3, OBJECTS = LAYERS * EXPERTS };

struct bench {
	struct manager manager;
	struct model_catalog catalog;
	struct model_object object[OBJECTS];
	char folder[64], checkpoint[96], path[160], message[512];
};

static void open_bench(struct bench *bench)
{
	memset(bench, 0, sizeof *bench);
	(void)snprintf(bench->folder, sizeof bench->folder, "/tmp/cnre-test-XXXXXX");
	cr_assert_not_null(mkdtemp(bench->folder));
	(void)snprintf(bench->checkpoint, sizeof bench->checkpoint, "%s/model", bench->folder);
	cr_assert_eq(mkdir(bench->checkpoint, 0755), 0);
	for (uint32_t i = 0; i < OBJECTS; i++)
		bench->object[i] = (struct model_object){.layer = i / EXPERTS, .expert = i % EXPERTS};
	bench->catalog = (struct model_catalog){.family = "olmoe",
						.name = "tiny",
						.directory = bench->checkpoint,
						.layer_count = LAYERS,
						.main_layer_count = LAYERS,
						.expert_count = EXPERTS,
						.object_count = OBJECTS,
						.object = bench->object};
	bench->manager.model[0].catalog = &bench->catalog;
	bench->manager.model_count = 1;
	bench->manager.owner_count = OBJECTS;
	(void)snprintf(bench->path, sizeof bench->path, "%s/tiny-000000000000.coli_usage", bench->folder);
}

static void close_bench(struct bench *bench)
{
	char command[128];

	(void)snprintf(command, sizeof command, "rm -r %s", bench->folder);
	cr_assert_eq(system(command), 0);
}

static struct history *open_history(struct bench *bench)
{
	struct history *history = NULL;

	cr_assert_eq(history_open(&history, &bench->manager, bench->folder, bench->message, sizeof bench->message), 0);
	return history;
}

static void count(struct history *history, uint32_t owner, uint32_t times)
{
	for (uint32_t i = 0; i < times; i++)
		history_count(history, owner, 1);
}

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");

	cr_assert_not_null(file);
	(void)fputs(text, file);
	(void)fclose(file);
}

static char *read_file(const char *path, char *text, size_t bytes)
{
	FILE *file = fopen(path, "re");
	size_t got;

	cr_assert_not_null(file);
	got = fread(text, 1, bytes - 1, file);
	text[got] = '\0';
	(void)fclose(file);
	return text;
}

Test(manager_history, two_savers_of_one_folder_lose_nothing_of_each_other)
{
	struct bench bench;
	struct history *one, *two;

	open_bench(&bench);
	one = open_history(&bench);
	two = open_history(&bench); /* both began with nothing */
	count(one, 1, 5);
	count(two, 1, 7);
	count(two, 4, 1);
	(void)history_close(one);
	(void)history_close(two);
	one = open_history(&bench);
	cr_assert_eq(history_uses(one)[1], 12);
	cr_assert_eq(history_uses(one)[4], 1);
	cr_assert_eq(history_uses(one)[0], 0);
	(void)history_close(one);
	close_bench(&bench);
}

Test(manager_history, what_is_no_history_is_left_as_it_is)
{
	struct bench bench;
	struct history *history;
	char text[256];

	open_bench(&bench);
	write_file(bench.path, "somebody's notes\n");
	history = open_history(&bench);
	count(history, 2, 3);
	cr_assert_eq(history_uses(history)[2], 3, "counting goes on");
	(void)history_close(history);
	cr_assert_str_eq(read_file(bench.path, text, sizeof text), "somebody's notes\n");
	close_bench(&bench);
}

Test(manager_history, an_engine_s_own_history_is_the_start_of_ours_and_stays_its_own)
{
	struct bench bench;
	struct history *history;
	char path[160], text[256], before[256];

	open_bench(&bench);
	(void)snprintf(path, sizeof path, "%s/.coli_usage", bench.checkpoint);
	(void)snprintf(before, sizeof before, "-1 2 3\n-2 1 %u\n0 1 40\n1 2 2\n", usage_engine("olmoe"));
	write_file(path, before);
	history = open_history(&bench);
	cr_assert_eq(history_uses(history)[1], 40);
	count(history, 1, 2);
	(void)history_close(history);
	cr_assert_str_eq(read_file(path, text, sizeof text), before);
	history = open_history(&bench);
	cr_assert_eq(history_uses(history)[1], 42, "once, not twice");
	cr_assert_eq(history_uses(history)[5], 2);
	(void)history_close(history);
	close_bench(&bench);
}

Test(manager_history, another_engine_s_history_is_no_start)
{
	struct bench bench;
	struct history *history;
	char path[160], text[256];

	open_bench(&bench);
	(void)snprintf(path, sizeof path, "%s/.coli_usage", bench.checkpoint);
	(void)snprintf(text, sizeof text, "-1 2 3\n-2 1 %u\n0 1 40\n", usage_engine("glm_moe_dsa"));
	write_file(path, text);
	history = open_history(&bench);
	cr_assert_eq(history_uses(history)[1], 0);
	(void)history_close(history);
	close_bench(&bench);
}

Test(manager_history, while_another_holds_the_lock_nothing_is_written_and_nothing_forgotten)
{
	struct bench bench;
	struct history *history;
	char lock[176];
	int fd;

	open_bench(&bench);
	(void)snprintf(lock, sizeof lock, "%s.lock", bench.path);
	fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	cr_assert(fd >= 0 && flock(fd, LOCK_EX) == 0);
	history = open_history(&bench);
	count(history, 0, 9);
	(void)history_close(history);
	cr_assert_eq(access(bench.path, F_OK), -1, "the other one was writing");
	(void)close(fd);
	close_bench(&bench);
}

Test(manager_history, a_folder_where_others_write_is_refused)
{
	struct bench bench;
	struct history *history = NULL;

	open_bench(&bench);
	for (int sticky = 0; sticky < 2; sticky++) {
		cr_assert_eq(chmod(bench.folder, sticky ? 01777 : 0777), 0);
		cr_assert_eq(history_open(&history, &bench.manager, bench.folder, bench.message, sizeof bench.message), -EPERM);
		cr_assert_not_null(strstr(bench.message, "others may write"));
	}
	cr_assert_eq(chmod(bench.folder, 0775), 0);
	(void)history_close(open_history(&bench));
	close_bench(&bench);
}

Test(manager_history, another_user_s_folder_is_refused)
{
	struct bench bench;
	struct history *history = NULL;

	if (geteuid() != 0)
		cr_skip_test("only root can give a folder away");
	open_bench(&bench);
	cr_assert_eq(chown(bench.folder, 65534, 65534), 0);
	cr_assert_eq(history_open(&history, &bench.manager, bench.folder, bench.message, sizeof bench.message), -EPERM);
	close_bench(&bench);
}

Test(manager_history, what_a_killed_writer_left_is_swept_and_nothing_else)
{
	static const char *const names[] = {".aB3xYz", ".aB3xYzz", ".lock"};
	struct bench bench;
	struct history *history;
	char path[192];

	open_bench(&bench);
	for (int i = 0; i < 3; i++) {
		(void)snprintf(path, sizeof path, "%s%s", bench.path, names[i]);
		write_file(path, "");
	}
	history = open_history(&bench);
	count(history, 0, 1);
	(void)history_close(history);
	for (int i = 0; i < 3; i++) {
		(void)snprintf(path, sizeof path, "%s%s", bench.path, names[i]);
		cr_assert_eq(access(path, F_OK), i == 0 ? -1 : 0, "%s", names[i]);
	}
	cr_assert_eq(access(bench.path, F_OK), 0);
	close_bench(&bench);
}

Test(manager_history, a_folder_that_is_not_there_is_refused_with_what_to_do)
{
	struct bench bench;
	struct history *history = NULL;

	open_bench(&bench);
	cr_assert_eq(history_open(&history, &bench.manager, "/nonexistent/folder", bench.message, sizeof bench.message), -ENOENT);
	cr_assert_not_null(strstr(bench.message, "name a folder"));
	write_file(bench.path, "");
	cr_assert_eq(history_open(&history, &bench.manager, bench.path, bench.message, sizeof bench.message), -ENOTDIR);
	close_bench(&bench);
}

static uint32_t count_lines(const char *text)
{
	uint32_t lines = 0;

	for (; *text != '\0'; text++)
		lines += *text == '\n';
	return lines;
}

Test(manager_history, what_cannot_be_written_at_the_end_is_tried_once_and_said_once)
{
	struct bench bench;
	struct history *history;
	char log[] = "/tmp/cnre-test-XXXXXX", folder[80], said[1024];
	int fd = mkstemp(log);

	open_bench(&bench);
	history = open_history(&bench);
	count(history, 0, 9);
	(void)snprintf(folder, sizeof folder, "%s-moved", bench.folder);
	cr_assert(fd >= 0 && rename(bench.folder, folder) == 0);
	cr_assert(dup2(fd, STDERR_FILENO) >= 0);
	(void)history_close(history);
	cr_assert_eq(rename(folder, bench.folder), 0);
	(void)read_file(log, said, sizeof said);
	cr_expect_eq(count_lines(said), 1, "%s", said);
	cr_expect_not_null(strstr(said, "not saved: No such file"), "%s", said);
	(void)unlink(log);
	(void)close(fd);
	close_bench(&bench);
}

/* As on a full drive: the file can be read, and nothing can be written. */
static void allow_writing(int allowed)
{
	struct rlimit limit;

	(void)signal(SIGXFSZ, SIG_IGN);
	cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = allowed ? limit.rlim_max : 0;
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void save_now(struct history *history, struct worker *worker)
{
	int64_t now_ns = history_deadline_ns(history);
	struct pollfd ready = {.fd = worker_event_fd(worker), .events = POLLIN};

	history_tick(history, worker, now_ns);
	cr_assert_eq(poll(&ready, 1, 10000), 1);
	(void)worker_reap(worker);
}

Test(manager_history, a_save_that_failed_adds_nothing_twice_at_the_next)
{
	struct bench bench;
	struct history *history;
	struct worker *worker = NULL;

	open_bench(&bench);
	cr_assert_eq(worker_open(&worker, 1), 0);
	write_file(bench.path, "0 1 40\n");
	history = open_history(&bench);
	count(history, 1, 2);
	allow_writing(0);
	for (int i = 0; i < 3; i++) {
		save_now(history, worker);
		cr_assert_eq(history_uses(history)[1], 42);
	}
	allow_writing(1);
	save_now(history, worker);
	cr_assert_eq(history_uses(history)[1], 42);
	(void)history_close(history);
	history = open_history(&bench);
	cr_assert_eq(history_uses(history)[1], 42);
	(void)history_close(history);
	(void)worker_close(worker);
	close_bench(&bench);
}
