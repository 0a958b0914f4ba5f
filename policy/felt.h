/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What misses cost on the critical path. One layer's felt wait is a convex function of the misses of one visit:
 *
 *	felt(m) = max(0, m * miss_us - hidden_us)
 *
 * where miss_us is the service time of a read over the overlap of reads, and hidden_us the computation that runs
 * meanwhile. The first miss may be free and the last is dear, so what one miss more costs is the slope at today's level,
 * not the mean. Fitted from measured (misses, wait) pairs of single visits. Misses are physical reads: a load that
 * another client had under way is no miss, and a rate is no count.
 */
#ifndef CNRE_POLICY_FELT_H
#define CNRE_POLICY_FELT_H

#include <stdint.h>

struct felt_curve {
	double miss_us;              /* slope, microseconds a miss */
	double hidden_us;            /* >= 0 */
};

double felt_wait_us(const struct felt_curve *curve, double misses);
/* What one more miss a visit costs at that mean level of misses, spread over whole misses around it. */
double felt_marginal_us(const struct felt_curve *curve, double misses);

/*
 * Felt microseconds a physical miss, from totals: 1.4 s over 300 misses is 4666.7. 0 and *ret_us; -ENODATA: the misses
 * are not known (misses_known 0), which is not the same as none; -ERANGE: none, or a wait that is no number.
 */
int felt_per_miss_us(double wait_s, uint64_t misses, int misses_known, double *ret_us);

/* Measured visits of one layer, summed up by their number of misses: bounded, whatever the length of the run. */
#define FELT_MISSES_MAX 64u          /* visits with more share the last bin, with their misses */
struct felt_samples {
	struct felt_bin { uint64_t visits; double misses, wait_us; } bin[FELT_MISSES_MAX + 1];
};
void felt_add(struct felt_samples *samples, uint32_t misses, double wait_us); /* a wait that is no number is left out */
/* Halves what was seen, so that new visits count more. */
void felt_age(struct felt_samples *samples);
/*
 * Least squares with both parameters >= 0. 0, or -ENODATA: fewer than two levels of misses were seen, none at all not
 * counted, since no misses cost nothing on any curve; *ret_curve then is the line through the origin if one level was, and
 * untouched if none.
 */
int felt_fit(const struct felt_samples *samples, struct felt_curve *ret_curve);

#endif
