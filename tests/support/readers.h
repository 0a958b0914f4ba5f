/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Client processes that acquire experts all the time, compare every byte with the checkpoint, and give them back: what
 * users of a manager see while something else happens to it. Their numbers can be looked at while they run.
 */
#ifndef CNRE_TESTS_READERS_H
#define CNRE_TESTS_READERS_H

#include "tests/support/world.h"

#include <stdint.h>
#include <sys/types.h>

#define READERS_MAX 8

struct truth;
struct readers_shared;

struct readers {
	int count;
	pid_t pid[READERS_MAX];
	struct readers_shared *shared;
};

/* Since the start, or since readers_forget. */
struct readers_seen {
	uint64_t reads_least; /* of the one with the fewest, that succeeded */
	uint64_t errors, wrong;
	int error;            /* the last one, -errno; 0: none */
	double longest_s;     /* that one acquire took */
};

/*
 * Starts them; this process must not have attached. Experts 0..experts-1 of all layers, whose bytes truth knows.
 * spare_fd is closed in each, -1: none.
 */
void readers_start(struct readers *readers, int count, const struct world *world, const struct truth *truth, uint32_t layers,
		   uint32_t experts, int spare_fd);
struct readers_seen readers_see(const struct readers *readers);
void readers_forget(const struct readers *readers);
void readers_stop(struct readers *readers); /* fails the test if one did not end well */

#endif
