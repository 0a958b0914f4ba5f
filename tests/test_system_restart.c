/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manager dies, and nobody but it notices: residents, leases, clients and waiting requests go on in the next
 * incarnation, which the keeper starts. Every leased byte is compared with what it was before.
 */
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(system_restart, .timeout = 120);

enum { LAYERS = 4, EXPERTS = 16, ALL = LAYERS * EXPERTS };

static const char *const with_keeper[] = {"--keeper", "auto", NULL};

static int acquire(struct cnre *client, uint32_t object, struct cnre_expert *ret_expert)
{
	return cnre_acquire(client, object / EXPERTS, object % EXPERTS, 30000000000, ret_expert);
}

/* What every expert's bytes add up to, read through the first manager. */
static void read_all(struct cnre *client, uint64_t sums[ALL])
{
	for (uint32_t i = 0; i < ALL; i++) {
		struct cnre_expert expert;

		cr_assert_eq(acquire(client, i, &expert), 0);
		sums[i] = world_sum(&expert);
		cr_assert_eq(cnre_release(client, &expert), 0);
	}
}

/* In a process of its own, since one attaches once. 0, or -errno of attach. */
static int try_attach(const struct world *world)
{
	pid_t child = fork();
	int status = -1;

	if (child == 0) {
		struct cnre_options options = {
			.size = sizeof options, .socket = world->socket, .timeout_ns = 20000000000};
		struct cnre *client;

		_exit(-cnre_attach(&client, "tiny-olmoe", &options));
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFEXITED(status));
	return -WEXITSTATUS(status);
}

static pid_t manager_of(struct world *world)
{
	return (pid_t)world_status(world, "pid");
}

Test(system_restart, residents_and_leases_survive_and_nothing_is_read_again)
{
	struct world world;
	struct cnre *client;
	struct cnre_expert held;
	uint64_t sums[ALL], loads;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, with_keeper), 0);
	client = world_attach(&world, 0);
	read_all(client, sums);
	loads = world_stat(&world, "loads");
	cr_assert_eq(acquire(client, 5, &held), 0);
	for (int round = 0; round < 3; round++) {
		world_kill_manager(&world);
		cr_assert_eq(world_stat(&world, "resident_objects"), ALL);
		cr_assert_eq(world_stat(&world, "clients"), 1);
		cr_assert_eq(world_stat(&world, "leased_objects"), 1);
		for (uint32_t i = 0; i < ALL; i++) {
			struct cnre_expert expert;

			cr_assert_eq(acquire(client, i, &expert), 0);
			cr_assert_eq(expert.flags & CNRE_WAS_RESIDENT, CNRE_WAS_RESIDENT);
			cr_assert_eq(world_sum(&expert), sums[i]);
			cr_assert_eq(cnre_release(client, &expert), 0);
		}
		cr_assert_eq(world_sum(&held), sums[5]);
	}
	cr_assert_eq(world_stat(&world, "loads"), loads, "bytes were read again");
	cr_assert_eq(world_stat(&world, "bytes_loaded") - world_stat(&world, "bytes_evicted"),
		     world_stat(&world, "resident_bytes"));
	cr_assert_eq(cnre_release(client, &held), 0);
	cnre_detach(client);
	cr_assert_eq(world_stat(&world, "clients"), 0);
	cr_assert_eq(world_stop(&world, SIGTERM), 0, "the keeper ends with its manager, status 0");
	cr_assert_neq(access(world.socket, F_OK), 0);
	world_close(&world);
}

/* ---- under load ---- */

struct load {
	struct world *world;
	const uint64_t *sums;
	_Atomic int stop, failed, wrong;
	_Atomic uint64_t calls;
};

static void *use_experts(void *argument)
{
	struct load *load = argument;
	struct cnre *client = world_attach(load->world, 0);
	uint64_t state = 88172645463325252ull;

	while (!atomic_load_explicit(&load->stop, memory_order_relaxed)) {
		struct cnre_expert expert;
		uint32_t object;

		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		object = (uint32_t)(state >> 20) % ALL;
		if (acquire(client, object, &expert) != 0) {
			atomic_fetch_add_explicit(&load->failed, 1, memory_order_relaxed);
			continue;
		}
		if (world_sum(&expert) != load->sums[object])
			atomic_fetch_add_explicit(&load->wrong, 1, memory_order_relaxed);
		(void)cnre_release(client, &expert);
		atomic_fetch_add_explicit(&load->calls, 1, memory_order_relaxed);
	}
	cnre_detach(client);
	return NULL;
}

/* Each number is asked for by itself, and what a client that left had counted is added a moment later. */
static int adds_up(void *context)
{
	return world_stat(context, "hits") + world_stat(context, "misses") == world_stat(context, "accesses");
}

static int restarts_wanted(void)
{
	const char *text = getenv("CNRE_RESTARTS");

	return text != NULL ? atoi(text) : 8;
}

Test(system_restart, no_call_fails_and_no_byte_is_wrong_while_the_manager_is_killed_under_misses)
{
	static const char *const tight[] = {"--keeper", "auto", "--ram", "700K",
					    NULL}; /* half: misses and evictions all the time */
	struct world world;
	struct load load = {.world = &world};
	uint64_t sums[ALL];
	struct cnre *client;
	pthread_t thread;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, tight), 0);
	client = world_attach(&world, 0);
	read_all(client, sums);
	cnre_detach(client);
	load.sums = sums;
	cr_assert_eq(pthread_create(&thread, NULL, use_experts, &load), 0);
	for (int i = 0; i < restarts_wanted(); i++) {
		uint64_t calls = atomic_load_explicit(&load.calls, memory_order_relaxed);

		world_kill_manager(&world);
		while (atomic_load_explicit(&load.calls, memory_order_relaxed) < calls + 50)
			(void)usleep(1000); /* the suite's time limit ends a standstill */
	}
	atomic_store_explicit(&load.stop, 1, memory_order_relaxed);
	(void)pthread_join(thread, NULL);
	cr_assert_eq(load.failed, 0);
	cr_assert_eq(load.wrong, 0);
	cr_assert(world_wait_until(adds_up, &world, 10));
	cr_assert_leq(world_status(&world, "pool.used_bytes"), 700 << 10);
	world_close(&world);
}

/* ---- the keeper ---- */

static int keeper_is_new(void *context)
{
	const int *pids = context; /* manager, former keeper */
	char path[64], line[512];
	int fd, parent_changed = 0;
	ssize_t n;

	(void)snprintf(path, sizeof path, "/proc/%d/status", pids[0]);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, line, sizeof line - 1);
	(void)close(fd);
	if (n > 0) {
		char former[32];

		line[n] = '\0';
		(void)snprintf(former, sizeof former, "PPid:\t%d\n", pids[1]);
		parent_changed = strstr(line, former) == NULL;
	}
	return parent_changed;
}

Test(system_restart, a_killed_keeper_is_replaced_and_the_next_death_of_the_manager_survived)
{
	struct world world;
	struct cnre *client;
	uint64_t sums[ALL];
	int pids[2];

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, with_keeper), 0);
	client = world_attach(&world, 0);
	read_all(client, sums);
	pids[0] = manager_of(&world);
	pids[1] = world.manager;
	(void)world_stop(&world, SIGKILL); /* the keeper */
	cr_assert(world_wait_until(keeper_is_new, pids, 10));
	while (!world_log_has(&world, "started another one"))
		(void)usleep(1000);
	cr_assert_eq(world_stat(&world, "clients"), 1, "the manager serves on meanwhile");
	world_kill_manager(&world);
	cr_assert_eq(world_stat(&world, "resident_objects"), ALL);
	read_all(client, sums);
	cr_assert_eq(world_stat(&world, "loads"), ALL);
	cnre_detach(client);
	cr_assert_eq(kill(manager_of(&world), SIGTERM), 0);
	while (access(world.socket, F_OK) == 0)
		(void)usleep(1000);
	world_close(&world);
}

static int store_answers(void *context)
{
	return world_status(context, "store.answers") == 1;
}

/* A session that nobody keeps could lose its leases with the manager, so it is refused; who is attached goes on. */
Test(system_restart, a_stopped_keeper_stops_no_attached_client_and_new_ones_are_refused_in_time)
{
	struct world world;
	struct cnre *client;
	uint64_t sums[ALL];

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, with_keeper), 0);
	client = world_attach(&world, 0);
	cr_assert_eq(kill(world.manager, SIGSTOP), 0);
	read_all(client, sums);
	cr_assert_eq(try_attach(&world), -ETIMEDOUT);
	cr_assert_eq(world_status(&world, "store.answers"), 0);
	cr_assert_geq(world_stat(&world, "attaches_unkept"), 1);
	cr_assert_eq(kill(world.manager, SIGCONT), 0);
	cr_assert(world_wait_until(store_answers, &world, 10));
	cr_assert_eq(try_attach(&world), 0);
	cnre_detach(client);
	world_close(&world);
}

static void set_ram(const struct world *world, const char *size)
{
	const char *const arguments[] = {"--socket", world->socket, "set", "ram", size, NULL};

	cr_assert_eq(world_run("cnrectl", arguments, NULL, 0), 0);
}

/* Segments come and go until the keeper's socket is full. One that is not kept would cost the whole world. */
Test(system_restart, what_a_stopped_keeper_did_not_take_it_gets_when_it_goes_on)
{
	static const char *const options[] = {"--keeper", "auto", "--ram", "1200K", NULL};
	struct world world;
	struct cnre *client;
	struct cnre_expert held;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, options), 0);
	client = world_attach(&world, 0);
	cr_assert_eq(acquire(client, 5, &held), 0);
	cr_assert_eq(kill(world.manager, SIGSTOP), 0);
	cr_assert_eq(try_attach(&world), -ETIMEDOUT);
	while (world_status(&world, "store.missing") == 0) { /* the suite's time limit ends it */
		set_ram(&world, "900K");
		set_ram(&world, "1200K");
	}
	cr_assert_eq(kill(world.manager, SIGCONT), 0);
	cr_assert(world_wait_until(store_answers, &world, 10));
	cr_assert_eq(world_status(&world, "store.missing"), 0);
	world_kill_manager(&world);
	cr_assert_eq(world_stat(&world, "clients"), 1);
	cr_assert_eq(world_stat(&world, "leased_objects"), 1);
	cr_assert_eq(cnre_release(client, &held), 0);
	cnre_detach(client);
	world_close(&world);
}

/* ---- few descriptors ---- */

static void allow(rlim_t count)
{
	struct rlimit limit = {count, count};

	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		_exit(99);
}

/* Half of it, less what the keeper needs itself: 32 descriptors, of which 24 are the manager's and 4 a client's. */
static void allow_one_client(void)
{
	allow(256);
}

static void allow_nobody(void)
{
	allow(150);
}

/* The former manager's fence has a place until its ring is gone. */
static int try_attach_well(void *context)
{
	return try_attach(context) == 0;
}

Test(system_restart, a_client_that_the_keeper_has_no_number_for_is_refused_and_the_others_survive)
{
	struct world world;
	struct cnre *client;
	struct cnre_expert held;
	uint64_t sum;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start_with(&world, with_keeper, allow_one_client), 0);
	client = world_attach(&world, 0);
	cr_assert_eq(acquire(client, 5, &held), 0);
	sum = world_sum(&held);
	cr_assert_eq(try_attach(&world), -ENOSPC);
	cr_assert(world_log_has(&world, "no more descriptors can be kept for a restart"));
	cr_assert_eq(world_stat(&world, "attaches_unkept"), 1);
	cr_assert_eq(world_status(&world, "store.missing"), 0);
	world_kill_manager(&world);
	cr_assert_eq(world_stat(&world, "clients"), 1);
	cr_assert_eq(world_stat(&world, "leased_objects"), 1);
	cr_assert_eq(world_sum(&held), sum);
	cr_assert_eq(cnre_release(client, &held), 0);
	cnre_detach(client);
	cr_assert(world_wait_until(try_attach_well, &world, 10), "its place is free again");
	cr_assert_eq(world_stop(&world, SIGTERM), 0);
	world_close(&world);
}

Test(system_restart, with_too_few_descriptors_to_keep_anything_nobody_is_attached_and_the_status_says_why)
{
	struct world world;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start_with(&world, with_keeper, allow_nobody), 0);
	cr_assert_eq(try_attach(&world), -ENOSPC);
	cr_assert(world_log_has(&world, "LimitNOFILE"));
	cr_assert_gt(world_status(&world, "store.missing"), 0);
	cr_assert_eq(world_status(&world, "store.kept"), 0);
	world_close(&world);
}

/* ---- what must not survive ---- */

static void add_to_config(const struct world *world)
{
	char path[256];
	int fd;

	(void)snprintf(path, sizeof path, "%s/config.json", world->model);
	fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, "\n", 1), 1);
	(void)close(fd);
}

Test(system_restart, another_checkpoint_is_not_adopted_and_leases_stay_readable)
{
	struct world world;
	struct cnre *client;
	struct cnre_expert held, other;
	uint64_t sums[ALL], sum;
	int r;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, with_keeper), 0);
	client = world_attach(&world, 0);
	cr_assert_eq(acquire(client, 7, &held), 0);
	sum = world_sum(&held);
	add_to_config(&world);
	cr_assert_eq(kill(manager_of(&world), SIGKILL), 0);
	world_await_epoch(&world, 1); /* it starts anew */
	cr_assert(world_log_has(&world, "other models"));
	cr_assert_eq(world_sum(&held), sum);
	r = acquire(client, 9, &other);
	cr_assert_eq(r, -EPIPE, "a miss says that the manager is gone: %d", r);
	cr_assert_eq(cnre_release(client, &held), 0);
	cnre_detach(client);
	client = world_attach(&world, 0);
	read_all(client, sums);
	cr_assert_eq(sums[7], sum);
	cnre_detach(client);
	world_close(&world);
}

/* ---- clients that end while nobody serves ---- */

static int no_client_left(void *context)
{
	return world_stat(context, "clients") == 0;
}

Test(system_restart, a_client_that_dies_while_the_manager_is_dead_is_noticed)
{
	struct world world;
	int ready[2];
	char byte;
	pid_t child;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, with_keeper), 0);
	cr_assert_eq(pipe2(ready, O_CLOEXEC), 0);
	child = fork();
	if (child == 0) {
		struct cnre_options options = {
			.size = sizeof options, .socket = world.socket, .timeout_ns = 20000000000};
		struct cnre *client;
		struct cnre_expert expert;

		if (cnre_attach(&client, world.model, &options) != 0 || acquire(client, 3, &expert) != 0)
			_exit(1);
		(void)!write(ready[1], "r", 1);
		(void)pause();
		_exit(2);
	}
	cr_assert_eq(read(ready[0], &byte, 1), 1);
	/* The keeper is stopped first, so that nobody serves when the client dies. */
	cr_assert_eq(kill(world.manager, SIGSTOP), 0);
	cr_assert_eq(kill(manager_of(&world), SIGKILL), 0);
	(void)kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0);
	cr_assert_eq(kill(world.manager, SIGCONT), 0);
	world_await_epoch(&world, 2);
	cr_assert(world_wait_until(no_client_left, &world, 10));
	cr_assert_eq(world_stat(&world, "leased_objects"), 0);
	cr_assert_eq(world_status(&world, "pool.reserved_slabs"), 0);
	world_close(&world);
}

Test(system_restart, set_ram_outlives_the_manager_it_was_said_to)
{
	static const char *const options[] = {"--keeper", "auto", "--ram", "1200K", NULL};
	struct world world;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, options), 0);
	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "set", "ram", "900K", NULL},
			       NULL, 0),
		     0);
	world_kill_manager(&world);
	cr_assert_eq(world_stat(&world, "budget_bytes"), 900 << 10);
	world_close(&world);
}

Test(system_restart, a_manager_that_cannot_start_again_is_given_up_and_leases_stay_readable)
{
	struct world world;
	struct cnre *client;
	struct cnre_expert held, other;
	char moved[256];
	uint64_t sum;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, with_keeper), 0);
	client = world_attach(&world, 0);
	cr_assert_eq(acquire(client, 1, &held), 0);
	sum = world_sum(&held);
	(void)snprintf(moved, sizeof moved, "%s-moved", world.model);
	cr_assert_eq(rename(world.model, moved), 0);
	cr_assert_eq(kill(manager_of(&world), SIGKILL), 0);
	while (!world_log_has(&world, "giving up"))
		(void)usleep(1000);
	cr_assert_eq(acquire(client, 2, &other), -EPIPE);
	cr_assert_eq(world_sum(&held), sum);
	cr_assert_eq(cnre_release(client, &held), 0);
	cnre_detach(client);
	cr_assert_neq(world_stop(&world, 0), 0, "the keeper's exit status says that it failed");
	world_close(&world);
}

/* ---- another layout ---- */

/* The keeper's descriptor of a segment, opened for writing as root may: what an upgrade to another layout leaves. */
static int open_kept(pid_t keeper, const char *segment)
{
	char path[64], target[128], wanted[64];

	(void)snprintf(wanted, sizeof wanted, "/memfd:%s (deleted)", segment);
	for (int fd = 3; fd < 256; fd++) {
		ssize_t n;

		(void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)keeper, fd);
		n = readlink(path, target, sizeof target - 1);
		if (n <= 0)
			continue;
		target[n] = '\0';
		if (strcmp(target, wanted) == 0)
			return open(path, O_RDWR | O_CLOEXEC);
	}
	return -1;
}

Test(system_restart, another_layout_is_refused_cleanly_and_clients_get_epipe)
{
	struct world world;
	struct cnre *client;
	struct cnre_expert held, other;
	uint32_t version = 0x7fffffff;
	uint64_t sum;
	int fd;

	if (geteuid() != 0)
		cr_skip("needs root to reach into the keeper");
	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, with_keeper), 0);
	client = world_attach(&world, 0);
	cr_assert_eq(acquire(client, 7, &held), 0);
	sum = world_sum(&held);
	fd = open_kept(world.manager, "cnre-state");
	cr_assert_geq(fd, 0);
	cr_assert_eq(pwrite(fd, &version, sizeof version, 8), (ssize_t)sizeof version);
	(void)close(fd);
	cr_assert_eq(kill(manager_of(&world), SIGKILL), 0);
	world_await_epoch(&world, 1); /* it starts anew */
	cr_assert(world_log_has(&world, "does not fit"));
	cr_assert_eq(world_sum(&held), sum);
	cr_assert_eq(acquire(client, 9, &other), -EPIPE);
	cr_assert_eq(cnre_release(client, &held), 0);
	cnre_detach(client);
	client = world_attach(&world, 0);
	cr_assert_eq(acquire(client, 9, &other), 0);
	cr_assert_eq(cnre_release(client, &other), 0);
	cnre_detach(client);
	world_close(&world);
}
