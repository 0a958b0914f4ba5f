/* SPDX-License-Identifier: Apache-2.0 */
/* Weights as people write them. What drives do needs drives: tests/test_system_replicas.c. */
#include "manager/drive.h"

#include <criterion/criterion.h>
#include <errno.h>

TestSuite(manager_drive, .timeout = 10);

Test(manager_drive, weights_are_positive_numbers_separated_by_colons_or_commas)
{
	double weight[LOADER_REPLICAS_MAX] = {0};
	uint32_t count = 0;

	cr_assert_eq(drive_parse_weights("4:1", weight, &count), 0);
	cr_expect(count == 2 && weight[0] == 4 && weight[1] == 1);
	cr_assert_eq(drive_parse_weights("2.5,1,0.25", weight, &count), 0);
	cr_expect(count == 3 && weight[0] == 2.5 && weight[2] == 0.25);
	cr_assert_eq(drive_parse_weights("7", weight, &count), 0);
	cr_expect(count == 1 && weight[0] == 7);
}

Test(manager_drive, anything_else_is_refused_and_leaves_the_output)
{
	static const char *const bad[] = {"",	  ":",	   "1:",   ":1",    "1::2",  "0:1",  "-1:2",	  "1:+2",	 "nan:1",
					  "1:inf", "1 : 2", "1;2", "1:2x", "1e99", "a",	   "1:2:3:4:5:6", "99999999999999:1"};
	double weight[LOADER_REPLICAS_MAX] = {3};
	uint32_t count = 99;

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		cr_expect_eq(drive_parse_weights(bad[i], weight, &count), -EINVAL, "\"%s\"", bad[i]);
	cr_expect(count == 99 && weight[0] == 3);
}
