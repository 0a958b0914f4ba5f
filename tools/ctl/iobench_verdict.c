/* SPDX-License-Identifier: Apache-2.0 */
/* The choice among measurements; see iobench_verdict.h. */
#include "tools/ctl/iobench_verdict.h"

#include <errno.h>

double iobench_rate(const struct iobench_measured *measured)
{
	return measured->elapsed_ns <= 0 ? 0.0 : (double)measured->bytes * 1e9 / (double)measured->elapsed_ns;
}

double iobench_ms_per_block(const struct iobench_measured *measured)
{
	return measured->blocks == 0 ? 0.0 : (double)measured->elapsed_ns / 1e6 / (double)measured->blocks;
}

/* One that failed on the way counts for nothing, however fast it was before. */
static double rate_of(const struct iobench_point *point)
{
	return point->measured.error != 0 ? 0.0 : iobench_rate(&point->measured);
}

static double best_rate(const struct iobench_point *points, uint32_t count, int is_direct)
{
	double best = 0.0;

	for (uint32_t i = 0; i < count; i++)
		if (points[i].is_direct == is_direct && rate_of(&points[i]) > best)
			best = rate_of(&points[i]);
	return best;
}

/* 1 if a is to be preferred to b where both are fast enough: less in flight, then fewer and larger reads. */
static int is_lighter(const struct iobench_point *a, const struct iobench_point *b)
{
	uint64_t in_flight_a = a->threads * a->block_bytes, in_flight_b = b->threads * b->block_bytes;

	return in_flight_a != in_flight_b ? in_flight_a < in_flight_b : a->threads < b->threads;
}

int iobench_choose(const struct iobench_point *points, uint32_t count)
{
	double direct = best_rate(points, count, 1), buffered = best_rate(points, count, 0);
	int is_direct = direct > 0.0 && buffered * 100.0 <= direct * IOBENCH_BUFFERED_PERCENT;
	double enough = (is_direct ? direct : buffered) * IOBENCH_ENOUGH_PERCENT / 100.0;
	int chosen = -ENOENT;

	if (enough <= 0.0)
		return -ENOENT;
	for (uint32_t i = 0; i < count; i++) {
		if (points[i].is_direct != is_direct || rate_of(&points[i]) < enough)
			continue;
		if (chosen < 0 || is_lighter(&points[i], &points[chosen]))
			chosen = (int)i;
	}
	return chosen;
}
