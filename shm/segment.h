/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory segments: memfds that nothing names, so nothing can leak or be unlinked by others. A manager-only segment has
 * mode 0400 and its clients get a descriptor reopened read-only: then no way leads to a writable mapping for another
 * user, and the manager itself can still map it again and punch holes (F_SEAL_FUTURE_WRITE would forbid both). Sizes
 * are sealed: a client that could truncate would kill the manager with SIGBUS. Memory is touched when it is made, so
 * that a missing page is an error code here and never a signal later.
 */
#ifndef CNRE_SHM_SEGMENT_H
#define CNRE_SHM_SEGMENT_H

#include "shm/layout.h"
#include "shm/numa.h"

#include <sys/types.h>

enum cnre_backing {
	CNRE_BACKING_1G = 1, /* hugetlb 1 GiB */
	CNRE_BACKING_2M,     /* hugetlb 2 MiB */
	CNRE_BACKING_THP,    /* shmem, transparent huge pages asked for */
	CNRE_BACKING_4K,
};
const char *cnre_backing_name(enum cnre_backing backing);
uint64_t cnre_backing_page_bytes(enum cnre_backing backing); /* what sizes are rounded up to */

struct cnre_segment {
	int fd;                       /* -1: none; CLOEXEC */
	void *base;                   /* this process's mapping; NULL: none */
	uint64_t bytes;
	enum cnre_backing backing;
	int numa_error;               /* of creation: 0, or why the kernel refused to place it (-EPERM, -EACCES, -ENOSYS) */
};

enum {
	CNRE_SEGMENT_CLIENT_WRITES = 1u << 0, /* the client will map it writable: a channel or ledger */
	CNRE_SEGMENT_NO_DUMP = 1u << 1,       /* leave it out of core dumps: a pool */
	/* Not touched: its pages come, and are charged, as the client fills them. Where they cannot, it is that client that is killed. */
	CNRE_SEGMENT_SPARSE = 1u << 2,
};

/*
 * cnre_segment_create - make, size, map, touch and seal a segment
 *
 * @backing    exactly this kind of page; the caller steps down the ladder on -ENOMEM / -ENOSPC
 * @numa_node  the node of its memory, or CNRE_NUMA_INTERLEAVE or CNRE_NUMA_DEFAULT; before the first touch. Where a
 *             filter or the kernel refuses the call itself, the memory is made all the same and numa_error says so.
 *
 * Sizes are rounded up to the page size of the backing. The mapping is writable and MADV_DONTFORK.
 * Returns:  0, or -ENOMEM / -ENOSPC (not enough pages of this kind, a cgroup limit, or the kernel gives none of this
 *           kind at all), -EINVAL (no such node or backing, size 0), -EPERM, -EMFILE, …
 *           Nothing is left behind on failure.
 */
int cnre_segment_create(struct cnre_segment *ret_segment, const char *name, uint64_t bytes, enum cnre_backing backing,
			int numa_node, unsigned flags);

/* Fills the common header but `ready`; cnre_segment_publish stores that last. */
void cnre_segment_fill_header(struct cnre_segment_header *header, enum cnre_segment_kind kind, uint64_t bytes);
void cnre_segment_publish(struct cnre_segment_header *header);

/* A new read-only descriptor of the same segment, to pass to a client. The descriptor or -errno. */
int cnre_segment_reopen_readonly(const struct cnre_segment *segment);

/*
 * Manager: gives the pages back to the kernel while descriptor, size and mappings stay. Whoever touches the segment
 * afterwards gets new pages of zeros. 0 or -errno.
 */
int cnre_segment_punch(const struct cnre_segment *segment);

/*
 * Client: maps a received descriptor whole, MADV_DONTFORK. Its size is asked from the kernel and must be min_bytes at
 * least. kind 0: a pool segment without header; otherwise the header must fit (-EPROTO: another layout version;
 * -EBADMSG: not such a segment). The descriptor stays the caller's.
 */
int cnre_segment_map(struct cnre_segment *ret_segment, int fd, enum cnre_segment_kind kind, uint64_t min_bytes, int writable);

/* Unmaps and closes what is there; the struct is empty afterwards. NULL and empty are fine. */
void cnre_segment_close(struct cnre_segment *segment);

/*
 * Start time of a process (0: of this one) in clock ticks since boot: with the pid it names a process for good. 0: it is
 * not to be seen.
 */
uint64_t cnre_segment_birth(pid_t pid);

#endif
