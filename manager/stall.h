/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives that do not answer (R16): which have a read outstanding beyond its time, since when, and on which file. While
 * one has, pump.c sends nothing more to it and fails what waits for it in its time; the other drives know nothing of
 * it. It ends by itself when the last such read is over. Bookkeeping and its log lines only.
 */
#ifndef CNRE_MANAGER_STALL_H
#define CNRE_MANAGER_STALL_H

#include "manager/loader.h"

#include <stdint.h>

struct stall {
	uint32_t reads;   /* beyond their time and still out; 0: the drive answers */
	int64_t since_ns; /* when the oldest of them was submitted */
	const char *path; /* the file of the first; lives as long as the loader */
};

struct stalls {
	struct stall drive[LOADER_DRIVES_MAX];
	uint32_t reads; /* over all drives */
};

/* A read that was submitted at since_ns did not come back in time. */
void stall_begin(struct stalls *stalls, uint32_t drive, const char *path, int64_t since_ns);
/* One of those came back, with bytes or with an error. */
void stall_end(struct stalls *stalls, uint32_t drive);

static inline int stall_is_on(const struct stalls *stalls, uint32_t drive)
{
	return stalls->drive[drive].reads > 0;
}

#endif
