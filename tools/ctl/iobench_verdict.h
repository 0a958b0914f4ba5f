/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a drive's measurements is the setting to use. Pure. */
#ifndef CNRE_TOOLS_CTL_IOBENCH_VERDICT_H
#define CNRE_TOOLS_CTL_IOBENCH_VERDICT_H

#include "tools/ctl/iobench_trial.h"

#include <stdint.h>

/*
 * Measurements of one drive within seconds of each other differ by a few percent, direct and buffered ones by more: what is
 * not better by so much is not better.
 */
#define IOBENCH_ENOUGH_PERCENT 95u        /* of the best: less memory and waiting in flight is worth the rest */
#define IOBENCH_BUFFERED_PERCENT 115u     /* of the best direct one, before reads should fill the page cache and copy */
#define IOBENCH_HINDERED_PERCENT 85u      /* of the sum: drives that give less together share something */

struct iobench_point {
	uint64_t block_bytes;
	uint32_t threads;
	int is_direct;
	struct iobench_measured measured;
};

double iobench_rate(const struct iobench_measured *measured); /* bytes a second; 0: nothing was read */
double iobench_ms_per_block(const struct iobench_measured *measured); /* with all that was in flight beside it; 0 of nothing */

/* The index of the setting to use: the least in flight that is fast enough. -ENOENT: nothing was read. */
int iobench_choose(const struct iobench_point *points, uint32_t count);

#endif
