/* SPDX-License-Identifier: Apache-2.0 */
/* Whether two file systems lie on one disk: then a copy on the other one makes nothing faster and outlives nothing. */
#ifndef CNRE_MANAGER_MIRROR_DISK_H
#define CNRE_MANAGER_MIRROR_DISK_H

#include <stddef.h>
#include <sys/types.h>

#define MIRROR_DISK_BYTES 256u            /* of a name below /sys/block, with its end */
#define MIRROR_DISK_LEVELS_MAX 8u         /* of device mappers upon each other */

/*
 * The disk under a file system: the partition's disk, below device mappers as long as each has one disk under it. 0, or
 * -ENOENT where sysfs does not know: file systems without a device of their own, networks, subvolumes.
 * root is "", or where a test has its /sys.
 */
int mirror_disk_of(const char *root, dev_t device, char ret_disk[MIRROR_DISK_BYTES]);

/* 1: the same file system, or the same disk. What cannot be known counts as different. */
int mirror_disk_is_shared(const char *root, dev_t a, dev_t b);

#endif
