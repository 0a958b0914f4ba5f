/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a file system where on its device a file lies (FIEMAP), and the kernel where on its disk a partition does. */
#ifndef CNRE_TOOLS_INSPECT_FILE_EXTENTS_H
#define CNRE_TOOLS_INSPECT_FILE_EXTENTS_H

#include "tools/inspect/extent_map.h"

#include <sys/types.h>

struct file_extents {
	uint64_t device;                  /* st_dev, as the block layer numbers it */
	uint64_t inode, bytes;
	uint64_t unmapped_bytes;          /* that it would not say the place of: inline, encoded, not written yet */
};

/* Numbers of devices as in the kernel: major << 20 | minor. */
uint64_t file_extents_device(dev_t device);
dev_t file_extents_number(uint64_t device);

/*
 * file_extents_add - adds a file's extents under a number
 *
 * Returns:  0; -EOPNOTSUPP: this file system does not say where its files lie; -ENOTBLK: the file system lies on no block device
 *           of its own; errors of opening. *ret_extents is set in any case once the file was opened.
 */
int file_extents_add(struct extent_map *map, const char *path, uint32_t file, struct file_extents *ret_extents);

#endif
