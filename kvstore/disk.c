/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two sides of a disk: callers hand jobs over and take them back under one lock that is never held during a call to
 * the drive, and the thread runs them. Its turn: publish what ended, take what is new, start what there is room for, let
 * the backend work. Both sides wake each other by an eventfd, written only when the other's list was empty.
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
#define FOLDERS_MAX 1024u /* names that one disk was asked for */
#define PROC_FD "/proc/self/fd"

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

static void move_all(struct disk_queue *from, struct disk_queue *to)
{
	struct kv_disk_job *job;

	while ((job = disk_queue_take(from)) != NULL)
		disk_queue_add(to, job);
}

static void raise_event(int fd)
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
		move_all(&disk->ended, &disk->done);
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
		raise_event(disk->event_fd);
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

static void *run(void *argument)
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
	r = -pthread_create(&disk->thread, NULL, run, disk);
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
	raise_event(disk->wake_fd);
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

/* ---- folders ---- */

static struct kv_folder *find_folder_locked(struct kv_disk *disk, const char *name)
{
	struct kv_folder *folder = disk->folders;

	while (folder != NULL && strcmp(folder->name, name) != 0)
		folder = folder->next;
	return folder;
}

static struct kv_folder *add_folder_locked(struct kv_disk *disk, const char *name)
{
	struct kv_folder *folder = disk->folder_count == FOLDERS_MAX ? NULL : calloc(1, sizeof(*folder));

	if (folder == NULL)
		return NULL;
	(void)snprintf(folder->name, sizeof(folder->name), "%s", name);
	folder->quarantine_count = -1;
	folder->next = disk->folders;
	disk->folders = folder;
	disk->folder_count++;
	return folder;
}

int kv_disk_folder(struct kv_disk *disk, const char *name, struct kv_folder **ret_folder)
{
	struct kv_folder *folder;

	if (!fanout_name_is_good(name))
		return -EINVAL;
	(void)pthread_mutex_lock(&disk->lock);
	folder = find_folder_locked(disk, name);
	if (folder == NULL)
		folder = add_folder_locked(disk, name);
	(void)pthread_mutex_unlock(&disk->lock);
	if (folder == NULL)
		return -ENOMEM;
	*ret_folder = folder;
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Files beside the folders, and folders of other names, are not ours. */
static int is_folder(int root_fd, const char *name)
{
	struct stat status;

	return fanout_name_is_good(name) && fstatat(root_fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
	       S_ISDIR(status.st_mode);
}

static int add_name(char ***names, int count, const char *name)
{
	char **more = realloc(*names, ((size_t)count + 1) * sizeof(**names));

	if (more == NULL)
		return -ENOMEM;
	*names = more;
	more[count] = strdup(name);
	return more[count] == NULL ? -ENOMEM : count + 1;
}

static int free_names(char **names, int count, int error)
{
	while (count > 0)
		free(names[--count]);
	free(names);
	return error;
}

int kv_disk_list_folders(struct kv_disk *disk, char ***ret_names)
{
	int fd = openat(disk->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
	DIR *listing = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	char **names = NULL;

	if (listing == NULL) {
		int error = -errno;

		if (fd >= 0)
			(void)close(fd);
		return error;
	}
	while ((entry = readdir(listing)) != NULL) {
		int more = is_folder(fd, entry->d_name) ? add_name(&names, count, entry->d_name) : count;

		if (more < 0) {
			(void)closedir(listing);
			return free_names(names, count, more);
		}
		count = more;
	}
	(void)closedir(listing);
	if (count > 0)
		qsort(names, (size_t)count, sizeof(*names), compare_names);
	*ret_names = names;
	return count;
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
		raise_event(disk->wake_fd);
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
	move_all(&disk->done, &done);
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
