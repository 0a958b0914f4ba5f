/* SPDX-License-Identifier: Apache-2.0 */
/* See histogram.h. */
#include "tools/inspect/histogram.h"

static uint32_t bucket_of(uint64_t ns)
{
	uint32_t bucket = 0;

	while (ns > 0 && bucket < HISTOGRAM_BUCKETS - 1) {
		ns >>= 1;
		bucket++;
	}
	return bucket;
}

void histogram_add(struct histogram *histogram, uint64_t ns)
{
	histogram->count++;
	histogram->sum_ns += ns;
	if (histogram->max_ns < ns)
		histogram->max_ns = ns;
	histogram->bucket[bucket_of(ns)]++;
}

void histogram_join(struct histogram *into, const struct histogram *from)
{
	into->count += from->count;
	into->sum_ns += from->sum_ns;
	if (into->max_ns < from->max_ns)
		into->max_ns = from->max_ns;
	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
		into->bucket[i] += from->bucket[i];
}

uint64_t histogram_quantile_ns(const struct histogram *histogram, double quantile)
{
	double rank = quantile * (double)histogram->count, before = 0;

	if (histogram->count == 0)
		return 0;
	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		double here = (double)histogram->bucket[i];
		double from = i < 2 ? (double)i : (double)(1ull << (i - 1));
		double ns;

		if (here == 0 || before + here < rank) {
			before += here;
			continue;
		}
		ns = from + (i < 2 ? 0 : from * (rank - before) / here);
		return ns > (double)histogram->max_ns ? histogram->max_ns : (uint64_t)ns;
	}
	return histogram->max_ns;
}
