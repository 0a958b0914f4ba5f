/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a block: open; header and payload in chunks, many at once, as long as the caller says they are and a page more,
 * which shows a file that is too long; check; close. Nothing of the file is believed before all of it is here, so the
 * header costs no turn of its own.
 *
 * A file that is whole but of another form than the caller knows (another host computed the same tokens to other bytes)
 * is not bad, and stays: -ESTALE. What computing took is anybody's opinion and is not compared.
 */
#include "kvstore/disk_inner.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define READ_FLAGS (O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) /* a FIFO of that name does not hang us */

static void open_file(struct disk_task *task);

static uint64_t file_bytes(const struct disk_task *task)
{
	return KV_BLOCK_HEADER_BYTES + task->job->block->bytes;
}

static void is_over(struct disk_task *task)
{
	disk_finish(task, task->error);
}

/* ---- closing ---- */

static int closing_went(struct disk_task *task, struct disk_step *step, int result)
{
	(void)task;
	(void)step;
	(void)result;
	return 0;
}

static void end(struct disk_task *task, int error)
{
	task->error = error;
	task->went = closing_went;
	task->go_on = is_over;
	task->step[0] = (struct disk_step){.call = DISK_CLOSE, .fd = task->fd};
	disk_issue(task, &task->step[0]);
}

/* ---- checking ---- */

static int is_same(const struct kv_block *file, const struct kv_block *known)
{
	return memcmp(file->root, known->root, KV_KEY_BYTES) == 0 &&
	       memcmp(file->parent, known->parent, KV_KEY_BYTES) == 0 &&
	       memcmp(file->mark.digest, known->mark.digest, KV_KEY_BYTES) == 0 &&
	       file->mark.first == known->mark.first && file->position == known->position &&
	       file->bytes == known->bytes && file->token_count == known->token_count &&
	       file->block_tokens == known->block_tokens && file->flags == known->flags &&
	       memcmp(file->check, known->check, KV_BLOCK_CHECK_BYTES) == 0 &&
	       memcmp(file->token, known->token, known->token_count * sizeof(*known->token)) == 0;
}

/* 0, -EBADMSG (it is not what its name says), -ESTALE, -EPROTO (of a newer version: not ours to judge). */
static int judge(const struct disk_task *task, char message[KV_BLOCK_MESSAGE_BYTES])
{
	const struct kv_block *known = task->job->block;
	unsigned char check[KV_BLOCK_CHECK_BYTES];
	struct kv_block file;
	int r = kv_block_decode(task->header, &file, message);

	if (r < 0)
		return r;
	if (memcmp(file.key, known->key, KV_KEY_BYTES) != 0)
		return -EBADMSG;
	if (file.bytes != known->bytes) /* then the chunks were cut for another file */
		return -ESTALE;
	if (task->as.read.is_bad)
		return -EBADMSG;
	kv_check_payload(task->job->memory, file.bytes, check);
	if (memcmp(check, file.check, sizeof(check)) != 0)
		return -EBADMSG;
	return is_same(&file, known) ? 0 : -ESTALE;
}

static void was_read(struct disk_task *task)
{
	char message[KV_BLOCK_MESSAGE_BYTES] = "its size or its payload's check is wrong";
	int r = task->error == 0 ? judge(task, message) : task->error;

	if (r == -EBADMSG) {
		fanout_quarantine(task->job->folder, task->disk->root_fd, task->job->block->key, task->fd);
		task->disk->work.quarantined++;
		disk_note(task->disk, "quarantined %s: %s", task->path, message);
	}
	end(task, r);
}

/* ---- chunks ---- */

static void add_vector(struct disk_step *step, void *memory, uint64_t bytes)
{
	step->vector[step->vector_count++] = (struct iovec){memory, bytes};
	step->bytes += bytes;
}

/*
 * What is left of a chunk. The first has the header in front. The last is rounded up, for the caller has that room, and
 * asks for a page behind the end.
 */
static void issue_chunk(struct disk_task *task, struct disk_step *step)
{
	const struct disk_chunk *chunk = &task->as.read.chunk[step - task->step];
	uint64_t from = chunk->from + chunk->got, to = chunk->from + chunk->exact;

	*step = (struct disk_step){.call = DISK_READ, .fd = task->fd, .off = from, .flags = task->is_direct};
	if (from < KV_BLOCK_HEADER_BYTES) {
		add_vector(step, task->header + from, KV_BLOCK_HEADER_BYTES - from);
		from = KV_BLOCK_HEADER_BYTES;
	}
	to = (to + DISK_PAGE_BYTES - 1) / DISK_PAGE_BYTES * DISK_PAGE_BYTES;
	if (to > from)
		add_vector(step, (char *)task->job->memory + (from - KV_BLOCK_HEADER_BYTES), to - from);
	if (chunk->from + chunk->exact == file_bytes(task))
		add_vector(step, task->disk->scratch, DISK_PAGE_BYTES);
	disk_issue(task, step);
}

/* Another piece of the file for this step, if there is any: 1. */
static int begin_chunk(struct disk_task *task, struct disk_step *step)
{
	struct disk_read *read = &task->as.read;
	uint64_t left = file_bytes(task) - read->next;

	if (left == 0 || task->error < 0 || read->is_bad)
		return 0;
	read->chunk[step - task->step] = (struct disk_chunk){
		.from = read->next,
		.exact = left < DISK_CHUNK_BYTES ? left : DISK_CHUNK_BYTES,
	};
	read->next += read->chunk[step - task->step].exact;
	issue_chunk(task, step);
	return 1;
}

/* A direct read ends inside a page only where the file ends; a cached one may have been interrupted. */
static int may_go_on(const struct disk_task *task, const struct disk_chunk *chunk, int result)
{
	return result > 0 && chunk->got < chunk->exact && (!task->is_direct || chunk->got % DISK_PAGE_BYTES == 0);
}

static int reading_went(struct disk_task *task, struct disk_step *step, int result)
{
	struct disk_read *read = &task->as.read;
	struct disk_chunk *chunk = &read->chunk[step - task->step];

	if (result == -EINTR || (result == -EINVAL && step->flags && disk_lower_to_cached(task) == 0)) {
		issue_chunk(task, step);
		return 1;
	}
	if (result < 0) {
		task->error = result == -EISDIR || result == -ESPIPE ? -EBADMSG : result;
		return 0;
	}
	chunk->got += (uint64_t)result;
	if (may_go_on(task, chunk, result)) {
		issue_chunk(task, step);
		return 1;
	}
	if (chunk->got < chunk->exact || (chunk->from + chunk->exact == file_bytes(task) && chunk->got > chunk->exact))
		read->is_bad = 1;
	return begin_chunk(task, step);
}

/* ---- opening ---- */

static int opening_went(struct disk_task *task, struct disk_step *step, int result)
{
	(void)step;
	task->fd = result < 0 ? -1 : result;
	task->error = result < 0 ? result : 0;
	return 0;
}

static void was_opened(struct disk_task *task)
{
	if (task->error == -EINVAL && task->is_direct) {
		task->disk->is_direct = 0;
		open_file(task);
	} else if (task->error < 0) {
		disk_finish(task, task->error == -ELOOP ? -EBADMSG : task->error);
	} else {
		task->went = reading_went;
		task->go_on = was_read;
		memset(task->header, 0, KV_BLOCK_HEADER_BYTES); /* a short file shall not get that of another job */
		for (uint32_t i = 0; i < DISK_STEPS && begin_chunk(task, &task->step[i]); i++)
			;
	}
}

static void open_file(struct disk_task *task)
{
	task->is_direct = task->disk->is_direct;
	task->error = 0;
	task->went = opening_went;
	task->go_on = was_opened;
	task->step[0] = (struct disk_step){.call = DISK_OPEN,
					   .fd = task->disk->root_fd,
					   .path = task->path,
					   .flags = READ_FLAGS | (task->is_direct ? O_DIRECT : 0)};
	disk_issue(task, &task->step[0]);
}

void disk_read_start(struct disk_task *task)
{
	fanout_path(task->job->folder, task->job->block->key, task->path);
	open_file(task);
}
