/* SPDX-License-Identifier: Apache-2.0 */
/* What a block is worth: uses that fade, time avoided, bytes. */
#include "kvstore/value.h"

#include <criterion/criterion.h>
#include <math.h>

TestSuite(kvstore_value, .timeout = 10);

#define NEARLY 1e-9

Test(kvstore_value, a_use_fades_by_half_in_its_half_life)
{
	struct kv_use use = {0};

	kv_use_add(&use, 1, 1000);
	cr_expect_float_eq(kv_use_count(&use, 1000), 1, NEARLY);
	cr_expect_float_eq(kv_use_count(&use, 1000 + KV_HALF_LIFE_NS), 0.5, NEARLY);
	cr_expect_float_eq(kv_use_count(&use, 1000 + 2 * KV_HALF_LIFE_NS), 0.25, NEARLY);
	kv_use_add(&use, 1, 1000 + KV_HALF_LIFE_NS);
	cr_expect_float_eq(kv_use_count(&use, 1000 + KV_HALF_LIFE_NS), 1.5, NEARLY);
}

Test(kvstore_value, time_that_goes_back_neither_fades_nor_grows)
{
	struct kv_use use = {0};

	kv_use_add(&use, 2, 5000);
	cr_expect_float_eq(kv_use_count(&use, 10), 2, NEARLY);
	kv_use_add(&use, 1, 10);
	cr_expect_float_eq(use.count, 3, NEARLY);
	cr_expect_eq(use.at_ns, 5000);
}

Test(kvstore_value, more_uses_more_time_and_fewer_bytes_are_worth_more)
{
	struct kv_use once = {.count = 1}, often = {.count = 3};

	cr_expect_gt(kv_value(&often, 1000, 100, 0), kv_value(&once, 1000, 100, 0));
	cr_expect_gt(kv_value(&once, 2000, 100, 0), kv_value(&once, 1000, 100, 0));
	cr_expect_gt(kv_value(&once, 1000, 50, 0), kv_value(&once, 1000, 100, 0));
	cr_expect_gt(kv_value(&once, 1000, 100, 0), kv_value(&once, 1000, 100, KV_HALF_LIFE_NS));
}

/* A publisher that says it computed for a year does not keep its blocks for one. */
Test(kvstore_value, what_a_publisher_says_is_bounded)
{
	struct kv_use use = {.count = 1};

	cr_expect_float_eq(kv_value(&use, UINT64_MAX, 1, 0), kv_value(&use, KV_COMPUTE_NS_MAX, 1, 0), NEARLY);
	cr_expect_gt(kv_value(&use, 0, 1, 0), 0, "and one that says nothing still has an order");
}
