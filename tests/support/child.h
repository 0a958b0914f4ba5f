/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a piece of a test in a forked child. The child must not assert (criterion's runner does not know it): it
 * reports by what it returns, 0 to 255, and the parent asserts.
 */
#ifndef CNRE_TESTS_SUPPORT_CHILD_H
#define CNRE_TESTS_SUPPORT_CHILD_H

#include <sys/types.h>

/* Forks and runs body(argument); what it returned, or -signal if it was killed. */
int child_run(int (*body)(void *argument), void *argument);
/* The same as two steps, for tests with both sides at work. */
pid_t child_start(int (*body)(void *argument), void *argument);
int child_wait(pid_t child);

#endif
