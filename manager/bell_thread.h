/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bells without ring operations: threads that sleep on the bells of up to 127 clients each and write an eventfd of the
 * loop when one rang. They know addresses of futex words and nothing else.
 */
#ifndef CNRE_MANAGER_BELL_THREAD_H
#define CNRE_MANAGER_BELL_THREAD_H

#include "manager/loop.h"

#include <stdatomic.h>
#include <stdint.h>

struct bell_threads;

int bell_threads_open(struct bell_threads **ret_threads, struct loop *loop);
void bell_threads_close(struct bell_threads *threads); /* NULL is fine */
const char *bell_threads_way(const struct bell_threads *threads);

/* 0, -EAGAIN (no thread can take one more), or -errno of pthread_create. */
int bell_threads_add(struct bell_threads *threads, uint32_t slot, const _Atomic uint32_t *bell);
/* When this returns no thread reads the word any more, and it may be unmapped. */
void bell_threads_remove(struct bell_threads *threads, uint32_t slot);

#endif
