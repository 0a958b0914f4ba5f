/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular files: opened and read without blocking on a FIFO or a device that has their name, written whole or not at all.
 * Reads and writes continue after signals and partial results (one pread stops near 2 GiB). Not for expert payload: that
 * is the loader's.
 */
#ifndef CNRE_BASE_FILE_H
#define CNRE_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CNRE_FILE_FRESH_BYTES 6u

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

/* All of it, from where the descriptor stands. 0 or -errno; then part of it may be written. */
int cnre_file_write(int fd, const void *buffer, uint64_t bytes);

/*
 * cnre_file_replace - a file's new content, or its old one
 *
 * Written beside it, synced, renamed over it: a crash leaves the one or the other, and perhaps a file beside it, whose name
 * is the path, a dot and CNRE_FILE_FRESH_BYTES characters. Mode 0600 less the umask.
 * Returns:  0 or -errno; then the old one is as it was.
 */
int cnre_file_replace(const char *path, const void *bytes, uint64_t count);
/*
 * The same with another mode, which it has before it has its name: whoever may write in the folder can put a link to any
 * file of the caller's there as soon as it does.
 */
int cnre_file_replace_as(const char *path, const void *bytes, uint64_t count, mode_t mode);

#endif
