/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk as its callers see it: opening and closing, handing jobs over and taking them back. Both sides wake each other by
 * an eventfd, written only when the other's list was empty. What the thread does with jobs begins in disk_turn.c.
 */
#include "kvstore/disk_inner.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/message.h"
#include "kvstore/leftover.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ROOT_MODE 0700
#define PROC_FD "/proc/self/fd"

/* ---- the directory ---- */

static int open_root(const char *directory, int make)
{
	int fd;

	if (make && mkdir(directory, ROOT_MODE) < 0 && errno != EEXIST && errno != EROFS)
		return -errno;
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Steps that are with the kernel keep the old directory; later ones find the new one under the same number. */
int disk_open_root_again(struct kv_disk *disk, int make)
{
	struct stat status;
	int fd, r;

	if (fstat(disk->root_fd, &status) == 0 && status.st_nlink > 0)
		return -EEXIST;
	fd = open_root(disk->directory, make);
	if (fd < 0)
		return fd;
	r = dup3(fd, disk->root_fd, O_CLOEXEC) < 0 ? -errno : 0;
	(void)close(fd);
	return r;
}

/* O_TMPFILE is known there, and its file can be linked. A read-only or full drive says nothing against it. */
static int has_tmpfile(int root_fd)
{
	int fd = openat(root_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);

	if (fd >= 0)
		(void)close(fd);
	return (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) && access(PROC_FD, X_OK) == 0;
}

/* ---- life ---- */

static void free_folders(struct kv_disk *disk)
{
	while (disk->folders != NULL) {
		struct kv_folder *folder = disk->folders;

		disk->folders = folder->next;
		fanout_end_round(folder);
		free(folder);
	}
}

static void free_disk(struct kv_disk *disk)
{
	disk_scan_close(disk);
	free_folders(disk);
	if (disk->root_fd >= 0)
		(void)close(disk->root_fd);
	if (disk->wake_fd >= 0)
		(void)close(disk->wake_fd);
	if (disk->event_fd >= 0)
		(void)close(disk->event_fd);
	free(disk->pages);
	free(disk->task);
	free(disk->directory);
	(void)pthread_cond_destroy(&disk->changed);
	(void)pthread_mutex_destroy(&disk->lock);
	free(disk);
}

static void init_lock(struct kv_disk *disk)
{
	pthread_condattr_t attributes;

	(void)pthread_mutex_init(&disk->lock, NULL);
	(void)pthread_condattr_init(&attributes);
	(void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&disk->changed, &attributes);
	(void)pthread_condattr_destroy(&attributes);
}

/* A page for the header of each task, one that nobody reads, and those of a scan. */
static int make_memory(struct kv_disk *disk)
{
	size_t pages = disk->depth + 1 + KV_DISK_SCAN_BATCH;

	disk->task = calloc(disk->depth, sizeof(*disk->task));
	disk->pages = aligned_alloc(DISK_PAGE_BYTES, pages * DISK_PAGE_BYTES);
	if (disk->task == NULL || disk->pages == NULL)
		return -ENOMEM;
	memset(disk->pages, 0, pages * DISK_PAGE_BYTES);
	for (uint32_t i = 0; i < disk->depth; i++) {
		disk->task[i].disk = disk;
		disk->task[i].header = disk->pages + i * DISK_PAGE_BYTES;
	}
	disk->scratch = disk->pages + disk->depth * DISK_PAGE_BYTES;
	return disk_scan_open(disk, disk->scratch + DISK_PAGE_BYTES);
}

static int make_disk(struct kv_disk **ret_disk, const struct kv_disk_setup *setup)
{
	struct kv_disk *disk = calloc(1, sizeof(*disk));
	int r;

	if (disk == NULL)
		return -ENOMEM;
	disk->root_fd = -1;
	disk->depth = setup->depth == 0 ? DISK_DEPTH_DEFAULT : setup->depth;
	disk->plain = setup->plain;
	disk->held_fd = setup->held_fd;
	disk->is_direct = 1;
	init_lock(disk);
	disk_queue_init(&disk->incoming);
	disk_queue_init(&disk->done);
	disk_queue_init(&disk->ended);
	disk_queue_init(&disk->reads);
	disk_queue_init(&disk->writes);
	disk_queue_init(&disk->scans);
	disk->directory = strdup(setup->directory);
	disk->wake_fd = eventfd(0, EFD_CLOEXEC); /* blocking: the thread sleeps in reading it */
	r = disk->wake_fd < 0 ? -errno : 0;
	disk->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r == 0 && disk->event_fd < 0)
		r = -errno;
	if (r == 0)
		r = disk->directory == NULL ? -ENOMEM : make_memory(disk);
	if (r < 0)
		free_disk(disk);
	else
		*ret_disk = disk;
	return r;
}

/* Signals are the caller's: the thread takes none. */
static int start_thread(struct kv_disk *disk)
{
	sigset_t all, before;
	int r;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = -pthread_create(&disk->thread, NULL, disk_run, disk);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&disk->lock);
	while (disk->is_ready == 0)
		(void)pthread_cond_wait(&disk->changed, &disk->lock);
	r = disk->is_ready < 0 ? disk->is_ready : 0;
	(void)pthread_mutex_unlock(&disk->lock);
	if (r < 0)
		(void)pthread_join(disk->thread, NULL);
	return r;
}

int kv_disk_open(struct kv_disk **ret_disk, const struct kv_disk_setup *setup, char message[KV_DISK_MESSAGE_BYTES])
{
	struct kv_disk *disk;
	int r;

	if (setup->directory == NULL || setup->depth > KV_DISK_JOBS_MAX)
		return cnre_message(message, KV_DISK_MESSAGE_BYTES, -EINVAL,
				    "a disk needs a directory and a depth of at most %u", KV_DISK_JOBS_MAX);
	r = make_disk(&disk, setup);
	if (r < 0)
		return cnre_message(message, KV_DISK_MESSAGE_BYTES, r, "no memory or descriptors for %s",
				    setup->directory);
	disk->root_fd = open_root(disk->directory, 1);
	if (disk->root_fd < 0) {
		r = disk->root_fd;
		free_disk(disk);
		return cnre_message(message, KV_DISK_MESSAGE_BYTES, r, "%s: %s: make it, or name another directory",
				    setup->directory, strerrordesc_np(-r));
	}
	disk->tmpfile = !setup->no_tmpfile && has_tmpfile(disk->root_fd);
	(void)leftover_sweep(disk->root_fd);
	r = start_thread(disk);
	if (r < 0) {
		free_disk(disk);
		return cnre_message(message, KV_DISK_MESSAGE_BYTES, r, "no thread for %s: %s", setup->directory,
				    strerrordesc_np(-r));
	}
	*ret_disk = disk;
	return 0;
}

static int wait_for_end(struct kv_disk *disk, int64_t timeout_ns)
{
	int64_t deadline_ns = cnre_clock_deadline_ns(timeout_ns);
	struct timespec until = {.tv_sec = deadline_ns / CNRE_NS_PER_S, .tv_nsec = deadline_ns % CNRE_NS_PER_S};
	int r = 0;

	(void)pthread_mutex_lock(&disk->lock);
	disk->is_stopping = 1;
	disk_raise(disk->wake_fd);
	while (!disk->is_over && r == 0)
		r = deadline_ns == CNRE_NEVER ? pthread_cond_wait(&disk->changed, &disk->lock)
					      : pthread_cond_timedwait(&disk->changed, &disk->lock, &until);
	r = disk->is_over ? 0 : -ETIMEDOUT;
	(void)pthread_mutex_unlock(&disk->lock);
	return r;
}

int kv_disk_close(struct kv_disk *disk, int64_t timeout_ns)
{
	if (disk == NULL)
		return 0;
	if (wait_for_end(disk, timeout_ns) < 0)
		return -ETIMEDOUT;
	(void)pthread_join(disk->thread, NULL);
	(void)kv_disk_reap(disk);
	free_disk(disk);
	return 0;
}

/* ---- the callers' side ---- */

void kv_disk_submit(struct kv_disk *disk, struct kv_disk_job *job)
{
	int is_first;

	CNRE_CHECK(job->folder != NULL && job->done != NULL);
	(void)pthread_mutex_lock(&disk->lock);
	is_first = disk->incoming.first == NULL;
	disk_queue_add(&disk->incoming, job);
	(void)pthread_mutex_unlock(&disk->lock);
	if (is_first)
		disk_raise(disk->wake_fd);
}

int kv_disk_event_fd(const struct kv_disk *disk)
{
	return disk->event_fd;
}

int kv_disk_reap(struct kv_disk *disk)
{
	struct disk_queue done;
	struct kv_disk_job *job;
	uint64_t raised;
	int count = 0;

	(void)!read(disk->event_fd, &raised, sizeof(raised)); /* first: what ends later raises it again */
	disk_queue_init(&done);
	(void)pthread_mutex_lock(&disk->lock);
	disk_queue_move(&disk->done, &done);
	(void)pthread_mutex_unlock(&disk->lock);
	while ((job = disk_queue_take(&done)) != NULL) {
		job->done(job); /* may submit or free it */
		count++;
	}
	return count;
}

void kv_disk_get_status(struct kv_disk *disk, struct kv_disk_status *ret_status)
{
	(void)pthread_mutex_lock(&disk->lock);
	*ret_status = disk->status;
	ret_status->jobs_waiting += disk->incoming.count;
	(void)pthread_mutex_unlock(&disk->lock);
}
