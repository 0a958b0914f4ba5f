/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few threads for work that would stall the core thread: moving parts to their alignment, letting a dead client's
 * memory go. A job is a struct inside the object it belongs to, so the queue needs no memory and is bounded by those
 * objects. `run` is called on a worker thread and may touch only what the job names; `done` on the core thread.
 */
#ifndef CNRE_MANAGER_WORKER_H
#define CNRE_MANAGER_WORKER_H

#define WORKER_THREADS 2u

struct worker;

struct worker_job {
	void (*run)(struct worker_job *job);
	void (*done)(struct worker_job *job);
	struct worker_job *next;
};

int worker_open(struct worker **ret_worker);
struct worker *worker_close(struct worker *worker); /* finishes every job first, without calling done */
void worker_submit(struct worker *worker, struct worker_job *job);
int worker_event_fd(const struct worker *worker);   /* readable when something is done */
int worker_reap(struct worker *worker);             /* calls done; how many */

#endif
