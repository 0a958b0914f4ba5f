/* SPDX-License-Identifier: Apache-2.0 */
/* Times in buckets: where each goes, and what quantiles say of known ones. */
#include "manager/histogram.h"

#include <criterion/criterion.h>
#include <stdint.h>

TestSuite(manager_histogram, .timeout = 20);

Test(manager_histogram, of_nothing_nothing_is_known)
{
	static const struct histogram empty;

	cr_expect_eq(histogram_quantile_ns(&empty, 0.5), 0);
	cr_expect_eq(histogram_quantile_ns(&empty, 1), 0);
}

/* Goal: a quantile is never below what it says, and at most a quarter above. Method: one time of every size, beside its own sorting. */
Test(manager_histogram, a_quantile_is_right_to_a_quarter)
{
	for (int64_t ns = 1024; ns < INT64_C(60000000000); ns += ns / 7) {
		struct histogram histogram = {.count = 0};
		uint64_t median;

		for (int i = 0; i < 99; i++)
			histogram_add(&histogram, ns);
		histogram_add(&histogram, 8 * ns);
		median = histogram_quantile_ns(&histogram, 0.5);
		cr_expect_geq(median, (uint64_t)ns, "%lld", (long long)ns);
		cr_expect_leq(median, (uint64_t)ns + (uint64_t)ns / 4, "%lld", (long long)ns);
		cr_expect_leq(histogram_quantile_ns(&histogram, 0.99), (uint64_t)ns + (uint64_t)ns / 4);
		cr_expect_eq(histogram_quantile_ns(&histogram, 1), 8 * (uint64_t)ns, "the longest is known as it was");
		cr_expect_eq(histogram.count, 100);
		cr_expect_eq(histogram.sum_ns, 107 * (uint64_t)ns);
	}
}

Test(manager_histogram, what_is_beyond_all_buckets_counts_too)
{
	struct histogram histogram = {.count = 0}, other = {.count = 0};

	histogram_add(&histogram, -7); /* a clock that went wrong */
	histogram_add(&histogram, 0);
	histogram_add(&histogram, 1023);
	histogram_add(&histogram, INT64_MAX);
	cr_expect_eq(histogram.bucket[0], 3);
	cr_expect_eq(histogram.bucket[HISTOGRAM_BUCKETS - 1], 1);
	cr_expect_eq(histogram_quantile_ns(&histogram, 0.75), 1023);
	cr_expect_eq(histogram_quantile_ns(&histogram, 0.99), INT64_MAX);
	histogram_add(&other, 5000);
	histogram_merge(&other, &histogram);
	cr_expect_eq(other.count, 5);
	cr_expect_eq(other.most_ns, INT64_MAX);
	cr_expect_eq(histogram_quantile_ns(&other, 0.8), 5119);
}
