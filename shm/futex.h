/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Futex wait and wake on 32-bit words that several processes share, so never FUTEX_PRIVATE: each process maps the word
 * at another address, and a waiter may hold it in a read-only mapping. A spurious wake-up is normal: every caller loops
 * around its own condition.
 */
#ifndef CNRE_SHM_FUTEX_H
#define CNRE_SHM_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

/* The longest uninterrupted sleep of any client (R9): then it looks at deadline, epoch and hang-up again. */
#define CNRE_WAIT_SLICE_NS (250 * 1000000LL)

/* Replaceable so that a test can see each call; cnre_futex_os is the kernel. */
struct cnre_futex_ops {
	/* Sleeps while *word == expected, at most timeout_ns (negative: for ever). 0 woken, -EAGAIN value differed,
	 * -ETIMEDOUT, -EINTR. */
	int (*wait)(const _Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns);
	/* Wakes at most count sleepers; the number woken or -errno. */
	int (*wake)(const _Atomic uint32_t *word, int count);
};
extern const struct cnre_futex_ops cnre_futex_os;

int cnre_futex_wait(const _Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns);
int cnre_futex_wake_all(const _Atomic uint32_t *word);

#endif
