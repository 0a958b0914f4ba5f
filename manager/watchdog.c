/* SPDX-License-Identifier: Apache-2.0 */
/* When a sign of life is due; see watchdog.h. */
#include "manager/watchdog.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define NS_PER_US 1000u
#define SIGNS_PER_PERIOD 2u

/* Digits only: strtoull would take blanks, signs and "-1", too. 0 is no number here. */
static uint64_t read_number(const char *text)
{
	unsigned long long value;
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return 0;
	errno = 0;
	value = strtoull(text, &end, 10);
	return errno != 0 || *end != '\0' ? 0 : value;
}

int64_t watchdog_interval_ns(const char *usec, const char *pid, pid_t own_pid)
{
	uint64_t period_us, interval_ns;

	if (usec == NULL || (pid != NULL && read_number(pid) != (uint64_t)own_pid))
		return 0;
	period_us = read_number(usec);
	if (period_us == 0 || __builtin_mul_overflow(period_us / SIGNS_PER_PERIOD, NS_PER_US, &interval_ns) ||
	    interval_ns > INT64_MAX) {
		cnre_log(CNRE_LOG_WARNING, "watchdog: WATCHDOG_USEC=%.40s makes no sense: no signs of life are sent",
			 usec);
		return 0;
	}
	return interval_ns < WATCHDOG_INTERVAL_MIN_NS ? WATCHDOG_INTERVAL_MIN_NS : (int64_t)interval_ns;
}

void watchdog_open(struct watchdog *watchdog)
{
	watchdog->interval_ns = watchdog_interval_ns(getenv("WATCHDOG_USEC"), getenv("WATCHDOG_PID"), getpid());
	watchdog->next_ns = 0;
	(void)unsetenv("WATCHDOG_USEC");
	(void)unsetenv("WATCHDOG_PID");
}

/* Counted from now and not from the sign that was due: after a long turn one sign is enough. */
int watchdog_tick(struct watchdog *watchdog, int64_t now_ns)
{
	if (watchdog->interval_ns == 0 || now_ns < watchdog->next_ns)
		return 0;
	if (__builtin_add_overflow(now_ns, watchdog->interval_ns, &watchdog->next_ns))
		watchdog->next_ns = CNRE_NEVER;
	return 1;
}

int64_t watchdog_deadline_ns(const struct watchdog *watchdog)
{
	return watchdog->interval_ns == 0 ? CNRE_NEVER : watchdog->next_ns;
}
