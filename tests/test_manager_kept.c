/* SPDX-License-Identifier: Apache-2.0 */
/* The table of what lies in the descriptor store: its sums are true whatever is done to it. */
#include "manager/kept.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>

TestSuite(manager_kept, .timeout = 60);

static struct kept *kept;

static void open_table(void)
{
	cr_assert_eq(kept_open(&kept), 0);
}

static void close_table(void)
{
	kept = kept_close(kept);
}

static void expect_sums(uint32_t there, uint32_t missing, uint32_t name_bytes)
{
	cr_expect_eq(kept_there(kept), there);
	cr_expect_eq(kept_missing(kept), missing);
	cr_expect_eq(kept_name_bytes(kept), name_bytes);
}

Test(manager_kept, a_name_counts_once_however_often_it_is_set, .init = open_table, .fini = close_table)
{
	cr_assert_eq(kept_set(kept, "page", KEPT_THERE), 0);
	cr_assert_eq(kept_set(kept, "page", KEPT_THERE), 0);
	cr_assert_eq(kept_set(kept, "c1.chan", KEPT_MISSING), 0);
	expect_sums(1, 1, 5);
	cr_assert_eq(kept_set(kept, "c1.chan", KEPT_THERE), 0);
	expect_sums(2, 0, 13);
	cr_assert_eq(kept_set(kept, "page", KEPT_STALE), 0);
	expect_sums(2, 0, 13);
	cr_expect_str_eq(kept_find(kept, KEPT_STALE), "page");
	cr_assert_eq(kept_set(kept, "page", KEPT_NOT), 0);
	cr_assert_eq(kept_set(kept, "page", KEPT_NOT), 0);
	expect_sums(1, 0, 8);
	cr_expect_eq(kept_state(kept, "c1.chan"), KEPT_THERE, "the last one moves into the free place");
	cr_expect_null(kept_find(kept, KEPT_STALE));
	cr_assert_eq(kept_set(kept, "", KEPT_THERE), 0);
	expect_sums(1, 0, 8);
	kept_clear(kept);
	expect_sums(0, 0, 0);
	cr_expect_eq(kept_state(kept, "c1.chan"), KEPT_NOT);
}

Test(manager_kept, a_full_table_refuses_and_changes_nothing, .init = open_table, .fini = close_table)
{
	char name[KEEP_NAME_BYTES];

	for (uint32_t i = 0; i < KEPT_NAMES_MAX; i++) {
		(void)snprintf(name, sizeof name, "c%u", 10000 + i);
		cr_assert_eq(kept_set(kept, name, KEPT_THERE), 0);
	}
	cr_expect_eq(kept_set(kept, "page", KEPT_THERE), -ENOSPC);
	expect_sums(KEPT_NAMES_MAX, 0, KEPT_NAMES_MAX * 7);
	cr_expect_eq(kept_set(kept, name, KEPT_MISSING), 0, "known ones still change");
}
