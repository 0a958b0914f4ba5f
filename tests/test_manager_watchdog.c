/* SPDX-License-Identifier: Apache-2.0 */
/* Reading what a service manager asked for, and when signs of life are due. */
#include "manager/watchdog.h"

#include "base/clock.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define OWN_PID 4711

TestSuite(manager_watchdog, .timeout = 20);

Test(manager_watchdog, half_of_the_period_is_the_interval)
{
	cr_assert_eq(watchdog_interval_ns("30000000", "4711", OWN_PID), 15 * CNRE_NS_PER_S);
	cr_assert_eq(watchdog_interval_ns("30000000", NULL, OWN_PID), 15 * CNRE_NS_PER_S);
	cr_assert_eq(watchdog_interval_ns("1", "4711", OWN_PID), WATCHDOG_INTERVAL_MIN_NS);
}

Test(manager_watchdog, nobody_asked_without_the_variable_or_for_another_process)
{
	cr_assert_eq(watchdog_interval_ns(NULL, "4711", OWN_PID), 0);
	cr_assert_eq(watchdog_interval_ns("30000000", "4712", OWN_PID), 0);
	cr_assert_eq(watchdog_interval_ns("30000000", "", OWN_PID), 0);
	cr_assert_eq(watchdog_interval_ns("30000000", "4711x", OWN_PID), 0);
	cr_assert_eq(watchdog_interval_ns("30000000", "-4711", -4711), 0);
}

Test(manager_watchdog, a_period_that_makes_no_sense_is_none)
{
	static const char *const senseless[] = {
		"",
		"0",
		"-1",
		"+5",
		" 5",
		"5 ",
		"5s",
		"1e6",
		"0x10",
		"18446744073709551615",
		"18446744073709551616",
		"99999999999999999999999999",
	};

	for (size_t i = 0; i < sizeof senseless / sizeof senseless[0]; i++)
		cr_assert_eq(watchdog_interval_ns(senseless[i], "4711", OWN_PID), 0, "\"%s\" was taken", senseless[i]);
}

Test(manager_watchdog, a_sign_is_due_at_once_and_then_once_in_each_interval)
{
	struct watchdog watchdog = {.interval_ns = 100};

	cr_assert_eq(watchdog_tick(&watchdog, 1000), 1);
	cr_assert_eq(watchdog_deadline_ns(&watchdog), 1100);
	cr_assert_eq(watchdog_tick(&watchdog, 1099), 0);
	cr_assert_eq(watchdog_deadline_ns(&watchdog), 1100);
	cr_assert_eq(watchdog_tick(&watchdog, 1100), 1);
	cr_assert_eq(watchdog_tick(&watchdog, 5000), 1, "late is due");
	cr_assert_eq(watchdog_tick(&watchdog, 5001), 0, "and is not made up for");
	cr_assert_eq(watchdog_deadline_ns(&watchdog), 5100);
}

Test(manager_watchdog, nothing_is_ever_due_when_nobody_asked)
{
	struct watchdog watchdog = {.interval_ns = 0};

	cr_assert_eq(watchdog_tick(&watchdog, 0), 0);
	cr_assert_eq(watchdog_tick(&watchdog, INT64_MAX), 0);
	cr_assert_eq(watchdog_deadline_ns(&watchdog), CNRE_NEVER);
}

Test(manager_watchdog, the_longest_period_does_not_wrap)
{
	struct watchdog watchdog = {.interval_ns = INT64_MAX};

	cr_assert_eq(watchdog_tick(&watchdog, 5), 1);
	cr_assert_eq(watchdog_deadline_ns(&watchdog), CNRE_NEVER);
}

Test(manager_watchdog, the_variables_are_read_once_and_not_inherited)
{
	struct watchdog watchdog;
	char pid[16];

	(void)snprintf(pid, sizeof pid, "%d", (int)getpid());
	cr_assert_eq(setenv("WATCHDOG_USEC", "2000000", 1), 0);
	cr_assert_eq(setenv("WATCHDOG_PID", pid, 1), 0);
	watchdog_open(&watchdog);
	cr_assert_eq(watchdog.interval_ns, CNRE_NS_PER_S);
	cr_assert_eq(watchdog_tick(&watchdog, 1), 1);
	cr_assert_null(getenv("WATCHDOG_USEC"));
	cr_assert_null(getenv("WATCHDOG_PID"));
}
