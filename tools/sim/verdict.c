/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of the gate; see verdict.h. */
#include "tools/sim/verdict.h"

#include <math.h>

#define ROUNDING 1e-12 /* so that 10 % less of a sum of decimals is 10 % less */

double verdict_regression(const struct verdict_category *category)
{
	if (category->baseline_us > 0)
		return category->candidate_us / category->baseline_us - 1;
	return category->candidate_us > 0 ? INFINITY : 0;
}

struct verdict verdict_of(const struct verdict_category *category, uint32_t count, const struct verdict_rules *rules)
{
	struct verdict verdict = {.worst_regression = -INFINITY};
	double baseline = 0, candidate = 0;

	for (uint32_t i = 0; i < count; i++) {
		double regression = verdict_regression(&category[i]);

		baseline += category[i].baseline_us / (double)category[i].tokens;
		candidate += category[i].candidate_us / (double)category[i].tokens;
		if (regression > verdict.worst_regression) {
			verdict.worst_regression = regression;
			verdict.worst = i;
		}
	}
	if (baseline > 0)
		verdict.gain = 1 - candidate / baseline;
	else
		verdict.gain = candidate > 0 ? -INFINITY : 0;
	verdict.passed = verdict.gain >= rules->minimum_gain - ROUNDING &&
			 verdict.worst_regression <= rules->maximum_regression + ROUNDING;
	return verdict;
}
