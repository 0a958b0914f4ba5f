/* SPDX-License-Identifier: Apache-2.0 */
/* The worker threads: every job runs once, off the caller's thread, and comes back to the caller. */
#include "manager/worker.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

enum { JOBS = 200 };

struct counted_job {
	struct worker_job job;
	_Atomic int runs;
	int dones, ran_elsewhere;
	pthread_t core;
};

TestSuite(manager_worker, .timeout = 20);

static void run(struct worker_job *job)
{
	struct counted_job *counted = (struct counted_job *)job;

	counted->ran_elsewhere = !pthread_equal(pthread_self(), counted->core);
	atomic_fetch_add_explicit(&counted->runs, 1, memory_order_relaxed);
}

static void done(struct worker_job *job)
{
	struct counted_job *counted = (struct counted_job *)job;

	counted->dones += pthread_equal(pthread_self(), counted->core) != 0;
}

Test(manager_worker, every_job_runs_once_elsewhere_and_is_done_here)
{
	static struct counted_job jobs[JOBS];
	struct worker *worker = NULL;
	int reaped = 0;

	cr_assert_eq(worker_open(&worker), 0);
	for (int i = 0; i < JOBS; i++) {
		jobs[i] = (struct counted_job){.job = {.run = run, .done = done}, .core = pthread_self()};
		worker_submit(worker, &jobs[i].job);
	}
	while (reaped < JOBS) {
		struct pollfd ready = {.fd = worker_event_fd(worker), .events = POLLIN};

		cr_assert_eq(poll(&ready, 1, 10000), 1);
		reaped += worker_reap(worker);
	}
	for (int i = 0; i < JOBS; i++) {
		cr_assert_eq(atomic_load_explicit(&jobs[i].runs, memory_order_relaxed), 1);
		cr_assert_eq(jobs[i].dones, 1);
		cr_assert(jobs[i].ran_elsewhere);
	}
	worker_close(worker);
}

Test(manager_worker, closing_finishes_what_was_submitted)
{
	static struct counted_job jobs[JOBS];
	struct worker *worker = NULL;

	cr_assert_eq(worker_open(&worker), 0);
	for (int i = 0; i < JOBS; i++) {
		jobs[i] = (struct counted_job){.job = {.run = run, .done = done}, .core = pthread_self()};
		worker_submit(worker, &jobs[i].job);
	}
	worker_close(worker);
	for (int i = 0; i < JOBS; i++)
		cr_assert_eq(atomic_load_explicit(&jobs[i].runs, memory_order_relaxed), 1);
}
