/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks: which job gets the next one, what a step that came back leads to, and how a job ends. Somebody waits for a read,
 * nobody for a write; so reads go first, but one in READS_IN_A_ROW gives way, and a quarter of the tasks is left to reads
 * while a drive is slow to sync. Jobs for one key are not put in order: their callers wait for the first.
 */
#include "kvstore/disk_inner.h"

#include "base/check.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define READS_IN_A_ROW 4u
#define READ_SHARE 4u /* one task in so many is not for writes */

/* ---- steps ---- */

void disk_steps_init(struct disk_steps *steps)
{
	*steps = (struct disk_steps){.end = &steps->first};
}

void disk_steps_add(struct disk_steps *steps, struct disk_step *step)
{
	step->next = NULL;
	*steps->end = step;
	steps->end = &step->next;
}

struct disk_step *disk_steps_take(struct disk_steps *steps)
{
	struct disk_step *step = steps->first;

	if (step == NULL)
		return NULL;
	steps->first = step->next;
	if (steps->first == NULL)
		steps->end = &steps->first;
	return step;
}

int disk_step_was_full(const struct disk_step *step, int result)
{
	return step->call == DISK_WRITE || step->call == DISK_READ ? result >= 0 && (uint64_t)result == step->bytes
								   : result >= 0;
}

void disk_issue(struct disk_task *task, struct disk_step *first)
{
	for (struct disk_step *step = first; step != NULL; step = step->then) {
		step->task = task;
		task->pending++;
	}
	task->disk->backend->issue(task->disk->backend, first);
}

void disk_step_done(struct disk_step *step, int result)
{
	struct disk_task *task = step->task;

	CNRE_CHECK(task->job != NULL && task->pending > 0);
	task->pending--;
	if (task->went(task, step, result) == 0 && task->pending == 0)
		task->go_on(task);
}

/* A file system without direct I/O is asked once; a single file of it can be told later. */
int disk_lower_to_cached(struct disk_task *task)
{
	task->is_direct = 0;
	task->disk->is_direct = 0;
	task->disk->work.syscalls++;
	return fcntl(task->fd, F_SETFL, 0) < 0 ? -errno : 0;
}

/* ---- beginnings ---- */

static int others_may_run(const struct kv_disk *disk)
{
	uint32_t kept = disk->depth / READ_SHARE;

	return disk->writes.first != NULL && disk->writes_running < disk->depth - kept;
}

/* At most one scan runs: its names are the disk's. */
static struct kv_disk_job *pick_job(struct kv_disk *disk)
{
	if (disk->scans.first != NULL && !disk->scan_is_busy) {
		disk->scan_is_busy = 1;
		return disk_queue_take(&disk->scans);
	}
	if (others_may_run(disk) && (disk->reads.first == NULL || disk->reads_in_a_row >= READS_IN_A_ROW)) {
		disk->reads_in_a_row = 0;
		disk->writes_running++;
		return disk_queue_take(&disk->writes);
	}
	disk->reads_in_a_row += disk->reads.first != NULL;
	return disk_queue_take(&disk->reads);
}

static struct disk_task *find_free_task(struct kv_disk *disk)
{
	for (uint32_t i = 0; i < disk->depth; i++)
		if (disk->task[i].job == NULL)
			return &disk->task[i];
	return NULL;
}

static void start(struct disk_task *task, struct kv_disk_job *job)
{
	struct kv_disk *disk = task->disk;

	task->job = job;
	task->fd = -1;
	task->error = 0;
	task->is_direct = 0;
	memset(&task->as, 0, sizeof(task->as));
	job->begun_ns = cnre_clock_now_ns();
	disk->running++;
	switch (job->kind) {
	case KV_DISK_WRITE:
		disk_write_start(task);
		return;
	case KV_DISK_READ:
		disk_read_start(task);
		return;
	case KV_DISK_REMOVE:
		disk_remove_start(task);
		return;
	case KV_DISK_SCAN:
		disk_scan_start(task);
		return;
	}
}

void disk_start_jobs(struct kv_disk *disk)
{
	struct disk_task *task;

	while ((task = find_free_task(disk)) != NULL) {
		struct kv_disk_job *job = pick_job(disk);

		if (job == NULL)
			return;
		start(task, job);
	}
}

/* ---- ends ---- */

/* What drives call a bad sector; one word for it is enough for who waits. */
static int plain_error(int status)
{
	return status == -ENODATA || status == -EREMOTEIO || status == -EILSEQ ? -EIO : status;
}

/* A bad block, not there, or there in another form: known by those words; the rest is the drive's. */
static int is_of_drive(int status)
{
	return status < 0 && status != -ENOENT && status != -EBADMSG && status != -ESTALE && status != -EPROTO;
}

static void count_end(struct kv_disk *disk, const struct kv_disk_job *job)
{
	struct kv_disk_status *work = &disk->work;
	int is_write = job->kind == KV_DISK_WRITE || job->kind == KV_DISK_REMOVE;

	work->removed += job->kind == KV_DISK_REMOVE && job->status == 0;
	if (job->kind == KV_DISK_READ && job->status == 0) {
		work->blocks_read++;
		work->bytes_read += job->block->bytes;
	}
	if (!is_of_drive(job->status) && !(job->kind == KV_DISK_WRITE && job->status < 0))
		return;
	work->write_errors += (uint64_t)is_write;
	work->read_errors += (uint64_t)!is_write;
	disk_note(disk, "%s in %s: %s", is_write ? "writing" : "reading", job->folder->name,
		  strerrordesc_np(-job->status));
}

void disk_finish(struct disk_task *task, int status)
{
	struct kv_disk *disk = task->disk;
	struct kv_disk_job *job = task->job;

	CNRE_CHECK(task->pending == 0 && disk->running > 0);
	job->status = plain_error(status);
	job->ended_ns = cnre_clock_now_ns();
	count_end(disk, job);
	disk->running--;
	disk->writes_running -= job->kind == KV_DISK_WRITE || job->kind == KV_DISK_REMOVE;
	if (job->kind == KV_DISK_SCAN)
		disk->scan_is_busy = 0;
	task->job = NULL;
	disk_queue_add(&disk->ended, job);
}

/* ---- removing: one step ---- */

static int removal_went(struct disk_task *task, struct disk_step *step, int result)
{
	(void)step;
	task->error = result < 0 ? result : 0;
	return 0;
}

static void removal_is_over(struct disk_task *task)
{
	disk_finish(task, task->error);
}

void disk_remove_start(struct disk_task *task)
{
	fanout_path(task->job->folder, task->job->block->key, task->path);
	task->went = removal_went;
	task->go_on = removal_is_over;
	task->step[0] = (struct disk_step){.call = DISK_UNLINK, .fd = task->disk->root_fd, .path = task->path};
	disk_issue(task, &task->step[0]);
}
