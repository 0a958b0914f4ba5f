/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that the kernel really backs, against the memory that was planned. A plan that is right on paper and wrong
 * on the machine ends with the OOM killer, so the budget holds for the measured bytes of the pool: where they exceed it
 * the residents are held within less, by eviction, for as long as the kernel counts more than was planned.
 *
 * Counted are the blocks of each descriptor (hugetlb pages too), so also pages that somebody else faulted in. Not counted
 * is what a client faults in behind a hole of a segment that was given back: its descriptor is gone here. Core thread only;
 * a few microseconds and never part of answering a client, at most once in MEASURE_INTERVAL_NS while loads complete.
 */
#ifndef CNRE_MANAGER_MEASURE_H
#define CNRE_MANAGER_MEASURE_H

#include <stdint.h>

#define MEASURE_INTERVAL_NS 1000000000LL

/*
 * For tests only: percent by which the pool is measured larger than it is, as if its pages cost more than planned.
 * Read once at the start; more than MEASURE_TEST_PERCENT_MAX is as much.
 */
#define MEASURE_TEST_VARIABLE "CNRE_TEST_OVERHEAD_PERCENT"
#define MEASURE_TEST_PERCENT_MAX 400u

struct manager;

struct measure {
	uint64_t pool_bytes;              /* of the pool's segments, as the kernel counts */
	uint64_t held_to_bytes;           /* residents are held to this while overshooting */
	uint32_t test_percent;
	int overshooting;                 /* an episode lasts: logged and counted once, shown in status */
	int64_t last_ns;
	uint64_t loads_seen;
};

/* First measurement, once the pool and the residents are there. */
void measure_open(struct manager *manager);

/* After the budget was set anew: judges it from the beginning. */
void measure_budget_changed(struct manager *manager);

/* Once a turn: measures if something was loaded and the interval has passed. */
void measure_tick(struct manager *manager, int64_t now_ns);
int64_t measure_deadline_ns(const struct manager *manager); /* CNRE_NEVER: nothing was loaded since */

#endif
