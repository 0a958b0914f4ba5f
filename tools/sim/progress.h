/* SPDX-License-Identifier: Apache-2.0 */
/* A line on standard error that says how far a long run is: after two seconds, and on a terminal or by request only. */
#ifndef CNRE_SIM_PROGRESS_H
#define CNRE_SIM_PROGRESS_H

#include <stdint.h>

struct sim_progress {
	int wanted;                  /* 1: even if standard error is no terminal */
	int64_t begun_ns, shown_ns;  /* 0: not yet */
};

void sim_progress_count(struct sim_progress *progress, const char *what, uint64_t done, uint64_t count);
/* As sim_load.progress; context: a struct sim_progress. */
void sim_progress_bytes(void *context, const char *path, uint64_t done_bytes, uint64_t all_bytes);
void sim_progress_end(struct sim_progress *progress); /* clears the line, if there is one */

#endif
