/* SPDX-License-Identifier: Apache-2.0 */
/* Functions without libm, against libm. */
#include "tools/sim/sample.h"

#include <criterion/criterion.h>
#include <math.h>

TestSuite(sim_sample, .timeout = 60);

static int is_near(double a, double b)
{
	return fabs(a - b) <= 4e-15 * (1 + fabs(b));
}

Test(sim_sample, log_exp_and_sqrt_are_libms_but_for_the_last_bits)
{
	struct sim_stream stream = {.key = 1};
	uint32_t i;
	double u;

	for (i = 0; i < 100000; i++) {
		u = sim_unit(sim_stream_next(&stream));
		cr_assert(is_near(sim_log(u), log(u)), "log %.17g", u);
		cr_assert(is_near(sim_log(u * 1e9), log(u * 1e9)), "log %.17g", u * 1e9);
		cr_assert(is_near(sim_exp(40 * u - 20) / exp(40 * u - 20), 1), "exp %.17g", 40 * u - 20);
		cr_assert(is_near(sim_sqrt(u * 1e4), sqrt(u * 1e4)), "sqrt %.17g", u * 1e4);
	}
	cr_expect_float_eq(sim_log(1), 0, 1e-300);
	cr_expect_float_eq(sim_sqrt(0), 0, 1e-300);
}

Test(sim_sample, the_quantile_is_the_inverse_of_the_normal_distribution)
{
	double p, x;
	int i;

	for (i = 1; i < 2000; i++) {
		p = i / 2000.0;
		x = sim_normal_quantile(p);
		cr_assert_float_eq(0.5 * erfc(-x / sqrt(2)), p, 1e-14, "%g", p);
		cr_assert_float_eq(sim_normal_quantile(1 - p), -x, 1e-9);
	}
	for (p = 1e-3; p > 1e-16; p /= 7)
		cr_assert(fabs(0.5 * erfc(-sim_normal_quantile(p) / sqrt(2)) / p - 1) < 1e-12, "%g", p);
}

Test(sim_sample, units_lie_strictly_between_0_and_1)
{
	cr_expect(sim_unit(0) > 0);
	cr_expect(sim_unit(UINT64_MAX) < 1);
	cr_expect_eq(sim_below(UINT64_MAX, 7), 6);
	cr_expect_eq(sim_below(0, 7), 0);
}
