/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine for where io_uring is forbidden: threads that call pread(2), and an eventfd. Every drive has threads and
 * a queue of its own, so a drive that hangs takes no thread from another. The threads know nothing but chunks; they
 * block all signals, touch no state of the core, and end when the loader is closed.
 */
#include "manager/loader_backend.h"

#include "base/check.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define STACK_BYTES (256u << 10)

struct pool_drive {
	struct read_pool *pool;
	pthread_cond_t has_work;
	struct loader_chunks todo;
	pthread_t *thread; /* NULL: this drive was not added */
	uint32_t thread_count;
};

struct read_pool {
	struct loader_backend backend;
	pthread_mutex_t lock; /* over todo and done queues and is_ending; held for a few instructions */
	struct loader_chunks done;
	int is_ending;
	int event_fd; /* counts up when done becomes non-empty */
	uint32_t threads_per_drive;
	struct pool_drive drive[LOADER_DRIVES_MAX];
};

static struct read_pool *pool_of(struct loader_backend *backend)
{
	return (struct read_pool *)backend; /* its first member */
}

static void raise_event(struct read_pool *pool)
{
	uint64_t one = 1;

	/* Refused only when the counter is full, and then the descriptor is readable. */
	(void)!write(pool->event_fd, &one, sizeof(one));
}

/* ---- the threads ---- */

static int read_chunk(const struct loader_chunk *chunk)
{
	ssize_t got = pread(chunk->fd, chunk->memory + chunk->got, chunk->bytes - chunk->got,
			    (off_t)(chunk->file_off + chunk->got));

	return got < 0 ? -errno : (int)got; /* a chunk is at most 1 GiB */
}

static struct loader_chunk *next_chunk_locked(struct pool_drive *drive)
{
	while (drive->todo.first == NULL && !drive->pool->is_ending)
		(void)pthread_cond_wait(&drive->has_work, &drive->pool->lock);
	return drive->pool->is_ending ? NULL : loader_chunks_take(&drive->todo);
}

static void *read_for_drive(void *argument)
{
	struct pool_drive *drive = argument;
	struct read_pool *pool = drive->pool;
	struct loader_chunk *chunk;

	(void)pthread_mutex_lock(&pool->lock);
	while ((chunk = next_chunk_locked(drive)) != NULL) {
		(void)pthread_mutex_unlock(&pool->lock);
		chunk->result = read_chunk(chunk);
		(void)pthread_mutex_lock(&pool->lock);
		if (pool->done.first == NULL)
			raise_event(pool);
		loader_chunks_add(&pool->done, chunk);
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return NULL;
}

static int start_thread(struct pool_drive *drive)
{
	pthread_attr_t attributes;
	int r = pthread_attr_init(&attributes);

	if (r != 0)
		return -r;
	(void)pthread_attr_setstacksize(&attributes, STACK_BYTES); /* else the default, which is larger */
	r = pthread_create(&drive->thread[drive->thread_count], &attributes, read_for_drive, drive);
	(void)pthread_attr_destroy(&attributes);
	if (r != 0)
		return -r;
	(void)pthread_setname_np(drive->thread[drive->thread_count], "cnre-read");
	drive->thread_count++;
	return 0;
}

/* Signals are for the core thread: the new threads inherit a full mask. */
static int start_threads(struct pool_drive *drive, uint32_t count)
{
	sigset_t all, before;
	int r = 0;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before); /* fails only for a bad first argument */
	while (drive->thread_count < count && r == 0)
		r = start_thread(drive);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return drive->thread_count != 0 ? 0 : r;
}

static int add_drive(struct loader_backend *backend, uint32_t index)
{
	struct read_pool *pool = pool_of(backend);
	struct pool_drive *drive = &pool->drive[index];
	int r;

	CNRE_CHECK(index < LOADER_DRIVES_MAX && drive->thread == NULL);
	drive->pool = pool;
	drive->thread = calloc(pool->threads_per_drive, sizeof(*drive->thread));
	if (drive->thread == NULL)
		return -ENOMEM;
	(void)pthread_cond_init(&drive->has_work, NULL); /* cannot fail without attributes on Linux */
	r = start_threads(drive, pool->threads_per_drive);
	if (r < 0) {
		(void)pthread_cond_destroy(&drive->has_work);
		free(drive->thread);
		drive->thread = NULL;
	} else if (drive->thread_count < pool->threads_per_drive) {
		loader_note(backend->status, "only %u of %u read threads", drive->thread_count,
			    pool->threads_per_drive);
	}
	return r;
}

/* ---- the core thread ---- */

static void issue(struct loader_backend *backend, struct loader_chunk *chunk)
{
	struct read_pool *pool = pool_of(backend);
	struct pool_drive *drive = &pool->drive[chunk->drive];

	CNRE_CHECK(drive->thread != NULL);
	(void)pthread_mutex_lock(&pool->lock);
	loader_chunks_add(&drive->todo, chunk);
	(void)pthread_cond_signal(&drive->has_work);
	(void)pthread_mutex_unlock(&pool->lock);
}

static void flush(struct loader_backend *backend)
{
	(void)backend; /* a chunk is with its drive as soon as it is issued */
}

static void reap(struct loader_backend *backend, const struct loader_report *report)
{
	struct read_pool *pool = pool_of(backend);
	struct loader_chunks done;
	struct loader_chunk *chunk;
	uint64_t count;

	(void)!read(pool->event_fd, &count, sizeof(count)); /* -EAGAIN: nothing is new; it does not block */
	(void)pthread_mutex_lock(&pool->lock);
	done = pool->done;
	pool->done = (struct loader_chunks){0};
	(void)pthread_mutex_unlock(&pool->lock);
	while ((chunk = loader_chunks_take(&done)) != NULL)
		report->chunk_done(report->context, chunk, chunk->result);
}

static void wait_a_while(struct loader_backend *backend)
{
	struct pollfd event = {.fd = pool_of(backend)->event_fd, .events = POLLIN};

	(void)poll(&event, 1, LOADER_WAIT_NS / 1000000); /* reap looks anyway */
}

static void nudge(struct loader_backend *backend)
{
	raise_event(pool_of(backend));
}

static int add_memory(struct loader_backend *backend, void *base, uint64_t bytes, uint32_t segment)
{
	(void)backend;
	(void)base;
	(void)bytes;
	(void)segment;
	return 1;
}

static void remove_memory(struct loader_backend *backend, uint32_t segment)
{
	(void)backend;
	(void)segment;
}

/* A thread in pread keeps the process, and so its descriptors, until the read has landed. */
static int hold(struct loader_backend *backend, int fd)
{
	(void)backend;
	(void)fd;
	return 0;
}

static void slot_changed(struct loader_backend *backend, uint32_t slot, int fd)
{
	(void)backend;
	(void)slot;
	(void)fd;
}

static int event_fd(struct loader_backend *backend)
{
	return pool_of(backend)->event_fd;
}

/* ---- life ---- */

static void end_threads(struct read_pool *pool)
{
	(void)pthread_mutex_lock(&pool->lock);
	pool->is_ending = 1;
	for (uint32_t i = 0; i < LOADER_DRIVES_MAX; i++)
		if (pool->drive[i].thread != NULL)
			(void)pthread_cond_broadcast(&pool->drive[i].has_work);
	(void)pthread_mutex_unlock(&pool->lock);
	for (uint32_t i = 0; i < LOADER_DRIVES_MAX; i++) {
		struct pool_drive *drive = &pool->drive[i];

		if (drive->thread == NULL)
			continue;
		for (uint32_t t = 0; t < drive->thread_count; t++)
			(void)pthread_join(drive->thread[t], NULL);
		(void)pthread_cond_destroy(&drive->has_work);
		free(drive->thread);
	}
}

static void close_pool(struct loader_backend *backend)
{
	struct read_pool *pool = pool_of(backend);

	end_threads(pool);
	(void)pthread_mutex_destroy(&pool->lock);
	(void)close(pool->event_fd);
	free(pool);
}

static const struct loader_backend_calls calls = {
	.issue = issue,
	.flush = flush,
	.reap = reap,
	.wait = wait_a_while,
	.nudge = nudge,
	.add_drive = add_drive,
	.add_memory = add_memory,
	.remove_memory = remove_memory,
	.hold = hold,
	.slot_changed = slot_changed,
	.event_fd = event_fd,
	.close = close_pool,
};

int loader_pool_open(struct loader_backend **ret_backend, struct loader_status *status, uint32_t threads_per_drive)
{
	struct read_pool *pool = calloc(1, sizeof(*pool));
	int r;

	if (pool == NULL)
		return -ENOMEM;
	pool->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pool->event_fd < 0) {
		r = -errno;
		free(pool);
		return r;
	}
	pool->backend = (struct loader_backend){.calls = &calls, .status = status};
	pool->threads_per_drive = threads_per_drive;
	(void)pthread_mutex_init(&pool->lock, NULL); /* cannot fail without attributes on Linux */
	*ret_backend = &pool->backend;
	return 0;
}
