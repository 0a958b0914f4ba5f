/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ctl/format.c: a table of values and texts. */
#include "tools/ctl/format.h"

#include <criterion/criterion.h>
#include <math.h>

static char text[FORMAT_BYTES];

Test(ctl_format, counts_have_a_comma_every_three_digits)
{
	cr_expect_str_eq(format_count(0, text), "0");
	cr_expect_str_eq(format_count(999, text), "999");
	cr_expect_str_eq(format_count(1000, text), "1,000");
	cr_expect_str_eq(format_count(1234567, text), "1,234,567");
	cr_expect_str_eq(format_count(UINT64_MAX, text), "18,446,744,073,709,551,615");
}

Test(ctl_format, seconds_show_two_units_at_most)
{
	static const struct {
		double seconds;
		const char *text;
	} cases[] = {
		{0.0, "0 s"},
		{0.0000005, "0.5 us"},
		{0.00083, "830.0 us"},
		{0.0123, "12.3 ms"},
		{1.0, "1.0 s"},
		{119.94, "119.9 s"},
		{120.0, "2 min 0 s"},
		{3599.0, "59 min 59 s"},
		{11520.0, "3 h 12 min"},
		{439200.0, "5 d 2 h"},
		{-1.0, "?"},
		{1e300, "?"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		cr_expect_str_eq(format_seconds(cases[i].seconds, text), cases[i].text);
	cr_expect_str_eq(format_seconds(NAN, text), "?");
}

Test(ctl_format, share_and_average_of_nothing_are_a_dash)
{
	cr_expect_str_eq(format_share(0, 0, text), "-");
	cr_expect_str_eq(format_average(1.0, 0, text), "-");
	cr_expect_str_eq(format_share(1, 3, text), "33.3 %");
	/* The case from the field: 1.4 s felt wait over 300 physical misses is 4.7 ms a miss. */
	cr_expect_str_eq(format_average(1.4, 300, text), "4.7 ms");
}
