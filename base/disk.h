/* SPDX-License-Identifier: Apache-2.0 */
/* Which disk a file system lies on: two of them on one disk are read no faster than one, and die together. */
#ifndef CNRE_BASE_DISK_H
#define CNRE_BASE_DISK_H

#include <stddef.h>
#include <sys/types.h>

#define CNRE_DISK_NAME_BYTES 256u         /* of a name below /sys/block, with its end */
#define CNRE_DISK_LEVELS_MAX 8u           /* of device mappers upon each other */

/*
 * The disk under a file system: the partition's disk, below device mappers as long as each has one disk under it. 0, or
 * -ENOENT where sysfs does not know: file systems without a device of their own, networks, subvolumes.
 * root is "", or where a test has its /sys.
 */
int cnre_disk_of(const char *root, dev_t device, char ret_name[CNRE_DISK_NAME_BYTES]);

/* 1: the same file system, or the same disk. What cannot be known counts as different. */
int cnre_disk_is_shared(const char *root, dev_t a, dev_t b);

#endif
