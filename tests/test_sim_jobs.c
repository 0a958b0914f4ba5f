/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs on threads: each once, and the same outcome for any number of threads. */
#include "tools/sim/jobs.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdatomic.h>

TestSuite(sim_jobs, .timeout = 30);

struct tally {
	_Atomic uint32_t runs[1000];
	uint32_t fails_from, last_done, reports;
};

static int count(void *context, uint32_t job)
{
	struct tally *tally = context;

	atomic_fetch_add_explicit(&tally->runs[job], 1, memory_order_relaxed);
	return job >= tally->fails_from ? -(int)job : 0;
}

static void report(void *context, uint32_t done, uint32_t all)
{
	struct tally *tally = context;

	cr_expect_eq(done, tally->last_done + 1);
	cr_expect_leq(done, all);
	tally->last_done = done;
	tally->reports++;
}

Test(sim_jobs, every_job_runs_once_for_any_number_of_threads)
{
	for (uint32_t threads = 0; threads < 9; threads++) {
		struct tally tally = {.fails_from = UINT32_MAX};
		struct sim_jobs jobs = {
			.count = 1000, .threads = threads, .run = count, .progress = report, .context = &tally};

		cr_assert_eq(sim_jobs_run(&jobs), 0);
		for (uint32_t i = 0; i < 1000; i++)
			cr_expect_eq(tally.runs[i], 1);
		cr_expect_eq(tally.reports, 1000);
	}
}

Test(sim_jobs, the_error_is_that_of_the_lowest_job_and_no_other_begins)
{
	for (uint32_t threads = 1; threads < 9; threads++) {
		struct tally tally = {.fails_from = 100};
		struct sim_jobs jobs = {.count = 1000, .threads = threads, .run = count, .context = &tally};

		cr_expect_eq(sim_jobs_run(&jobs), -100);
		cr_expect_eq(tally.runs[200], 0);
	}
}

Test(sim_jobs, no_job_is_no_error)
{
	struct sim_jobs jobs = {.count = 0, .run = count};

	cr_expect_eq(sim_jobs_run(&jobs), 0);
}
