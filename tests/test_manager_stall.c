/* SPDX-License-Identifier: Apache-2.0 */
/* Which drives do not answer: each for itself, from the first late read to the last. */
#include "manager/stall.h"

#include <criterion/criterion.h>

TestSuite(manager_stall, .timeout = 10);

static struct stalls stalls;

Test(manager_stall, a_drive_is_stalled_until_its_last_late_read_is_over)
{
	stall_begin(&stalls, 3, "/drive/a", 100);
	stall_begin(&stalls, 3, "/drive/b", 200);
	cr_expect(stall_is_on(&stalls, 3));
	stall_end(&stalls, 3);
	cr_expect(stall_is_on(&stalls, 3));
	stall_end(&stalls, 3);
	cr_expect_not(stall_is_on(&stalls, 3));
	cr_expect_eq(stalls.reads, 0);
}

Test(manager_stall, one_drive_says_nothing_about_another)
{
	stall_begin(&stalls, 0, "/drive/a", 100);
	cr_expect_not(stall_is_on(&stalls, 1));
	stall_begin(&stalls, 1, "/other/a", 100);
	stall_end(&stalls, 0);
	cr_expect_not(stall_is_on(&stalls, 0));
	cr_expect(stall_is_on(&stalls, 1));
	cr_expect_eq(stalls.reads, 1);
}

Test(manager_stall, it_has_lasted_since_the_oldest_read_and_is_named_after_the_first)
{
	stall_begin(&stalls, 0, "/drive/a", 200);
	stall_begin(&stalls, 0, "/drive/b", 100);
	stall_begin(&stalls, 0, "/drive/c", 300);
	cr_expect_eq(stalls.drive[0].since_ns, 100);
	cr_expect_str_eq(stalls.drive[0].path, "/drive/a");
}

Test(manager_stall, the_next_stall_begins_anew)
{
	stall_begin(&stalls, 0, "/drive/a", 100);
	stall_end(&stalls, 0);
	stall_begin(&stalls, 0, "/drive/b", 500);
	cr_expect_eq(stalls.drive[0].since_ns, 500);
	cr_expect_str_eq(stalls.drive[0].path, "/drive/b");
}
