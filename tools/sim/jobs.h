/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Independent jobs on several threads. Which thread does which says nothing about the outcome: a job writes to its own
 * place, and the error that is returned is that of the lowest number.
 */
#ifndef CNRE_SIM_JOBS_H
#define CNRE_SIM_JOBS_H

#include <stdint.h>

#define SIM_JOB_THREADS_MAX 256u

struct sim_jobs {
	uint32_t count, threads;     /* threads 0: one a CPU that this process may use; at most SIM_JOB_THREADS_MAX */
	int (*run)(void *context, uint32_t job); /* 0 or -errno; after a failure no further job begins */
	void (*progress)(void *context, uint32_t done, uint32_t count); /* after each job, one at a time; NULL */
	void *context;
};

/* 0, or the error of the lowest job that failed, or of starting a thread at all. */
int sim_jobs_run(const struct sim_jobs *jobs);

#endif
