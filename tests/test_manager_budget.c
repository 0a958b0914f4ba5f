/* SPDX-License-Identifier: Apache-2.0 */
#include "manager/budget.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A tree of fixtures stands for the machine. */
static char root[64];

static void make_root(void)
{
	(void)snprintf(root, sizeof root, "/tmp/cnre-budget-XXXXXX");
	cr_assert_not_null(mkdtemp(root));
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
	(void)status;
	(void)type;
	(void)where;
	return remove(path);
}

static void remove_root(void)
{
	(void)nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

TestSuite(manager_budget, .timeout = 20, .init = make_root, .fini = remove_root);

#define MIB (1ull << 20)
#define GIB (1ull << 30)

static void put(const char *path, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(const char *path, const char *format, ...)
{
	char full[512];
	va_list arguments;
	FILE *file;

	(void)snprintf(full, sizeof full, "%s%s", root, path);
	for (char *slash = strchr(full + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		(void)mkdir(full, 0755);
		*slash = '/';
	}
	file = fopen(full, "we");
	cr_assert_not_null(file, "%s", full);
	va_start(arguments, format);
	(void)vfprintf(file, format, arguments);
	va_end(arguments);
	(void)fclose(file);
}

static void put_memory(uint64_t total, uint64_t available)
{
	put("/proc/meminfo",
	    "MemTotal:       %llu kB\nMemFree:        1000 kB\nMemAvailable:   %llu kB\nBuffers:        0 kB\n",
	    (unsigned long long)(total / 1024), (unsigned long long)(available / 1024));
}

static struct budget_inputs inputs;
static struct budget budget;

static void read_machine(void)
{
	char message[256] = "";

	cr_assert_eq(budget_read_inputs(root, &inputs, message, sizeof message), 0, "%s", message);
}

static uint64_t decide(struct budget_request request)
{
	if (request.needed_bytes == 0)
		request.needed_bytes = 4096 * GIB;
	read_machine();
	budget_decide(&inputs, &request, &budget);
	cr_assert_eq(budget.bytes, budget.term[budget.binding].bytes);
	for (uint32_t i = 0; i < budget.term_count; i++) {
		cr_assert_leq(budget.bytes, budget.term[i].bytes);
		cr_assert_gt(strlen(budget.term[i].source), 5);
		cr_assert_not_null(budget.term[i].advice);
	}
	return budget.bytes;
}

#define ASK(...) ((struct budget_request){__VA_ARGS__})

static const char *binding(void)
{
	return budget.term[budget.binding].source;
}

/* ---- the machine alone ---- */

Test(manager_budget, reserve_is_left_to_the_rest_of_the_machine)
{
	put_memory(100 * GIB, 90 * GIB);
	cr_expect_eq(decide(ASK(.configured_bytes = 200 * GIB)), 85 * GIB);
	cr_expect_not_null(strstr(binding(), "MemAvailable"), "%s", binding());
	put_memory(2 * GIB, GIB);
	cr_expect_eq(decide(ASK(.configured_bytes = 200 * GIB)), 512 * MIB, "at least 512 MiB");
	put_memory(2048 * GIB, 2000 * GIB);
	cr_expect_eq(decide(ASK(.configured_bytes = 4000 * GIB)), 1984 * GIB, "at most 16 GiB");
	put_memory(2 * GIB, 100 * MIB);
	cr_expect_eq(decide(ASK(.configured_bytes = GIB)), 0, "never below zero");
}

Test(manager_budget, configured_size_is_honoured_exactly_where_it_fits)
{
	put_memory(100 * GIB, 90 * GIB);
	cr_expect_eq(decide(ASK(.configured_bytes = 80 * GIB, .configured_source = "command line")), 80 * GIB);
	cr_expect_str_eq(binding(), "configured: ram (command line)");
}

Test(manager_budget, private_bytes_of_the_engine_stay_free)
{
	put_memory(100 * GIB, 90 * GIB);
	cr_expect_eq(decide(ASK(.configured_bytes = 200 * GIB, .private_bytes = 20 * GIB)), 65 * GIB);
}

Test(manager_budget, automatic_budget_leaves_a_fifth_and_never_exceeds_the_need)
{
	put_memory(100 * GIB, 90 * GIB);
	cr_expect_eq(decide(ASK(.private_bytes = 5 * GIB)) / GIB, 63, "80 % of 80 GiB");
	cr_expect_not_null(strstr(binding(), "automatic"));
	cr_expect_eq(decide(ASK(.needed_bytes = 7 * GIB)), 7 * GIB);
	cr_expect_not_null(strstr(binding(), "needed"));
}

Test(manager_budget, machine_without_meminfo_is_an_error_and_the_output_is_untouched)
{
	char message[256] = "";

	memset(&inputs, 0x55, sizeof inputs);
	cr_expect_eq(budget_read_inputs(root, &inputs, message, sizeof message), -ENOENT);
	cr_expect_not_null(strstr(message, "meminfo"));
	cr_expect_eq(inputs.total_bytes, 0x5555555555555555ull);
	put("/proc/meminfo", "MemTotal: lots\n");
	cr_expect_eq(budget_read_inputs(root, &inputs, message, sizeof message), -EBADMSG);
	put("/proc/meminfo", "MemTotal: 99999999999999999999999 kB\nMemAvailable: 5 kB\n");
	cr_expect_eq(budget_read_inputs(root, &inputs, message, sizeof message), -EBADMSG);
}

/* ---- A12: control groups, version 2 ---- */

static void put_group(const char *group, const char *max, uint64_t current, uint64_t inactive_file)
{
	char path[256];

	(void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", group);
	put(path, "%s\n", max);
	(void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.current", group);
	put(path, "%llu\n", (unsigned long long)current);
	(void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.stat", group);
	put(path, "anon 5\ninactive_file %llu\nactive_file 7\n", (unsigned long long)inactive_file);
}

/* (a) a container of 90 GB on a host of 1 TB. */
Test(manager_budget, limit_of_the_container_binds_on_a_large_host)
{
	put_memory(1024 * GIB, 880 * GIB);
	put("/proc/self/cgroup", "0::/box\n");
	put_group("/box", "96636764160", 10 * GIB, 6 * GIB); /* 90 GiB */
	cr_expect_eq(decide(ASK(.configured_bytes = 500 * GIB)), 90 * GIB - 4 * GIB - GIB);
	cr_expect_not_null(strstr(binding(), "/sys/fs/cgroup/box/memory.max"), "%s", binding());
	cr_expect_not_null(strstr(budget.term[budget.binding].advice, "MemoryMax"));
}

/* (b) no limit, and a usage that is mostly page cache. */
Test(manager_budget, usage_of_an_unlimited_group_takes_nothing_away)
{
	put_memory(100 * GIB, 90 * GIB);
	put("/proc/self/cgroup", "0::/box\n");
	put_group("/box", "max", 95 * GIB, 90 * GIB);
	cr_expect_eq(decide(ASK(.configured_bytes = 80 * GIB)), 80 * GIB);
}

/* (c) the limit stands at a parent only. */
Test(manager_budget, limit_of_a_parent_binds)
{
	put_memory(100 * GIB, 90 * GIB);
	put("/proc/self/cgroup", "0::/top.slice/mid.slice/leaf.service\n");
	put_group("/top.slice/mid.slice/leaf.service", "max", GIB, 0);
	put_group("/top.slice/mid.slice", "max", 2 * GIB, 0);
	put_group("/top.slice", "21474836480", 4 * GIB, GIB); /* 20 GiB */
	cr_expect_eq(decide(ASK(.configured_bytes = 80 * GIB)), 20 * GIB - 3 * GIB - GIB);
	cr_expect_not_null(strstr(binding(), "/sys/fs/cgroup/top.slice/memory.max"));
}

/* (d) both; the tighter one, by what is left in it, wins whichever it is. */
Test(manager_budget, of_nested_limits_the_one_with_less_left_binds)
{
	put_memory(100 * GIB, 90 * GIB);
	put("/proc/self/cgroup", "0::/top.slice/leaf\n");
	put_group("/top.slice/leaf", "10737418240", GIB, 0); /* 10 GiB, 9 left */
	put_group("/top.slice", "21474836480", 16 * GIB, 0); /* 20 GiB, 4 left */
	cr_expect_eq(decide(ASK(.configured_bytes = 80 * GIB)), 4 * GIB - GIB);
	put_group("/top.slice", "21474836480", GIB, 0);
	cr_expect_eq(decide(ASK(.configured_bytes = 80 * GIB)), 9 * GIB - 512 * MIB);
}

Test(manager_budget, memory_high_is_a_limit_too)
{
	put_memory(100 * GIB, 90 * GIB);
	put("/proc/self/cgroup", "0::/box\n");
	put_group("/box", "max", GIB, 0);
	put("/sys/fs/cgroup/box/memory.high", "21474836480\n");
	cr_expect_eq(decide(ASK(.configured_bytes = 80 * GIB)), 20 * GIB - GIB - GIB);
	cr_expect_not_null(strstr(binding(), "memory.high"));
}

Test(manager_budget, private_bytes_count_within_the_group_as_well)
{
	put_memory(100 * GIB, 90 * GIB);
	put("/proc/self/cgroup", "0::/box\n");
	put_group("/box", "21474836480", 0, 0);
	cr_expect_eq(decide(ASK(.configured_bytes = 80 * GIB, .private_bytes = 8 * GIB)), 20 * GIB - GIB - 8 * GIB);
}

/* ---- version 1, mixed hierarchies, containers ---- */

Test(manager_budget, limits_of_version_1_and_its_huge_number_for_none_are_understood)
{
	put_memory(100 * GIB, 90 * GIB);
	put("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/a/b\n0::/elsewhere\n");
	put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
	put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "10737418240\n");
	put("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "3221225472\n");
	put("/sys/fs/cgroup/memory/a/memory.stat", "inactive_file 5\ntotal_inactive_file 1073741824\n");
	cr_expect_eq(decide(ASK(.configured_bytes = 80 * GIB)), 10 * GIB - 2 * GIB - 512 * MIB);
	cr_expect_not_null(strstr(binding(), "/sys/fs/cgroup/memory/a/memory.limit_in_bytes"));
}

Test(manager_budget, mount_points_come_from_mountinfo_and_its_root_is_cut_off)
{
	put_memory(100 * GIB, 90 * GIB);
	put("/proc/self/cgroup", "0::/docker/abc/inner\n");
	put("/proc/self/mountinfo",
	    "31 23 0:28 / /proc rw - proc proc rw\n"
	    "32 23 0:29 /docker/abc /odd/place rw,nosuid shared:7 - cgroup2 cgroup2 rw,nsdelegate\n");
	put("/odd/place/memory.max", "10737418240\n");
	put("/odd/place/inner/memory.max", "max\n");
	cr_expect_eq(decide(ASK(.configured_bytes = 80 * GIB)), 10 * GIB - 512 * MIB);
	cr_expect_not_null(strstr(binding(), "/odd/place/memory.max"));
}

Test(manager_budget, group_outside_of_our_namespace_is_judged_by_the_top_only)
{
	put_memory(100 * GIB, 90 * GIB);
	put("/proc/self/cgroup", "0::/../../etc\n");
	put("/sys/fs/cgroup/memory.max", "10737418240\n");
	put("/etc/memory.max", "1\n");
	cr_expect_eq(decide(ASK(.configured_bytes = 80 * GIB)), 10 * GIB - 512 * MIB);
}

Test(manager_budget, nesting_beyond_the_bound_is_refused_and_not_judged_by_half)
{
	char group[900] = "";
	char message[256] = "";

	put_memory(100 * GIB, 90 * GIB);
	for (int i = 0; i < 70; i++)
		(void)strcat(group, "/a");
	put("/proc/self/cgroup", "0::%s\n", group);
	cr_expect_eq(budget_read_inputs(root, &inputs, message, sizeof message), -E2BIG);
}

/* ---- A13: huge pages ---- */

static void put_huge(uint64_t free_2m, uint64_t reserved_2m, uint64_t free_1g)
{
	put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "%llu\n", (unsigned long long)free_2m);
	put("/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "%llu\n", (unsigned long long)reserved_2m);
	put("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "%llu\n", (unsigned long long)free_1g);
}

Test(manager_budget, free_huge_pages_add_to_what_the_machine_has_only_if_they_may_be_used)
{
	put_memory(100 * GIB, 25 * GIB);
	put_huge(10240, 2048, 4); /* 20 GiB, 4 of them promised to others; 4 GiB */
	cr_expect_eq(decide(ASK(.configured_bytes = 80 * GIB, .may_use_huge = {1, 1})), 20 * GIB + 16 * GIB + 4 * GIB);
	cr_expect_eq(decide(ASK(.configured_bytes = 80 * GIB, .may_use_huge = {1, 0})), 20 * GIB + 16 * GIB);
	cr_expect_eq(decide(ASK(.configured_bytes = 80 * GIB)), 20 * GIB);
}

/* The unit has MemoryMax=1G, huge pages of 4 GiB are free, and 3 GiB are asked for. */
Test(manager_budget, memory_limit_bounds_the_pool_although_huge_pages_are_not_charged_to_it)
{
	put_memory(100 * GIB, 90 * GIB);
	put_huge(2048, 0, 0);
	put("/proc/self/cgroup", "0::/unit\n");
	put_group("/unit", "1073741824", 0, 0);
	cr_expect_lt(decide(ASK(.configured_bytes = 3 * GIB, .may_use_huge = {1, 1})), GIB);
	cr_expect_not_null(strstr(budget.hugetlb_note, "does not charge"));
	put("/proc/self/mountinfo", "32 23 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,memory_hugetlb_accounting\n");
	cr_expect_lt(decide(ASK(.configured_bytes = 3 * GIB, .may_use_huge = {1, 1})), GIB);
	cr_expect_not_null(strstr(budget.hugetlb_note, "memory_hugetlb_accounting"));
}

Test(manager_budget, hugetlb_limits_of_all_ancestors_bound_the_huge_pages)
{
	put_memory(100 * GIB, 25 * GIB);
	put_huge(10240, 0, 8);
	put("/proc/self/cgroup", "0::/a/b\n");
	put("/sys/fs/cgroup/a/b/hugetlb.2MB.max", "max\n");
	put("/sys/fs/cgroup/a/hugetlb.2MB.max", "4294967296\n");
	put("/sys/fs/cgroup/a/hugetlb.2MB.current", "1073741824\n");
	put("/sys/fs/cgroup/a/b/hugetlb.1GB.rsvd.max", "2147483648\n");
	cr_expect_eq(decide(ASK(.configured_bytes = 80 * GIB, .may_use_huge = {1, 1})), 20 * GIB + 3 * GIB + 2 * GIB);
	cr_expect_eq(budget.huge_usable_bytes[BUDGET_HUGE_2M], 3 * GIB);
	cr_expect_eq(budget.huge_usable_bytes[BUDGET_HUGE_1G], 2 * GIB);
}

/* ---- H3: a pool bound to one node ---- */

static uint64_t decide_on_node(int number, const struct budget_request *request)
{
	char message[256] = "";

	cr_assert_eq(budget_read_inputs(root, &inputs, message, sizeof message), 0, "%s", message);
	budget_read_node(root, number, &inputs);
	budget_decide(&inputs, request, &budget);
	return budget.bytes;
}

Test(manager_budget, one_node_bounds_a_pool_that_may_lie_nowhere_else)
{
	const struct budget_request *request = &(struct budget_request){
		.configured_bytes = 80 * GIB, .needed_bytes = 90 * GIB, .may_use_huge = {1, 1}};

	put_memory(100 * GIB, 90 * GIB);
	put_huge(10240, 0, 0); /* 20 GiB, a quarter of them there */
	put("/sys/devices/system/node/node1/meminfo",
	    "Node 1 MemTotal: %llu kB\nNode 1 MemFree: %llu kB\nNode 1 Inactive: 99 kB\nNode 1 Inactive(file): %llu kB\n",
	    40 * GIB / 1024, 10 * GIB / 1024, 2 * GIB / 1024);
	put("/sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "2560\n");
	cr_expect_eq(decide_on_node(1, request), 12 * GIB - 2 * GIB + 5 * GIB);
	cr_expect_not_null(strstr(budget.term[budget.binding].source, "node 1"));
	cr_expect_eq(budget.huge_usable_bytes[BUDGET_HUGE_2M], 5 * GIB);
	cr_expect_eq(decide_on_node(-2, request), 80 * GIB, "interleaved");
	cr_expect_eq(decide_on_node(7, request), 80 * GIB, "a node of which nothing is known");
}

/* ---- a pool that exists already ---- */

Test(manager_budget, what_the_pool_holds_itself_is_not_taken_from_it_again)
{
	put_memory(100 * GIB, 30 * GIB);
	put("/proc/self/cgroup", "0::/unit\n");
	put_group("/unit", "64424509440", 45 * GIB, 0); /* 60 GiB, of the 45 in use 40 are the pool */
	cr_expect_eq(decide(ASK(.configured_bytes = 80 * GIB, .held_bytes = 40 * GIB)), 60 * GIB - 5 * GIB - GIB);
}

Test(manager_budget, this_very_machine_can_be_read)
{
	char message[256] = "";

	cr_assert_eq(budget_read_inputs("/", &inputs, message, sizeof message), 0, "%s", message);
	cr_expect_gt(inputs.total_bytes, 64 * MIB);
	cr_expect_leq(inputs.available_bytes, inputs.total_bytes);
}
