/* SPDX-License-Identifier: Apache-2.0 */
/* Several processes, one real manager, one cold expert: one read, everybody served, and the same when the read fails. */
#include "cnre/cnre.h"
#include "tests/support/faulty_drive.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(system_share, .timeout = 120);

enum { PROCESSES = 3, THREADS = 8, ALL = PROCESSES * THREADS };

/* What every thread saw, in memory that all processes share. */
struct storm {
	pthread_barrier_t barrier;
	_Atomic uint32_t arrived; /* threads that are attached and about to ask */
	uint32_t layer, expert;
	int result[ALL];
	int joined[ALL], resident[ALL];
	uint64_t sum[ALL];
	_Atomic int failed_processes;
};

struct storm_thread {
	struct storm *storm;
	struct cnre *client;
	int index;
};

static uint64_t sum_of(const struct cnre_expert *expert)
{
	uint64_t sum = 0;

	for (int role = 0; role < CNRE_ROLES; role++)
		for (uint64_t i = 0; i < expert->part[role].bytes; i++)
			sum = sum * 31 + ((const unsigned char *)expert->part[role].data)[i];
	return sum;
}

static void *acquire_one(void *argument)
{
	struct storm_thread *thread = argument;
	struct storm *storm = thread->storm;
	struct cnre_expert expert;
	int i = thread->index;

	atomic_fetch_add_explicit(&storm->arrived, 1, memory_order_relaxed);
	(void)pthread_barrier_wait(&storm->barrier);
	storm->result[i] = cnre_acquire(thread->client, storm->layer, storm->expert, -1, &expert);
	if (storm->result[i] == 0) {
		storm->joined[i] = (expert.flags & CNRE_JOINED) != 0;
		storm->resident[i] = (expert.flags & CNRE_WAS_RESIDENT) != 0;
		storm->sum[i] = sum_of(&expert);
		if (cnre_release(thread->client, &expert) != 0)
			storm->result[i] = -1000;
	}
	/* Nobody leaves, and so no lease ends with its process, before all have their answer. */
	(void)pthread_barrier_wait(&storm->barrier);
	return NULL;
}

static void storm_process(struct storm *storm, struct world *world, int process)
{
	struct cnre_options options = {.size = sizeof options, .socket = world->socket, .timeout_ns = 20000000000};
	struct storm_thread thread[THREADS];
	pthread_t id[THREADS];
	struct cnre *client;

	if (cnre_attach(&client, world->model, &options) != 0)
		_exit(3); /* the barrier then never opens; the suite's time limit ends it */
	for (int i = 0; i < THREADS; i++) {
		thread[i] = (struct storm_thread){.storm = storm, .client = client, .index = process * THREADS + i};
		(void)pthread_create(&id[i], NULL, acquire_one, &thread[i]);
	}
	for (int i = 0; i < THREADS; i++)
		(void)pthread_join(id[i], NULL);
	cnre_detach(client);
	_exit(0);
}

/* The manager stands still until everybody has asked, so that nobody comes after the read and finds a hit. */
static void hold_until_all_asked(struct world *world, struct storm *storm)
{
	while (atomic_load_explicit(&storm->arrived, memory_order_relaxed) < ALL)
		(void)usleep(100); /* they attach, and that needs the manager */
	(void)kill(world->manager, SIGSTOP);
	(void)pthread_barrier_wait(&storm->barrier);
	(void)usleep(300000); /* from the barrier to 24 raised leases */
	(void)kill(world->manager, SIGCONT);
	(void)pthread_barrier_wait(&storm->barrier);
}

static struct storm *run_storm(struct world *world, uint32_t layer, uint32_t expert)
{
	struct storm *storm = mmap(NULL, sizeof *storm, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t attributes;
	pid_t child[PROCESSES];

	cr_assert_neq(storm, MAP_FAILED);
	(void)pthread_barrierattr_init(&attributes);
	(void)pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	(void)pthread_barrier_init(&storm->barrier, &attributes, ALL + 1);
	storm->layer = layer;
	storm->expert = expert;
	for (int i = 0; i < PROCESSES; i++) {
		child[i] = fork();
		cr_assert_geq(child[i], 0);
		if (child[i] == 0)
			storm_process(storm, world, i);
	}
	hold_until_all_asked(world, storm);
	for (int i = 0; i < PROCESSES; i++) {
		int status;

		cr_assert_eq(waitpid(child[i], &status, 0), child[i]);
		cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "process %d: status 0x%x", i, status);
	}
	return storm;
}

/* Large enough that nobody arrives after the read: 24 MiB an expert. */
static const char *const large_experts[] = {"--layers", "1",    "--experts",      "2",    "--top-k", "1",
					    "--hidden", "1024", "--intermediate", "8192", NULL};

Test(system_share, one_cold_expert_is_read_once_for_24_threads_of_3_processes)
{
	struct world world;
	struct storm *storm;
	int misses = 0;

	world_open(&world);
	world_generate(&world, large_experts);
	cr_assert_gt(world_start(&world, NULL), 0);
	storm = run_storm(&world, 0, 1);
	for (int i = 0; i < ALL; i++) {
		cr_assert_eq(storm->result[i], 0, "thread %d: %s", i, strerror(-storm->result[i]));
		cr_assert_eq(storm->sum[i], storm->sum[0]);
		misses += !storm->joined[i] && !storm->resident[i];
	}
	cr_assert_eq(world_stat(&world, "loads"), 1);
	cr_assert_eq(misses, 1, "exactly one access began the read, not %d", misses);
	cr_assert_eq(world_stat(&world, "accesses"), ALL);
	cr_assert_eq(world_stat(&world, "hits") + world_stat(&world, "misses"), ALL);
	cr_assert_eq(world_stat(&world, "joins"), world_stat(&world, "misses") - 1);
	cr_assert_eq(world_stat(&world, "joins"), ALL - 1);
	world_close(&world);
}

Test(system_share, a_read_error_reaches_all_24_threads_and_is_not_cached)
{
	struct faulty_drive drive;
	struct world world;
	struct storm *storm;
	const char *reason;

	world_open(&world);
	reason = faulty_drive_open(&drive, world.directory, 128);
	if (reason != NULL) {
		world_close(&world);
		cr_skip("%s", reason);
	}
	(void)snprintf(world.model, sizeof world.model, "%s/model", drive.mount);
	world_generate(&world, large_experts);
	cr_assert_gt(world_start(&world, NULL), 0);
	faulty_drive_break(&drive);
	storm = run_storm(&world, 0, 1);
	for (int i = 0; i < ALL; i++)
		cr_assert_eq(storm->result[i], -EIO, "thread %d: %d", i, storm->result[i]);
	cr_assert_eq(world_stat(&world, "loads"), 0);
	cr_assert_geq(world_stat(&world, "load_errors"), 1);
	cr_assert_eq(world_stat(&world, "resident_bytes"), 0);
	cr_assert(world_log_has(&world, "layer 0 expert 1"), "the log names the object");
	faulty_drive_heal(&drive);
	storm = run_storm(&world, 0, 1);
	for (int i = 0; i < ALL; i++)
		cr_assert_eq(storm->result[i], 0, "the next try reads again; thread %d: %d", i, storm->result[i]);
	cr_assert_eq(world_stat(&world, "loads"), 1);
	(void)world_stop(&world, SIGTERM);
	faulty_drive_close(&drive);
	world_close(&world);
}
