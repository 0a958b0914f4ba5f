/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Late DMA: a manager is killed while its drive hangs, the next one loads other experts all over the pool, and then the
 * reads of the dead one land. No byte of any expert that is resident may change, and in the end every slab is room again.
 * Also: killed again and again while it takes over.
 */
#include "cnre/cnre.h"
#include "tests/support/hung_drive.h"
#include "tests/support/truth.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

TestSuite(system_late_dma, .timeout = 120);

enum { LAYERS = 4, EXPERTS = 16, ALL = LAYERS * EXPERTS, HELD = 6, LATE = 3 };

#define PATIENCE_NS 60000000000ll
#define EXPERT_TRIES 400 /* lookups beside the late reads: every slab changes hands several times */

static struct world world;
static struct hung_drives drives;
static struct cnre *client;
static struct truth *truth;
static struct cnre_expert held[HELD];

/* ---- the world ---- */

static int status_has(const char *text)
{
	static char output[1 << 18];

	return world_run("cnrectl", (const char *const[]){"--socket", world.socket, "status", "--json", NULL}, output,
			 sizeof output) == 0 &&
	       strstr(output, text) != NULL;
}

/* Without asserting: between two incarnations nobody answers. */
static int epoch_is(void *context)
{
	char text[32];

	(void)snprintf(text, sizeof text, "\"epoch\":%d,", *(int *)context);
	return status_has(text);
}

static void wait_epoch(int epoch)
{
	cr_assert(world_wait_until(epoch_is, &epoch, 30), "no incarnation %d", epoch);
}

static pid_t manager_pid(void)
{
	return (pid_t)world_status(&world, "pid");
}

static void attach(void)
{
	struct cnre_options options = {.size = sizeof options, .socket = world.socket, .timeout_ns = 20000000000};
	int r = cnre_attach(&client, world.model, &options);

	cr_assert_eq(r, 0, "attach: %s", strerror(-r));
	cr_assert_eq(truth_open(&truth, world.model), 0);
}

/* A model on a drive that can hang, a manager with a keeper and room for less than half of it, some experts held. */
static void begin(const char *const *more, void (*prepare)(void))
{
	const char *options[24] = {"--keeper", "auto", "--ram", "700K", "--reads-in-flight", "8", "--idle-exit", "2m"};
	size_t count = 8;
	const char *reason;

	world_open(&world);
	reason = hung_drives_open(&drives, world.directory, 1, 32);
	if (reason != NULL) {
		world_close(&world);
		cr_skip("%s", reason);
	}
	(void)snprintf(world.model, sizeof world.model, "%s/model", drives.drive[0].mount);
	world_generate(&world, NULL);
	sync();
	for (; *more != NULL; more++)
		options[count++] = *more;
	cr_assert_gt(world_start_with(&world, options, prepare), 0);
	attach();
	for (uint32_t i = 0; i < HELD; i++)
		cr_assert_eq(cnre_acquire(client, 0, i, PATIENCE_NS, &held[i]), 0);
}

static void end(void)
{
	cnre_detach(client);
	truth_close(truth);
	(void)world_stop(&world, SIGTERM);
	hung_drives_close(&drives);
	world_close(&world);
}

/* ---- who waits for what the drive does not bring ---- */

struct want {
	uint32_t object;
	int status;
	pthread_t thread;
};

static void *wait_for_expert(void *argument)
{
	struct want *want = argument;

	want->status = truth_check_one(truth, client, want->object / EXPERTS, want->object % EXPERTS);
	return NULL;
}

static int reads_are_out(void *context)
{
	return world_status(&world, "loader.in_flight") >= *(uint64_t *)context;
}

/* The manager that runs now has so many reads out that do not come back; only its own reads hang. */
static void hang_reads(struct want *want, uint32_t first)
{
	uint64_t out = LATE;

	hung_drives_enter(&drives, manager_pid());
	hung_drives_stop(&drives, 0);
	for (uint32_t i = 0; i < LATE; i++) {
		want[i].object = first + i;
		cr_assert_eq(pthread_create(&want[i].thread, NULL, wait_for_expert, &want[i]), 0);
	}
	cr_assert(world_wait_until(reads_are_out, &out, 10));
}

static void expect_wants(struct want *want, int status)
{
	for (uint32_t i = 0; i < LATE; i++) {
		(void)pthread_join(want[i].thread, NULL);
		cr_expect_eq(want[i].status, status, "%u: %d", i, want[i].status);
	}
}

static void kill_manager(int next_epoch)
{
	cr_assert_eq(kill(manager_pid(), SIGKILL), 0);
	if (next_epoch > 0)
		wait_epoch(next_epoch);
}

/* ---- nobody's bytes change ---- */

static void expect_held_unchanged(void)
{
	for (uint32_t i = 0; i < HELD; i++)
		cr_assert_eq(truth_compare(truth, &held[i]), 0, "held expert %u changed", i);
}

/* Fills the pool over and over; what is held and what was just loaded must be right at every look. */
static void churn(void)
{
	for (uint32_t i = 0; i < EXPERT_TRIES; i++) {
		uint32_t object = i * 29 % ALL;

		cr_assert_eq(truth_check_one(truth, client, object / EXPERTS, object % EXPERTS), 0,
			     "lookup %u of expert %u", i, object);
		if (i % 16 == 0)
			expect_held_unchanged();
	}
	expect_held_unchanged();
}

/* What is resident now stays as it is while the late reads land: held all at once, as many as may be. */
static void expect_calm_landing(void)
{
	struct cnre_expert kept[3];

	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(cnre_acquire(client, 3, 10 + i, PATIENCE_NS, &kept[i]), 0);
	hung_drives_go(&drives, 0);
	for (int look = 0; look < 200; look++) {
		expect_held_unchanged();
		for (uint32_t i = 0; i < 3; i++)
			cr_assert_eq(truth_compare(truth, &kept[i]), 0, "a late read landed in expert %u of layer 3",
				     10 + i);
		(void)usleep(1000);
	}
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(cnre_release(client, &kept[i]), 0);
	/* Those that nobody held: they are still what they were, or have gone. */
	for (uint32_t i = 0; i < ALL; i++)
		cr_assert_eq(truth_check_one(truth, client, i / EXPERTS, i % EXPERTS), 0, "expert %u", i);
}

static int nothing_is_quarantined(void *context)
{
	(void)context;
	return world_status(&world, "pool.quarantined") == 0;
}

static void expect_empty_pool(void)
{
	for (uint32_t i = 0; i < HELD; i++)
		cr_assert_eq(cnre_release(client, &held[i]), 0);
	cr_expect_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "reset", NULL}, NULL, 0), 0);
	cr_expect_eq(world_stat(&world, "resident_bytes"), 0);
	cr_expect_eq(world_stat(&world, "loads_in_flight"), 0);
	cr_expect_eq(world_stat(&world, "hits") + world_stat(&world, "misses"), world_stat(&world, "accesses"));
}

static void expect_nothing_leaked(void)
{
	cr_assert(world_wait_until(nothing_is_quarantined, NULL, 10), "the fence did not fall");
	expect_empty_pool();
	cr_expect_eq(world_status(&world, "pool.used_bytes"), 0, "a slab leaked");
}

/* ---- the cases ---- */

Test(system_late_dma, what_a_killed_manager_was_reading_lands_nowhere_else)
{
	struct want want[LATE];

	begin((const char *const[]){NULL}, NULL);
	hang_reads(want, 20);
	kill_manager(2);
	expect_wants(want, 0); /* the next one reads them again, elsewhere */
	cr_expect_eq(world_status(&world, "pool.quarantined"), LATE);
	churn();
	cr_expect_eq(world_status(&world, "pool.quarantined"), LATE, "the fence fell before its reads landed");
	expect_calm_landing();
	expect_nothing_leaked();
	cr_expect(world_log_has(&world, "no read of incarnation 1"));
	end();
}

Test(system_late_dma, two_dead_managers_have_a_fence_each)
{
	struct want want[2][LATE];

	begin((const char *const[]){NULL}, NULL);
	hang_reads(want[0], 20);
	kill_manager(2);
	expect_wants(want[0], 0);
	hang_reads(want[1], 40);
	kill_manager(3);
	expect_wants(want[1], 0);
	cr_expect_eq(world_status(&world, "pool.quarantined"), 2 * LATE);
	churn();
	cr_expect_eq(world_status(&world, "pool.quarantined"), 2 * LATE);
	expect_calm_landing();
	expect_nothing_leaked();
	cr_expect(world_log_has(&world, "no read of incarnation 1"));
	cr_expect(world_log_has(&world, "no read of incarnation 2"));
	end();
}

/* Its object is ABSENT already when the manager dies, and yet its slab is not free. */
Test(system_late_dma, a_read_that_timed_out_before_its_manager_died_lands_nowhere_else)
{
	struct want want[LATE];

	begin((const char *const[]){"--read-timeout", "500ms", NULL}, NULL);
	hang_reads(want, 20);
	expect_wants(want, -EIO);
	cr_expect_eq(world_status(&world, "loader.timed_out"), LATE);
	cr_expect_eq(world_status(&world, "pool.quarantined"), 0);
	kill_manager(2);
	cr_expect_eq(world_status(&world, "pool.quarantined"), LATE);
	churn();
	cr_expect_eq(world_status(&world, "pool.quarantined"), LATE);
	expect_calm_landing();
	expect_nothing_leaked();
	end();
}

/* A thread that reads keeps its killed process until the read has landed: there is no next manager before that. */
Test(system_late_dma, with_threads_that_read_the_next_manager_comes_after_the_drive_answered)
{
	struct want want[LATE];

	begin((const char *const[]){"--io", "pool", NULL}, NULL);
	hang_reads(want, 20);
	kill_manager(0);
	for (int look = 0; look < 300; look++) {
		expect_held_unchanged();
		cr_assert_not(look % 100 == 0 && status_has("\"epoch\":2,"));
		(void)usleep(1000);
	}
	hung_drives_go(&drives, 0);
	wait_epoch(2);
	expect_wants(want, 0);
	churn();
	expect_nothing_leaked();
	end();
}

/* A ring without a table of files, as old kernels and filters have it: io_uring_register refuses it. */
static void forbid_registered_files(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_register, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IORING_REGISTER_FILES2, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IORING_REGISTER_FILES, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};

	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	(void)prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

Test(system_late_dma, without_a_fence_a_slab_stays_in_quarantine_and_the_log_says_so)
{
	struct want want[LATE];

	begin((const char *const[]){NULL}, forbid_registered_files);
	if (world_status(&world, "loader.registered_files") != 0) {
		end();
		cr_skip("no seccomp filter here");
	}
	cr_expect(world_log_has(&world, "the ring holds no files"));
	hang_reads(want, 20);
	kill_manager(2);
	expect_wants(want, 0);
	cr_expect(world_log_has(&world, "3 slabs stay in quarantine"));
	churn();
	expect_calm_landing();
	cr_expect_eq(world_status(&world, "pool.quarantined"), LATE);
	kill_manager(3); /* nor does the next one know better */
	churn();
	cr_expect_eq(world_status(&world, "pool.quarantined"), LATE);
	expect_empty_pool();
	end();
}

/* ---- killed again while it takes over ---- */

enum { WORLDS = 8, KILLS = 4 }; /* a keeper gives up after ten restarts in a minute */

struct load {
	_Atomic int stop, failed;
	_Atomic uint64_t calls;
};

static void *use_experts(void *argument)
{
	struct load *load = argument;
	uint64_t state = 88172645463325252ull;

	/* [Y1] relaxed: a flag that is looked at again. */
	while (!atomic_load_explicit(&load->stop, memory_order_relaxed)) {
		uint32_t object;

		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		object = (uint32_t)(state >> 20) % ALL;
		if (truth_check_one(truth, client, object / EXPERTS, object % EXPERTS) != 0)
			/* [Y2] relaxed: a number read after the thread was joined. */
			atomic_fetch_add_explicit(&load->failed, 1, memory_order_relaxed);
		/* [Y3] relaxed: progress; nothing else is read by it. */
		atomic_fetch_add_explicit(&load->calls, 1, memory_order_relaxed);
	}
	return NULL;
}

/* The keeper's child now; 0: none. */
static pid_t child_of_keeper(void)
{
	char path[64], text[32] = "";
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)world.manager, (int)world.manager);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		(void)close(fd);
	return n > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
}

static int another_child(void *context)
{
	pid_t child = child_of_keeper();

	return child > 0 && child != *(pid_t *)context;
}

/* Kills the manager, and the next one so many microseconds after it was born. How many incarnations that were. */
static void kill_twice(unsigned delay_us)
{
	pid_t first = child_of_keeper(), second;

	cr_assert_gt(first, 0);
	cr_assert_eq(kill(first, SIGKILL), 0);
	cr_assert(world_wait_until(another_child, &first, 10));
	second = child_of_keeper();
	(void)usleep(delay_us);
	(void)kill(second, SIGKILL);
	cr_assert(world_wait_until(another_child, &second, 10));
}

/* 0.5 to 50 ms, most of them early: a small world is taken over some milliseconds after the birth. */
static unsigned delay_us(unsigned kill)
{
	return 500 + 50000 * kill * kill / (WORLDS * KILLS * WORLDS * KILLS);
}

static int is_answering(void *context)
{
	(void)context;
	return status_has("\"epoch\":");
}

static void kill_in_one_world(unsigned seed)
{
	struct load load = {0};
	pthread_t thread;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world,
				 (const char *const[]){"--keeper", "auto", "--ram", "700K", "--idle-exit", "2m", NULL}),
		     0);
	attach();
	cr_assert_eq(pthread_create(&thread, NULL, use_experts, &load), 0);
	for (unsigned i = 0; i < KILLS; i++) {
		uint64_t calls = atomic_load_explicit(&load.calls, memory_order_relaxed); /* [Y4] relaxed: as [Y3]. */

		kill_twice(delay_us(seed * KILLS + i));
		/* [Y5] relaxed: as [Y3]; the suite's time limit ends a standstill. */
		while (atomic_load_explicit(&load.calls, memory_order_relaxed) < calls + 30)
			(void)usleep(500);
	}
	atomic_store_explicit(&load.stop, 1, memory_order_relaxed); /* [Y6] relaxed: as [Y1]. */
	(void)pthread_join(thread, NULL);
	cr_expect_eq(load.failed, 0, "world %u: %d calls failed or brought wrong bytes", seed, load.failed);
	cr_assert(world_wait_until(is_answering, NULL, 10));
	cr_assert(world_wait_until(nothing_is_quarantined, NULL, 10));
	cr_expect_eq(world_stat(&world, "clients"), 1);
	cr_expect_eq(world_stat(&world, "leased_objects"), 0);
	cr_expect_leq(world_status(&world, "pool.used_bytes"), 700 << 10);
	cr_expect_eq(world_status(&world, "pool.used_bytes"), world_stat(&world, "resident_bytes"));
	cr_expect_eq(world_stat(&world, "bytes_loaded") - world_stat(&world, "bytes_evicted"),
		     world_stat(&world, "resident_bytes"));
	cr_expect_eq(world_stat(&world, "hits") + world_stat(&world, "misses"), world_stat(&world, "accesses"));
	cr_expect_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "reset", NULL}, NULL, 0), 0);
	cr_expect_eq(world_status(&world, "pool.used_bytes"), 0, "world %u: a slab leaked", seed);
	cnre_detach(client);
	truth_close(truth);
	cr_expect_eq(world_stop(&world, SIGTERM), 0);
	world_close(&world);
}

Test(system_late_dma, a_manager_that_is_killed_while_it_takes_over_costs_no_call)
{
	for (unsigned i = 0; i < WORLDS; i++)
		kill_in_one_world(i);
}
