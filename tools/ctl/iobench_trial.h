/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One measurement: threads that read blocks of one or several files, each block at most once, until the time is over. The
 * files are read at the same time, which shows whether their drives hinder one another.
 */
#ifndef CNRE_TOOLS_CTL_IOBENCH_TRIAL_H
#define CNRE_TOOLS_CTL_IOBENCH_TRIAL_H

#include "tools/ctl/iobench_words.h"

#include <stdint.h>

struct iobench_lane {
	int fd;
	uint64_t file_bytes;
	uint64_t block_bytes;             /* at most file_bytes */
	uint32_t threads;                 /* blocks in flight */
	uint32_t count;                   /* blocks at most; 0: all of the file */
	uint64_t phase;                   /* any number: where in the order of blocks it begins */
	unsigned char *buffers;           /* threads * block_bytes, aligned for direct reads */
};

struct iobench_times {
	int64_t time_ns;                  /* after which nothing more begins */
	int64_t stall_ns;                 /* without a single block: the drive hangs */
};

struct iobench_measured {
	uint64_t blocks, bytes;
	int64_t elapsed_ns;               /* from the start to the last block of the lane */
	int error;                        /* 0, or the first -errno of a read; then the rest is what came before */
};

/*
 * Returns:  0 with ret_measured[lane_count] set, whatever its errors; -EAGAIN: no thread to be had; -ETIMEDOUT after
 *           stall_ns in which no drive answered. After that reads are still under way: the buffers must stay as they
 *           are, and the program should end.
 */
int iobench_trial(const struct iobench_lane *lanes, uint32_t lane_count, const struct iobench_times *times,
		  struct iobench_measured *ret_measured);

#endif
