/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few threads for work that would stall the core thread: moving parts to their alignment, letting a dead client's
 * memory go, writing files. A job is a struct inside the object it belongs to, so the queue needs no memory and is bounded by those
 * objects. `run` is called on a worker thread and may touch only what the job names; `done` on the core thread.
 */
#ifndef CNRE_MANAGER_WORKER_H
#define CNRE_MANAGER_WORKER_H

#include <stdint.h>

#define WORKER_THREADS_MAX 2u

struct worker;

struct worker_job {
	void (*run)(struct worker_job *job);
	void (*done)(struct worker_job *job);
	struct worker_job *next;
};

/* With one thread, jobs run one after another in the order of their submission. 0 or -errno. */
int worker_open(struct worker **ret_worker, unsigned threads);
/*
 * The same for what nobody waits for: its threads give way to others where CPUs are short (WORKER_NICE), if the kernel lets
 * them.
 */
#define WORKER_NICE 10
int worker_open_background(struct worker **ret_worker, unsigned threads);
struct worker *worker_close(struct worker *worker); /* finishes every job first, without calling done */
/* Waits until no job is waiting or running, without calling done. 0, or -ETIMEDOUT: a job may be on a drive that hangs. */
int worker_drain(struct worker *worker, int64_t timeout_ns);
void worker_submit(struct worker *worker, struct worker_job *job);
int worker_event_fd(const struct worker *worker);   /* readable when something is done */
int worker_reap(struct worker *worker);             /* calls done; how many */

#endif
