/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ext4 file system on a loop device over a memfd, mounted at LOOP_DISK_PATH in a mount namespace of the calling
 * process: nothing of it has a name outside, and it all goes when the process ends, however it ends.
 */
#ifndef CNRE_TESTS_SUPPORT_LOOP_DISK_H
#define CNRE_TESTS_SUPPORT_LOOP_DISK_H

#include <stdint.h>

#define LOOP_DISK_PATH "/mnt"

struct loop_disk { int fd; };             /* the loop device; -1: none */

/* NULL, or the reason why there can be none here (for cr_skip). At most one per process. */
const char *loop_disk_open(struct loop_disk *disk, uint64_t bytes, unsigned sector_bytes, unsigned block_bytes);
void loop_disk_close(struct loop_disk *disk);

/* Reads of the device beyond `bytes` fail with EIO from now on; 0 heals it. 0 or -errno. */
int loop_disk_limit(struct loop_disk *disk, uint64_t bytes);

#endif
