/* SPDX-License-Identifier: Apache-2.0 */
/* What misses cost: units, unknown and none apart, and curves that are found again from what they produced. */
#include "policy/felt.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>

#define CLOSE(a, b) cr_assert_float_eq(a, b, fabs((double)(b)) * 1e-9 + 1e-9, "%.12g is not %.12g", (double)(a), (double)(b))

/* The published calibration divided by loads per token, of which there were 525: 2666.7 microseconds, and wrong. */
Test(policy_felt, wait_is_divided_by_physical_misses)
{
	double us = 0;

	cr_assert_eq(felt_per_miss_us(1.4, 300, 1, &us), 0);
	cr_assert_float_eq(us, 4666.7, 0.05);
}

Test(policy_felt, unknown_misses_are_not_no_misses)
{
	double us = 7;

	cr_assert_eq(felt_per_miss_us(1.4, 300, 0, &us), -ENODATA);
	cr_assert_eq(felt_per_miss_us(1.4, 0, 0, &us), -ENODATA);
	cr_assert_eq(felt_per_miss_us(1.4, 0, 1, &us), -ERANGE);
	cr_assert_eq(felt_per_miss_us(NAN, 300, 1, &us), -ERANGE);
	cr_assert_eq(felt_per_miss_us(INFINITY, 300, 1, &us), -ERANGE);
	cr_assert_eq(felt_per_miss_us(-1, 300, 1, &us), -ERANGE);
	cr_assert_eq(us, 7, "an output is set on success only");
	cr_assert_eq(felt_per_miss_us(0, 300, 1, &us), 0);
	cr_assert_eq(us, 0);
}

Test(policy_felt, the_first_misses_may_be_free_and_the_last_are_dear)
{
	struct felt_curve curve = {.miss_us = 3800, .hidden_us = 5000};

	CLOSE(felt_wait_us(&curve, 0), 0);
	CLOSE(felt_wait_us(&curve, 1), 0);
	CLOSE(felt_wait_us(&curve, 2), 2600);
	CLOSE(felt_wait_us(&curve, 8), 25400);
	CLOSE(felt_marginal_us(&curve, 0), 0);
	CLOSE(felt_marginal_us(&curve, 1), 2600);
	CLOSE(felt_marginal_us(&curve, 2), 3800);
	CLOSE(felt_marginal_us(&curve, 0.25), 0.25 * 2600);
	CLOSE(felt_marginal_us(&curve, 1.5), 0.5 * 2600 + 0.5 * 3800);
	CLOSE(felt_marginal_us(&curve, 100.3), 3800);
}

Test(policy_felt, one_miss_more_never_costs_less_at_a_higher_level)
{
	for (double hidden = 0; hidden < 20000; hidden += 700) {
		struct felt_curve curve = {.miss_us = 3800, .hidden_us = hidden};

		for (double misses = 0; misses < 8; misses += 0.05) {
			double here = felt_marginal_us(&curve, misses), next = felt_marginal_us(&curve, misses + 0.05);

			cr_assert(here >= 0 && here <= 3800.0001 && here <= next + 1e-6);
			cr_assert_leq(felt_wait_us(&curve, misses + 0.05),
				      (felt_wait_us(&curve, misses) + felt_wait_us(&curve, misses + 0.1)) / 2 + 1e-6);
		}
	}
}

/* ---- fits ---- */

Test(policy_felt, a_curve_is_found_again_from_exact_waits)
{
	for (double miss = 0; miss < 6000; miss += 950) {
		for (double hidden = 0; hidden < 6 * miss + 1; hidden += 617) {
			struct felt_samples samples = {0};
			struct felt_curve curve = {miss, hidden}, found = {-1, -1};

			for (uint32_t misses = 0; misses <= 8; misses++)
				for (uint32_t i = 0; i <= misses % 3; i++)
					felt_add(&samples, misses, felt_wait_us(&curve, misses));
			cr_assert_eq(felt_fit(&samples, &found), 0);
			cr_assert_float_eq(found.miss_us, miss, miss * 1e-6 + 1e-6, "%g - %g: %g - %g", miss, hidden,
					   found.miss_us, found.hidden_us);
			cr_assert_float_eq(found.hidden_us, hidden, hidden * 1e-6 + 1e-6);
		}
	}
}

static double noise(uint64_t *state) /* -1 to 1, most of it near 0 */
{
	double sum = 0;

	for (int i = 0; i < 4; i++) {
		*state = *state * 6364136223846793005u + 1442695040888963407u;
		sum += (double)(*state >> 40) / (double)(1 << 24);
	}
	return sum / 2 - 1;
}

Test(policy_felt, a_curve_is_found_again_from_noisy_waits)
{
	struct felt_curve curve = {3800, 6000}, found;
	struct felt_samples samples = {0};
	uint64_t random = 1;

	for (int visit = 0; visit < 20000; visit++) {
		uint32_t misses = (uint32_t)(fabs(noise(&random)) * 9);
		double wait = felt_wait_us(&curve, misses) + 2000 * noise(&random);

		felt_add(&samples, misses, wait > 0 ? wait : 0); /* what is measured is never below 0 */
	}
	cr_assert_eq(felt_fit(&samples, &found), 0);
	cr_assert_float_eq(found.miss_us, 3800, 100, "%g", found.miss_us);
	cr_assert_float_eq(found.hidden_us, 6000, 400, "%g", found.hidden_us);
}

/* Goal: nothing that is measured makes a miss earn time. Method: waits by chance, also falling ones. */
Test(policy_felt, no_fit_is_negative_and_none_is_worse_than_a_line_through_the_origin)
{
	uint64_t random = 3;

	for (int run = 0; run < 3000; run++) {
		struct felt_samples samples = {0};
		struct felt_curve found, line = {0, 0};
		double mm = 0, mw = 0, found_squares = 0, line_squares = 0;

		for (int i = 0; i < 6; i++)
			felt_add(&samples, (uint32_t)(fabs(noise(&random)) * 20) + 1, fabs(noise(&random)) * (run % 2 ? 1e4 : 1e-3));
		(void)felt_fit(&samples, &found);
		cr_assert(isfinite(found.miss_us) && isfinite(found.hidden_us));
		cr_assert(found.miss_us >= 0 && found.hidden_us >= 0);
		for (int pass = 0; pass < 2; pass++) {
			for (uint32_t i = 1; i <= FELT_MISSES_MAX; i++) {
				double n = (double)samples.bin[i].visits;

				if (n == 0)
					continue;
				mm += n * i * i;
				mw += i * samples.bin[i].wait_us;
				found_squares += n * pow(felt_wait_us(&found, i) - samples.bin[i].wait_us / n, 2);
				line_squares += n * pow(felt_wait_us(&line, i) - samples.bin[i].wait_us / n, 2);
			}
			line.miss_us = mw / mm;
			if (pass == 0)
				found_squares = line_squares = 0;
		}
		cr_assert_leq(found_squares, line_squares * (1 + 1e-9));
	}
}

Test(policy_felt, falling_waits_are_a_flat_curve_and_not_a_negative_one)
{
	struct felt_samples samples = {0};
	struct felt_curve found;

	felt_add(&samples, 1, 9000);
	felt_add(&samples, 8, 0);
	cr_assert_eq(felt_fit(&samples, &found), 0);
	CLOSE(found.miss_us, 9000.0 / 65);
	CLOSE(found.hidden_us, 0);
}

Test(policy_felt, one_felt_level_beyond_hidden_ones_is_a_steep_curve)
{
	struct felt_samples samples = {0};
	struct felt_curve found;

	felt_add(&samples, 1, 0);
	felt_add(&samples, 3, 0);
	felt_add(&samples, 5, 4000);
	cr_assert_eq(felt_fit(&samples, &found), 0);
	CLOSE(found.miss_us, 2000);
	CLOSE(found.hidden_us, 6000);
}

Test(policy_felt, one_level_is_a_line_through_the_origin_and_none_is_nothing)
{
	struct felt_samples samples = {0};
	struct felt_curve found = {5, 6};

	cr_assert_eq(felt_fit(&samples, &found), -ENODATA);
	felt_add(&samples, 0, 0); /* no misses cost nothing on any curve */
	cr_assert_eq(felt_fit(&samples, &found), -ENODATA);
	CLOSE(found.miss_us, 5);
	CLOSE(found.hidden_us, 6);
	felt_add(&samples, 4, 6000);
	felt_add(&samples, 4, 2000);
	cr_assert_eq(felt_fit(&samples, &found), -ENODATA);
	CLOSE(found.miss_us, 1000);
	CLOSE(found.hidden_us, 0);
}

/* ---- samples ---- */

Test(policy_felt, visits_with_more_misses_than_levels_keep_their_misses)
{
	struct felt_samples samples = {0};
	struct felt_curve found;

	felt_add(&samples, 10, 20000);
	felt_add(&samples, 500, 1000000);
	felt_add(&samples, UINT32_MAX, 8589934590000.0);
	cr_assert_eq(felt_fit(&samples, &found), 0);
	cr_assert_float_eq(found.miss_us, 2000, 1e-3);
}

Test(policy_felt, waits_that_are_no_waits_are_left_out)
{
	struct felt_samples samples = {0};
	struct felt_curve found = {5, 6};

	felt_add(&samples, 1, NAN);
	felt_add(&samples, 2, INFINITY);
	felt_add(&samples, 3, -1);
	cr_assert_eq(felt_fit(&samples, &found), -ENODATA);
	CLOSE(found.miss_us, 5);
}

Test(policy_felt, ageing_halves_the_weight_and_keeps_the_means)
{
	struct felt_samples samples = {0};

	for (int i = 0; i < 9; i++)
		felt_add(&samples, 2, 500);
	felt_add(&samples, 5, 900);
	felt_age(&samples);
	cr_assert_eq(samples.bin[2].visits, 4);
	CLOSE(samples.bin[2].misses, 8);
	CLOSE(samples.bin[2].wait_us, 2000);
	cr_assert_eq(samples.bin[5].visits, 0, "what was seen once is forgotten");
	CLOSE(samples.bin[5].wait_us, 0);
	for (int i = 0; i < 4; i++)
		felt_add(&samples, 2, 1500); /* as many new ones: the mean is in the middle */
	CLOSE(samples.bin[2].wait_us / (double)samples.bin[2].visits, 1000);
}
