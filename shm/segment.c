/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making, passing and mapping memory segments; see segment.h. Decides nothing about which backing to try next: that is
 * the pool's.
 */
#include "shm/segment.h"

#include "base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3: never executable, and sealed so */
#endif

#define HUGE_2M (2ull << 20)
#define HUGE_1G (1ull << 30)
#define SEGMENT_BYTES_LIMIT (1ull << 40) /* no segment of any kind comes near; keeps every sum below it exact */
#define POPULATE_TRIES_MAX 1000u         /* interrupted or briefly refused by the kernel */

const char *cnre_backing_name(enum cnre_backing backing)
{
	switch (backing) {
	case CNRE_BACKING_1G:
		return "hugetlb-1G";
	case CNRE_BACKING_2M:
		return "hugetlb-2M";
	case CNRE_BACKING_THP:
		return "thp";
	case CNRE_BACKING_4K:
		return "4k";
	}
	return "unknown";
}

uint64_t cnre_backing_page_bytes(enum cnre_backing backing)
{
	switch (backing) {
	case CNRE_BACKING_1G:
		return HUGE_1G;
	case CNRE_BACKING_2M:
		return HUGE_2M;
	case CNRE_BACKING_THP: /* its end, less than a huge page, lies on small ones */
	case CNRE_BACKING_4K:
		break;
	}
	return CNRE_PAGE_BYTES;
}

static int is_hugetlb(enum cnre_backing backing)
{
	return backing == CNRE_BACKING_1G || backing == CNRE_BACKING_2M;
}

static int make_memfd(const char *name, enum cnre_backing backing)
{
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd;

	if (is_hugetlb(backing))
		flags |= MFD_HUGETLB | (backing == CNRE_BACKING_1G ? MFD_HUGE_1GB : MFD_HUGE_2MB);
	fd = (int)syscall(SYS_memfd_create, name, flags | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
		fd = (int)syscall(SYS_memfd_create, name, flags);
	if (fd >= 0)
		return fd;
	/* This page size is not configured, or hugetlb is not built in: the same to a caller as "no such pages". */
	if (is_hugetlb(backing) && (errno == EINVAL || errno == ENODEV || errno == ENOENT))
		return -ENOSPC;
	return -errno;
}

/* Whether the kernel gives shmem huge pages to a mapping that asks; without it a "thp" segment would be a 4k one. */
static int thp_is_allowed(void)
{
	static const char *const paths[] = {
		"/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/shmem_enabled",
		"/sys/kernel/mm/transparent_hugepage/shmem_enabled",
	};

	for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
		char text[128];
		ssize_t got;
		int fd = open(paths[i], O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			continue;
		got = read(fd, text, sizeof text - 1);
		(void)close(fd);
		if (got <= 0)
			continue;
		text[got] = '\0';
		if (strstr(text, "[inherit]") != NULL)
			continue;
		if (strstr(text, "[never]") == NULL && strstr(text, "[deny]") == NULL)
			return 1;
		return 0;
	}
	return 0;
}

/* Maps the file whole, its first byte at a multiple of alignment (a power of two), so that a huge page can be mapped as one. */
static int map_aligned(int fd, uint64_t bytes, int protection, uint64_t alignment, void **ret_base)
{
	uint64_t reserve_bytes = bytes + (alignment > CNRE_PAGE_BYTES ? alignment : 0);
	uintptr_t start, base;
	void *reserved, *mapped;

	/* An address range first: mapping over part of it then cannot hit anything else. */
	reserved = mmap(NULL, reserve_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (reserved == MAP_FAILED)
		return -errno;
	start = (uintptr_t)reserved;
	base = (uintptr_t)cnre_size_align_up(start, alignment);
	mapped = mmap((void *)base, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
	if (mapped == MAP_FAILED) {
		int error = errno;

		(void)munmap(reserved, reserve_bytes);
		return -error;
	}
	if (base > start)
		(void)munmap(reserved, base - start);
	if (base + bytes < start + reserve_bytes)
		(void)munmap((void *)(base + bytes), start + reserve_bytes - (base + bytes));
	*ret_base = mapped;
	return 0;
}

static int map_whole(int fd, uint64_t bytes, int protection, uint64_t alignment, void **ret_base)
{
	void *base;

	if (alignment > CNRE_PAGE_BYTES)
		return map_aligned(fd, bytes, protection, alignment, ret_base);
	base = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	*ret_base = base;
	return 0;
}

static int place(struct cnre_segment *segment, int numa_node)
{
	int r = cnre_numa_place(segment->base, segment->bytes, numa_node);

	if (r != -EPERM && r != -EACCES && r != -ENOSYS)
		return r;
	segment->numa_error = r; /* containers refuse it as a rule; memory in the wrong place is still memory */
	return 0;
}

/*
 * Before Linux 5.14: fallocate first, so that a missing page is ENOSPC there; after it every page exists and the touch
 * below cannot fail.
 */
static int touch_old_kernel(int fd, unsigned char *base, uint64_t bytes, uint64_t page_bytes)
{
	if (fallocate(fd, 0, 0, (off_t)bytes) < 0)
		return -errno;
	for (uint64_t off = 0; off < bytes; off += page_bytes)
		*(volatile unsigned char *)(base + off) = 0; /* volatile: the store itself is the purpose */
	return 0;
}

static int touch(int fd, void *base, uint64_t bytes, uint64_t page_bytes)
{
	for (unsigned i = 0; i < POPULATE_TRIES_MAX; i++) {
		if (madvise(base, bytes, MADV_POPULATE_WRITE) == 0)
			return 0;
		switch (errno) {
		case EINTR:
		case EAGAIN:
			continue;
		case EINVAL:
			return touch_old_kernel(fd, base, bytes, page_bytes);
		case EFAULT: /* a touch would have been SIGBUS: no page on the node, or a hugetlb cgroup limit */
			return -ENOMEM;
		default:
			return -errno;
		}
	}
	return -EAGAIN;
}

/*
 * The page of the index'th huge page to touch, so that the kernel makes it on its turn's node: it collapses onto the node
 * of what it finds, and interleaves shared memory by the page's number in the file. With always the first page, and a
 * number of nodes that divides 512, all would lie on one node.
 */
static uint64_t page_to_touch(uint64_t index, unsigned nodes)
{
	uint64_t first = index * (HUGE_2M / CNRE_PAGE_BYTES);

	return (index % nodes + nodes - first % nodes) % nodes;
}

/*
 * Huge pages for shared memory although the system's switch says never: one page of each 2 MiB is touched, then the kernel
 * is asked to make it whole at once (MADV_COLLAPSE, Linux 6.1). It needs no privilege, and costs less than touching 512
 * small pages. Whatever the reason, a refusal means: not this kind of page.
 */
static int collapse(unsigned char *base, uint64_t segment_bytes)
{
	uint64_t bytes = cnre_size_align_down(segment_bytes, HUGE_2M);
	struct cnre_numa_nodes known;
	int count = cnre_numa_get_nodes(&known);
	unsigned nodes = count > 0 && (unsigned)count <= HUGE_2M / CNRE_PAGE_BYTES ? (unsigned)count : 1;

	if (bytes == 0)
		return -ENOSPC;
	for (uint64_t i = 0; i < bytes / HUGE_2M; i++) {
		unsigned char *page = base + i * HUGE_2M + page_to_touch(i, nodes) * CNRE_PAGE_BYTES;

		if (madvise(page, CNRE_PAGE_BYTES, MADV_POPULATE_WRITE) < 0)
			return errno == EINVAL ? -ENOSPC : -errno;
	}
	return madvise(base, bytes, MADV_COLLAPSE) < 0 ? -ENOSPC : 0;
}

static int advise(const struct cnre_segment *segment, unsigned flags)
{
	if (madvise(segment->base, segment->bytes, MADV_DONTFORK) < 0)
		return -errno;
	if ((flags & CNRE_SEGMENT_NO_DUMP) != 0 && madvise(segment->base, segment->bytes, MADV_DONTDUMP) < 0)
		return -errno;
	if (segment->backing == CNRE_BACKING_THP && madvise(segment->base, segment->bytes, MADV_HUGEPAGE) < 0)
		return errno == EINVAL ? -ENOSPC : -errno;
	return 0;
}

static int seal(int fd, unsigned flags)
{
	/*
	 * 0400: the descriptor that a client gets is read-only, and for another user no open() through /proc leads to a
	 * writable one. A segment that its client writes is passed as the writable descriptor itself, which needs no mode;
	 * 0600 keeps third parties out.
	 */
	if (fchmod(fd, (flags & CNRE_SEGMENT_CLIENT_WRITES) != 0 ? 0600 : 0400) < 0)
		return -errno;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	return 0;
}

/* Everything after the memfd exists. On failure the caller closes the segment, whatever it has got to. */
static int build(struct cnre_segment *segment, int numa_node, unsigned flags)
{
	uint64_t page_bytes = cnre_backing_page_bytes(segment->backing);
	int r;

	if (ftruncate(segment->fd, (off_t)segment->bytes) < 0)
		return -errno;
	r = map_whole(segment->fd, segment->bytes, PROT_READ | PROT_WRITE,
		      segment->backing == CNRE_BACKING_THP ? HUGE_2M : CNRE_PAGE_BYTES, &segment->base);
	if (r < 0)
		return r;
	r = place(segment, numa_node);
	if (r == 0)
		r = advise(segment, flags);
	if (r == 0 && segment->backing == CNRE_BACKING_THP && !thp_is_allowed())
		r = collapse(segment->base, segment->bytes);
	if (r == 0)
		r = (flags & CNRE_SEGMENT_SPARSE) != 0 ? 0 : touch(segment->fd, segment->base, segment->bytes, page_bytes);
	if (r == 0)
		r = seal(segment->fd, flags);
	return r;
}

int cnre_segment_create(struct cnre_segment *ret_segment, const char *name, uint64_t bytes, enum cnre_backing backing,
			int numa_node, unsigned flags)
{
	struct cnre_segment segment = {.fd = -1, .backing = backing};
	int r;

	if (bytes == 0 || bytes > SEGMENT_BYTES_LIMIT || backing < CNRE_BACKING_1G || backing > CNRE_BACKING_4K)
		return -EINVAL;
	if (backing == CNRE_BACKING_THP && bytes < HUGE_2M)
		return -ENOSPC; /* not one huge page in it */
	r = make_memfd(name, backing);
	if (r < 0)
		return r;
	segment.fd = r;
	segment.bytes = cnre_size_align_up(bytes, cnre_backing_page_bytes(backing));
	r = build(&segment, numa_node, flags);
	if (r < 0) {
		cnre_segment_close(&segment);
		return r;
	}
	*ret_segment = segment;
	return 0;
}

void cnre_segment_fill_header(struct cnre_segment_header *header, enum cnre_segment_kind kind, uint64_t bytes)
{
	header->magic = CNRE_LAYOUT_MAGIC;
	header->version = CNRE_LAYOUT_VERSION;
	header->kind = (uint32_t)kind;
	header->bytes = bytes;
	header->creator_birth = cnre_segment_birth(0);
	header->creator_pid = (uint32_t)getpid();
	memset(header->reserved, 0, sizeof header->reserved);
}

void cnre_segment_publish(struct cnre_segment_header *header)
{
	/* [S1] release, pairs with [S2]: everything in the segment is in place. */
	atomic_store_explicit(&header->ready, 1, memory_order_release);
}

int cnre_segment_reopen_readonly(const struct cnre_segment *segment)
{
	char path[32];
	int fd;

	if (segment->fd < 0)
		return -EINVAL;
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", segment->fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int cnre_segment_punch(const struct cnre_segment *segment)
{
	if (segment->fd < 0)
		return -EINVAL;
	if (fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)segment->bytes) < 0)
		return -errno;
	return 0;
}

static int find_backing(int fd, enum cnre_backing *ret_backing)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return -errno;
	*ret_backing = CNRE_BACKING_4K;
	if (fs.f_type == HUGETLBFS_MAGIC)
		*ret_backing = (uint64_t)fs.f_bsize == HUGE_1G ? CNRE_BACKING_1G : CNRE_BACKING_2M;
	return 0;
}

static int check_header(const struct cnre_segment *segment, enum cnre_segment_kind kind, uint64_t min_bytes)
{
	const struct cnre_segment_header *header = segment->base;

	/* [S2] acquire, pairs with [S1]: the header and what follows it are complete. */
	if (atomic_load_explicit(&header->ready, memory_order_acquire) != 1 || header->magic != CNRE_LAYOUT_MAGIC)
		return -EBADMSG;
	if (header->version != CNRE_LAYOUT_VERSION)
		return -EPROTO;
	if (header->kind != (uint32_t)kind || header->bytes < min_bytes || header->bytes > segment->bytes)
		return -EBADMSG;
	return 0;
}

static int find_size(int fd, enum cnre_segment_kind kind, uint64_t min_bytes, uint64_t *ret_bytes)
{
	uint64_t least_bytes = kind != 0 && min_bytes < sizeof(struct cnre_segment_header)
				       ? sizeof(struct cnre_segment_header)
				       : min_bytes;
	struct stat status;

	if (fstat(fd, &status) < 0)
		return -errno;
	if (!S_ISREG(status.st_mode) || status.st_size <= 0)
		return -EBADMSG;
	if ((uint64_t)status.st_size < least_bytes || (uint64_t)status.st_size > SEGMENT_BYTES_LIMIT)
		return -EBADMSG;
	*ret_bytes = (uint64_t)status.st_size;
	return 0;
}

int cnre_segment_map(struct cnre_segment *ret_segment, int fd, enum cnre_segment_kind kind, uint64_t min_bytes,
		     int writable)
{
	struct cnre_segment segment = {.fd = -1};
	int protection = PROT_READ | (writable ? PROT_WRITE : 0);
	uint64_t alignment = CNRE_PAGE_BYTES;
	int r = find_size(fd, kind, min_bytes, &segment.bytes);

	if (r < 0)
		return r;
	r = find_backing(fd, &segment.backing);
	if (r < 0)
		return r;
	/* Whether the pages are huge is not visible here; aligned like this they are mapped as such if they are. */
	if (kind == 0 && segment.backing == CNRE_BACKING_4K && segment.bytes >= HUGE_2M)
		alignment = HUGE_2M;
	r = map_whole(fd, segment.bytes, protection, alignment, &segment.base);
	if (r < 0)
		return r;
	r = advise(&segment, kind == 0 ? CNRE_SEGMENT_NO_DUMP : 0);
	if (r == 0 && kind != 0)
		r = check_header(&segment, kind, min_bytes);
	if (r < 0) {
		cnre_segment_close(&segment);
		return r;
	}
	*ret_segment = segment;
	return 0;
}

void cnre_segment_close(struct cnre_segment *segment)
{
	if (segment == NULL)
		return;
	if (segment->base != NULL)
		(void)munmap(segment->base, segment->bytes);
	if (segment->fd >= 0 && segment->bytes > 0) /* a zeroed struct is empty too: its 0 is not our descriptor */
		(void)close(segment->fd);
	*segment = (struct cnre_segment){.fd = -1};
}

uint64_t cnre_segment_birth(pid_t pid)
{
	char path[32] = "/proc/self/stat", text[1024];
	const char *at;
	ssize_t got;
	int fd;

	if (pid != 0)
		(void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	got = read(fd, text, sizeof text - 1);
	(void)close(fd);
	if (got <= 0)
		return 0;
	text[got] = '\0';
	at = strrchr(text, ')'); /* the command name before it may hold anything, ')' and spaces too */
	for (int field = 2; at != NULL && field < 22; field++) {
		at = strchr(at, ' ');
		if (at != NULL)
			at++;
	}
	return at == NULL ? 0 : strtoull(at, NULL, 10);
}
