/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs follow each other within microseconds during a forward pass, so both sides spin for a moment and sleep
 * after that. A job is a word `open` of generation and chunks not yet taken. A thread that lowers it by
 * compare-exchange owns a chunk of exactly that job, which cannot end before the chunk is counted off in `left`;
 * so the job's fields stay still as long as anyone reads them, and a thread that wakes late delays nobody.
 *
 * Ordering map:
 *   [E1] store open           -> [E5] take a chunk            the job's fields
 *   [E1], [E2] load sleepers <-> [E7] add, [E6] load open     no lost wake-up of a thread: one sees the other
 *   [E4] count off            -> [E8] load left               the results; the fields may be written again
 *   [E9], [E8]               <-> [E4], [E11]                  no lost wake-up of the caller
 */
#include "engine/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#define SPIN_ROUNDS 4000u /* about 50 us: longer than any gap inside a layer, shorter than a read from a drive */

struct pool {
	pthread_mutex_t mutex;
	pthread_cond_t wake, done;
	uint32_t thread_count; /* with the caller */
	uint32_t started;

	/* The job. Written by the caller while nobody owns a chunk, read by owners of a chunk only. */
	pool_work *work;
	void *job;
	uint32_t item_count, chunk, chunk_count;

	_Alignas(64) _Atomic uint64_t open; /* generation:32 | chunks not taken:32 */
	_Atomic uint32_t sleepers;          /* threads asleep on wake, or about to be */
	_Atomic uint32_t stop;
	_Alignas(64) _Atomic uint32_t left; /* chunks not finished */
	_Atomic uint32_t caller_sleeps;
	pthread_t thread[POOL_THREADS_MAX];
};

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/* Takes one chunk of the open job, whichever that is; chunks not taken before it, 0: nothing to take. */
static uint32_t take_chunk(struct pool *pool)
{
	/* [E3] relaxed: a guess that [E5] confirms or refuses. */
	uint64_t open = atomic_load_explicit(&pool->open, memory_order_relaxed);

	while ((uint32_t)open != 0) {
		uint64_t taken = open - 1;

		/* [E5] acquire, pairs with [E1]: the job's fields. */
		if (atomic_compare_exchange_weak_explicit(&pool->open, &open, taken, memory_order_acquire,
							  memory_order_relaxed))
			return (uint32_t)open;
	}
	return 0;
}

/* Counts one chunk off and wakes the caller after the last. */
static void finish_chunk(struct pool *pool)
{
	/* [E4] seq_cst, pairs with [E8] and [E9]: this chunk's results; either we see the caller asleep or it 0. */
	if (atomic_fetch_sub_explicit(&pool->left, 1, memory_order_seq_cst) != 1)
		return;
	/* [E11] seq_cst, pairs with [E9]: a caller that was awake then looks at left once more. */
	if (atomic_load_explicit(&pool->caller_sleeps, memory_order_seq_cst) == 0)
		return;
	pthread_mutex_lock(&pool->mutex);
	pthread_cond_signal(&pool->done);
	pthread_mutex_unlock(&pool->mutex);
}

static void work_chunks(struct pool *pool)
{
	uint32_t untaken;

	while ((untaken = take_chunk(pool)) > 0) {
		uint32_t first = (pool->chunk_count - untaken) * pool->chunk;
		uint32_t rest = pool->item_count - first;

		pool->work(pool->job, first, rest < pool->chunk ? rest : pool->chunk);
		finish_chunk(pool);
	}
}

static bool has_chunks(struct pool *pool)
{
	/* [E6] seq_cst, pairs with [E1]: the look after [E7] sees every job whose caller did not see us counted. */
	return (uint32_t)atomic_load_explicit(&pool->open, memory_order_seq_cst) != 0;
}

static bool is_stopped(struct pool *pool)
{
	/* [E12] relaxed: set under the mutex, and looked at under it before any sleep. */
	return atomic_load_explicit(&pool->stop, memory_order_relaxed) != 0;
}

static void wait_for_chunks(struct pool *pool)
{
	for (uint32_t i = 0; i < SPIN_ROUNDS; i++) {
		if (has_chunks(pool) || is_stopped(pool))
			return;
		relax();
	}
	pthread_mutex_lock(&pool->mutex);
	/* [E7] seq_cst, pairs with [E2]: counted before the last look at open. */
	atomic_fetch_add_explicit(&pool->sleepers, 1, memory_order_seq_cst);
	while (!has_chunks(pool) && !is_stopped(pool))
		pthread_cond_wait(&pool->wake, &pool->mutex);
	/* [E10] relaxed: an old larger count costs one needless broadcast. */
	atomic_fetch_sub_explicit(&pool->sleepers, 1, memory_order_relaxed);
	pthread_mutex_unlock(&pool->mutex);
}

static void *serve(void *argument)
{
	struct pool *pool = argument;

	while (!is_stopped(pool)) {
		wait_for_chunks(pool);
		work_chunks(pool);
	}
	return NULL;
}

static bool is_finished(struct pool *pool)
{
	/* [E8] seq_cst, pairs with [E4]: the results of all chunks. */
	return atomic_load_explicit(&pool->left, memory_order_seq_cst) == 0;
}

static void wait_until_finished(struct pool *pool)
{
	for (uint32_t i = 0; i < SPIN_ROUNDS; i++) {
		if (is_finished(pool))
			return;
		relax();
	}
	pthread_mutex_lock(&pool->mutex);
	/* [E9] seq_cst, pairs with [E4] and [E11]: stored before the last look at left. */
	atomic_store_explicit(&pool->caller_sleeps, 1, memory_order_seq_cst);
	while (!is_finished(pool))
		pthread_cond_wait(&pool->done, &pool->mutex);
	/* [E13] relaxed: an old 1 costs one needless signal. */
	atomic_store_explicit(&pool->caller_sleeps, 0, memory_order_relaxed);
	pthread_mutex_unlock(&pool->mutex);
}

static void open_job(struct pool *pool)
{
	/* [E14] relaxed: only the caller opens jobs, and no chunk is left that a thread could still take. */
	uint64_t generation = (atomic_load_explicit(&pool->open, memory_order_relaxed) >> 32) + 1;

	/* [E15] relaxed: published by [E1]. */
	atomic_store_explicit(&pool->left, pool->chunk_count, memory_order_relaxed);
	/* [E1] seq_cst, pairs with [E5] and [E6]: the job's fields and left; with [E2], no lost wake-up. */
	atomic_store_explicit(&pool->open, generation << 32 | pool->chunk_count, memory_order_seq_cst);
	/* [E2] seq_cst, pairs with [E7]: a thread not counted here sees the new job before it sleeps. */
	if (atomic_load_explicit(&pool->sleepers, memory_order_seq_cst) == 0)
		return;
	pthread_mutex_lock(&pool->mutex);
	pthread_cond_broadcast(&pool->wake);
	pthread_mutex_unlock(&pool->mutex);
}

void pool_run(struct pool *pool, pool_work *work, void *job, uint32_t item_count, uint32_t chunk)
{
	if (pool->started == 0 || item_count <= chunk) { /* not worth a wake-up */
		if (item_count > 0)
			work(job, 0, item_count);
		return;
	}
	pool->work = work;
	pool->job = job;
	pool->item_count = item_count;
	pool->chunk = chunk;
	pool->chunk_count = item_count / chunk + (item_count % chunk != 0);
	open_job(pool);
	work_chunks(pool);
	wait_until_finished(pool);
}

uint32_t pool_thread_count(const struct pool *pool)
{
	return pool->thread_count;
}

int pool_open(struct pool **ret_pool, uint32_t thread_count)
{
	struct pool *pool;
	int error = 0;

	if (thread_count == 0 || thread_count > POOL_THREADS_MAX)
		return -EINVAL;
	pool = aligned_alloc(_Alignof(struct pool), sizeof *pool);
	if (!pool)
		return -ENOMEM;
	*pool = (struct pool){.thread_count = thread_count};
	pthread_mutex_init(&pool->mutex, NULL);
	pthread_cond_init(&pool->wake, NULL);
	pthread_cond_init(&pool->done, NULL);
	while (pool->started + 1 < thread_count && error == 0) {
		error = pthread_create(&pool->thread[pool->started], NULL, serve, pool);
		pool->started += error == 0;
	}
	if (error != 0) {
		pool_close(pool);
		return -error;
	}
	*ret_pool = pool;
	return 0;
}

struct pool *pool_close(struct pool *pool)
{
	if (!pool)
		return NULL;
	pthread_mutex_lock(&pool->mutex);
	/* [E16] relaxed: under the mutex, see [E12]. */
	atomic_store_explicit(&pool->stop, 1, memory_order_relaxed);
	pthread_cond_broadcast(&pool->wake);
	pthread_mutex_unlock(&pool->mutex);
	for (uint32_t i = 0; i < pool->started; i++)
		pthread_join(pool->thread[i], NULL);
	pthread_cond_destroy(&pool->done);
	pthread_cond_destroy(&pool->wake);
	pthread_mutex_destroy(&pool->mutex);
	free(pool);
	return NULL;
}
