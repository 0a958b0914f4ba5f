/* SPDX-License-Identifier: Apache-2.0 */
/* The measurements of iobench: every drive alone with each setting, then all of them together with the ones chosen. */
#ifndef CNRE_TOOLS_CTL_IOBENCH_SWEEP_H
#define CNRE_TOOLS_CTL_IOBENCH_SWEEP_H

#include "tools/ctl/iobench_file.h"
#include "tools/ctl/iobench_verdict.h"
#include "tools/ctl/iobench_words.h"

#define IOBENCH_POINTS_MAX 32u            /* of a drive */

struct iobench_drive {
	const char *target;               /* as the caller named it */
	struct iobench_file file;
	struct iobench_point point[IOBENCH_POINTS_MAX];
	uint32_t point_count;
	int chosen;                       /* of them */
	int same_disk_as;                 /* an earlier drive; -1: a disk of its own */
};

struct iobench {
	struct iobench_drive drive[IOBENCH_TARGETS_MAX];
	uint32_t drive_count;
	int is_for_block;                 /* the caller named a size, such as that of an expert */
	uint32_t together_count;          /* drives that were read at the same time; below 2: none were */
	double together_rate, together_sum; /* bytes a second: at the same time, and one by one */
};

/*
 * Opens the targets and measures. Returns 0, or -errno with the reason in message: a target that cannot be read, no memory,
 * -ETIMEDOUT for a drive that hangs. *bench is filled in either way; close it.
 */
int iobench_run(struct iobench *bench, const struct iobench_words *words, char message[CTL_MESSAGE_BYTES]);
void iobench_close(struct iobench *bench);

#endif
