/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times in buckets that widen with them: four to each power of two, from a microsecond to a minute, so that a quantile is
 * known to a quarter of itself, whatever was observed. Adding is two additions; nothing is allocated. Pure.
 */
#ifndef CNRE_MANAGER_HISTOGRAM_H
#define CNRE_MANAGER_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_LOW_BITS 10u        /* below 1,024 ns all times are in the first bucket, */
#define HISTOGRAM_HIGH_BITS 36u       /* and from 68.7 s on in the last */
#define HISTOGRAM_BUCKETS (4u * (HISTOGRAM_HIGH_BITS - HISTOGRAM_LOW_BITS) + 2u)

struct histogram {
	uint64_t count, sum_ns, most_ns;
	uint64_t bucket[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *histogram, int64_t ns); /* below 0 counts as 0 */

void histogram_merge(struct histogram *to, const struct histogram *from);

/* A time that this part (0 to 1) of what was observed does not exceed; at most the longest of all. 0: nothing was. */
uint64_t histogram_quantile_ns(const struct histogram *histogram, double part);

#endif
