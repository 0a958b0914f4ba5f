/* SPDX-License-Identifier: Apache-2.0 */
/* When a drive or a file is no longer trusted, when it is tried, and when it is taken back. */
#include "manager/health.h"

#include <criterion/criterion.h>
#include <errno.h>

TestSuite(manager_health, .timeout = 10);

#define S 1000000000ll

static struct health health;

Test(manager_health, errors_in_a_row_degrade_and_a_success_between_begins_anew)
{
	cr_expect_not(health_failed(&health, -EIO, 1 * S));
	cr_expect_not(health_failed(&health, -EIO, 1 * S));
	health_succeeded(&health);
	cr_expect_not(health_failed(&health, -EIO, 1 * S));
	cr_expect_not(health_failed(&health, -EIO, 1 * S));
	cr_expect(health_failed(&health, -ENODATA, 2 * S));
	cr_expect(health.is_degraded);
	cr_expect_eq(health.reason, -ENODATA);
	cr_expect_not(health_failed(&health, -EIO, 3 * S), "it is told once");
	cr_expect_eq(health.since_ns, 2 * S);
}

Test(manager_health, a_file_that_is_gone_degrades_at_once)
{
	cr_expect(health_failed(&health, -ESTALE, 1 * S));
}

Test(manager_health, what_is_wrong_with_a_file_is_said_in_words_of_files)
{
	cr_expect_str_eq(health_words(-EBADMSG), "it ends too early, or has other bytes");
	cr_expect_str_eq(health_words(-EIO), "Input/output error");
}

Test(manager_health, probes_come_more_and_more_seldom_up_to_a_minute)
{
	int64_t now = 10 * S, wait = 1 * S, out;

	cr_assert(health_degrade(&health, -ETIMEDOUT, now));
	for (int i = 0; i < 12; i++) {
		cr_expect_eq(health.probe_ns - now, wait, "probe %d", i);
		now = health.probe_ns;
		cr_expect_not(health_probed(&health, -EIO, now, &out));
		wait = wait * 2 < 60 * S ? wait * 2 : 60 * S;
	}
	cr_expect_eq(health.since_ns, 10 * S);
}

Test(manager_health, a_probe_that_reads_takes_it_back_and_says_how_long_it_was_out)
{
	int64_t out = -1;

	cr_assert(health_degrade(&health, -EIO, 10 * S));
	health_succeeded(&health);
	cr_expect(health.is_degraded, "a good place beside a bad one is no proof");
	cr_expect(health_probed(&health, 0, 12 * S, &out));
	cr_expect_eq(out, 2 * S);
	cr_expect_not(health.is_degraded);
	cr_expect_not(health_failed(&health, -EIO, 13 * S), "it counts anew");
}

Test(manager_health, who_fails_again_soon_is_probed_as_seldom_as_before)
{
	int64_t out;

	(void)health_degrade(&health, -EIO, 10 * S);
	(void)health_probed(&health, -EIO, 11 * S, &out);
	(void)health_probed(&health, 0, 13 * S, &out);
	(void)health_degrade(&health, -EIO, 14 * S);
	cr_expect_eq(health.probe_ns, 18 * S);
	(void)health_probed(&health, 0, 18 * S, &out);
	(void)health_degrade(&health, -EIO, 18 * S + HEALTH_GOOD_NS + 1);
	cr_expect_eq(health.backoff_ns, HEALTH_PROBE_FIRST_NS);
}

Test(manager_health, a_short_file_is_not_its_drives_fault)
{
	static const int of_drive[] = {-EIO, -ENODATA, -EREMOTEIO, -EILSEQ, -ENXIO, -ETIMEDOUT};
	static const int of_file[] = {-EBADMSG, -ENOENT, -ESTALE, -EACCES};

	for (size_t i = 0; i < sizeof of_drive / sizeof of_drive[0]; i++)
		cr_expect_eq(health_kind_of(of_drive[i]), HEALTH_OF_DRIVE);
	for (size_t i = 0; i < sizeof of_file / sizeof of_file[0]; i++)
		cr_expect_eq(health_kind_of(of_file[i]), HEALTH_OF_FILE);
}

/* Else a moment without descriptors would degrade every replica that was read then. */
Test(manager_health, what_this_machine_lacks_is_nobodys_fault)
{
	static const int of_others[] = {-EMFILE, -ENFILE, -ENOMEM, -ECANCELED};

	for (size_t i = 0; i < sizeof of_others / sizeof of_others[0]; i++)
		cr_expect_eq(health_kind_of(of_others[i]), HEALTH_OF_OTHERS);
}
