/* SPDX-License-Identifier: Apache-2.0 */
/* How far the residents give way to others that need memory, and when they take it back. */
#include "manager/pressure.h"

#include "base/clock.h"
#include "manager/pressure_watch.h"
#include "shm/layout.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

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

Test(manager_pressure, an_oom_kill_is_two_parts_at_once_and_comes_back_a_part_a_minute)
{
	struct pressure pressure = {.steps = 0};

	pressure_after_oom(&pressure, 5 * S);
	cr_assert_eq(pressure_target(&pressure, BUDGET), BUDGET / 8 * 7);
	cr_assert_eq(pressure_sign(&pressure, 6 * S), 0, "the hold is a step, too");
	cr_assert_eq(pressure_calm(&pressure, 66 * S), 1);
	cr_assert_eq(pressure.after_oom, 1);
	cr_assert_eq(pressure_calm(&pressure, 126 * S - 1), 0);
	cr_assert_eq(pressure_calm(&pressure, 126 * S), 1);
	cr_assert_eq(pressure_target(&pressure, BUDGET), UINT64_MAX);
	cr_assert_eq(pressure.after_oom, 0);
}

Test(manager_pressure, each_oom_kill_within_ten_minutes_goes_two_parts_below_the_last)
{
	struct pressure pressure = {.steps = 0};
	int64_t now_ns = 5 * S;

	for (uint32_t kills = 1; kills <= 7; kills++, now_ns += 599 * S) {
		while (pressure_calm_deadline_ns(&pressure) < now_ns)
			(void)pressure_calm(&pressure, pressure_calm_deadline_ns(&pressure));
		pressure_after_oom(&pressure, now_ns);
		cr_assert_eq(pressure_target(&pressure, BUDGET), BUDGET - 2 * kills * PART, "after %u kills", kills);
	}
	pressure_after_oom(&pressure, now_ns);
	cr_assert_eq(pressure_target(&pressure, BUDGET), PART, "a part is left, as with signs");
	pressure_after_oom(&pressure, now_ns + S);
	cr_assert_eq(pressure_target(&pressure, BUDGET), PART);
}

Test(manager_pressure, an_oom_kill_after_ten_minutes_goes_two_parts_below_what_is_held_then)
{
	struct pressure pressure = {.steps = 0};

	pressure_after_oom(&pressure, 5 * S);
	cr_assert_eq(pressure_calm(&pressure, 66 * S) + pressure_calm(&pressure, 126 * S), 2);
	pressure_after_oom(&pressure, 605 * S);
	cr_assert_eq(pressure_target(&pressure, BUDGET), BUDGET - 2 * PART, "the last one is forgotten");

	pressure.steps = 8;
	pressure_after_oom(&pressure, 9000 * S);
	cr_assert_eq(pressure_target(&pressure, BUDGET), BUDGET - 10 * PART, "what signs took counts, too");
}

Test(manager_pressure, a_successor_goes_on_where_its_predecessor_was)
{
	struct pressure before = {.steps = 0}, after;
	struct cnre_state_pressure state = {.oom_kills_plus_one = 7};

	pressure_after_oom(&before, 5 * S);
	pressure_after_oom(&before, 6 * S);
	cr_assert_eq(pressure_calm(&before, 66 * S), 1);
	pressure_save(&before, &state);
	cr_assert_eq(state.oom_kills_plus_one, 7, "is not its own");
	pressure_resume(&after, &state, 100 * S);
	cr_assert_eq(pressure_target(&after, BUDGET), BUDGET - 3 * PART);
	cr_assert_eq(after.after_oom, 1);
	cr_assert_eq(pressure_calm_deadline_ns(&after), 160 * S, "the wait for calm begins anew");
	pressure_after_oom(&after, 101 * S);
	cr_assert_eq(pressure_target(&after, BUDGET), BUDGET - 6 * PART,
		     "below the four that the last kill made of it");
}

Test(manager_pressure, an_episode_that_makes_no_sense_is_not_resumed)
{
	static const struct cnre_state_pressure senseless[] = {
		{.steps = 16}, {.steps = 2, .oom_steps = UINT32_MAX, .oom_ns = S}, {.steps = 2, .oom_ns = 101 * S}};
	struct pressure pressure;

	for (size_t i = 0; i < sizeof senseless / sizeof senseless[0]; i++) {
		pressure_resume(&pressure, &senseless[i], 100 * S);
		cr_assert_eq(pressure_target(&pressure, BUDGET), UINT64_MAX, "%zu", i);
	}
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

Test(manager_pressure, a_watch_that_is_not_allowed_and_one_that_does_not_exist_have_different_remedies)
{
	cr_assert_not_null(strstr(pressure_watch_advice(-EACCES), "Linux 6.5"), "Debian 12: the file is read-only");
	cr_assert_str_eq(pressure_watch_advice(-EPERM), pressure_watch_advice(-EACCES),
			 "or root without its privilege");
	cr_assert_str_eq(pressure_watch_advice(-EROFS), pressure_watch_advice(-EACCES), "or ProtectControlGroups=");
	cr_assert_not_null(strstr(pressure_watch_advice(-ENOENT), "psi=1"));
}
