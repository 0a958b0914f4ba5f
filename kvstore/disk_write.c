/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a block: open a file without a name (and look whether the block is there, which costs no turn); write, sync and
 * link it as one chain, each step only if the one before did everything; close it.
 *
 * Killed or without power after
 *   open, write, sync:  a file without a name goes by itself; one with a name of its own is found by leftover_sweep().
 *   link:               the block is there, whole: its bytes were on the drive before it had a name.
 * The directory is not synced: a block whose name is lost with the power is one that has to be computed again, no more.
 *
 * Past the page cache when the payload is whole pages. Else through it: a padded file would have to be cut, which reads its
 * last block back (0.1 to 2 ms) and was no faster in all, since the sync takes most of the time.
 */
#include "kvstore/disk_inner.h"

#include "base/crash.h"
#include "kvstore/leftover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { STEP_WRITE, STEP_SYNC, STEP_LINK, STEP_OPEN, STEP_STAT, STEP_UNLINK, STEP_CLOSE, STEPS };
_Static_assert(STEPS <= DISK_STEPS, "a task has room for them");

#define NAMELESS_FLAGS (O_RDWR | O_TMPFILE | O_CLOEXEC)
#define NAMED_FLAGS (O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC)

static void open_file(struct disk_task *task);
static void store(struct disk_task *task);

/* ---- closing ---- */

/* The lock falls with the descriptor, so a name of its own goes first. What stays of it is a leftover. */
static int closing_went(struct disk_task *task, struct disk_step *step, int result)
{
	(void)result;
	if (step != &task->step[STEP_UNLINK])
		return 0;
	disk_issue(task, &task->step[STEP_CLOSE]);
	return 1;
}

static void is_over(struct disk_task *task)
{
	struct kv_disk_status *work = &task->disk->work;
	int is_new = task->error == 0 && !task->as.write.is_present;

	work->present_already += (uint64_t)task->as.write.is_present;
	work->blocks_written += (uint64_t)is_new;
	work->bytes_written += is_new ? task->job->block->bytes : 0;
	disk_finish(task, task->as.write.is_present ? 0 : task->error);
}

static void end(struct disk_task *task, int error)
{
	struct disk_write *write = &task->as.write;

	task->error = error;
	task->went = closing_went;
	task->go_on = is_over;
	if (task->fd < 0) {
		is_over(task);
		return;
	}
	task->step[STEP_CLOSE] = (struct disk_step){.call = DISK_CLOSE, .fd = task->fd};
	task->step[STEP_UNLINK] =
		(struct disk_step){.call = DISK_UNLINK, .fd = task->disk->root_fd, .path = write->fresh};
	disk_issue(task, &task->step[write->is_named ? STEP_UNLINK : STEP_CLOSE]);
}

/* ---- writing, syncing, linking ---- */

static int storing_went(struct disk_task *task, struct disk_step *step, int result)
{
	task->as.write.result[step - task->step] = result;
	if (step == &task->step[STEP_WRITE])
		CNRE_CRASH_POINT("kv-file-written");
	else if (step == &task->step[STEP_SYNC])
		CNRE_CRASH_POINT("kv-file-synced");
	else
		CNRE_CRASH_POINT("kv-file-linked");
	return 0;
}

static void was_linked(struct disk_task *task, int result)
{
	CNRE_CRASH_POINT("kv-file-stored");
	task->as.write.is_present = result == -EEXIST;
	end(task, result);
}

static void was_stored(struct disk_task *task)
{
	struct disk_write *write = &task->as.write;
	uint64_t wanted = task->step[STEP_WRITE].bytes;
	int wrote = write->result[STEP_WRITE];

	if (wrote == -EINVAL && task->is_direct && disk_lower_to_cached(task) == 0) {
		store(task);
	} else if (wrote < 0 && wrote != -EINTR) {
		end(task, wrote);
	} else if (wrote != -EINTR && (uint64_t)wrote == wanted) {
		if (write->result[STEP_SYNC] < 0)
			end(task, write->result[STEP_SYNC]);
		else
			was_linked(task, write->result[STEP_LINK]);
	} else if (wrote == 0) {
		end(task, -EIO);
	} else {
		write->written += wrote > 0 ? (uint64_t)wrote : 0; /* full soon, or a signal: the rest says which */
		store(task);
	}
}

/* Header and payload as one vector, less what was written already. */
static void fill_vector(const struct disk_task *task, struct disk_step *step)
{
	uint64_t done = task->as.write.written,
		 header = done < KV_BLOCK_HEADER_BYTES ? KV_BLOCK_HEADER_BYTES - done : 0;
	uint64_t payload_done = header > 0 ? 0 : done - KV_BLOCK_HEADER_BYTES;

	if (header > 0)
		step->vector[step->vector_count++] = (struct iovec){task->header + done, header};
	step->vector[step->vector_count++] =
		(struct iovec){(char *)task->job->memory + payload_done, task->job->block->bytes - payload_done};
	step->off = done;
	step->bytes = header + task->job->block->bytes - payload_done;
}

static void store(struct disk_task *task)
{
	struct disk_write *write = &task->as.write;
	struct disk_step *step = task->step;

	step[STEP_WRITE] = (struct disk_step){.call = DISK_WRITE, .fd = task->fd, .then = &step[STEP_SYNC]};
	fill_vector(task, &step[STEP_WRITE]);
	step[STEP_SYNC] = (struct disk_step){.call = DISK_SYNC, .fd = task->fd, .then = &step[STEP_LINK]};
	step[STEP_LINK] = (struct disk_step){.call = DISK_LINK,
					     .fd = task->disk->root_fd,
					     .path = write->is_named ? write->fresh : write->fd_path,
					     .to = task->path,
					     .flags = write->is_named ? 0 : AT_SYMLINK_FOLLOW};
	task->went = storing_went;
	task->go_on = was_stored;
	disk_issue(task, &step[STEP_WRITE]);
}

/* ---- opening ---- */

static int opening_went(struct disk_task *task, struct disk_step *step, int result)
{
	if (step == &task->step[STEP_STAT])
		task->as.write.is_present = result == 0 && S_ISREG(task->as.write.there.stx_mode);
	else if (result < 0)
		task->error = result;
	else
		task->fd = result;
	return 0;
}

/* Its directories are missing, or the directory itself, which is made for the next write: somebody deleted it. */
static int make_directories(struct disk_task *task)
{
	struct kv_disk *disk = task->disk;
	int r = fanout_make(task->job->folder, disk->root_fd, task->job->block->key);

	if (r != -ENOENT)
		return r;
	(void)disk_open_root_again(disk, 1);
	return -ENOENT;
}

/* What to change before the file is opened again: 0, or why it will not open. */
static int find_another_way(struct disk_task *task)
{
	struct disk_write *write = &task->as.write;

	if (task->error == -EINVAL && task->is_direct) {
		task->disk->is_direct = 0;
		return 0;
	}
	if ((task->error == -EOPNOTSUPP || task->error == -EISDIR) && !write->is_named) {
		task->disk->tmpfile = 0;
		return 0;
	}
	if (task->error == -ENOENT && !write->was_made) {
		write->was_made = 1;
		return make_directories(task);
	}
	return task->error;
}

static void was_opened(struct disk_task *task)
{
	struct disk_write *write = &task->as.write;

	if (write->is_present) {
		end(task, 0);
	} else if (task->error < 0) {
		task->error = find_another_way(task);
		if (task->error == 0)
			open_file(task);
		else
			end(task, task->error);
	} else {
		(void)snprintf(write->fd_path, sizeof(write->fd_path), "/proc/self/fd/%d", task->fd);
		if (write->is_named)
			(void)flock(task->fd, LOCK_EX | LOCK_NB); /* says that we live; where it cannot, the pid does */
		kv_block_encode(task->job->block, task->header);
		CNRE_CRASH_POINT("kv-file-opened");
		store(task);
	}
}

/* O_TMPFILE wants the directory that the file will be linked into: the path without its last part. */
static void name_file(struct disk_task *task)
{
	struct disk_write *write = &task->as.write;

	write->is_named = !task->disk->tmpfile;
	if (write->is_named)
		leftover_name(task->path, write->fresh);
	else
		(void)snprintf(write->fresh, sizeof(write->fresh), "%.*s", (int)(strrchr(task->path, '/') - task->path),
			       task->path);
}

static void open_file(struct disk_task *task)
{
	struct disk_write *write = &task->as.write;
	struct disk_step *step = task->step;

	name_file(task);
	task->is_direct = task->disk->is_direct && task->job->block->bytes % DISK_PAGE_BYTES == 0;
	step[STEP_STAT] = (struct disk_step){
		.call = DISK_STAT, .fd = task->disk->root_fd, .path = task->path, .stat = &write->there};
	step[STEP_OPEN] = (struct disk_step){.call = DISK_OPEN,
					     .fd = task->disk->root_fd,
					     .path = write->fresh,
					     .flags = (write->is_named ? NAMED_FLAGS : NAMELESS_FLAGS) |
						      (task->is_direct ? O_DIRECT : 0)};
	task->went = opening_went;
	task->go_on = was_opened;
	disk_issue(task, &step[STEP_STAT]);
	disk_issue(task, &step[STEP_OPEN]);
}

void disk_write_start(struct disk_task *task)
{
	fanout_path(task->job->folder, task->job->block->key, task->path);
	open_file(task);
}
