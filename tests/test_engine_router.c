/* SPDX-License-Identifier: Apache-2.0 */
/* engine/router.c: order, ties, normalisation, and what is not a number. */
#include "engine/router.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>

Test(engine_router, experts_come_by_falling_gate_and_ties_by_rising_id)
{
	const struct config config = {.experts = 6, .top_k = 4};
	float logits[6] = {1, 3, 2, 3, -1, 2};
	struct route route;

	cr_assert_eq(router_choose(&config, logits, &route), 0);
	cr_expect_eq(route.expert[0], 1);
	cr_expect_eq(route.expert[1], 3);
	cr_expect_eq(route.expert[2], 2);
	cr_expect_eq(route.expert[3], 5);
	cr_expect_eq(route.gate[0], route.gate[1]);
}

Test(engine_router, gates_are_the_softmax_over_all_experts)
{
	const struct config config = {.experts = 4, .top_k = 2};
	float logits[4] = {0, logf(2), logf(5), 0};
	struct route route;

	cr_assert_eq(router_choose(&config, logits, &route), 0);
	cr_expect_float_eq(route.gate[0], 5.0f / 9, 1e-6);
	cr_expect_float_eq(route.gate[1], 2.0f / 9, 1e-6);
}

Test(engine_router, normalised_gates_sum_to_one)
{
	const struct config config = {.experts = 4, .top_k = 2, .norm_top_k = true};
	float logits[4] = {0, logf(2), logf(5), 0};
	struct route route;

	cr_assert_eq(router_choose(&config, logits, &route), 0);
	cr_expect_float_eq(route.gate[0], 5.0f / 7, 1e-6);
	cr_expect_float_eq(route.gate[0] + route.gate[1], 1, 1e-6);
}

Test(engine_router, nan_is_edom_and_touches_nothing)
{
	const struct config config = {.experts = 3, .top_k = 2};
	float logits[3] = {0, NAN, 1};
	struct route route = {.expert = {77}};

	cr_expect_eq(router_choose(&config, logits, &route), -EDOM);
	cr_expect_eq(route.expert[0], 77);
}
