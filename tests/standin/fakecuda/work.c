/* SPDX-License-Identifier: Apache-2.0 */
/* What a stream's thread does for one operation: waits while it is held, takes its time, and moves the bytes. */
#include "tests/standin/fakecuda/process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOVED_AT_ONCE = 1 << 20 };
#define LOOK_AGAIN_NS (50 * 1000000LL) /* a lost device is noticed at the latest after this */

/* With the world locked. */
static int may_pass(struct world_hold *hold)
{
	return !hold->is_held || hold->allowed;
}

static int pass_holds(int device)
{
	struct world_hold *all = &world->hold[device], *own = &world->process[process.slot].hold[device];
	world_lock();
	int passes = may_pass(all) && may_pass(own);
	if (passes) {
		all->allowed -= all->is_held;
		own->allowed -= own->is_held;
	}
	world_unlock();
	return passes;
}

void work_delay(struct stream *stream, const struct op *op)
{
	int device = process.context[stream->context].device;
	for (;;) {
		uint32_t seen = atomic_load(&world->change);
		if (stream_must_stop(stream) || pass_holds(device))
			break;
		(void)pthread_mutex_unlock(&process.lock);
		world_wait(seen, LOOK_AGAIN_NS);
		(void)pthread_mutex_lock(&process.lock);
	}
	uint64_t bytes = op->to.bytes > op->from.bytes ? op->to.bytes : op->from.bytes;
	int64_t left = (int64_t)(atomic_load(&world->op_ns) + atomic_load(&world->mib_ns) * (bytes >> 10) / 1024);
	while (left > 0 && !stream_must_stop(stream)) {
		struct timespec piece = {.tv_nsec = left < LOOK_AGAIN_NS ? left : LOOK_AGAIN_NS};
		(void)pthread_mutex_unlock(&process.lock);
		(void)nanosleep(&piece, NULL);
		(void)pthread_mutex_lock(&process.lock);
		left -= piece.tv_nsec;
	}
}

static int write_all(const void *from, uint64_t bytes, uint64_t offset)
{
	while (bytes) {
		ssize_t done = pwrite(world_fd, from, bytes, (off_t)offset);
		if (done < 0)
			return -errno;
		from = (const char *)from + done;
		offset += (uint64_t)done;
		bytes -= (uint64_t)done;
	}
	return 0;
}

static int read_all(void *to, uint64_t bytes, uint64_t offset)
{
	while (bytes) {
		ssize_t done = pread(world_fd, to, bytes, (off_t)offset);
		if (done <= 0)
			return done ? -errno : -EIO;
		to = (char *)to + done;
		offset += (uint64_t)done;
		bytes -= (uint64_t)done;
	}
	return 0;
}

/* By pages: the file has a hole where nothing was written. */
static void check_written(const struct piece *piece)
{
	off_t end = (off_t)(piece->file_offset + piece->bytes),
	      hole = lseek(world_fd, (off_t)piece->file_offset, SEEK_HOLE);
	if (hole >= 0 && hole < end)
		rule_broken(RULE_NEVER_WRITTEN, "read of bytes %llu+%llu of allocation %llu, where nothing is",
			    (unsigned long long)piece->offset, (unsigned long long)piece->bytes,
			    (unsigned long long)piece->id);
}

static int copy_within(const struct op *op)
{
	char *buffer = malloc(MOVED_AT_ONCE);
	int rc = buffer ? 0 : -ENOMEM;
	for (uint64_t at = 0; at < op->from.bytes && !rc; at += MOVED_AT_ONCE) {
		uint64_t bytes = op->from.bytes - at < MOVED_AT_ONCE ? op->from.bytes - at : MOVED_AT_ONCE;
		rc = read_all(buffer, bytes, op->from.file_offset + at);
		rc = rc ? rc : write_all(buffer, bytes, op->to.file_offset + at);
	}
	free(buffer);
	return rc;
}

static int copy(const struct op *op)
{
	if (op->from.id)
		check_written(&op->from);
	if (op->from.id && op->to.id)
		return copy_within(op);
	if (op->from.id)
		return read_all(op->host, op->from.bytes, op->from.file_offset);
	int rc = write_all(op->staged ? op->staged : op->host, op->to.bytes, op->to.file_offset);
	if (!rc && !op->staged && host_sum(op->host, op->to.bytes) != op->host_sum)
		rule_broken(RULE_SOURCE_CHANGED, "%p+%llu was written while its copy waited", op->host,
			    (unsigned long long)op->to.bytes);
	return rc;
}

/* The one kernel: the sum of all bytes. */
static int checksum(const struct op *op)
{
	unsigned char *buffer = malloc(MOVED_AT_ONCE);
	int rc = buffer ? 0 : -ENOMEM;
	uint64_t sum = 0;
	check_written(&op->from);
	for (uint64_t at = 0; at < op->from.bytes && !rc; at += MOVED_AT_ONCE) {
		uint64_t bytes = op->from.bytes - at < MOVED_AT_ONCE ? op->from.bytes - at : MOVED_AT_ONCE;
		rc = read_all(buffer, bytes, op->from.file_offset + at);
		for (uint64_t i = 0; i < bytes && !rc; i++)
			sum += buffer[i];
	}
	free(buffer);
	return rc ? rc : write_all(&sum, sizeof sum, op->to.file_offset);
}

static void call_host(const struct op *op, CUresult failed)
{
	thread_is_driver = 1;
	if (op->kind == OP_CALLBACK)
		op->callback(op->handle, failed, op->user);
	else if (!failed) /* as documented: not called when the context has failed */
		op->call(op->user);
	thread_is_driver = 0;
}

void work_run(struct stream *stream, struct op *op)
{
	struct context *context = &process.context[stream->context];
	CUresult failed = context_failed(context);
	if (!failed) {
		failed = failure_take("stream");
		if (failed)
			context_fail(context, failed);
	}
	/* What a host function sees, it may tell: the same as an event right before it that was waited for. */
	if (!failed && (op->kind == OP_HOST_FUNCTION || op->kind == OP_CALLBACK))
		stream_observe(&op->after);
	(void)pthread_mutex_unlock(&process.lock);
	int rc = 0;
	if (op->kind == OP_HOST_FUNCTION || op->kind == OP_CALLBACK)
		call_host(op, failed);
	else if (!failed && op->kind == OP_COPY)
		rc = copy(op);
	else if (!failed && op->kind == OP_CHECKSUM)
		rc = checksum(op);
	(void)pthread_mutex_lock(&process.lock);
	if (op->host && !op->staged)
		host_pending(op->host, op->host_bytes, -1);
	if (op->staged)
		host_count_staged(-(int64_t)op->host_bytes);
	if (rc == -EFAULT)
		rule_broken(RULE_HOST_GONE, "%p+%llu", op->host, (unsigned long long)op->host_bytes);
	else if (rc)
		rule_broken(RULE_TABLE_FULL, "memory of the world: %s", strerror(-rc));
	if (rc)
		context_fail(context, rc == -EFAULT ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_UNKNOWN);
}
