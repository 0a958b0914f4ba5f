/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sign of life that a service manager asked for: WATCHDOG=1 at half of $WATCHDOG_USEC, from the core loop, so that a
 * loop that hangs is silent. No thread and no timer may send it: they would go on while the loop stands still.
 */
#ifndef CNRE_MANAGER_WATCHDOG_H
#define CNRE_MANAGER_WATCHDOG_H

#include <stdint.h>
#include <sys/types.h>

/* Half of less would keep the loop from sleeping; it is also the shortest pause between two signs. */
#define WATCHDOG_INTERVAL_MIN_NS 1000000LL

struct watchdog {
	int64_t interval_ns;              /* 0: nobody asked */
	int64_t next_ns;
};

/*
 * Nanoseconds between two signs, from the two variables as sd_watchdog_enabled(3) reads them: 0 without `usec`, when
 * `pid` is another process than own_pid, or for what makes no sense; who started us then kills us, and the log says why.
 */
int64_t watchdog_interval_ns(const char *usec, const char *pid, pid_t own_pid);

/* Reads the variables and removes them from the environment: whatever we start is not meant. The first sign is due now. */
void watchdog_open(struct watchdog *watchdog);

/* Once a turn, and between long steps of one. 1 and the next sign put off when one is due; the caller sends WATCHDOG_SIGN. */
int watchdog_tick(struct watchdog *watchdog, int64_t now_ns);
int64_t watchdog_deadline_ns(const struct watchdog *watchdog); /* CNRE_NEVER: nobody asked */

#define WATCHDOG_SIGN "WATCHDOG=1\n"

#endif
