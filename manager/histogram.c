/* SPDX-License-Identifier: Apache-2.0 */
/* Times in buckets; see histogram.h. */
#include "manager/histogram.h"

#include <stddef.h>

static uint32_t bucket_of(uint64_t ns)
{
	uint32_t bits = ns == 0 ? 0 : 63u - (uint32_t)__builtin_clzll(ns);

	if (bits < HISTOGRAM_LOW_BITS)
		return 0;
	if (bits >= HISTOGRAM_HIGH_BITS)
		return HISTOGRAM_BUCKETS - 1;
	return 1 + 4 * (bits - HISTOGRAM_LOW_BITS) + (uint32_t)(ns >> (bits - 2) & 3);
}

/* The first time behind a bucket that is not the last. */
static uint64_t end_ns(uint32_t bucket)
{
	return (uint64_t)(4 + bucket % 4) << (HISTOGRAM_LOW_BITS + bucket / 4 - 2);
}

void histogram_add(struct histogram *histogram, int64_t ns)
{
	uint64_t time_ns = ns < 0 ? 0 : (uint64_t)ns;

	histogram->count++;
	histogram->sum_ns += time_ns;
	if (time_ns > histogram->most_ns)
		histogram->most_ns = time_ns;
	histogram->bucket[bucket_of(time_ns)]++;
}

void histogram_merge(struct histogram *to, const struct histogram *from)
{
	to->count += from->count;
	to->sum_ns += from->sum_ns;
	if (from->most_ns > to->most_ns)
		to->most_ns = from->most_ns;
	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
		to->bucket[i] += from->bucket[i];
}

uint64_t histogram_quantile_ns(const struct histogram *histogram, double part)
{
	uint64_t seen = 0;

	for (uint32_t i = 0; i + 1 < HISTOGRAM_BUCKETS; i++) {
		seen += histogram->bucket[i];
		if (seen > 0 && (double)seen >= part * (double)histogram->count)
			return end_ns(i) - 1 < histogram->most_ns ? end_ns(i) - 1 : histogram->most_ns;
	}
	return histogram->most_ns;
}
