/* SPDX-License-Identifier: Apache-2.0 */
/* How far the residents give way to others that need memory, and when they take it back. */
#include "manager/pressure.h"

#include "base/clock.h"
#include "manager/pressure_watch.h"

#include <criterion/criterion.h>
#include <errno.h>

TestSuite(manager_pressure, .timeout = 20);

#define S CNRE_NS_PER_S
#define BUDGET (1600ull << 20)
#define PART (100ull << 20)

Test(manager_pressure, nothing_is_given_up_before_anybody_waits)
{
	struct pressure pressure = {.steps = 0};

	cr_assert_eq(pressure_target(&pressure, BUDGET), UINT64_MAX);
	cr_assert_eq(pressure_calm(&pressure, 1000 * S), 0);
	cr_assert_eq(pressure_calm_deadline_ns(&pressure), CNRE_NEVER);
}

Test(manager_pressure, the_first_sign_is_a_step_at_whatever_time)
{
	struct pressure pressure = {.steps = 0};

	cr_assert_eq(pressure_sign(&pressure, 1), 1);
	cr_assert_eq(pressure_target(&pressure, BUDGET), BUDGET - PART);
}

Test(manager_pressure, signs_in_quick_succession_are_one_step_in_two_seconds)
{
	struct pressure pressure = {.steps = 0};

	cr_assert_eq(pressure_sign(&pressure, 10 * S), 1);
	cr_assert_eq(pressure_sign(&pressure, 10 * S), 0);
	cr_assert_eq(pressure_sign(&pressure, 12 * S - 1), 0);
	cr_assert_eq(pressure_target(&pressure, BUDGET), BUDGET - PART);
	cr_assert_eq(pressure_sign(&pressure, 12 * S), 1);
	cr_assert_eq(pressure_target(&pressure, BUDGET), BUDGET - 2 * PART);
}

Test(manager_pressure, a_part_of_the_budget_is_left_however_long_it_lasts)
{
	struct pressure pressure = {.steps = 0};
	int steps = 0;

	for (int64_t now_ns = 2 * S; now_ns <= 200 * S; now_ns += 2 * S)
		steps += pressure_sign(&pressure, now_ns);
	cr_assert_eq(steps, 15);
	cr_assert_eq(pressure_target(&pressure, BUDGET), PART);
}

Test(manager_pressure, a_minute_of_silence_brings_back_a_part_in_each_ten_seconds)
{
	struct pressure pressure = {.steps = 0};

	cr_assert_eq(pressure_sign(&pressure, 0), 1);
	cr_assert_eq(pressure_sign(&pressure, 2 * S), 1);
	cr_assert_eq(pressure_calm_deadline_ns(&pressure), 62 * S);
	cr_assert_eq(pressure_calm(&pressure, 62 * S - 1), 0);
	cr_assert_eq(pressure_calm(&pressure, 62 * S), 1);
	cr_assert_eq(pressure_target(&pressure, BUDGET), BUDGET - PART);
	cr_assert_eq(pressure_calm_deadline_ns(&pressure), 72 * S);
	cr_assert_eq(pressure_calm(&pressure, 72 * S - 1), 0);
	cr_assert_eq(pressure_calm(&pressure, 72 * S), 1);
	cr_assert_eq(pressure_target(&pressure, BUDGET), UINT64_MAX);
	cr_assert_eq(pressure_calm_deadline_ns(&pressure), CNRE_NEVER);
}

Test(manager_pressure, a_sign_that_is_no_step_begins_the_minute_anew)
{
	struct pressure pressure = {.steps = 0};

	cr_assert_eq(pressure_sign(&pressure, 10 * S), 1);
	cr_assert_eq(pressure_sign(&pressure, 11 * S), 0);
	cr_assert_eq(pressure_calm(&pressure, 71 * S - 1), 0);
	cr_assert_eq(pressure_calm(&pressure, 71 * S), 1);
}

Test(manager_pressure, an_oom_kill_is_two_parts_at_once_and_comes_back_as_the_others)
{
	struct pressure pressure = {.steps = 0};

	pressure_after_oom(&pressure, 5 * S);
	cr_assert_eq(pressure_target(&pressure, BUDGET), BUDGET / 8 * 7);
	cr_assert_eq(pressure_sign(&pressure, 6 * S), 0, "the hold is a step, too");
	cr_assert_eq(pressure_calm(&pressure, 66 * S), 1);
	cr_assert_eq(pressure.after_oom, 1);
	cr_assert_eq(pressure_calm(&pressure, 76 * S), 1);
	cr_assert_eq(pressure_target(&pressure, BUDGET), UINT64_MAX);
	cr_assert_eq(pressure.after_oom, 0);
}

Test(manager_pressure, a_count_of_kills_says_nothing_unless_an_earlier_one_is_known_and_smaller)
{
	cr_assert_eq(pressure_kills_grew(0, 7), 0, "never looked before");
	cr_assert_eq(pressure_kills_grew(7 + 1, 7), 0);
	cr_assert_eq(pressure_kills_grew(7 + 1, 8), 1);
	cr_assert_eq(pressure_kills_grew(0 + 1, 1), 1);
	cr_assert_eq(pressure_kills_grew(7 + 1, 2), 0, "another group");
	cr_assert_eq(pressure_kills_grew(7 + 1, UINT64_MAX), 1);
}

Test(manager_pressure, kills_are_read_as_both_versions_write_them)
{
	uint64_t kills = 99;

	cr_assert_eq(pressure_parse_kills("low 0\nhigh 0\nmax 5\noom 2\noom_kill 3\noom_group_kill 0\n", &kills), 0);
	cr_assert_eq(kills, 3);
	cr_assert_eq(pressure_parse_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 12\n", &kills), 0);
	cr_assert_eq(kills, 12);
	cr_assert_eq(pressure_parse_kills("oom_kill 1", &kills), 0);
	cr_assert_eq(kills, 1);
}

Test(manager_pressure, what_is_no_count_of_kills_is_refused)
{
	static const char *const senseless[] = {
		"",
		"oom 3\n",
		"oom_kill\n",
		"oom_kill -1\n",
		"oom_kill  1\n",
		"oom_kill 1x\n",
		"oom_kill 99999999999999999999999\n",
		"oom_kill_disable 0\nunder_oom 0\n",
		"not_oom_kill 3\n",
	};
	uint64_t kills = 99;

	for (size_t i = 0; i < sizeof senseless / sizeof senseless[0]; i++)
		cr_assert_eq(pressure_parse_kills(senseless[i], &kills), -EBADMSG, "\"%s\"", senseless[i]);
	cr_assert_eq(kills, 99, "set on success only");
}
