/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of the gate, at its limits. */
#include "tools/sim/verdict.h"

#include <criterion/criterion.h>
#include <math.h>

static const struct verdict_rules rules = {.minimum_gain = 0.10, .maximum_regression = 0.03};

static struct verdict of_two(double a, double b)
{
	const struct verdict_category category[] = {
		{.name = "a", .baseline_us = 1000, .candidate_us = a, .tokens = 10},
		{.name = "b", .baseline_us = 1000, .candidate_us = b, .tokens = 10}};

	return verdict_of(category, 2, &rules);
}

Test(sim_verdict, exactly_a_tenth_less_passes_and_a_little_less_does_not)
{
	cr_expect(of_two(900, 900).passed);
	cr_expect_not(of_two(900, 901).passed);
	cr_expect_float_eq(of_two(900, 900).gain, 0.1, 1e-12);
}

Test(sim_verdict, no_category_pays_for_the_others)
{
	struct verdict verdict = of_two(500, 1031);

	cr_expect_not(verdict.passed);
	cr_expect_eq(verdict.worst, 1);
	cr_expect_float_eq(verdict.worst_regression, 0.031, 1e-9);
	cr_expect(of_two(500, 1030).passed);
}

/* One of ten tokens weighs as much as one of a thousand. */
Test(sim_verdict, categories_have_equal_weight_whatever_their_length)
{
	const struct verdict_category category[] = {{.baseline_us = 1000, .candidate_us = 500, .tokens = 10},
						    {.baseline_us = 100000, .candidate_us = 100000, .tokens = 1000}};

	cr_expect_float_eq(verdict_of(category, 2, &rules).gain, 0.25, 1e-12);
}

Test(sim_verdict, waiting_where_the_baseline_does_not_is_no_number_and_fails)
{
	const struct verdict_category none = {.baseline_us = 0, .candidate_us = 0, .tokens = 1};
	const struct verdict_category one = {.baseline_us = 0, .candidate_us = 1, .tokens = 1};

	cr_expect_eq(verdict_regression(&none), 0);
	cr_expect_not(verdict_of(&none, 1, &rules).passed); /* nothing was gained */
	cr_expect(isinf(verdict_regression(&one)));
	cr_expect_not(verdict_of(&one, 1, &rules).passed);
}
