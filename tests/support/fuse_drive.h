/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A drive whose reads fail by number: a read-only FUSE file system that gives the files of one directory, served by a process
 * of the test's own, which meets the Nth read from now on with an error of any number, with the end of the file, with half
 * of the bytes, or with no answer. Loop devices fail by place or as a whole; this one fails in the middle of something.
 * Root only. It is mounted in a mount namespace of the test's own process, and goes with it.
 */
#ifndef CNRE_TESTS_FUSE_DRIVE_H
#define CNRE_TESTS_FUSE_DRIVE_H

#include <stdint.h>
#include <sys/types.h>

enum fuse_drive_fault {
	FUSE_DRIVE_WELL,
	FUSE_DRIVE_ERROR,  /* -error */
	FUSE_DRIVE_END,    /* no byte, as behind the last one */
	FUSE_DRIVE_HALF,   /* half of what was asked for */
	FUSE_DRIVE_SILENT, /* no answer until it is well again, and then the right one */
	FUSE_DRIVE_DIRECT  /* EINVAL, for descriptors with O_DIRECT only */
};

struct fuse_drive_plan;

struct fuse_drive {
	char mount[160];
	struct fuse_drive_plan *plan;
	pid_t server;
};

/* What reads meet from now on: the `first`th from now (1: the next one) and the `count` - 1 after it. */
struct fuse_drive_trouble {
	enum fuse_drive_fault fault;
	int error;
	uint32_t first, count;
};

/* NULL, or the reason why there can be none here (for cr_skip). `source`: a directory of files. The mount point is made. */
const char *fuse_drive_open(struct fuse_drive *drive, const char *source, const char *mount_point);
void fuse_drive_close(struct fuse_drive *drive);

void fuse_drive_trouble(struct fuse_drive *drive, struct fuse_drive_trouble trouble);
void fuse_drive_heal(struct fuse_drive *drive);

/* Since the last trouble began: reads that were asked for, and those that met it. */
uint32_t fuse_drive_reads(const struct fuse_drive *drive);
uint32_t fuse_drive_failed(const struct fuse_drive *drive);

#endif
