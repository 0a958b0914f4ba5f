/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scanning a folder: names are listed here, one directory at a time, then the headers of a batch are read at once. A batch
 * without a good file is followed by the next one, so that only the end of a round brings none. What a drive does not
 * give today is looked for again in the next round.
 */
#include "kvstore/disk_inner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_FLAGS (O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)

struct candidate {
	unsigned char key[KV_KEY_BYTES];
	char path[FANOUT_PATH_BYTES];
	unsigned char *header;
	int fd;
	struct disk_step step;
};

struct disk_scan {
	struct candidate candidate[KV_DISK_SCAN_BATCH];
	uint32_t count;
};

static void list(struct disk_task *task);

int disk_scan_open(struct kv_disk *disk, unsigned char *pages)
{
	disk->scan = calloc(1, sizeof(*disk->scan));
	if (disk->scan == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < KV_DISK_SCAN_BATCH; i++)
		disk->scan->candidate[i].header = pages + i * DISK_PAGE_BYTES;
	return 0;
}

void disk_scan_close(struct kv_disk *disk)
{
	free(disk->scan);
}

/* ---- one file ---- */

/* 0: it is what its name says. */
static int judge(const struct candidate *candidate, struct kv_block *ret_block, char message[KV_BLOCK_MESSAGE_BYTES])
{
	struct kv_block block;
	struct stat status;
	int r = kv_block_decode(candidate->header, &block, message);

	if (r < 0)
		return r;
	if (memcmp(block.key, candidate->key, KV_KEY_BYTES) != 0)
		return -EBADMSG;
	if (fstat(candidate->fd, &status) < 0)
		return -errno;
	if ((uint64_t)status.st_size != KV_BLOCK_HEADER_BYTES + block.bytes)
		return -EBADMSG;
	*ret_block = block;
	return 0;
}

static void look_again(struct disk_task *task, const struct candidate *candidate, int error)
{
	task->job->folder->seen[candidate->key[0]] = (struct timespec){0};
	task->disk->work.read_errors++;
	disk_note(task->disk, "reading %s: %s", candidate->path, strerrordesc_np(-error));
}

static void take_header(struct disk_task *task, struct candidate *candidate, int result)
{
	struct kv_disk_job *job = task->job;
	char message[KV_BLOCK_MESSAGE_BYTES] = "its size or its name is wrong";
	int r = -EBADMSG;

	if (result == (int)KV_BLOCK_HEADER_BYTES)
		r = judge(candidate, &job->found[job->found_count], message);
	else if (result < 0 && result != -EISDIR && result != -ESPIPE)
		r = result;
	if (r == 0) {
		job->found_count++;
	} else if (r == -EBADMSG) {
		fanout_quarantine(job->folder, task->disk->root_fd, candidate->key, candidate->fd);
		task->disk->work.quarantined++;
		disk_note(task->disk, "quarantined %s: %s", candidate->path, message);
	} else if (r != -EPROTO) {
		look_again(task, candidate, r);
	}
	(void)close(candidate->fd);
}

/* Not direct: the header of a block that is never used costs a page of cache, and every file system does it. */
static void read_header(struct disk_task *task, struct candidate *candidate)
{
	candidate->step = (struct disk_step){.call = DISK_READ,
					     .fd = candidate->fd,
					     .vector = {{candidate->header, KV_BLOCK_HEADER_BYTES}},
					     .vector_count = 1,
					     .bytes = KV_BLOCK_HEADER_BYTES};
	disk_issue(task, &candidate->step);
}

static int went(struct disk_task *task, struct disk_step *step, int result)
{
	struct candidate *candidate = (struct candidate *)((char *)step - offsetof(struct candidate, step));

	if (step->call == DISK_READ) {
		take_header(task, candidate, result);
		return 0;
	}
	if (result < 0) {
		if (result != -ENOENT && result != -ELOOP)
			look_again(task, candidate, result);
		return 0;
	}
	candidate->fd = result;
	read_header(task, candidate);
	return 1;
}

/* ---- a batch ---- */

static void batch_is_over(struct disk_task *task)
{
	if (task->job->found_count > 0)
		disk_finish(task, 0);
	else
		list(task);
}

static void open_candidate(struct disk_task *task, struct candidate *candidate)
{
	fanout_path(task->job->folder, candidate->key, candidate->path);
	candidate->step = (struct disk_step){
		.call = DISK_OPEN, .fd = task->disk->root_fd, .path = candidate->path, .flags = READ_FLAGS};
	disk_issue(task, &candidate->step);
}

static void list(struct disk_task *task)
{
	struct disk_scan *scan = task->disk->scan;
	int r = 1;

	scan->count = 0;
	while (scan->count < KV_DISK_SCAN_BATCH && r == 1) {
		r = fanout_next(task->job->folder, task->disk->root_fd, scan->candidate[scan->count].key);
		scan->count += r == 1;
	}
	if (scan->count == 0) {
		disk_finish(task, r);
		return;
	}
	if (r == 0)
		task->job->folder->fan = FANOUT_FANS; /* the end is told once more, when there is nothing with it */
	task->went = went;
	task->go_on = batch_is_over;
	for (uint32_t i = 0; i < scan->count; i++)
		open_candidate(task, &scan->candidate[i]);
}

void disk_scan_start(struct disk_task *task)
{
	task->job->found_count = 0;
	if (task->job->folder->fan == 0 && task->job->folder->listing == NULL)
		(void)disk_open_root_again(task->disk, 0);
	list(task);
}
