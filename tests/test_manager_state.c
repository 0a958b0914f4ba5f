/* SPDX-License-Identifier: Apache-2.0 */
/* Session numbers: names of descriptors in the store are made of them, so no two clients may have the same. */
#include "manager/state.h"

#include <criterion/criterion.h>

TestSuite(manager_state, .timeout = 20);

static struct cnre_state_table table;
static struct manager manager = {.state = &table};

static void occupy(uint32_t slot, uint32_t number)
{
	atomic_store_explicit(&table.session[slot].session, number, memory_order_relaxed);
}

Test(manager_state, numbers_that_come_again_pass_over_zero_and_those_who_are_there_still)
{
	table.next_session = UINT32_MAX - 1;
	occupy(CNRE_SESSIONS_MAX - 1, 1);
	occupy(3, 2);
	occupy(0, UINT32_MAX);
	cr_expect_eq(state_next_session(&manager), 3, "UINT32_MAX, 1 and 2 are attached; 0 is nobody");
	cr_expect_eq(state_next_session(&manager), 4);
}

Test(manager_state, a_full_table_is_passed_over)
{
	for (uint32_t i = 0; i < CNRE_SESSIONS_MAX; i++)
		occupy(i, i + 1);
	cr_expect_eq(state_next_session(&manager), CNRE_SESSIONS_MAX + 1);
}
