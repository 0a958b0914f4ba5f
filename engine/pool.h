/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few threads that share out the rows of one matrix product at a time. The items of a job are independent, so which
 * thread computes an item never changes a result. One caller at a time; not a general executor.
 */
#ifndef ENGINE_POOL_H
#define ENGINE_POOL_H

#include <stdint.h>

#define POOL_THREADS_MAX 256u

struct pool;

/* Computes the items [first, first + count). */
typedef void pool_work(void *job, uint32_t first, uint32_t count);

/* thread_count counts the caller too: 1 starts none. Returns 0, -EINVAL, -ENOMEM or an error of pthread_create. */
int pool_open(struct pool **ret_pool, uint32_t thread_count);
struct pool *pool_close(struct pool *pool);
uint32_t pool_thread_count(const struct pool *pool);

/* Runs work on item_count items, handed out chunk by chunk; returns when all are done. */
void pool_run(struct pool *pool, pool_work *work, void *job, uint32_t item_count, uint32_t chunk);

#endif
