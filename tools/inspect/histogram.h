/* SPDX-License-Identifier: Apache-2.0 */
/* How long things took: counts by powers of two of nanoseconds, and quantiles of them. Pure. */
#ifndef CNRE_TOOLS_INSPECT_HISTOGRAM_H
#define CNRE_TOOLS_INSPECT_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BUCKETS 64u             /* bucket i: below 2^i ns, from 2^(i-1) on; 0: none at all */

struct histogram {
	uint64_t count, sum_ns, max_ns;
	uint64_t bucket[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *histogram, uint64_t ns);
void histogram_join(struct histogram *into, const struct histogram *from);

/*
 * Within its bucket a quantile is taken as if the times lay evenly there, so it is right within a factor of two, and never above
 * the longest. 0 of nothing.
 */
uint64_t histogram_quantile_ns(const struct histogram *histogram, double quantile);

#endif
