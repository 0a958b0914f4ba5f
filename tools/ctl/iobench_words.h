/* SPDX-License-Identifier: Apache-2.0 */
/* The words of cnrectl iobench: what is read, how, and for how long. Pure. */
#ifndef CNRE_TOOLS_CTL_IOBENCH_WORDS_H
#define CNRE_TOOLS_CTL_IOBENCH_WORDS_H

#include "tools/ctl/verb.h"

#include <stdint.h>

#define IOBENCH_TARGETS_MAX 7u
#define IOBENCH_ALIGNMENT 4096u           /* of a block, for reads past the page cache on any drive */
#define IOBENCH_BLOCK_MAX (256u << 20)
#define IOBENCH_THREADS_MAX 64u
#define IOBENCH_BUFFERS_MAX (1u << 30)    /* blocks in flight, all together */
#define IOBENCH_COUNT_MAX 1000000u
#define IOBENCH_SECONDS_MIN 0.01
#define IOBENCH_SECONDS_MAX 3600.0
#define IOBENCH_SECONDS_PER_TARGET 10.0   /* of all its measurements, unless the caller says */

struct iobench_words {
	const char *target[IOBENCH_TARGETS_MAX];
	uint32_t target_count;
	uint64_t block_bytes;             /* 0: several, in turn */
	uint32_t threads;                 /* 0: several, in turn */
	uint32_t count;                   /* blocks of one measurement; 0: as many as its time allows */
	int with_direct, with_buffered;
	double seconds;                   /* of all measurements together */
};

/* argv[0] is the verb. 0, or -EINVAL with the reason in message; *ret_words is set on success only. */
int iobench_words_parse(int argc, char *const *argv, struct iobench_words *ret_words, char message[CTL_MESSAGE_BYTES]);
int iobench_words_take_option(int argc, char *const *argv, const char *name);

#endif
