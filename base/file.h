/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and reading the regular files of a checkpoint. A name that is a FIFO, a device or a directory is refused
 * instead of blocking; reads continue after signals and partial results (one pread stops near 2 GiB). Not for
 * expert payload: that is the loader's.
 */
#ifndef CNRE_BASE_FILE_H
#define CNRE_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

/*
 * cnre_file_open - open a regular file for reading
 *
 * @directory_fd  an open directory, or AT_FDCWD; symbolic links are followed
 * @ret_bytes     size now; set on success only
 *
 * Returns:  a descriptor (close-on-exec), or -errno; -EINVAL: not a regular file.
 */
int cnre_file_open(int directory_fd, const char *name, uint64_t *ret_bytes);

/* Reads until `bytes` have arrived or the file ends. Returns how many, or -errno. */
int64_t cnre_file_read(int fd, void *buffer, uint64_t bytes, uint64_t offset);

#endif
