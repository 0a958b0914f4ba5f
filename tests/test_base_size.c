/* SPDX-License-Identifier: Apache-2.0 */
/* Byte sizes as people write them. */
#include "base/size.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdint.h>

static uint64_t parsed(const char *text)
{
	uint64_t bytes = 0;

	cr_assert_eq(cnre_size_parse(text, &bytes), 0, "%s is refused", text);
	return bytes;
}

Test(base_size, suffixes_are_binary_and_of_either_case)
{
	cr_expect_eq(parsed("0"), 0);
	cr_expect_eq(parsed("4096"), 4096);
	cr_expect_eq(parsed("17B"), 17);
	cr_expect_eq(parsed("2k"), 2048);
	cr_expect_eq(parsed("64M"), 64ull << 20);
	cr_expect_eq(parsed("120GiB"), 120ull << 30);
	cr_expect_eq(parsed("3tb"), 3ull << 40);
}

Test(base_size, what_is_no_size_is_einval_and_output_is_untouched)
{
	static const char *const bad[] = {"",
					  " 1",
					  "-1",
					  "+1",
					  "1.5G",
					  "G",
					  "1X",
					  "1KK",
					  "1 G",
					  "1Gi",
					  "0x10",
					  "1\xcb",
					  "18446744073709551616",
					  "18446744073709551615K",
					  "16777216T"};
	uint64_t bytes = 77;

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		cr_expect_eq(cnre_size_parse(bad[i], &bytes), -EINVAL, "%s is accepted", bad[i]);
		cr_expect_eq(bytes, 77);
	}
}

Test(base_size, the_largest_sizes_are_exact)
{
	cr_expect_eq(parsed("18446744073709551615"), UINT64_MAX);
	cr_expect_eq(parsed("16777215T"), 16777215ull << 40);
}

Test(base_size, printing_fits_sixteen_bytes)
{
	char text[16];

	cr_expect_str_eq(cnre_size_format(0, text, sizeof text), "0 B");
	cr_expect_str_eq(cnre_size_format(1023, text, sizeof text), "1023 B");
	cr_expect_str_eq(cnre_size_format(1536, text, sizeof text), "1.5 KiB");
	cr_expect_str_eq(cnre_size_format(UINT64_MAX, text, sizeof text), "16.0 EiB");
}

Test(base_size, rounding_keeps_multiples)
{
	cr_expect_eq(cnre_size_align_up(0, 4096), 0);
	cr_expect_eq(cnre_size_align_up(1, 4096), 4096);
	cr_expect_eq(cnre_size_align_up(4096, 4096), 4096);
	cr_expect_eq(cnre_size_align_down(8191, 4096), 4096);
}
