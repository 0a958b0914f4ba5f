/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors: few are enough, running out hurts nobody for long, none is inherited, and none outlives its processes. */
#include "cnre/cnre.h"
#include "tests/support/child.h"
#include "tests/support/truth.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

TestSuite(system_descriptors, .timeout = 150);

enum { LAYERS = 4, EXPERTS = 16, CLIENTS = 8 };
#define ATTACH_TIMEOUT_NS 20000000000

/* With a small reservation: elastic ones would leave nothing for the eighth client. */
static int try_attach(const struct world *world, struct cnre **ret_client, int64_t timeout_ns)
{
	struct cnre_options options = {
		.size = sizeof options, .socket = world->socket, .timeout_ns = timeout_ns, .reserve_bytes = 1 << 16};

	return cnre_attach(ret_client, world->model, &options);
}

static struct cnre *attach(const struct world *world)
{
	struct cnre *client = NULL;
	int r = try_attach(world, &client, ATTACH_TIMEOUT_NS);

	cr_assert_eq(r, 0, "attach: %s", strerror(-r));
	return client;
}

static void limit_descriptors(rlim_t count)
{
	struct rlimit limit = {count, count};

	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		_exit(99);
}

/* ---- many shards, few descriptors (D12) ---- */

static void allow_256(void)
{
	limit_descriptors(256);
}

enum { MANY_EXPERTS = 40 }; /* of each layer; a shard holds one */

struct reader {
	const struct world *world;
	const struct truth *truth;
	uint32_t first;
};

static int read_everything(void *argument)
{
	const struct reader *reader = argument;
	uint32_t count = LAYERS * MANY_EXPERTS;
	struct cnre *client;

	limit_descriptors(64); /* a client needs few, whatever the number of shards */
	if (try_attach(reader->world, &client, ATTACH_TIMEOUT_NS) != 0)
		return 1;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t at = (i + reader->first) % count;

		if (truth_check_one(reader->truth, client, at / MANY_EXPERTS, at % MANY_EXPERTS) != 0)
			return 2;
	}
	cnre_detach(client);
	return 0;
}

Test(system_descriptors, more_than_142_shards_and_8_clients_need_fewer_than_256)
{
	static const char *const model[] = {"--experts", "40", "--shard-bytes", "16K", NULL};
	struct reader reader[CLIENTS];
	struct truth *truth;
	struct world world;
	pid_t child[CLIENTS];

	world_open(&world);
	world_generate(&world, model);
	cr_assert_eq(truth_open(&truth, world.model), 0);
	cr_assert_geq(truth_shards(truth), 142);
	/* Half of it, so that shards are opened again and again. */
	cr_assert_gt(world_start_with(&world, (const char *const[]){"--ram", "1400K", NULL}, allow_256), 0);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		reader[i] =
			(struct reader){.world = &world, .truth = truth, .first = i * LAYERS * MANY_EXPERTS / CLIENTS};
		child[i] = child_start(read_everything, &reader[i]);
	}
	for (uint32_t i = 0; i < CLIENTS; i++)
		cr_assert_eq(child_wait(child[i]), 0, "client %u", i);
	cr_assert_eq(world_stat(&world, "load_errors"), 0);
	cr_assert_gt(world_stat(&world, "evictions"), 0);
	truth_close(truth);
	world_close(&world);
}

/* ---- running out ---- */

static void allow_few(void)
{
	limit_descriptors(64);
}

struct idlers {
	const struct world *world;
	uint32_t count;
	int ready; /* a byte goes here when all are connected, or as many as could */
};

/* Connections that say nothing. */
static int connect_and_idle(void *argument)
{
	const struct idlers *idlers = argument;
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	(void)snprintf(address.sun_path, sizeof address.sun_path, "%s", idlers->world->socket);
	for (uint32_t i = 0; i < idlers->count; i++) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		if (fd < 0 || (connect(fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EAGAIN))
			return 1;
	}
	(void)!write(idlers->ready, "r", 1);
	(void)pause();
	return 0;
}

/* Nanoseconds that all threads of a process have run. */
static uint64_t cpu_ns(pid_t process)
{
	char path[300], text[64];
	uint64_t total = 0;
	struct dirent *entry;
	DIR *tasks;

	(void)snprintf(path, sizeof path, "/proc/%d/task", (int)process);
	tasks = opendir(path);
	cr_assert_not_null(tasks);
	while ((entry = readdir(tasks)) != NULL) {
		FILE *file;

		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", (int)process, entry->d_name);
		file = fopen(path, "re");
		if (file != NULL && fgets(text, sizeof text, file) != NULL)
			total += strtoull(text, NULL, 10);
		if (file != NULL)
			(void)fclose(file);
	}
	(void)closedir(tasks);
	return total;
}

static uint32_t open_descriptors(pid_t process)
{
	char path[64];
	uint32_t count = 0;
	DIR *folder;

	(void)snprintf(path, sizeof path, "/proc/%d/fd", (int)process);
	folder = opendir(path);
	cr_assert_not_null(folder);
	while (readdir(folder) != NULL)
		count++;
	(void)closedir(folder);
	return count - 2; /* . and .. */
}

static int has_run_out(void *world)
{
	return world_log_has(world, "accept: Too many open files");
}

static pid_t start_idlers(struct world *world, uint32_t count)
{
	struct idlers idlers = {.world = world, .count = count};
	int ready[2];
	char byte = 0;
	pid_t child;

	cr_assert_eq(pipe2(ready, O_CLOEXEC), 0);
	idlers.ready = ready[1];
	child = child_start(connect_and_idle, &idlers);
	(void)close(ready[1]);
	cr_assert_eq(read(ready[0], &byte, 1), 1, "connections failed before the manager ran out");
	(void)close(ready[0]);
	cr_assert(world_wait_until(has_run_out, world, 10));
	return child;
}

/*
 * Goal: no descriptor left is a pause, not a busy loop, an end or a loss. Method: idle connections take all of a few;
 * then the manager's own time limit for silence, and the end of their process, set them free.
 */
Test(system_descriptors, running_out_by_idle_connections_is_a_pause)
{
	static const char *const options[] = {"--ram", "600K", NULL};
	struct timespec second = {.tv_sec = 1};
	struct cnre *client, *late = NULL;
	uint64_t before_ns, used_ns;
	struct truth *truth;
	struct world world;
	pid_t idlers;
	int r;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_eq(truth_open(&truth, world.model), 0);
	cr_assert_gt(world_start_with(&world, options, allow_few), 0);
	client = attach(&world);
	for (uint32_t i = 0; i < EXPERTS; i++)
		cr_assert_eq(truth_check_one(truth, client, 0, i), 0);
	/* Two descriptors each: some more connections than there is room for, so that accept goes on failing. */
	idlers = start_idlers(&world, (64 - open_descriptors(world.manager)) / 2 + 4);

	before_ns = cpu_ns(world.manager);
	(void)nanosleep(&second, NULL);
	used_ns = cpu_ns(world.manager) - before_ns;
	cr_assert_lt(used_ns, 50000000, "%llu ns of CPU in a second of nothing", (unsigned long long)used_ns);

	for (uint32_t i = 0; i < LAYERS * EXPERTS; i++)
		cr_assert_eq(truth_check_one(truth, client, i / EXPERTS, i % EXPERTS), 0,
			     "who is attached goes on, misses too");
	cr_assert_eq(kill(idlers, 0), 0);
	cnre_detach(client);

	/* Its connections are still there: silence ends them. */
	r = try_attach(&world, &late, 60000000000);
	cr_assert_eq(r, 0, "silence must not keep others out: %s", strerror(-r));
	cr_assert_eq(truth_check_one(truth, late, 1, 1), 0);
	cnre_detach(late);
	(void)kill(idlers, SIGKILL);
	(void)child_wait(idlers);
	truth_close(truth);
	world_close(&world);
}

Test(system_descriptors, new_attaches_work_at_once_when_descriptors_are_free_again)
{
	struct cnre *client = NULL;
	struct world world;
	pid_t idlers;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start_with(&world, NULL, allow_few), 0);
	idlers = start_idlers(&world, 40);
	(void)kill(idlers, SIGKILL);
	(void)child_wait(idlers);
	cr_assert_eq(try_attach(&world, &client, 5000000000), 0);
	cnre_detach(client);
	world_close(&world);
}

/* ---- inheritance (F9) ---- */

#define DESCRIPTORS_MAX 1024
#define FLAG_CLOEXEC 02000000

/* Flags of a descriptor of any process, or -1. */
static long flags_of(pid_t process, int fd)
{
	char path[64], line[128];
	long flags = -1;
	FILE *file;

	(void)snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", (int)process, fd);
	file = fopen(path, "re");
	if (file == NULL)
		return -1;
	while (flags < 0 && fgets(line, sizeof line, file) != NULL)
		if (strncmp(line, "flags:", 6) == 0)
			flags = strtol(line + 6, NULL, 8);
	(void)fclose(file);
	return flags;
}

static void list_descriptors(pid_t process, unsigned char present[DESCRIPTORS_MAX])
{
	char path[64];
	struct dirent *entry;
	DIR *folder;

	memset(present, 0, DESCRIPTORS_MAX);
	(void)snprintf(path, sizeof path, "/proc/%d/fd", (int)process);
	folder = opendir(path);
	cr_assert_not_null(folder);
	while ((entry = readdir(folder)) != NULL) {
		int fd = atoi(entry->d_name);

		if (entry->d_name[0] != '.' && fd < DESCRIPTORS_MAX && !(process == getpid() && fd == dirfd(folder)))
			present[fd] = 1;
	}
	(void)closedir(folder);
}

static void look_at_children(char *output, size_t bytes)
{
	cr_assert_eq(world_run("/bin/ls", (const char *const[]){"-l", "/proc/self/fd", NULL}, output, bytes), 0, "%s",
		     output);
}

static uint32_t count_lines(const char *text)
{
	uint32_t lines = 0;

	for (; *text != '\0'; text++)
		lines += *text == '\n';
	return lines;
}

/* What the runner of the tests leaves open is not the manager's doing. */
static void inherit_nothing(void)
{
	if (close_range(STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
		_exit(99);
}

Test(system_descriptors, every_descriptor_of_manager_and_client_is_closed_on_exec)
{
	unsigned char of_manager[DESCRIPTORS_MAX], before[DESCRIPTORS_MAX], after[DESCRIPTORS_MAX];
	char child_before[4096], child_after[4096];
	struct cnre_expert leased;
	struct cnre *client;
	struct world world;
	uint32_t checked = 0;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start_with(&world, NULL, inherit_nothing), 0);
	list_descriptors(getpid(), before);
	look_at_children(child_before, sizeof child_before);
	client = attach(&world);
	cr_assert_eq(cnre_acquire(client, 1, 2, ATTACH_TIMEOUT_NS, &leased), 0);
	list_descriptors(getpid(), after);
	for (int fd = 0; fd < DESCRIPTORS_MAX; fd++) {
		if (!after[fd] || before[fd])
			continue;
		cr_assert_neq(flags_of(getpid(), fd) & FLAG_CLOEXEC, 0, "client's descriptor %d", fd);
		checked++;
	}
	cr_assert_geq(checked, 1, "a client has its socket at least");
	look_at_children(child_after, sizeof child_after);
	cr_assert_eq(count_lines(child_after), count_lines(child_before), "%s", child_after);
	cr_assert_null(strstr(child_after, "memfd:cnre"));

	list_descriptors(world.manager, of_manager);
	checked = 0;
	for (int fd = STDERR_FILENO + 1; fd < DESCRIPTORS_MAX; fd++) {
		if (!of_manager[fd])
			continue;
		cr_assert_neq(flags_of(world.manager, fd) & FLAG_CLOEXEC, 0, "manager's descriptor %d", fd);
		checked++;
	}
	cr_assert_geq(checked, 10, "socket, lock, loop, signals, ring, segments, pidfd");
	cr_assert_eq(cnre_release(client, &leased), 0);
	cnre_detach(client);
	world_close(&world);
}

/* ---- nothing is left (F9) ---- */

#define SEGMENTS_MAX 256

struct inodes {
	struct stat status[SEGMENTS_MAX];
	uint32_t count;
};

/* Identity of every memfd of the manager. */
static void list_segments(pid_t process, struct inodes *inodes)
{
	unsigned char present[DESCRIPTORS_MAX];

	list_descriptors(process, present);
	inodes->count = 0;
	for (int fd = 0; fd < DESCRIPTORS_MAX; fd++) {
		char path[64], target[128] = "";

		(void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)process, fd);
		if (!present[fd] || readlink(path, target, sizeof target - 1) < 0 ||
		    strncmp(target, "/memfd:cnre", 11) != 0)
			continue;
		cr_assert_lt(inodes->count, SEGMENTS_MAX);
		cr_assert_eq(stat(path, &inodes->status[inodes->count++]), 0);
	}
}

static int is_one_of(const struct inodes *inodes, dev_t device, ino_t inode)
{
	for (uint32_t i = 0; i < inodes->count; i++)
		if (inodes->status[i].st_dev == device && inodes->status[i].st_ino == inode)
			return 1;
	return 0;
}

/* Whether a process has one of them open or mapped; 0 for a process that is gone or may not be looked at. */
static int holds_any(const char *process, const struct inodes *inodes)
{
	char path[600], line[512];
	struct dirent *entry;
	struct stat status;
	int held = 0;
	DIR *folder;
	FILE *maps;

	(void)snprintf(path, sizeof path, "/proc/%s/fd", process);
	folder = opendir(path);
	while (folder != NULL && (entry = readdir(folder)) != NULL) {
		(void)snprintf(path, sizeof path, "/proc/%.32s/fd/%s", process, entry->d_name);
		held |= stat(path, &status) == 0 && is_one_of(inodes, status.st_dev, status.st_ino);
	}
	if (folder != NULL)
		(void)closedir(folder);
	(void)snprintf(path, sizeof path, "/proc/%s/maps", process);
	maps = fopen(path, "re");
	while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
		unsigned long inode = 0;

		if (strstr(line, "/memfd:cnre") != NULL && sscanf(line, "%*s %*s %*s %*s %lu", &inode) == 1)
			for (uint32_t i = 0; i < inodes->count; i++)
				held |= inodes->status[i].st_ino == inode;
	}
	if (maps != NULL)
		(void)fclose(maps);
	return held;
}

static int anybody_holds(const struct inodes *inodes, char holder[16])
{
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	int held = 0;

	cr_assert_not_null(processes);
	while (!held && (entry = readdir(processes)) != NULL) {
		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		held = holds_any(entry->d_name, inodes);
		(void)snprintf(holder, 16, "%.15s", entry->d_name);
	}
	(void)closedir(processes);
	return held;
}

static uint32_t names_with_cnre(const char *directory)
{
	DIR *folder = opendir(directory);
	struct dirent *entry;
	uint32_t count = 0;

	while (folder != NULL && (entry = readdir(folder)) != NULL)
		count += strstr(entry->d_name, "cnre") != NULL;
	if (folder != NULL)
		(void)closedir(folder);
	return count;
}

static int is_expected(const char *name)
{
	static const char *const expected[] = {".", "..", "socket", "socket.lock", "log", "tiny-olmoe"};

	for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
		if (strcmp(name, expected[i]) == 0)
			return 1;
	return 0;
}

struct holder {
	const struct world *world;
	int ready;
};

static int lease_and_wait(void *argument)
{
	const struct holder *holder = argument;
	struct cnre_expert leased;
	struct cnre *client;

	if (try_attach(holder->world, &client, ATTACH_TIMEOUT_NS) != 0 ||
	    cnre_acquire(client, 0, 0, ATTACH_TIMEOUT_NS, &leased) != 0)
		return 1;
	(void)!write(holder->ready, "r", 1);
	(void)pause();
	return 0;
}

Test(system_descriptors, nothing_with_a_name_and_no_memory_outlives_processes_that_were_killed)
{
	struct inodes inodes;
	struct world world;
	struct holder holder = {.world = &world};
	struct dirent *entry;
	char holder_pid[16], bytes[2];
	int ready[2];
	pid_t child[2];
	DIR *folder;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	cr_assert_eq(pipe2(ready, O_CLOEXEC), 0);
	holder.ready = ready[1];
	for (int i = 0; i < 2; i++)
		child[i] = child_start(lease_and_wait, &holder);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(read(ready[0], &bytes[i], 1), 1);
	list_segments(world.manager, &inodes);
	cr_assert_geq(inodes.count, 6, "page, counters, state, catalog, directory, pool");
	cr_assert(anybody_holds(&inodes, holder_pid), "the way to look for them finds them while they are there");

	(void)world_stop(&world, SIGKILL);
	for (int i = 0; i < 2; i++) {
		(void)kill(child[i], SIGKILL);
		(void)child_wait(child[i]);
	}
	cr_assert(!anybody_holds(&inodes, holder_pid), "process %s keeps a segment", holder_pid);
	cr_assert_eq(names_with_cnre("/dev/shm"), 0);
	cr_assert_eq(names_with_cnre("/dev/hugepages"), 0);
	folder = opendir(world.directory);
	cr_assert_not_null(folder);
	while ((entry = readdir(folder)) != NULL)
		cr_assert(is_expected(entry->d_name), "%s was left", entry->d_name);
	(void)closedir(folder);
	cr_assert_gt(world_start(&world, NULL), 0, "and nothing of it is in the way of the next manager");
	world_close(&world);
}
