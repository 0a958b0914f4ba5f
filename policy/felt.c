/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of misses on the critical path; see felt.h. Plain arithmetic on sums: no allocation, nothing to fail but for data. */
#include "policy/felt.h"

#include <errno.h>
#include <math.h>

double felt_wait_us(const struct felt_curve *curve, double misses)
{
	double wait = misses * curve->miss_us - curve->hidden_us;

	return wait > 0 ? wait : 0;
}

/*
 * A mean level is a mix of whole ones: of the two around it, in the measure of its nearness. Each costs, with one miss
 * more, the step of the curve there.
 */
double felt_marginal_us(const struct felt_curve *curve, double misses)
{
	double below = misses > 0 ? floor(misses) : 0, part = misses > below ? misses - below : 0;
	double step = felt_wait_us(curve, below + 1) - felt_wait_us(curve, below);
	double next = felt_wait_us(curve, below + 2) - felt_wait_us(curve, below + 1);

	return (1 - part) * step + part * next;
}

int felt_per_miss_us(double wait_s, uint64_t misses, int misses_known, double *ret_us)
{
	if (!misses_known)
		return -ENODATA;
	if (misses == 0 || !isfinite(wait_s) || wait_s < 0)
		return -ERANGE;
	*ret_us = wait_s * 1e6 / (double)misses;
	return 0;
}

/* ---- samples ---- */

void felt_add(struct felt_samples *samples, uint32_t misses, double wait_us)
{
	struct felt_bin *bin = &samples->bin[misses < FELT_MISSES_MAX ? misses : FELT_MISSES_MAX];

	if (!isfinite(wait_us) || wait_us < 0)
		return;
	bin->visits++;
	bin->misses += misses;
	bin->wait_us += wait_us;
}

/* An odd visit of a level is rounded off, and means are kept: what is left stands for the same curve. */
void felt_age(struct felt_samples *samples)
{
	for (uint32_t i = 0; i <= FELT_MISSES_MAX; i++) {
		struct felt_bin *bin = &samples->bin[i];
		double kept = bin->visits > 0 ? (double)(bin->visits / 2) / (double)bin->visits : 0;

		bin->visits /= 2;
		bin->misses *= kept;
		bin->wait_us *= kept;
	}
}

/* ---- the fit ---- */

struct level {
	double weight, misses, wait_us;  /* visits, and means of them */
};

/* In the order of misses. */
static uint32_t collect_levels(const struct felt_samples *samples, struct level level[FELT_MISSES_MAX])
{
	uint32_t count = 0;

	for (uint32_t i = 1; i <= FELT_MISSES_MAX; i++) {
		const struct felt_bin *bin = &samples->bin[i];
		double visits = (double)bin->visits;

		if (bin->visits > 0)
			level[count++] = (struct level){visits, bin->misses / visits, bin->wait_us / visits};
	}
	return count;
}

static double squares_of(const struct felt_curve *curve, const struct level *level, uint32_t count)
{
	double sum = 0;

	for (uint32_t i = 0; i < count; i++) {
		double error = felt_wait_us(curve, level[i].misses) - level[i].wait_us;

		sum += level[i].weight * error * error;
	}
	return sum;
}

static struct felt_curve fit_through_origin(const struct level *level, uint32_t count)
{
	double mm = 0, mw = 0;

	for (uint32_t i = 0; i < count; i++) {
		mm += level[i].weight * level[i].misses * level[i].misses;
		mw += level[i].weight * level[i].misses * level[i].wait_us;
	}
	return (struct felt_curve){.miss_us = mw / mm};
}

/* A line through two levels or more, as if none were hidden; neither of its parameters below 0. */
static struct felt_curve fit_line(const struct level *level, uint32_t count)
{
	double n = 0, mean_misses = 0, mean_wait = 0, mm = 0, mw = 0, slope;

	for (uint32_t i = 0; i < count; i++) {
		n += level[i].weight;
		mean_misses += level[i].weight * level[i].misses;
		mean_wait += level[i].weight * level[i].wait_us;
	}
	mean_misses /= n;
	mean_wait /= n;
	for (uint32_t i = 0; i < count; i++) {
		mm += level[i].weight * (level[i].misses - mean_misses) * (level[i].misses - mean_misses);
		mw += level[i].weight * (level[i].misses - mean_misses) * (level[i].wait_us - mean_wait);
	}
	slope = mw / mm;
	if (slope * mean_misses < mean_wait)
		return fit_through_origin(level, count);
	return (struct felt_curve){.miss_us = slope, .hidden_us = slope * mean_misses - mean_wait};
}

/* Of the levels, the lowest `hidden` are taken to be hidden behind computation. */
static struct felt_curve fit_beyond(const struct level *level, uint32_t count, uint32_t hidden)
{
	const struct level *last = &level[count - 1];
	double slope;

	if (hidden + 1 < count)
		return fit_line(level + hidden, count - hidden);
	/* One level is felt: the flattest line that leaves the one before it hidden. */
	slope = last->wait_us / (last->misses - last[-1].misses);
	return (struct felt_curve){.miss_us = slope, .hidden_us = slope * last[-1].misses};
}

/*
 * The curve is a line where it is not 0, and it is 0 for the lowest levels, however many. For each number of these the
 * best line is known; the best of the lines, by what they leave on all levels, is the best curve.
 */
int felt_fit(const struct felt_samples *samples, struct felt_curve *ret_curve)
{
	struct level level[FELT_MISSES_MAX];
	uint32_t count = collect_levels(samples, level);
	struct felt_curve best;
	double least;

	if (count == 0)
		return -ENODATA;
	best = fit_through_origin(level, count);
	least = squares_of(&best, level, count);
	for (uint32_t hidden = 0; count > 1 && hidden < count; hidden++) {
		struct felt_curve curve = fit_beyond(level, count, hidden);
		double squares = squares_of(&curve, level, count);

		if (squares < least) {
			best = curve;
			least = squares;
		}
	}
	*ret_curve = best;
	return count > 1 ? 0 : -ENODATA;
}
