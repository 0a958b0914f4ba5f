/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The null beside every gap: the same trace with the rows of each layer shuffled among its tokens. Popularity of
 * experts and the sets looked up together stay, order goes; what a policy still gains over LRU there is popularity, and
 * the rest of Belady's lead is knowledge of luck.
 */
#ifndef CNRE_SIM_SHUFFLE_H
#define CNRE_SIM_SHUFFLE_H

#include "tools/sim/scratch.h"
#include "tools/sim/trace.h"

struct sim_shuffled {
	struct sim_trace trace;      /* borrows everything but its rows */
	struct sim_scratch rows;
};

/* Deterministic by seed. 0 or -errno. */
int sim_shuffled_open(struct sim_shuffled *ret_shuffled, const struct sim_trace *trace,
		      const struct sim_geometry *geometry, uint64_t seed, const char *temporary);
void sim_shuffled_close(struct sim_shuffled *shuffled); /* zeroed is fine */

#endif
