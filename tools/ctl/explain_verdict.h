/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What limits throughput between two samples: nobody, the engines' own computation, the drives, memory, or uploads to GPUs
 * where nothing was missing in memory. What VRAM serves is a hit, and no part of what memory or drives would bring. The question is
 * what a doubling would bring: of the memory, by the reuse distances (policy/curve.h), or of the drives, which halves what is
 * waited. Pure.
 */
#ifndef CNRE_TOOLS_CTL_EXPLAIN_VERDICT_H
#define CNRE_TOOLS_CTL_EXPLAIN_VERDICT_H

#include "tools/ctl/explain_sample.h"

#define EXPLAIN_WAITING_MIN 0.10 /* a smaller part of the clients' time than this is not worth a drive */
#define EXPLAIN_DRIVE_FACTOR 0.5 /* of the waits that drives of twice the speed leave; reads and waits shrink alike */
#define EXPLAIN_TEXT_BYTES 512

enum explain_limit { EXPLAIN_IDLE, EXPLAIN_COMPUTE, EXPLAIN_DISK, EXPLAIN_CAPACITY, EXPLAIN_VRAM };

struct explain_verdict {
	enum explain_limit limit;
	double seconds;
	uint32_t clients;                 /* that looked something up, or waited */
	uint64_t accesses, misses, loads, bytes, evictions, vram_hits, vram_uploads;
	double felt_wait_s, service_s;
	double waiting;                   /* 0..1 of the clients' time, if each had one thread that looks up */
	int has_room;                     /* more experts would fit, and none had to go */
	double double_ram, double_drive;  /* the same with twice of it; double_ram < 0: not known */
	char why[EXPLAIN_TEXT_BYTES], advice[EXPLAIN_TEXT_BYTES];
	char vram[EXPLAIN_TEXT_BYTES];    /* what is wrong with the GPUs; empty: nothing */
};

/* 0, or -ESTALE: they are of two managers, or out of order. */
int explain_judge(const struct explain_sample *before, const struct explain_sample *after, struct explain_verdict *ret_verdict);

const char *explain_limit_name(enum explain_limit limit);

#endif
