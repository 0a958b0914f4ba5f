/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory as large as a trace: backed by an unlinked temporary file, so that the kernel may write it out where memory is
 * short and nothing is left behind however the program ends.
 */
#ifndef CNRE_SIM_SCRATCH_H
#define CNRE_SIM_SCRATCH_H

#include <stdint.h>

struct sim_scratch {
	void *memory;                /* zeroed */
	uint64_t bytes;
};

/*
 * directory NULL: TMPDIR or /tmp. 0, -EOVERFLOW, or what the file system says (-ENOSPC: now, and not as SIGBUS later).
 */
int sim_scratch_open(struct sim_scratch *ret_scratch, const char *directory, uint64_t count, uint64_t element_bytes);
void sim_scratch_close(struct sim_scratch *scratch); /* zeroed is fine */

#endif
