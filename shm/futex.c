/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel side of futex.h. */
#include "shm/futex.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int os_wait(const _Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns)
{
	struct timespec timeout = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};

	if (syscall(SYS_futex, word, FUTEX_WAIT, expected, timeout_ns < 0 ? NULL : &timeout, NULL, 0) == 0)
		return 0;
	return -errno;
}

static int os_wake(const _Atomic uint32_t *word, int count)
{
	long woken = syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);

	return woken < 0 ? -errno : (int)woken;
}

const struct cnre_futex_ops cnre_futex_os = {.wait = os_wait, .wake = os_wake};

int cnre_futex_wait(const _Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns)
{
	return cnre_futex_os.wait(word, expected, timeout_ns);
}

int cnre_futex_wake_all(const _Atomic uint32_t *word)
{
	return cnre_futex_os.wake(word, INT_MAX);
}
