/* SPDX-License-Identifier: Apache-2.0 */
/* Cookies of leases, without a manager. */
#include "client/lease.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

static struct cnre_cookies cookies;

static void open_cookies(void)
{
	cr_assert_eq(cnre_cookies_init(&cookies, 8), 0);
}

static void close_cookies(void)
{
	cnre_cookies_done(&cookies);
}

TestSuite(client_lease, .init = open_cookies, .fini = close_cookies, .timeout = 10);

Test(client_lease, cookie_gives_its_object_once)
{
	uint64_t lease = 0;
	uint32_t object = 7;

	cr_assert_eq(cnre_cookies_make(&cookies, 1234, 99, &lease), 0);
	cr_expect_neq(lease, 0);
	cr_expect_eq(cnre_cookies_end(&cookies, lease, &object), 0);
	cr_expect_eq(object, 1234);
	object = 7;
	cr_expect_eq(cnre_cookies_end(&cookies, lease, &object), -EINVAL);
	cr_expect_eq(object, 7);
}

Test(client_lease, invented_cookies_are_refused)
{
	uint64_t lease;
	uint32_t object;

	cr_assert_eq(cnre_cookies_make(&cookies, 1, 5, &lease), 0);
	cr_expect_eq(cnre_cookies_end(&cookies, 0, &object), -EINVAL);
	cr_expect_eq(cnre_cookies_end(&cookies, UINT64_MAX, &object), -EINVAL);
	cr_expect_eq(cnre_cookies_end(&cookies, lease + 1, &object), -EINVAL);
	cr_expect_eq(cnre_cookies_end(&cookies, lease + (1ull << CNRE_COOKIE_SHIFT), &object), -EINVAL,
		     "its neighbour's slot");
	cr_expect_eq(cnre_cookies_end(&cookies, lease & ~((1ull << CNRE_COOKIE_SHIFT) - 1), &object), -EINVAL,
		     "no sequence in an empty slot");
	cr_expect_eq(cnre_cookies_end(&cookies, lease, &object), 0);
}

Test(client_lease, old_copy_does_not_end_the_next_lease_in_its_slot)
{
	uint64_t old, next;
	uint32_t object;

	cr_assert_eq(cnre_cookies_make(&cookies, 1, 5, &old), 0);
	cr_assert_eq(cnre_cookies_end(&cookies, old, &object), 0);
	cr_assert_eq(cnre_cookies_make(&cookies, 2, 5 + cookies.near_mask + 1, &next), 0);
	cr_assert_eq(old >> CNRE_COOKIE_SHIFT, next >> CNRE_COOKIE_SHIFT, "one slot");
	cr_expect_eq(cnre_cookies_end(&cookies, old, &object), -EINVAL);
	cr_expect_eq(cnre_cookies_end(&cookies, next, &object), 0);
	cr_expect_eq(object, 2);
}

/* Goal: as many leases as slots, none lost, none twice. Method: positions before they wrap, in one neighbourhood. */
Test(client_lease, every_slot_can_be_used_and_one_more_is_enospc)
{
	uint32_t count = cookies.mask + 1, object;
	uint64_t *lease = calloc(count, sizeof *lease), more = 3;

	cr_assert_not_null(lease);
	for (uint32_t i = 0; i < count; i++)
		cr_assert_eq(cnre_cookies_make(&cookies, i, (1ull << 40) - 1 - (uint64_t)i * (cookies.near_mask + 1),
					       &lease[i]),
			     0);
	cr_expect_eq(cnre_cookies_make(&cookies, 0, 0, &more), -ENOSPC);
	cr_expect_eq(more, 3);
	for (uint32_t i = 0; i < count; i++) {
		cr_assert_eq(cnre_cookies_end(&cookies, lease[i], &object), 0);
		cr_assert_eq(object, i);
	}
	free(lease);
}

Test(client_lease, table_grows_with_the_reservation)
{
	struct cnre_cookies large;

	cr_assert_eq(cnre_cookies_init(&large, 5000), 0);
	cr_expect_geq(large.near_mask + 1, 4 * 5000);
	cr_expect_eq((large.mask + 1) % (large.near_mask + 1), 0);
	cnre_cookies_done(&large);
	cr_assert_eq(cnre_cookies_init(&large, CNRE_HELD_MAX), 0, "bounded, whatever is granted");
	cr_expect_eq(large.mask + 1, CNRE_COOKIE_SLOTS_MAX);
	cnre_cookies_done(&large);
}
