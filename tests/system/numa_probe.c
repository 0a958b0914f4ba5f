/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where segments lie on a machine with two NUMA nodes: the program that numa.sh runs in its guest. It binds itself to node
 * 0, as numactl would, makes segments with every policy and kind of page, and asks the kernel with move_pages for the node
 * of each page. One line a case; exit status 0, or 1 with the pages that lie elsewhere.
 */
#include "shm/segment.h"

#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HUGE_BYTES (2ull << 20)
#define SEGMENT_BYTES (16ull << 20) /* divides evenly, on huge pages too */
#define PAGES_MAX (SEGMENT_BYTES / CNRE_PAGE_BYTES)

struct expectation {
	const char *what;
	enum cnre_backing backing;
	int numa_node;
	uint64_t unit_bytes;     /* of a page of hugetlb, and of the smallest part of any other */
	uint64_t per_node[2];    /* how many of them on each */
	int may_be_refused;      /* this kind of page is optional */
};

#define HUGE_PAGES (SEGMENT_BYTES / HUGE_BYTES)
#define SMALL_PAGES (SEGMENT_BYTES / CNRE_PAGE_BYTES)
static const struct expectation expectations[] = {
	{"2 MiB, interleave", CNRE_BACKING_2M, CNRE_NUMA_INTERLEAVE, HUGE_BYTES, {HUGE_PAGES / 2, HUGE_PAGES / 2}, 0},
	{"2 MiB, node 1", CNRE_BACKING_2M, 1, HUGE_BYTES, {0, HUGE_PAGES}, 0},
	{"2 MiB, none", CNRE_BACKING_2M, CNRE_NUMA_DEFAULT, HUGE_BYTES, {HUGE_PAGES, 0}, 0},
	{"thp, interleave", CNRE_BACKING_THP, CNRE_NUMA_INTERLEAVE, CNRE_PAGE_BYTES, {SMALL_PAGES / 2, SMALL_PAGES / 2}, 1},
	{"thp, node 1", CNRE_BACKING_THP, 1, CNRE_PAGE_BYTES, {0, SMALL_PAGES}, 1},
	{"thp, none", CNRE_BACKING_THP, CNRE_NUMA_DEFAULT, CNRE_PAGE_BYTES, {SMALL_PAGES, 0}, 1},
	{"4 KiB, interleave", CNRE_BACKING_4K, CNRE_NUMA_INTERLEAVE, CNRE_PAGE_BYTES, {SMALL_PAGES / 2, SMALL_PAGES / 2}, 0},
	{"4 KiB, node 1", CNRE_BACKING_4K, 1, CNRE_PAGE_BYTES, {0, SMALL_PAGES}, 0},
	{"4 KiB, none", CNRE_BACKING_4K, CNRE_NUMA_DEFAULT, CNRE_PAGE_BYTES, {SMALL_PAGES, 0}, 0},
};

/* Counts pages by node; [2] are those on no node, or on one that there is not. 0 or -1. */
static int count_pages(const struct cnre_segment *segment, uint64_t unit_bytes, uint64_t ret_count[3])
{
	static void *page[PAGES_MAX];
	static int status[PAGES_MAX];
	uint64_t pages = segment->bytes / unit_bytes;

	for (uint64_t i = 0; i < pages; i++)
		page[i] = (unsigned char *)segment->base + i * unit_bytes;
	if (syscall(SYS_move_pages, 0, (unsigned long)pages, page, NULL, status, 0) < 0)
		return -1;
	memset(ret_count, 0, 3 * sizeof *ret_count);
	for (uint64_t i = 0; i < pages; i++)
		ret_count[status[i] == 0 || status[i] == 1 ? status[i] : 2]++;
	return 0;
}

static int check_placement(const struct expectation *e)
{
	uint64_t count[3] = {0};
	struct cnre_segment segment;
	int r = cnre_segment_create(&segment, "probe", SEGMENT_BYTES, e->backing, e->numa_node, 0), is_right;

	if (r < 0) {
		(void)printf("%-18s %s: %s\n", e->what, e->may_be_refused ? "not here" : "FAILED", strerror(-r));
		return e->may_be_refused ? 0 : 1;
	}
	r = count_pages(&segment, e->unit_bytes, count);
	is_right = r == 0 && segment.numa_error == 0 && count[0] == e->per_node[0] && count[1] == e->per_node[1];
	(void)printf("%-18s %s: %llu pages on node 0, %llu on node 1, %llu nowhere\n", e->what,
		     is_right ? "right" : "WRONG", (unsigned long long)count[0], (unsigned long long)count[1],
		     (unsigned long long)count[2]);
	cnre_segment_close(&segment);
	return !is_right;
}

static int check_no_node_2(void)
{
	struct cnre_segment segment;
	int r = cnre_segment_create(&segment, "probe", HUGE_BYTES, CNRE_BACKING_4K, 2, 0);

	(void)printf("%-18s %s\n", "node 2", r < 0 ? "right: refused" : "WRONG: made");
	return r >= 0;
}

int main(void)
{
	unsigned long node_0 = 1;
	int bad = 0;

	if (syscall(SYS_set_mempolicy, MPOL_BIND, &node_0, 64ul) < 0) {
		perror("set_mempolicy");
		return 1;
	}
	for (size_t i = 0; i < sizeof expectations / sizeof expectations[0]; i++)
		bad += check_placement(&expectations[i]);
	bad += check_no_node_2();
	(void)printf("%d wrong\n", bad);
	return bad != 0;
}
