/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a candidate's felt waits beat a baseline's: categories of workload have equal weight, whatever their length,
 * and none may pay for the others. Pure.
 */
#ifndef CNRE_SIM_VERDICT_H
#define CNRE_SIM_VERDICT_H

#include <stdint.h>

struct verdict_category {
	char name[64];
	double baseline_us, candidate_us; /* sums, */
	uint64_t tokens;                  /* over so many tokens */
};

struct verdict_rules {
	double minimum_gain;         /* of the mean over categories of felt wait a token */
	double maximum_regression;   /* of any category's */
};

struct verdict {
	int passed;
	double gain;                 /* 0.1: a tenth less */
	uint32_t worst;              /* category */
	double worst_regression;     /* 0.03: 3 % more; negative: less */
};

/* By how much more the candidate waits in a category; 0 where both wait for nothing, infinite where only it waits. */
double verdict_regression(const struct verdict_category *category);

/* At least one category, each of at least one token. Equal to a limit is within it. */
struct verdict verdict_of(const struct verdict_category *category, uint32_t count, const struct verdict_rules *rules);

#endif
