/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a file on another drive is a copy of a shard: of the same size, with the same header byte for byte, and the same
 * bytes in every sampled page (mirror_sample.h). Of a checkpoint's fine-tune size and header are the same, its pages are not.
 * It runs on a thread of its own, since a drive may not answer, and touches nothing but what it is given.
 */
#ifndef CNRE_MANAGER_MIRROR_CHECK_H
#define CNRE_MANAGER_MIRROR_CHECK_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/* A shard that copies are compared with. */
struct mirror_shard {
	char *path;
	char *name;
	char *model_name;                 /* of the folder in a mirror that may hold the model's copies */
	uint64_t bytes;
	uint64_t header_bytes;            /* 8 + length of the header */
	uint64_t expert_bytes;            /* of experts that lie in it: what a copy is good for */
	uint64_t *page;                   /* file offsets of the sampled pages, ascending */
	uint32_t page_count;
	uint32_t model, index;            /* which shard of which served model */
};

enum mirror_finding {
	MIRROR_WAITING,                   /* not checked yet */
	MIRROR_ABSENT,                    /* there is no such file */
	MIRROR_PROVEN,
	MIRROR_REFUSED,
	MIRROR_CANCELLED,
};

struct mirror_verdict {
	enum mirror_finding finding;
	int is_foreign;                   /* refused by size or header, and not from a folder of the model: another model's, perhaps */
	int shares_disk;                  /* proven, but on the primary's own disk */
	char *path;                       /* of the copy, if there is one; the receiver frees it, and the reason */
	char *reason;                     /* refused: one line that names the file; NULL: out of memory */
	const char *advice;
	dev_t device;
	ino_t inode;
	struct timespec changed;          /* of the content, when it was checked */
};

/* What a check and those who wait for it share. */
struct mirror_progress {
	_Atomic uint64_t steps;           /* counts reads that were answered */
	_Atomic int is_stopping;          /* no more is wanted */
};

/* Looks in directory/MODEL for the shard, then in directory itself. Blocks as long as the drives do. */
void mirror_check(const struct mirror_shard *shard, const char *directory, struct mirror_progress *progress,
		  struct mirror_verdict *ret_verdict);

#endif
