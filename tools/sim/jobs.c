/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs on threads; see jobs.h. A job takes milliseconds or more, so one lock around the next number costs nothing. */
#include "tools/sim/jobs.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>

struct crew {
	const struct sim_jobs *jobs;
	pthread_mutex_t lock; /* over all that follows, and progress */
	uint32_t next, done, failed_job;
	int error;
};

static int take_job(struct crew *crew, uint32_t *ret_job)
{
	int taken;

	(void)pthread_mutex_lock(&crew->lock);
	taken = crew->error == 0 && crew->next < crew->jobs->count;
	if (taken)
		*ret_job = crew->next++;
	(void)pthread_mutex_unlock(&crew->lock);
	return taken;
}

static void note_end(struct crew *crew, uint32_t job, int r)
{
	(void)pthread_mutex_lock(&crew->lock);
	crew->done++;
	if (r < 0 && (crew->error == 0 || job < crew->failed_job)) {
		crew->error = r;
		crew->failed_job = job;
	}
	if (crew->jobs->progress != NULL)
		crew->jobs->progress(crew->jobs->context, crew->done, crew->jobs->count);
	(void)pthread_mutex_unlock(&crew->lock);
}

static void *work(void *context)
{
	struct crew *crew = context;
	uint32_t job;

	while (take_job(crew, &job))
		note_end(crew, job, crew->jobs->run(crew->jobs->context, job));
	return NULL;
}

static uint32_t count_cpus(void)
{
	cpu_set_t cpus;

	if (sched_getaffinity(0, sizeof cpus, &cpus) < 0)
		return 1;
	return (uint32_t)CPU_COUNT(&cpus);
}

int sim_jobs_run(const struct sim_jobs *jobs)
{
	struct crew crew = {.jobs = jobs, .lock = PTHREAD_MUTEX_INITIALIZER};
	uint32_t wanted = jobs->threads != 0 ? jobs->threads : count_cpus(), started = 0;
	pthread_t thread[SIM_JOB_THREADS_MAX];

	if (wanted > SIM_JOB_THREADS_MAX)
		wanted = SIM_JOB_THREADS_MAX;
	if (wanted > jobs->count)
		wanted = jobs->count;
	/* This thread works too, so a machine that gives no more threads is slower and not an error. */
	while (started + 1 < wanted && pthread_create(&thread[started], NULL, work, &crew) == 0)
		started++;
	(void)work(&crew);
	for (uint32_t i = 0; i < started; i++)
		(void)pthread_join(thread[i], NULL);
	(void)pthread_mutex_destroy(&crew.lock);
	return crew.error;
}
