/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that read; see iobench_trial.h. One lock for all that they share: it is taken twice for a block, which takes a
 * thousandth of what the smallest block takes to read.
 */
#include "tools/ctl/iobench_trial.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct lane {
	struct iobench_lane order;
	uint64_t block_count, stride;
	uint64_t at, taken; /* the next block, and how many have been given out */
	struct iobench_measured measured;
};

struct reader {
	struct trial *trial;
	struct lane *lane;
	unsigned char *buffer;
	pthread_t thread;
};

struct trial {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct lane lane[IOBENCH_TARGETS_MAX];
	uint32_t lane_count;
	struct reader *reader;
	uint32_t reader_count, running;
	int is_open, is_over; /* the start has been given; nothing more is to begin */
	int is_abandoned;     /* the last thread frees it */
	int64_t start_ns, deadline_ns, last_ns;
};

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
	while (b != 0) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/*
 * A step with which every block comes once before any comes again, and neighbours in time are far apart in the file: no
 * read-ahead and no drive can guess what comes next.
 */
static uint64_t stride_of(uint64_t count)
{
	uint64_t stride = count / 8 * 5 + 1; /* near the golden section, which spreads best */

	while (common_divisor(stride, count) != 1)
		stride++;
	return stride;
}

static void fill_lane(struct lane *lane, const struct iobench_lane *order)
{
	*lane = (struct lane){.order = *order, .block_count = order->file_bytes / order->block_bytes};
	CNRE_CHECK(lane->block_count > 0);
	lane->stride = stride_of(lane->block_count) % lane->block_count;
	lane->at = order->phase % lane->block_count;
	if (order->count != 0 && order->count < lane->block_count)
		lane->order.count = order->count;
	else
		lane->order.count = lane->block_count < UINT32_MAX ? (uint32_t)lane->block_count : UINT32_MAX;
}

/* ---- a thread ---- */

/* 0: nothing more is to be read. Under the lock. */
static int take_block(struct trial *trial, struct lane *lane, uint64_t *ret_block)
{
	if (trial->is_over || lane->measured.error != 0 || lane->taken == lane->order.count ||
	    cnre_clock_now_ns() >= trial->deadline_ns)
		return 0;
	*ret_block = lane->at;
	lane->at = (lane->at + lane->stride) % lane->block_count;
	lane->taken++;
	return 1;
}

static void account(struct trial *trial, struct lane *lane, int64_t got)
{
	trial->last_ns = cnre_clock_now_ns();
	if (got == (int64_t)lane->order.block_bytes) {
		lane->measured.blocks++;
		lane->measured.bytes += (uint64_t)got;
		lane->measured.elapsed_ns = trial->last_ns - trial->start_ns;
	} else if (lane->measured.error == 0) {
		lane->measured.error = got < 0 ? (int)got : -EIO; /* shorter than it was a moment ago */
	}
}

static struct trial *close_trial(struct trial *trial)
{
	(void)pthread_cond_destroy(&trial->changed);
	(void)pthread_mutex_destroy(&trial->lock);
	free(trial->reader);
	free(trial);
	return NULL;
}

static void *read_blocks(void *argument)
{
	struct reader *reader = argument;
	struct trial *trial = reader->trial;
	struct lane *lane = reader->lane;
	uint64_t block;
	int frees;

	(void)pthread_mutex_lock(&trial->lock);
	while (!trial->is_open && !trial->is_over)
		(void)pthread_cond_wait(&trial->changed, &trial->lock);
	while (take_block(trial, lane, &block)) {
		int64_t got;

		(void)pthread_mutex_unlock(&trial->lock);
		got = cnre_file_read(lane->order.fd, reader->buffer, lane->order.block_bytes,
				     block * lane->order.block_bytes);
		(void)pthread_mutex_lock(&trial->lock);
		account(trial, lane, got);
	}
	frees = --trial->running == 0 && trial->is_abandoned;
	(void)pthread_cond_broadcast(&trial->changed);
	(void)pthread_mutex_unlock(&trial->lock);
	if (frees)
		(void)close_trial(trial);
	return NULL;
}

/* ---- all of them ---- */

static struct trial *open_trial(const struct iobench_lane *lanes, uint32_t lane_count)
{
	struct trial *trial = calloc(1, sizeof *trial);
	pthread_condattr_t attributes;
	uint32_t readers = 0;

	if (trial == NULL)
		return NULL;
	for (uint32_t i = 0; i < lane_count; i++) {
		fill_lane(&trial->lane[i], &lanes[i]);
		readers += lanes[i].threads;
	}
	trial->lane_count = lane_count;
	trial->reader = calloc(readers, sizeof *trial->reader);
	(void)pthread_mutex_init(&trial->lock, NULL);
	(void)pthread_condattr_init(&attributes);
	(void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&trial->changed, &attributes);
	(void)pthread_condattr_destroy(&attributes);
	return trial->reader == NULL ? close_trial(trial) : trial;
}

/* As many as can be had; 0 or the error of the first that could not. Under the lock. */
static int start_readers(struct trial *trial)
{
	for (uint32_t i = 0; i < trial->lane_count; i++) {
		struct lane *lane = &trial->lane[i];

		for (uint32_t t = 0; t < lane->order.threads; t++) {
			struct reader *reader = &trial->reader[trial->reader_count];
			int r;

			*reader = (struct reader){.trial = trial,
						  .lane = lane,
						  .buffer = lane->order.buffers + t * lane->order.block_bytes};
			r = pthread_create(&reader->thread, NULL, read_blocks, reader);
			if (r != 0)
				return -r;
			trial->reader_count++;
			trial->running++;
		}
	}
	return 0;
}

static struct timespec time_of(int64_t at_ns)
{
	return (struct timespec){.tv_sec = at_ns / CNRE_NS_PER_S, .tv_nsec = at_ns % CNRE_NS_PER_S};
}

/* 0 when every thread is through, -ETIMEDOUT when no block has come for so long. Under the lock. */
static int await_readers(struct trial *trial, int64_t stall_ns)
{
	while (trial->running > 0) {
		int64_t patience_ns = trial->last_ns + stall_ns;
		struct timespec until = time_of(patience_ns);

		if (cnre_clock_now_ns() >= patience_ns)
			return -ETIMEDOUT;
		(void)pthread_cond_timedwait(&trial->changed, &trial->lock, &until);
	}
	return 0;
}

/* From here on it belongs to its threads, which look at it again when the drive answers. Under the lock. */
static void abandon(struct trial *trial)
{
	for (uint32_t i = 0; i < trial->reader_count; i++)
		(void)pthread_detach(trial->reader[i].thread);
	trial->is_abandoned = 1;
}

/* -ETIMEDOUT: the trial is abandoned. */
static int run_trial(struct trial *trial, const struct iobench_times *times)
{
	int r, waited;

	(void)pthread_mutex_lock(&trial->lock);
	r = start_readers(trial);
	trial->start_ns = trial->last_ns = cnre_clock_now_ns();
	trial->deadline_ns = cnre_clock_deadline_ns(times->time_ns);
	trial->is_open = r == 0;
	trial->is_over = r != 0;
	(void)pthread_cond_broadcast(&trial->changed);
	waited = await_readers(trial, times->stall_ns);
	trial->is_over = 1;
	if (waited < 0)
		abandon(trial);
	(void)pthread_mutex_unlock(&trial->lock);
	if (waited < 0)
		return waited;
	for (uint32_t i = 0; i < trial->reader_count; i++)
		(void)pthread_join(trial->reader[i].thread, NULL);
	return r;
}

int iobench_trial(const struct iobench_lane *lanes, uint32_t lane_count, const struct iobench_times *times,
		  struct iobench_measured *ret_measured)
{
	struct trial *trial;
	int r;

	CNRE_CHECK(lane_count > 0 && lane_count <= IOBENCH_TARGETS_MAX);
	trial = open_trial(lanes, lane_count);
	if (trial == NULL)
		return -ENOMEM;
	r = run_trial(trial, times);
	if (r == -ETIMEDOUT)
		return r;
	for (uint32_t i = 0; r == 0 && i < lane_count; i++)
		ret_measured[i] = trial->lane[i].measured;
	(void)close_trial(trial);
	return r;
}
