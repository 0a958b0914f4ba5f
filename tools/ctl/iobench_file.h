/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What iobench reads on one drive: the file that was named, or the largest shard of a directory, opened past the page cache
 * and through it; and on which disk it lies. Nothing here can write.
 */
#ifndef CNRE_TOOLS_CTL_IOBENCH_FILE_H
#define CNRE_TOOLS_CTL_IOBENCH_FILE_H

#include "base/disk.h"
#include "tools/ctl/verb.h"

#include <limits.h>
#include <stdint.h>

#define IOBENCH_ENTRIES_MAX 65536u        /* of a directory that are looked at */

struct iobench_file {
	char path[PATH_MAX];
	uint64_t bytes;
	int buffered_fd;
	int direct_fd;                    /* -1: refused, for direct_error */
	int direct_error;
	char disk_name[CNRE_DISK_NAME_BYTES]; /* of the whole disk, as the kernel calls it, or numbers; equal: the same disk */
};

/* 0, or -errno with the reason in message; *ret_file is set on success only. */
int iobench_file_open(struct iobench_file *ret_file, const char *target, char message[CTL_MESSAGE_BYTES]);
void iobench_file_close(struct iobench_file *file);

/* Direct reads were refused after all, at the first of them: as if they had been at open. */
void iobench_file_refuse_direct(struct iobench_file *file, int error);

/* Asks the kernel to forget what it has of the file, so that buffered reads come from the drive. */
void iobench_file_forget(const struct iobench_file *file);

#endif
