/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/ledger.h"

#include "shm/word.h"

#include <criterion/criterion.h>
#include <errno.h>

TestSuite(shm_ledger, .timeout = 10);

Test(shm_ledger, acquire_adds_one_lease_and_one_access)
{
	_Atomic uint64_t word = 0;

	cr_expect_eq(cnre_ledger_add(&word), 0);
	cr_expect_eq(cnre_ledger_add(&word), CNRE_LEDGER_ACCESS + CNRE_LEDGER_LEASE);
	cr_expect_eq(CNRE_LEDGER_LEASES(cnre_ledger_scan(&word)), 2);
	cr_expect_eq(CNRE_LEDGER_ACCESSES(cnre_ledger_scan(&word)), 2);
}

Test(shm_ledger, release_takes_the_lease_and_keeps_the_access)
{
	_Atomic uint64_t word = 0;

	(void)cnre_ledger_add(&word);
	cr_expect_eq(cnre_ledger_sub(&word), 0);
	cr_expect_eq(cnre_ledger_scan(&word), CNRE_LEDGER_ACCESS);
}

Test(shm_ledger, second_release_is_einval_and_borrows_nothing)
{
	_Atomic uint64_t word = 0;

	(void)cnre_ledger_add(&word);
	cr_expect_eq(cnre_ledger_sub(&word), 0);
	cr_expect_eq(cnre_ledger_sub(&word), -EINVAL);
	cr_expect_eq(cnre_ledger_scan(&word), CNRE_LEDGER_ACCESS);
}

Test(shm_ledger, second_lease_is_added_only_beside_a_first)
{
	_Atomic uint64_t word = CNRE_LEDGER_ACCESS;

	cr_expect_eq(cnre_ledger_add_shared(&word), 0);
	cr_expect_eq(cnre_ledger_scan(&word), CNRE_LEDGER_ACCESS, "nothing is changed");
	(void)cnre_ledger_add(&word);
	cr_expect_eq(cnre_ledger_add_shared(&word), 1);
	cr_expect_eq(cnre_ledger_scan(&word), 3 * CNRE_LEDGER_ACCESS + 2 * CNRE_LEDGER_LEASE);
}

Test(shm_ledger, drop_says_how_many_leases_are_left)
{
	_Atomic uint64_t word = CNRE_LEDGER_ACCESS + 2 * CNRE_LEDGER_LEASE;

	cr_expect_eq(cnre_ledger_drop(&word), 1);
	cr_expect_eq(cnre_ledger_drop(&word), 0);
	cr_expect_eq(cnre_ledger_drop(&word), -EINVAL);
	cr_expect_eq(cnre_ledger_scan(&word), CNRE_LEDGER_ACCESS);
}

Test(shm_ledger, access_count_wraps_without_touching_the_leases)
{
	_Atomic uint64_t word = 0xffffffff00000003ull;

	(void)cnre_ledger_add(&word);
	cr_expect_eq(cnre_ledger_scan(&word), 4);
}

Test(shm_ledger, evicting_is_what_a_client_sees_after_its_lease)
{
	struct cnre_entry entry = {0};
	_Atomic uint64_t word = 0;

	cnre_ledger_store_evicting(&entry, cnre_word_pack(5, CNRE_LOAD_OK, CNRE_STATE_EVICTING));
	(void)cnre_ledger_add(&word);
	cr_expect_eq(cnre_word_state(cnre_ledger_load_state(&entry)), CNRE_STATE_EVICTING);
	cr_expect_eq(cnre_word_generation(cnre_ledger_load_state(&entry)), 5);
}

Test(shm_ledger, undo_takes_the_lease_and_the_access_and_borrows_nothing)
{
	_Atomic uint64_t word = 5 * CNRE_LEDGER_ACCESS;

	(void)cnre_ledger_add(&word);
	(void)cnre_ledger_add(&word);
	cr_expect_eq(cnre_ledger_undo(&word), 1);
	cr_expect_eq(cnre_ledger_undo(&word), 0);
	cr_expect_eq(cnre_ledger_scan(&word), 5 * CNRE_LEDGER_ACCESS);
	cr_expect_eq(cnre_ledger_undo(&word), -EINVAL);
	cr_expect_eq(cnre_ledger_scan(&word), 5 * CNRE_LEDGER_ACCESS, "nothing is changed");
}
