/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread of a disk. Its turn: publish what ended, take what is new, start what there is room for, let the backend work.
 * The lock is never held during a call to the drive, so that whoever asks for the status of one that hangs gets it.
 */
#include "kvstore/disk_inner.h"

#include "base/clock.h"
#include "base/message.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* ---- queues ---- */

void disk_queue_init(struct disk_queue *queue)
{
	*queue = (struct disk_queue){.end = &queue->first};
}

void disk_queue_add(struct disk_queue *queue, struct kv_disk_job *job)
{
	job->next = NULL;
	*queue->end = job;
	queue->end = &job->next;
	queue->count++;
}

struct kv_disk_job *disk_queue_take(struct disk_queue *queue)
{
	struct kv_disk_job *job = queue->first;

	if (job == NULL)
		return NULL;
	queue->first = job->next;
	if (queue->first == NULL)
		queue->end = &queue->first;
	queue->count--;
	return job;
}

void disk_queue_move(struct disk_queue *from, struct disk_queue *to)
{
	struct kv_disk_job *job;

	while ((job = disk_queue_take(from)) != NULL)
		disk_queue_add(to, job);
}

void disk_raise(int fd)
{
	uint64_t one = 1;

	(void)!write(fd, &one, sizeof(one)); /* a full counter is raised already */
}

void disk_note(struct kv_disk *disk, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)cnre_message_list(disk->work.last_error, sizeof(disk->work.last_error), 0, format, arguments);
	va_end(arguments);
}

/* ---- the thread ---- */

static void open_backend(struct kv_disk *disk)
{
	int r = disk->plain ? -ENOSYS : disk_uring_open(disk, &disk->backend);

	disk->work.uring = r == 0;
	if (r < 0)
		r = disk_plain_open(disk, &disk->backend);
	disk->work.tmpfile = disk->tmpfile;
	(void)pthread_mutex_lock(&disk->lock);
	disk->status = disk->work;
	disk->is_ready = r < 0 ? r : 1;
	(void)pthread_cond_broadcast(&disk->changed);
	(void)pthread_mutex_unlock(&disk->lock);
}

static int64_t find_oldest_ns(const struct kv_disk *disk)
{
	int64_t oldest_ns = 0;

	for (uint32_t i = 0; i < disk->depth; i++) {
		const struct kv_disk_job *job = disk->task[i].job;

		if (job != NULL && (oldest_ns == 0 || job->begun_ns < oldest_ns))
			oldest_ns = job->begun_ns;
	}
	return oldest_ns;
}

static void publish_status(struct kv_disk *disk)
{
	disk->work.tmpfile = disk->tmpfile;
	disk->work.jobs_running = disk->running;
	disk->work.jobs_waiting = disk->reads.count + disk->writes.count + disk->scans.count;
	disk->work.oldest_ns = find_oldest_ns(disk);
	disk->status = disk->work;
}

/* Before the jobs can be reaped their counts are there. Returns 1 when nothing more is wanted. */
static int exchange(struct kv_disk *disk)
{
	int is_first = 0, is_stopping;
	struct kv_disk_job *job;

	(void)pthread_mutex_lock(&disk->lock);
	if (disk->ended.first != NULL) {
		is_first = disk->done.first == NULL;
		disk->work.syscalls += (uint64_t)is_first;
		disk_queue_move(&disk->ended, &disk->done);
	}
	while ((job = disk_queue_take(&disk->incoming)) != NULL)
		disk_queue_add(job->kind == KV_DISK_READ   ? &disk->reads
			       : job->kind == KV_DISK_SCAN ? &disk->scans
							   : &disk->writes,
			       job);
	is_stopping = disk->is_stopping;
	publish_status(disk);
	(void)pthread_mutex_unlock(&disk->lock);
	if (is_first)
		disk_raise(disk->event_fd);
	return is_stopping;
}

static void cancel_all(struct kv_disk *disk, struct disk_queue *queue)
{
	struct kv_disk_job *job;

	while ((job = disk_queue_take(queue)) != NULL) {
		job->status = -ECANCELED;
		job->begun_ns = job->ended_ns = cnre_clock_now_ns();
		disk_queue_add(&disk->ended, job);
	}
}

/* 0 when the thread shall end. */
static int take_turn(struct kv_disk *disk)
{
	if (exchange(disk)) {
		cancel_all(disk, &disk->reads);
		cancel_all(disk, &disk->writes);
		cancel_all(disk, &disk->scans);
		if (disk->running == 0)
			return 0;
	}
	disk_start_jobs(disk);
	(void)pthread_mutex_lock(&disk->lock);
	publish_status(disk); /* what may hang is seen from now on */
	(void)pthread_mutex_unlock(&disk->lock);
	if (disk->ended.first == NULL) /* what ended as it began is handed over before anything is waited for */
		disk->backend->turn(disk->backend);
	return 1;
}

void *disk_run(void *argument)
{
	struct kv_disk *disk = argument;

	open_backend(disk);
	if (disk->backend != NULL) {
		while (take_turn(disk))
			;
		disk->backend->close(disk->backend);
	}
	(void)exchange(disk); /* what was cancelled */
	(void)pthread_mutex_lock(&disk->lock);
	disk->is_over = 1;
	(void)pthread_cond_broadcast(&disk->changed);
	(void)pthread_mutex_unlock(&disk->lock);
	return NULL;
}
