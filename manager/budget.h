/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory the expert pool may take: the least of what was configured, what every control group above the
 * manager still allows, and what the machine has left after a reserve. First everything is read into budget_inputs
 * (below a root directory, so that a tree of fixtures can stand for a machine), then budget_decide, which is pure, says
 * the number and every term behind it, in words for --check and status.
 *
 *   reserve         clamp(5 % of MemTotal, 512 MiB, 16 GiB): left to the rest of the machine. Within a control group with
 *                   a limit: clamp(5 % of the limit, 32 MiB, 1 GiB), for the manager's own tables and for page cache.
 *   machine         MemAvailable - reserve - private_bytes + what free huge pages hold. Free huge pages are not part of
 *                   MemAvailable, so a pool on them takes nothing from it.
 *   control group   limit - (usage - inactive_file) - reserve - private_bytes, for memory.max and memory.high of each
 *                   group from the manager's own up to the top ("max" is no limit; page cache that nobody uses counts as
 *                   free). The memory controller usually does not charge hugetlb pages; here they count against its
 *                   limits all the same, because whoever wrote MemoryMax= meant all of the service.
 *   node            where the pool is bound to one NUMA node: what is free there, with page cache that nobody uses, less
 *                   clamp(5 % of the node, 128 MiB, 4 GiB). A bound page comes from nowhere else: beyond this the kernel
 *                   would kill somebody.
 *   hugetlb limits  bound how much of the pool may lie on huge pages, not the pool: the ladder goes on with other pages.
 *   automatic       without a configured size, 80 % of the least of the above: engines started later need room too.
 *   needed          never more than all experts of all models.
 */
#ifndef CNRE_MANAGER_BUDGET_H
#define CNRE_MANAGER_BUDGET_H

#include <stddef.h>
#include <stdint.h>

#define BUDGET_LIMITS_MAX 64u        /* limits over all groups and controllers; a deeper nesting is refused */
#define BUDGET_PATH_BYTES 1024u
#define BUDGET_NONE UINT64_MAX

enum budget_huge { BUDGET_HUGE_2M, BUDGET_HUGE_1G, BUDGET_HUGE_COUNT };

enum budget_limit_kind { BUDGET_LIMIT_MEMORY, BUDGET_LIMIT_HUGE_2M, BUDGET_LIMIT_HUGE_1G };

struct budget_limit {                     /* of one control group */
	enum budget_limit_kind kind;
	uint64_t limit_bytes;
	uint64_t used_bytes;              /* without what the kernel can take back at once */
	char file[2 * BUDGET_PATH_BYTES]; /* as an administrator would find it, "/sys/fs/cgroup/a.slice/memory.max" */
};

struct budget_inputs {
	uint64_t total_bytes, available_bytes;   /* MemTotal, MemAvailable */
	uint64_t huge_free_bytes[BUDGET_HUGE_COUNT]; /* free and not reserved by somebody */
	struct budget_limit limit[BUDGET_LIMITS_MAX];
	uint32_t limit_count;
	struct budget_node {              /* the only one that may be used */
		uint64_t total_bytes;     /* 0: there is no such bound, or the kernel does not say */
		uint64_t available_bytes, huge_free_bytes[BUDGET_HUGE_COUNT];
		int number;
	} node;
	int charges_hugetlb;              /* cgroup2 mounted with memory_hugetlb_accounting */
};

/*
 * budget_read_inputs - what this machine says
 *
 * @root  "/" or the top of a fixture tree: proc/meminfo, proc/self/cgroup, proc/self/mountinfo (optional),
 *        sys/fs/cgroup/..., sys/kernel/mm/hugepages/... (optional)
 * Returns:  0, -ENOENT (no proc/meminfo), -EBADMSG (it says neither MemAvailable nor MemFree), -E2BIG (more limits than
 *           BUDGET_LIMITS_MAX, or the path of a group is longer than BUDGET_PATH_BYTES). *ret_inputs is set on success only.
 */
int budget_read_inputs(const char *root, struct budget_inputs *ret_inputs, char *message, size_t message_bytes);

/* Adds what one node says (sys/devices/system/node/nodeN below root), for a pool that is bound to it. */
void budget_read_node(const char *root, int number, struct budget_inputs *inputs);

#define BUDGET_SET_RAM "set ram" /* configured_source of what cnrectl asked for */

struct budget_request {
	uint64_t configured_bytes;        /* 0: automatic */
	const char *configured_source;    /* "command line" … for the term; may be NULL */
	uint64_t needed_bytes;            /* all experts of all models */
	uint64_t private_bytes;           /* for the process that started the manager */
	int may_use_huge[BUDGET_HUGE_COUNT];
	/* What a pool that exists already holds (for a new decision at run time), and how much of it on huge pages. */
	uint64_t held_bytes, held_huge_bytes;
};

#define BUDGET_TERMS_MAX (BUDGET_LIMITS_MAX + 8u)

struct budget_term {
	uint64_t bytes;                   /* what this term alone would allow */
	char source[2 * BUDGET_PATH_BYTES + 160]; /* where it comes from, with the numbers */
	const char *advice;               /* what to do to get more; "" if nothing */
};

struct budget {
	uint64_t bytes;                   /* the result */
	uint32_t binding;                 /* index of the term that decided */
	uint32_t term_count;
	struct budget_term term[BUDGET_TERMS_MAX];
	uint64_t huge_usable_bytes[BUDGET_HUGE_COUNT]; /* free pages within the hugetlb limits */
	const char *hugetlb_note;         /* whether memory limits of the kernel bound the pool, in words */
};

/*
 * The directory of our own group below root, where memory is controlled: "/sys/fs/cgroup/a.slice". Returns the version of
 * its hierarchy, 1 or 2, or -ENOENT, -ENOMEM, -E2BIG (the path is longer than that).
 */
int budget_memory_group(const char *root, char *ret_directory, size_t directory_bytes);

void budget_decide(const struct budget_inputs *inputs, const struct budget_request *request, struct budget *ret_budget);

#endif
