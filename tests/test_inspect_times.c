/* SPDX-License-Identifier: Apache-2.0 */
/* tools/inspect/causes.c, histogram.c: what a wait was for, and how long they were. */
#include "tools/inspect/causes.h"
#include "tools/inspect/histogram.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static uint64_t ns[CAUSES];

static void split(uint64_t begin, uint64_t end, uint64_t start, uint64_t read, uint64_t publish)
{
	const struct cause_wait wait = {.begin_ns = begin, .end_ns = end};
	const struct cause_stages stages = {.start_ns = start, .done_ns = read, .publish_ns = publish};

	causes_split(&wait, &stages, ns);
}

static void expect(uint64_t queue, uint64_t disk, uint64_t verify, uint64_t scheduler, uint64_t unknown)
{
	const uint64_t wanted[CAUSES] = {queue, disk, verify, scheduler, unknown};

	for (int i = 0; i < CAUSES; i++)
		cr_expect_eq(ns[i], wanted[i], "%s: %lu, not %lu", cause_name[i], ns[i], wanted[i]);
}

Test(inspect_causes, a_wait_through_all_stages)
{
	split(1000, 2000, 1100, 1800, 1850);
	expect(100, 700, 50, 150, 0);
}

Test(inspect_causes, who_joins_a_load_waits_for_the_rest_of_it_only)
{
	split(1500, 2000, 1100, 1800, 1850);
	expect(0, 300, 50, 150, 0);
	split(1820, 2000, 1100, 1800, 1850);
	expect(0, 0, 30, 150, 0);
	split(1900, 2000, 1100, 1800, 1850);
	expect(0, 0, 0, 100, 0);
}

Test(inspect_causes, a_wait_that_ended_before_a_stage_was_told)
{
	split(1000, 2000, 1100, 1800, 0);
	expect(100, 700, 200, 0, 0);
	split(1000, 2000, 1100, 0, 0);
	expect(100, 900, 0, 0, 0);
	split(1000, 2000, 1100, 1800, 2005); /* READY is stored before it is told */
	expect(100, 700, 200, 0, 0);
}

Test(inspect_causes, a_load_of_another_time_explains_nothing)
{
	const struct cause_wait wait = {.begin_ns = 20000000, .end_ns = 20000300};

	split(20000000, 20000300, 20000400, 0, 0);
	expect(0, 0, 0, 0, 300);
	split(20000000, 20000300, 100, 200, 300);
	expect(0, 0, 0, 0, 300);
	causes_split(&wait, NULL, ns);
	expect(0, 0, 0, 0, 300);
	split(2000, 2000, 1100, 1800, 1850);
	expect(0, 0, 0, 0, 0);
}

Test(inspect_causes, the_causes_of_any_wait_add_up_to_it)
{
	srandom(5);
	for (int i = 0; i < 100000; i++) {
		uint64_t begin = 1 + (uint64_t)random() % 1000, end = begin + (uint64_t)random() % 1000, sum = 0;

		split(begin, end, (uint64_t)random() % 2000, (uint64_t)random() % 2000, (uint64_t)random() % 2000);
		for (int k = 0; k < CAUSES; k++)
			sum += ns[k];
		cr_assert_eq(sum, end - begin);
	}
}

Test(inspect_histogram, buckets_are_powers_of_two)
{
	struct histogram histogram = {.count = 0}, other = {.count = 0};

	histogram_add(&histogram, 0);
	histogram_add(&histogram, 1);
	histogram_add(&histogram, 2);
	histogram_add(&histogram, 3);
	histogram_add(&histogram, 4);
	histogram_add(&histogram, 1023);
	histogram_add(&histogram, 1024);
	cr_expect_eq(histogram.bucket[0], 1);
	cr_expect_eq(histogram.bucket[1], 1);
	cr_expect_eq(histogram.bucket[2], 2);
	cr_expect_eq(histogram.bucket[3], 1);
	cr_expect_eq(histogram.bucket[10], 1);
	cr_expect_eq(histogram.bucket[11], 1);
	cr_expect_eq(histogram.sum_ns, 2057);
	histogram_add(&other, UINT64_MAX);
	histogram_join(&histogram, &other);
	cr_expect_eq(histogram.count, 8);
	cr_expect_eq(histogram.max_ns, UINT64_MAX);
	cr_expect_eq(histogram.bucket[HISTOGRAM_BUCKETS - 1], 1);
}

Test(inspect_histogram, quantiles_are_right_within_their_bucket)
{
	struct histogram histogram = {.count = 0};

	cr_expect_eq(histogram_quantile_ns(&histogram, 0.5), 0);
	for (int i = 0; i < 990; i++)
		histogram_add(&histogram, 1500);
	for (int i = 0; i < 10; i++)
		histogram_add(&histogram, 100000);
	cr_expect(histogram_quantile_ns(&histogram, 0.5) >= 1024 && histogram_quantile_ns(&histogram, 0.5) < 2048);
	cr_expect(histogram_quantile_ns(&histogram, 0.98) < 2048);
	cr_expect(histogram_quantile_ns(&histogram, 0.995) >= 65536);
	cr_expect_leq(histogram_quantile_ns(&histogram, 1), 100000, "never above the longest");
}
