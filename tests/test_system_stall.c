/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A drive that does not answer delays only those who need it, and those for a bounded time: two models on two drives, of
 * which one hangs and goes on again. Bytes are compared with the checkpoint by a reader of the test's own.
 */
#include "cnre/cnre.h"
#include "tests/support/hung_drive.h"
#include "tests/support/truth.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

TestSuite(system_stall, .timeout = 120);

enum { LAYERS = 4, EXPERTS = 16, ALL = LAYERS * EXPERTS, ROUNDS = 600, HUNG = 0, WELL = 1 };

#define PATIENCE_NS 60000000000ll

static struct world world;
static struct hung_drives drives;
static char model[2][160];

static double now(void)
{
	struct timespec at;

	(void)clock_gettime(CLOCK_MONOTONIC, &at);
	return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

/* A model on each of two drives, and a manager that serves both; skips where that cannot be. */
static void begin(const char *const *more)
{
	const char *options[24] = {"--model",        model[HUNG], "--model",     model[WELL],
				   "--read-timeout", "1s",        "--idle-exit", "2m"};
	size_t count = 8;
	const char *reason;

	world_open(&world);
	reason = hung_drives_open(&drives, world.directory, 2, 32);
	if (reason != NULL) {
		world_close(&world);
		cr_skip("%s", reason);
	}
	for (int i = 0; i < 2; i++) {
		(void)snprintf(model[i], sizeof model[i], "%s/model-%c", drives.drive[i].mount, 'a' + i);
		(void)snprintf(world.model, sizeof world.model, "%s", model[i]);
		world_generate(&world, (const char *const[]){"--seed", i == 0 ? "1" : "2", NULL});
	}
	sync();
	for (; *more != NULL; more++)
		options[count++] = *more;
	cr_assert_gt(world_start(&world, options), 0);
}

static void end(void)
{
	(void)world_stop(&world, SIGTERM);
	hung_drives_close(&drives);
	world_close(&world);
}

static struct cnre *attach(int which)
{
	struct cnre_options options = {.size = sizeof options, .socket = world.socket, .timeout_ns = 20000000000};
	struct cnre *client = NULL;
	int r = cnre_attach(&client, model[which], &options);

	cr_assert_eq(r, 0, "attach: %s", strerror(-r));
	return client;
}

static struct truth *open_truth(int which)
{
	struct truth *truth;

	cr_assert_eq(truth_open(&truth, model[which]), 0);
	return truth;
}

/* ---- a process that wants experts of the drive that hangs: a process attaches once ---- */

enum { WANTS_MAX = 12 };

struct want {
	struct cnre *client;
	uint32_t object;
	int status;
	double seconds;
	pthread_t thread;
};

struct order {
	uint32_t first, count;
};

static struct needy {
	pid_t pid;
	int to, from;
} needy;

static void *wait_for_expert(void *argument)
{
	struct want *want = argument;
	struct cnre_expert expert;
	double begun = now();

	want->status = cnre_acquire(want->client, want->object / EXPERTS, want->object % EXPERTS, PATIENCE_NS, &expert);
	want->seconds = now() - begun;
	if (want->status == 0)
		(void)cnre_release(want->client, &expert);
	return NULL;
}

/* In the child: takes orders until there are no more, and answers each with what became of its experts. */
static int serve_orders(int from, int to)
{
	struct cnre_options options = {.size = sizeof options, .socket = world.socket, .timeout_ns = 20000000000};
	struct want want[WANTS_MAX];
	struct cnre *client;
	struct order order;

	if (cnre_attach(&client, model[HUNG], &options) != 0 || write(to, "r", 1) != 1)
		return 1;
	while (read(from, &order, sizeof order) == (ssize_t)sizeof order) {
		for (uint32_t i = 0; i < order.count; i++) {
			want[i] = (struct want){.client = client, .object = order.first + i};
			if (pthread_create(&want[i].thread, NULL, wait_for_expert, &want[i]) != 0)
				return 1;
		}
		for (uint32_t i = 0; i < order.count; i++)
			(void)pthread_join(want[i].thread, NULL);
		if (write(to, want, order.count * sizeof want[0]) != (ssize_t)(order.count * sizeof want[0]))
			return 1;
	}
	cnre_detach(client);
	return 0;
}

/* Before this process attaches. */
static void start_needy(void)
{
	int orders[2], answers[2];
	char byte;

	cr_assert_eq(pipe2(orders, O_CLOEXEC), 0);
	cr_assert_eq(pipe2(answers, O_CLOEXEC), 0);
	needy.pid = fork();
	cr_assert_geq(needy.pid, 0);
	if (needy.pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(drives.lifeline);
		(void)close(orders[1]);
		(void)close(answers[0]);
		_exit(serve_orders(orders[0], answers[1]));
	}
	(void)close(orders[0]);
	(void)close(answers[1]);
	needy.to = orders[1];
	needy.from = answers[0];
	cr_assert_eq(read(needy.from, &byte, 1), 1, "it did not attach");
}

static void end_needy(void)
{
	int status = -1;

	(void)close(needy.to);
	(void)waitpid(needy.pid, &status, 0);
	(void)close(needy.from);
	cr_expect_eq(status, 0);
}

static void want_experts(uint32_t first, uint32_t count)
{
	struct order order = {first, count};

	cr_assert_leq(count, WANTS_MAX);
	cr_assert_eq(write(needy.to, &order, sizeof order), (ssize_t)sizeof order);
}

/* All of them fail with -EIO, none before the time-out and none long after twice that. */
static void expect_failures(uint32_t count, double least_s, double most_s)
{
	struct want want[WANTS_MAX];

	cr_assert_eq(read(needy.from, want, count * sizeof want[0]), (ssize_t)(count * sizeof want[0]));
	for (uint32_t i = 0; i < count; i++) {
		cr_expect_eq(want[i].status, -EIO, "%u: %d", i, want[i].status);
		cr_expect_geq(want[i].seconds, least_s, "%u: %.3f s", i, want[i].seconds);
		cr_expect_leq(want[i].seconds, most_s, "%u: %.3f s", i, want[i].seconds);
	}
}

/* ---- the drive that is well ---- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Experts of the healthy drive in an order with many misses; the 99th percentile of a call in seconds. */
static double measure_well(struct cnre *client, const struct truth *truth)
{
	static double seconds[ROUNDS];

	for (int i = 0; i < ROUNDS; i++) {
		uint32_t object = (uint32_t)i * 29 % ALL;
		struct cnre_expert expert;
		double begun = now();
		int r = cnre_acquire(client, object / EXPERTS, object % EXPERTS, PATIENCE_NS, &expert);

		seconds[i] = now() - begun;
		cr_assert_eq(r, 0, "round %d: %d", i, r);
		if (i % 16 == 0)
			cr_assert_eq(truth_compare(truth, &expert), 0);
		cr_assert_eq(cnre_release(client, &expert), 0);
	}
	qsort(seconds, ROUNDS, sizeof seconds[0], by_value);
	return seconds[ROUNDS * 99 / 100];
}

static int nothing_is_late(void *context)
{
	(void)context;
	return world_status(&world, "loader.timed_out") == 0 && world_status(&world, "pool.quarantined") == 0;
}

static int has_late(void *context)
{
	(void)context;
	return world_status(&world, "loader.timed_out") > 0;
}

static int read_is_out(void *context)
{
	(void)context;
	return world_status(&world, "loader.in_flight") > 0;
}

static void expect_status_line(const char *part, int is_there)
{
	static char output[1 << 16];

	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "status", NULL}, output,
			       sizeof output),
		     0);
	cr_expect_eq(strstr(output, part) != NULL, is_there, "\"%s\" in:\n%s", part, output);
}

/* Every expert of the model that hung has its right bytes, and the books balance to the last slab. */
static void expect_all_well(void)
{
	struct truth *truth = open_truth(HUNG);
	struct cnre *client = attach(HUNG);

	cr_assert(world_wait_until(nothing_is_late, NULL, 20));
	for (uint32_t i = 0; i < ALL; i++)
		cr_assert_eq(truth_check_one(truth, client, i / EXPERTS, i % EXPERTS), 0, "expert %u", i);
	expect_status_line("has not answered", 0);
	cr_expect(world_log_has(&world, "it answers again"));
	cr_expect_eq(world_stat(&world, "bytes_loaded") - world_stat(&world, "bytes_evicted"),
		     world_stat(&world, "resident_bytes"));
	cr_expect_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "reset", NULL}, NULL, 0), 0);
	cr_expect_eq(world_stat(&world, "resident_bytes"), 0);
	cr_expect_eq(world_stat(&world, "loads_in_flight"), 0);
	cr_expect_eq(world_status(&world, "pool.used_bytes"), 0, "a slab leaked");
	cr_expect_eq(world_status(&world, "pool.quarantined"), 0);
	cnre_detach(client);
	truth_close(truth);
}

static void forget_cached(int which)
{
	struct truth *truth = open_truth(which);

	truth_drop_cache(truth);
	truth_close(truth);
}

static void hang_and_recover(const char *const *options)
{
	struct truth *truth;
	struct cnre *well;
	double before, during, later;

	begin(options);
	start_needy();
	truth = open_truth(WELL);
	well = attach(WELL);
	before = measure_well(well, truth);
	forget_cached(HUNG);
	hung_drives_enter(&drives, world.manager);
	hung_drives_stop(&drives, HUNG);
	want_experts(0, 12);
	during = measure_well(well, truth); /* before the time-out: nobody knows yet that it hangs */
	cr_assert(world_wait_until(has_late, NULL, 10));
	expect_failures(12, 0.8, 5.0);
	cr_expect_eq(world_stat(&world, "loads_timed_out"), 12);
	cr_expect_eq(world_stat(&world, "load_errors"), 12);
	expect_status_line("has not answered", 1);
	expect_status_line(model[HUNG], 1);
	want_experts(20, 3); /* now it is known */
	later = measure_well(well, truth);
	expect_failures(3, 0.8, 5.0);
	if (during < later)
		during = later;
	fprintf(stderr, "healthy drive, p99 of a call: %.0f us, beside a hung one %.0f us (x %.2f)\n", before * 1e6,
		during * 1e6, during / before);
	cr_expect_lt(during, 0.5);
	hung_drives_go(&drives, HUNG);
	cnre_detach(well);
	truth_close(truth);
	expect_all_well();
	end_needy();
	end();
}

Test(system_stall, a_hung_drive_fails_who_needs_it_in_time_and_nobody_else)
{
	hang_and_recover((const char *const[]){"--ram", "1M", "--reads-in-flight", "4", NULL});
}

Test(system_stall, the_same_where_files_are_read_through_the_page_cache)
{
	hang_and_recover((const char *const[]){"--ram", "1M", "--reads-in-flight", "16", "--direct", "no", NULL});
}

Test(system_stall, the_same_with_threads_instead_of_io_uring)
{
	hang_and_recover((const char *const[]){"--ram", "1M", "--io", "pool", NULL});
}

/* The pool has room for few loads: the hung drive may not take all the places. */
Test(system_stall, a_small_pool_keeps_a_place_for_the_other_drive)
{
	struct truth *truth;
	struct cnre *well;

	begin((const char *const[]){"--ram", "500K", "--reads-in-flight", "16", NULL});
	cr_assert_lt(world_status(&world, "pool.loads_max"), 8);
	start_needy();
	truth = open_truth(WELL);
	well = attach(WELL);
	hung_drives_enter(&drives, world.manager);
	hung_drives_stop(&drives, HUNG);
	want_experts(0, 8);
	(void)measure_well(well, truth);
	expect_failures(8, 0.8, 5.0);
	(void)measure_well(well, truth);
	hung_drives_go(&drives, HUNG);
	cr_assert(world_wait_until(nothing_is_late, NULL, 20));
	cnre_detach(well);
	truth_close(truth);
	end_needy();
	end();
}

/* The time in which the manager itself could not run is not the drive's: a debugger, a frozen cgroup, a moved machine. */
Test(system_stall, a_stopped_manager_blames_no_drive)
{
	struct want want;

	begin((const char *const[]){NULL});
	start_needy();
	hung_drives_enter(&drives, world.manager);
	hung_drives_stop(&drives, HUNG);
	want_experts(0, 1);
	cr_assert(world_wait_until(read_is_out, NULL, 10));
	cr_assert_eq(kill(world.manager, SIGSTOP), 0);
	(void)usleep(3000000); /* longer than the time-out and what counts as overslept */
	cr_assert_eq(kill(world.manager, SIGCONT), 0);
	(void)usleep(200000); /* it looks at its reads, of which none has come yet */
	hung_drives_go(&drives, HUNG);
	cr_assert_eq(read(needy.from, &want, sizeof want), (ssize_t)sizeof want);
	cr_expect_eq(want.status, 0, "%d", want.status);
	cr_expect_eq(world_stat(&world, "loads_timed_out"), 0);
	end_needy();
	end();
}

Test(system_stall, a_manager_stops_though_a_drive_hangs)
{
	double begun;

	begin((const char *const[]){NULL});
	start_needy();
	hung_drives_enter(&drives, world.manager);
	hung_drives_stop(&drives, HUNG);
	want_experts(0, 1);
	cr_assert(world_wait_until(has_late, NULL, 10));
	expect_failures(1, 0.8, 5.0);
	begun = now();
	cr_expect_eq(world_stop(&world, SIGTERM), 0);
	cr_expect_lt(now() - begun, 20.0);
	cr_expect(world_log_has(&world, "leaving its reads to the kernel"));
	cr_expect_neq(access(world.socket, F_OK), 0);
	hung_drives_go(&drives, HUNG);
	end_needy();
	end();
}

static int epoch_is_two(void *context)
{
	static char output[1 << 18];

	(void)context;
	return world_run("cnrectl", (const char *const[]){"--socket", world.socket, "status", "--json", NULL}, output,
			 sizeof output) == 0 &&
	       strstr(output, "\"epoch\":2,") != NULL;
}

Test(system_stall, the_next_manager_starts_though_a_drive_hangs)
{
	struct truth *truth;
	struct cnre *well;
	pid_t manager;

	begin((const char *const[]){"--keeper", "auto", "--ram", "1M", NULL});
	start_needy();
	truth = open_truth(WELL);
	well = attach(WELL);
	manager = (pid_t)world_status(&world, "pid");
	hung_drives_enter(&drives, world.manager); /* the keeper, and so every manager to come */
	hung_drives_enter(&drives, manager);
	hung_drives_stop(&drives, HUNG);
	want_experts(0, 1);
	cr_assert(world_wait_until(read_is_out, NULL, 10));
	cr_assert_eq(kill(manager, SIGKILL), 0); /* before its own time-out: it is the next one that waits for the drive */
	cr_assert(world_wait_until(epoch_is_two, NULL, 30), "the next manager waits for the drive");
	(void)measure_well(well, truth);
	expect_failures(1, 0.8, 20.0);
	hung_drives_go(&drives, HUNG);
	cnre_detach(well);
	truth_close(truth);
	expect_all_well();
	end_needy();
	end();
}
