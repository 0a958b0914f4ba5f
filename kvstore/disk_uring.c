/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All steps of a turn to the kernel by one call, which also waits for the first to come back or for new jobs: a read of
 * wake_fd is always in the ring. A chain is linked entries. What the kernel does not know as an operation (LINKAT came
 * with 5.15) is a plain call when its turn comes. No registered buffers: payloads lie anywhere in memory that grows, and
 * at a MiB a read there is nothing to gain. No SQPOLL (R22).
 */
#include "kvstore/disk_inner.h"

#include "base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES 256u
#define CQ_ENTRIES 2048u /* beyond KV_DISK_JOBS_MAX tasks of DISK_STEPS the kernel keeps the rest (NODROP) */
#define REAP_BATCH 64u
#define TRIES_MAX 16 /* of a self-test that signals interrupt */
#define WORKERS_PER_TASK 2u
#define FEATURES_NEEDED (IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS)

struct uring {
	struct disk_backend backend;
	struct kv_disk *disk;
	struct io_uring ring;
	struct disk_steps ready;  /* first steps of chains that are not in the ring */
	int is_known[DISK_CALLS]; /* the kernel has an operation for it */
	int is_listening;         /* the read of wake_fd is in the ring */
	uint64_t raised;          /* what it reads */
};

static struct uring *uring_of(struct disk_backend *backend)
{
	return (struct uring *)backend; /* its first member */
}

/* ---- submission ---- */

static void prepare(struct io_uring_sqe *entry, const struct disk_step *step)
{
	switch (step->call) {
	case DISK_OPEN:
		io_uring_prep_openat(entry, step->fd, step->path, step->flags, DISK_FILE_MODE);
		break;
	case DISK_STAT:
		io_uring_prep_statx(entry, step->fd, step->path, AT_SYMLINK_NOFOLLOW, STATX_TYPE, step->stat);
		break;
	case DISK_READ:
		io_uring_prep_readv(entry, step->fd, step->vector, step->vector_count, step->off);
		break;
	case DISK_WRITE:
		io_uring_prep_writev(entry, step->fd, step->vector, step->vector_count, step->off);
		break;
	case DISK_SYNC:
		io_uring_prep_fsync(entry, step->fd, 0);
		break;
	case DISK_LINK:
		io_uring_prep_linkat(entry, step->fd, step->path, step->fd, step->to, step->flags);
		break;
	case DISK_UNLINK:
		io_uring_prep_unlinkat(entry, step->fd, step->path, 0);
		break;
	case DISK_CLOSE:
		io_uring_prep_close(entry, step->fd);
		break;
	case DISK_CALLS:
		CNRE_CHECK(0);
	}
}

/* The part of a chain that the kernel knows; the rest follows when that is back. */
static unsigned count_known(const struct uring *uring, const struct disk_step *step)
{
	unsigned count = 0;

	for (; step != NULL && uring->is_known[step->call]; step = step->then)
		count++;
	return count;
}

static void enter_chain(struct uring *uring, struct disk_step *step, unsigned count)
{
	for (unsigned i = 0; i < count; i++, step = step->then) {
		struct io_uring_sqe *entry = io_uring_get_sqe(&uring->ring);

		prepare(entry, step);
		if (i + 1 < count)
			entry->flags |= IOSQE_IO_LINK;
		/* Cached reads would be copied by this thread, during its submission. */
		if (step->call == DISK_READ && !uring->disk->is_direct)
			entry->flags |= IOSQE_ASYNC;
		io_uring_sqe_set_data(entry, step);
	}
}

/* The first step of a list, by a plain call, and what it leads to. */
static void call_plainly(struct uring *uring, struct disk_step *step)
{
	struct disk_step *then = step->then;
	int result = disk_plain_call(uring->disk, step);

	if (then != NULL && disk_step_was_full(step, result))
		disk_steps_add(&uring->ready, then);
	else if (then != NULL)
		disk_step_done(then, -ECANCELED); /* chains of ours have one step behind an unknown one at most */
	disk_step_done(step, result);
}

static void listen_for_jobs(struct uring *uring)
{
	struct io_uring_sqe *entry = uring->is_listening ? NULL : io_uring_get_sqe(&uring->ring);

	if (entry == NULL)
		return;
	io_uring_prep_read(entry, uring->disk->wake_fd, &uring->raised, sizeof(uring->raised), 0);
	io_uring_sqe_set_data(entry, NULL);
	uring->is_listening = 1;
}

static void issue(struct disk_backend *backend, struct disk_step *first)
{
	disk_steps_add(&uring_of(backend)->ready, first);
}

/* As many as there is room for. Returns 1 when a call was made here, so that nothing may be waited for. */
static int hand_over(struct uring *uring)
{
	struct disk_step *step;
	int was_called = 0;

	listen_for_jobs(uring);
	while ((step = uring->ready.first) != NULL) {
		unsigned count = count_known(uring, step);

		if (count > io_uring_sq_space_left(&uring->ring))
			break;
		(void)disk_steps_take(&uring->ready);
		if (count > 0)
			enter_chain(uring, step, count);
		else
			call_plainly(uring, step);
		was_called |= count == 0;
	}
	return was_called;
}

/* ---- completion ---- */

static void end_step(struct uring *uring, struct disk_step *step, int result)
{
	struct disk_step *then = step->then;

	/* Behind the known part of its chain. Its task is not over before this is. */
	if (then != NULL && uring->is_known[step->call] && !uring->is_known[then->call]) {
		if (disk_step_was_full(step, result))
			disk_steps_add(&uring->ready, then);
		else
			disk_step_done(then, -ECANCELED);
	}
	disk_step_done(step, result);
}

/* Copied and given back first: what they lead to uses the ring. */
static unsigned reap_batch(struct uring *uring)
{
	struct io_uring_cqe *entry[REAP_BATCH];
	struct {
		struct disk_step *step;
		int result;
	} copy[REAP_BATCH];
	unsigned count = io_uring_peek_batch_cqe(&uring->ring, entry, REAP_BATCH);

	for (unsigned i = 0; i < count; i++) {
		copy[i].step = io_uring_cqe_get_data(entry[i]);
		copy[i].result = entry[i]->res;
	}
	io_uring_cq_advance(&uring->ring, count);
	for (unsigned i = 0; i < count; i++) {
		if (copy[i].step == NULL)
			uring->is_listening = 0;
		else
			end_step(uring, copy[i].step, copy[i].result);
	}
	return count;
}

static void turn(struct disk_backend *backend)
{
	struct uring *uring = uring_of(backend);
	int was_called = hand_over(uring);

	/* -EINTR, -EAGAIN, -EBUSY: what is in the ring stays there for the next turn. */
	(void)io_uring_submit_and_wait(&uring->ring, was_called || uring->ready.first != NULL ? 0 : 1);
	uring->disk->work.syscalls++;
	while (reap_batch(uring) == REAP_BATCH)
		;
}

/* ---- life ---- */

static void close_uring(struct disk_backend *backend)
{
	struct uring *uring = uring_of(backend);

	io_uring_queue_exit(&uring->ring); /* cancels the read of wake_fd */
	free(uring);
}

/* An operation that does nothing, there and back: a filter may allow the set-up and forbid the use. */
static int self_test(struct io_uring *ring)
{
	struct io_uring_sqe *entry = io_uring_get_sqe(ring);
	struct io_uring_cqe *done;
	int r = -EINTR;

	io_uring_prep_nop(entry);
	for (int i = 0; i < TRIES_MAX && (r == -EINTR || r == -EAGAIN); i++)
		r = io_uring_submit_and_wait(ring, 1);
	if (r >= 0)
		r = io_uring_peek_cqe(ring, &done);
	if (r < 0)
		return r;
	r = done->res;
	io_uring_cqe_seen(ring, done);
	return r;
}

static int try_ring(struct io_uring *ring, unsigned flags)
{
	struct io_uring_params parameters = {.flags = flags | IORING_SETUP_CQSIZE, .cq_entries = CQ_ENTRIES};
	int r = io_uring_queue_init_params(ENTRIES, ring, &parameters);

	if (r < 0)
		return r;
	r = (parameters.features & FEATURES_NEEDED) == FEATURES_NEEDED ? self_test(ring) : -ENOSYS;
	if (r < 0)
		io_uring_queue_exit(ring);
	return r;
}

/* The best flags that the kernel knows. */
static int make_ring(struct io_uring *ring)
{
	static const unsigned flags[] = {
		IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
		IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN,
		IORING_SETUP_SUBMIT_ALL,
		0,
	};
	int r = -EINVAL;

	for (size_t i = 0; i < CNRE_COUNT_OF(flags) && r == -EINVAL; i++)
		r = try_ring(ring, flags[i]);
	return r;
}

static void probe(struct uring *uring)
{
	static const int operation[DISK_CALLS] = {
		[DISK_OPEN] = IORING_OP_OPENAT,  [DISK_STAT] = IORING_OP_STATX,      [DISK_READ] = IORING_OP_READV,
		[DISK_WRITE] = IORING_OP_WRITEV, [DISK_SYNC] = IORING_OP_FSYNC,      [DISK_LINK] = IORING_OP_LINKAT,
		[DISK_CLOSE] = IORING_OP_CLOSE,  [DISK_UNLINK] = IORING_OP_UNLINKAT,
	};
	struct io_uring_probe *known = io_uring_get_probe_ring(&uring->ring);

	for (int i = 0; i < DISK_CALLS; i++) /* without an answer the oldest three are there */
		uring->is_known[i] = known == NULL ? i == DISK_READ || i == DISK_WRITE || i == DISK_SYNC
						   : io_uring_opcode_supported(known, operation[i]) != 0;
	if (known != NULL)
		io_uring_free_probe(known);
}

/*
 * The ring's table keeps the file open until the ring is gone, which is after its last read. Refused, there shall be no
 * ring: a process that makes plain calls is not gone before they are over.
 */
static int hold(struct uring *uring, int fd)
{
	return fd > 0 ? io_uring_register_files(&uring->ring, &fd, 1) : 0;
}

int disk_uring_open(struct kv_disk *disk, struct disk_backend **ret_backend)
{
	struct uring *uring = calloc(1, sizeof(*uring));
	unsigned workers[2] = {disk->depth * WORKERS_PER_TASK, 0}; /* for files; 0 leaves the others alone */
	int r;

	if (uring == NULL)
		return -ENOMEM;
	r = make_ring(&uring->ring);
	if (r < 0)
		goto fail;
	r = hold(uring, disk->held_fd);
	if (r < 0)
		goto fail_ring;
	uring->backend = (struct disk_backend){.issue = issue, .turn = turn, .close = close_uring};
	uring->disk = disk;
	disk_steps_init(&uring->ready);
	(void)io_uring_ring_dontfork(&uring->ring);
	(void)io_uring_register_iowq_max_workers(&uring->ring, workers); /* before 5.15 it stays as it is */
	probe(uring);
	*ret_backend = &uring->backend;
	return 0;
fail_ring:
	io_uring_queue_exit(&uring->ring);
fail:
	free(uring);
	return r;
}
