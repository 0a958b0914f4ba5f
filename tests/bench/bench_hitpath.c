/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a hit costs: nanoseconds of one cnre_acquire and cnre_release of a resident expert at random, beside what any
 * design with a ledger a client must pay: the bare pair of locked adds on the ledger line and the load of the state, on
 * a directory of as many objects. Threads and processes run pinned to CPUs of their own, as far as there are any.
 * Prints one line of JSON; hitpath.sh repeats it in turns.
 *
 * usage: bench_hitpath SOCKET MODEL PAIRS
 *        The manager must hold the whole model; it is warmed first.
 */
#include "base/clock.h"
#include "shm/layout.h"

#include <cnre/cnre.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKERS_MAX 2u

struct bench {
	const char *socket, *model;
	uint64_t pair_count;
	struct cnre *client;
	struct cnre_model_info info;
	struct bench_object {
		uint32_t layer, expert;
	} * object;
	uint32_t object_count;
	struct cnre_entry *entry; /* the bare directory, [bare_count], as large as the real one */
	uint32_t bare_count;
	_Atomic uint64_t *ledger; /* the bare ledgers of WORKERS_MAX processes */
};

struct shared { /* between processes */
	_Atomic uint32_t ready, go;
	double ns[WORKERS_MAX];
	int failed;
};

static void fail(const char *what, int error)
{
	fprintf(stderr, "bench_hitpath: %s: %s\n", what, strerror(-error));
	exit(1);
}

static void *shared_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED)
		fail("memory", -errno);
	return memory;
}

static void pin(unsigned worker)
{
	cpu_set_t all, one;
	int cpu = -1;

	if (sched_getaffinity(0, sizeof all, &all) != 0)
		return;
	for (unsigned left = worker % (unsigned)CPU_COUNT(&all) + 1; left > 0; left--)
		do
			cpu++;
		while (!CPU_ISSET(cpu, &all));
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	(void)sched_setaffinity(0, sizeof one, &one); /* without it the numbers only spread more */
}

static inline uint32_t next_random(uint64_t *state, uint32_t below)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (uint32_t)((*state >> 16 & UINT32_MAX) * below >> 32);
}

static void attach(struct bench *bench)
{
	struct cnre_options options = {
		.size = sizeof options, .socket = bench->socket, .timeout_ns = 60 * CNRE_NS_PER_S, .name = "hitpath"};
	int r = cnre_attach(&bench->client, bench->model, &options);

	if (r < 0)
		fail("attach", r);
	bench->info.size = sizeof bench->info;
	r = cnre_model(bench->client, &bench->info);
	if (r < 0)
		fail("model", r);
}

/* Lists every expert, and loads it. */
static void warm(struct bench *bench)
{
	struct cnre_expert view;

	bench->object = calloc(bench->info.object_count, sizeof *bench->object);
	if (bench->object == NULL)
		fail("memory", -ENOMEM);
	for (uint32_t layer = 0; layer < bench->info.layer_count; layer++)
		for (uint32_t expert = 0; expert < bench->info.expert_count; expert++) {
			int r = cnre_acquire(bench->client, layer, expert, -1, &view);

			if (r == -ENOENT)
				continue;
			if (r == 0)
				r = cnre_release(bench->client, &view);
			if (r < 0)
				fail("warm-up", r);
			bench->object[bench->object_count++] = (struct bench_object){layer, expert};
		}
}

static double run_library(const struct bench *bench, unsigned worker)
{
	uint64_t state = 0x9e3779b97f4a7c15ull + worker;
	int64_t start_ns = cnre_clock_now_ns();

	for (uint64_t i = 0; i < bench->pair_count; i++) {
		const struct bench_object *object = &bench->object[next_random(&state, bench->object_count)];
		struct cnre_expert view;

		if (cnre_acquire(bench->client, object->layer, object->expert, 0, &view) != 0 ||
		    view.flags != CNRE_WAS_RESIDENT || cnre_release(bench->client, &view) != 0)
			return -1;
	}
	return (double)(cnre_clock_now_ns() - start_ns) / (double)bench->pair_count;
}

static double run_bare(const struct bench *bench, unsigned worker)
{
	_Atomic uint64_t *ledger = bench->ledger + worker * bench->bare_count;
	uint64_t state = 0x9e3779b97f4a7c15ull + worker, sum = 0;
	int64_t start_ns = cnre_clock_now_ns();

	for (uint64_t i = 0; i < bench->pair_count; i++) {
		const struct bench_object *named = &bench->object[next_random(&state, bench->object_count)];
		uint32_t object = named->layer * bench->info.expert_count + named->expert;

		(void)atomic_fetch_add_explicit(&ledger[object], CNRE_LEDGER_ACCESS + CNRE_LEDGER_LEASE,
						memory_order_seq_cst);
		if (atomic_load_explicit(&bench->entry[object].state, memory_order_seq_cst) != CNRE_STATE_READY)
			return -1;
		sum += atomic_load_explicit(&bench->entry[object].place, memory_order_relaxed);
		(void)atomic_fetch_sub_explicit(&ledger[object], CNRE_LEDGER_LEASE, memory_order_release);
	}
	return sum == 1 ? -1 : (double)(cnre_clock_now_ns() - start_ns) / (double)bench->pair_count;
}

/* ---- two at a time ---- */

typedef double run_function(const struct bench *bench, unsigned worker);

static void meet(struct shared *shared)
{
	atomic_fetch_add_explicit(&shared->ready, 1, memory_order_seq_cst);
	while (atomic_load_explicit(&shared->ready, memory_order_seq_cst) < WORKERS_MAX)
		(void)sched_yield();
}

/* One process more attaches by itself; the other side is this process. The mean of both. */
static double run_two_processes(struct bench *bench, run_function *run, int needs_client)
{
	struct shared *shared = shared_memory(sizeof *shared);
	pid_t child = fork();
	int status;

	if (child < 0)
		fail("fork", -errno);
	if (child == 0) {
		pin(1);
		if (needs_client)
			attach(bench);
		meet(shared);
		shared->ns[1] = run(bench, 1);
		if (needs_client)
			cnre_detach(bench->client);
		_exit(shared->ns[1] < 0);
	}
	meet(shared);
	shared->ns[0] = run(bench, 0);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (shared->ns[0] < 0 || status != 0)
		fail("two processes", -EIO);
	return (shared->ns[0] + shared->ns[1]) / 2;
}

struct thread_run {
	struct bench *bench;
	struct shared *shared;
};

static void *run_second_thread(void *context)
{
	struct thread_run *run = context;

	pin(1);
	meet(run->shared);
	run->shared->ns[1] = run_library(run->bench, 1);
	return NULL;
}

/* Two threads of one client, which share its gauge: the line that a client's own threads bounce. */
static double run_two_threads(struct bench *bench)
{
	struct shared *shared = shared_memory(sizeof *shared);
	struct thread_run run = {bench, shared};
	pthread_t thread;

	if (pthread_create(&thread, NULL, run_second_thread, &run) != 0)
		fail("thread", -EAGAIN);
	meet(shared);
	shared->ns[0] = run_library(bench, 0);
	(void)pthread_join(thread, NULL);
	if (shared->ns[0] < 0 || shared->ns[1] < 0)
		fail("two threads", -EIO);
	return (shared->ns[0] + shared->ns[1]) / 2;
}

static void make_bare(struct bench *bench)
{
	bench->bare_count = bench->info.layer_count * bench->info.expert_count;
	bench->entry = shared_memory(bench->bare_count * sizeof *bench->entry);
	bench->ledger = shared_memory(WORKERS_MAX * bench->bare_count * sizeof *bench->ledger);
	for (uint32_t i = 0; i < bench->bare_count; i++)
		atomic_store_explicit(&bench->entry[i].state, CNRE_STATE_READY, memory_order_relaxed);
}

int main(int argc, char **argv)
{
	struct bench bench = {0};
	double bare, library, bare_two, library_two, threads_two;

	if (argc != 4) {
		fprintf(stderr, "usage: bench_hitpath SOCKET MODEL PAIRS\n");
		return 2;
	}
	bench.socket = argv[1];
	bench.model = argv[2];
	bench.pair_count = strtoull(argv[3], NULL, 10);
	if (bench.pair_count == 0)
		return 2;
	pin(0);
	attach(&bench);
	warm(&bench);
	make_bare(&bench);
	(void)run_library(&bench, 0); /* the first run pays for page faults */
	bare = run_bare(&bench, 0);
	library = run_library(&bench, 0);
	bare_two = run_two_processes(&bench, run_bare, 0);
	library_two = run_two_processes(&bench, run_library, 1);
	threads_two = run_two_threads(&bench);
	if (bare < 0 || library < 0)
		fail("an expert is not resident: give the manager more memory than the model has", -EIO);
	printf("{\"objects\":%u,\"bare_ns\":%.2f,\"pair_ns\":%.2f,\"bare_2proc_ns\":%.2f,\"pair_2proc_ns\":%.2f,\"pair_2thread_ns\":%.2f}\n",
	       bench.object_count, bare, library, bare_two, library_two, threads_two);
	cnre_detach(bench.client);
	return 0;
}
