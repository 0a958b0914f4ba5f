/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing array in an unlinked temporary file: appended to through a buffer, rewritten once, then mapped to be read.
 * Everything is written by write calls, never through the mapping: a full disk is an error code and not a SIGBUS.
 */
#ifndef CNRE_SIM_TRACE_STORE_H
#define CNRE_SIM_TRACE_STORE_H

#include <stddef.h>
#include <stdint.h>

#define SIM_STORE_BUFFER_BYTES (1u << 20) /* a multiple of what is stored */

struct sim_store {
	int fd;
	size_t buffered;
	uint64_t bytes;              /* appended, those in the buffer too */
	unsigned char *buffer;
};

/* In `directory`, or NULL: in TMPDIR, or in /tmp. 0 or -errno. */
int sim_store_open(struct sim_store *ret_store, const char *directory);
const char *sim_store_directory(const char *directory); /* which one that is */
/* A file there that has no name. A descriptor or -errno. */
int sim_store_unlinked(const char *directory);
int sim_store_append(struct sim_store *store, const void *from, size_t bytes); /* 0 or -errno */
/*
 * Has `change` change what is stored, in order, a piece at a time; a piece holds a whole number of things of `unit` bytes,
 * which must divide the buffer. 0, the error of a change (which ends it), or -errno.
 */
int sim_store_rewrite(struct sim_store *store, size_t unit, int (*change)(void *context, void *piece, size_t bytes),
		      void *context);
int sim_store_map(struct sim_store *store, void **ret_mapping); /* read-only, of store->bytes; lives without the store */
void sim_store_close(struct sim_store *store);

#endif
