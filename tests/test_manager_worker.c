/* SPDX-License-Identifier: Apache-2.0 */
/* The worker threads: every job runs once, off the caller's thread, and comes back to the caller. */
#include "manager/worker.h"

#include <criterion/criterion.h>
#include <errno.h>
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

static _Atomic int may_end;

static void hang(struct worker_job *job)
{
	(void)job;
	while (!atomic_load_explicit(&may_end, memory_order_acquire))
		(void)poll(NULL, 0, 1);
}

Test(manager_worker, a_job_that_hangs_is_waited_for_so_long_and_no_longer)
{
	static struct counted_job jobs[2];
	struct worker *worker = NULL;

	cr_assert_eq(worker_open(&worker, 1), 0);
	cr_assert_eq(worker_drain(worker, 0), 0, "there is none yet");
	jobs[0] = (struct counted_job){.job = {.run = hang, .done = done}, .core = pthread_self()};
	jobs[1] = (struct counted_job){.job = {.run = run, .done = done}, .core = pthread_self()};
	worker_submit(worker, &jobs[0].job);
	worker_submit(worker, &jobs[1].job);
	cr_assert_eq(worker_drain(worker, 1000000), -ETIMEDOUT);
	cr_assert_eq(atomic_load_explicit(&jobs[1].runs, memory_order_relaxed), 0, "one after another");
	atomic_store_explicit(&may_end, 1, memory_order_release);
	cr_assert_eq(worker_drain(worker, 10000000000), 0);
	cr_assert_eq(atomic_load_explicit(&jobs[1].runs, memory_order_relaxed), 1);
	cr_assert_eq(jobs[0].dones, 0);
	cr_assert_eq(worker_reap(worker), 2);
	(void)worker_close(worker);
}

Test(manager_worker, every_job_runs_once_elsewhere_and_is_done_here)
{
	static struct counted_job jobs[JOBS];
	struct worker *worker = NULL;
	int reaped = 0;

	cr_assert_eq(worker_open(&worker, 2), 0);
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

	cr_assert_eq(worker_open(&worker, 2), 0);
	for (int i = 0; i < JOBS; i++) {
		jobs[i] = (struct counted_job){.job = {.run = run, .done = done}, .core = pthread_self()};
		worker_submit(worker, &jobs[i].job);
	}
	worker_close(worker);
	for (int i = 0; i < JOBS; i++)
		cr_assert_eq(atomic_load_explicit(&jobs[i].runs, memory_order_relaxed), 1);
}
