/* SPDX-License-Identifier: Apache-2.0 */
/* CLOCK_MONOTONIC in nanoseconds, and deadlines that saturate instead of wrapping. */
#ifndef CNRE_BASE_CLOCK_H
#define CNRE_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define CNRE_NS_PER_S 1000000000LL
#define CNRE_NS_PER_MS 1000000LL
#define CNRE_NEVER INT64_MAX

/* Nanoseconds since an arbitrary start (boot); never negative. */
static inline int64_t cnre_clock_now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
	return now.tv_sec * CNRE_NS_PER_S + now.tv_nsec;
}

/* The deadline of a relative timeout: negative means for ever (CNRE_NEVER); an overflow saturates there too. */
static inline int64_t cnre_clock_deadline_ns(int64_t timeout_ns)
{
	int64_t now_ns, deadline_ns;

	if (timeout_ns < 0)
		return CNRE_NEVER;
	now_ns = cnre_clock_now_ns();
	if (__builtin_add_overflow(now_ns, timeout_ns, &deadline_ns))
		return CNRE_NEVER;
	return deadline_ns;
}

/* Nanoseconds left until a deadline; 0 when it has passed. */
static inline int64_t cnre_clock_left_ns(int64_t deadline_ns)
{
	int64_t now_ns;

	if (deadline_ns == CNRE_NEVER)
		return CNRE_NEVER;
	now_ns = cnre_clock_now_ns();
	return deadline_ns > now_ns ? deadline_ns - now_ns : 0;
}

#endif
