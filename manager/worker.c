/* SPDX-License-Identifier: Apache-2.0 */
/* The worker threads; see worker.h. One mutex guards both lists: jobs are milliseconds long, so it is never contended. */
#include "manager/worker.h"

#include "base/check.h"
#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

struct job_list {
	struct worker_job *first, **last;
};

struct worker {
	pthread_mutex_t lock;
	pthread_cond_t work, idle; /* idle: nothing is unfinished; by the monotonic clock */
	struct job_list waiting, finished;
	unsigned unfinished; /* waiting or running */
	int event_fd;
	int stopping;
	int is_background;
	unsigned thread_count;
	pthread_t thread[WORKER_THREADS_MAX];
};

static void list_init(struct job_list *list)
{
	list->first = NULL;
	list->last = &list->first;
}

static void list_push(struct job_list *list, struct worker_job *job)
{
	job->next = NULL;
	*list->last = job;
	list->last = &job->next;
}

static struct worker_job *list_pop(struct job_list *list)
{
	struct worker_job *job = list->first;

	if (job == NULL)
		return NULL;
	list->first = job->next;
	if (list->first == NULL)
		list->last = &list->first;
	return job;
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	struct worker_job *job;

	if (worker->is_background)
		(void)setpriority(PRIO_PROCESS, 0, WORKER_NICE); /* of this thread alone, on Linux; a filter may forbid it */
	(void)pthread_mutex_lock(&worker->lock);
	for (;;) {
		while ((job = list_pop(&worker->waiting)) == NULL && !worker->stopping)
			(void)pthread_cond_wait(&worker->work, &worker->lock);
		if (job == NULL)
			break;
		(void)pthread_mutex_unlock(&worker->lock);
		job->run(job);
		(void)pthread_mutex_lock(&worker->lock);
		list_push(&worker->finished, job);
		if (--worker->unfinished == 0)
			(void)pthread_cond_broadcast(&worker->idle);
		(void)eventfd_write(worker->event_fd, 1); /* cannot fill up: 2^64 - 2 events */
	}
	(void)pthread_mutex_unlock(&worker->lock);
	return NULL;
}

/* Signals are the core thread's business: a worker starts with all of them blocked. */
static int start_threads(struct worker *worker, unsigned threads)
{
	sigset_t all, before;
	int r = 0;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	while (r == 0 && worker->thread_count < threads) {
		r = pthread_create(&worker->thread[worker->thread_count], NULL, work, worker);
		if (r == 0)
			worker->thread_count++;
	}
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return worker->thread_count > 0 ? 0 : -r; /* one thread does the same work, later */
}

static void init_locks(struct worker *worker)
{
	pthread_condattr_t monotonic;

	(void)pthread_condattr_init(&monotonic);
	(void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	(void)pthread_mutex_init(&worker->lock, NULL);
	(void)pthread_cond_init(&worker->work, NULL);
	(void)pthread_cond_init(&worker->idle, &monotonic);
	(void)pthread_condattr_destroy(&monotonic);
}

static int open_worker(struct worker **ret_worker, unsigned threads, int is_background)
{
	struct worker *worker = calloc(1, sizeof *worker);
	int r;

	if (worker == NULL)
		return -ENOMEM;
	CNRE_CHECK(threads > 0 && threads <= WORKER_THREADS_MAX);
	init_locks(worker);
	worker->is_background = is_background;
	list_init(&worker->waiting);
	list_init(&worker->finished);
	worker->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (worker->event_fd < 0) {
		r = -errno;
		goto drop;
	}
	r = start_threads(worker, threads);
	if (r < 0)
		goto drop_event;
	*ret_worker = worker;
	return 0;

drop_event:
	(void)close(worker->event_fd);
drop:
	free(worker);
	return r;
}

int worker_open(struct worker **ret_worker, unsigned threads)
{
	return open_worker(ret_worker, threads, 0);
}

int worker_open_background(struct worker **ret_worker, unsigned threads)
{
	return open_worker(ret_worker, threads, 1);
}

struct worker *worker_close(struct worker *worker)
{
	if (worker == NULL)
		return NULL;
	(void)pthread_mutex_lock(&worker->lock);
	worker->stopping = 1;
	(void)pthread_cond_broadcast(&worker->work);
	(void)pthread_mutex_unlock(&worker->lock);
	for (unsigned i = 0; i < worker->thread_count; i++)
		(void)pthread_join(worker->thread[i], NULL);
	(void)close(worker->event_fd);
	(void)pthread_cond_destroy(&worker->work);
	(void)pthread_cond_destroy(&worker->idle);
	(void)pthread_mutex_destroy(&worker->lock);
	free(worker);
	return NULL;
}

void worker_submit(struct worker *worker, struct worker_job *job)
{
	CNRE_CHECK(job->run != NULL && job->done != NULL);
	(void)pthread_mutex_lock(&worker->lock);
	list_push(&worker->waiting, job);
	worker->unfinished++;
	(void)pthread_cond_signal(&worker->work);
	(void)pthread_mutex_unlock(&worker->lock);
}

int worker_drain(struct worker *worker, int64_t timeout_ns)
{
	int64_t end_ns = cnre_clock_deadline_ns(timeout_ns);
	struct timespec end = {.tv_sec = end_ns / CNRE_NS_PER_S, .tv_nsec = end_ns % CNRE_NS_PER_S};
	int r = 0;

	(void)pthread_mutex_lock(&worker->lock);
	while (r == 0 && worker->unfinished > 0)
		r = pthread_cond_timedwait(&worker->idle, &worker->lock, &end);
	r = worker->unfinished > 0 ? -ETIMEDOUT : 0;
	(void)pthread_mutex_unlock(&worker->lock);
	return r;
}

int worker_event_fd(const struct worker *worker)
{
	return worker->event_fd;
}

int worker_reap(struct worker *worker)
{
	struct job_list finished;
	struct worker_job *job;
	eventfd_t ignored;
	int count = 0;

	(void)eventfd_read(worker->event_fd, &ignored);
	list_init(&finished);
	(void)pthread_mutex_lock(&worker->lock);
	while ((job = list_pop(&worker->finished)) != NULL)
		list_push(&finished, job);
	(void)pthread_mutex_unlock(&worker->lock);
	while ((job = list_pop(&finished)) != NULL) {
		job->done(job);
		count++;
	}
	return count;
}
