/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/segment.h"

#include "tests/support/child.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/mempolicy.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

TestSuite(shm_segment, .timeout = 60);

#define MIB (1ull << 20)
#define NOBODY 65534

static struct cnre_segment make(uint64_t bytes, unsigned flags)
{
	struct cnre_segment segment = {.fd = -1};

	cr_assert_eq(cnre_segment_create(&segment, "test", bytes, CNRE_BACKING_4K, -1, flags), 0);
	return segment;
}

static struct cnre_segment make_with_header(enum cnre_segment_kind kind)
{
	struct cnre_segment segment = make(8192, 0);

	cnre_segment_fill_header(segment.base, kind, segment.bytes);
	cnre_segment_publish(segment.base);
	return segment;
}

Test(shm_segment, size_is_rounded_up_to_pages_and_memory_is_zero)
{
	struct cnre_segment segment = make(5000, 0);
	const unsigned char *bytes = segment.base;

	cr_expect_eq(segment.bytes, 8192);
	cr_expect_eq(segment.backing, CNRE_BACKING_4K);
	for (uint64_t i = 0; i < segment.bytes; i++)
		cr_assert_eq(bytes[i], 0);
	cnre_segment_close(&segment);
	cr_expect_eq(segment.fd, -1);
	cr_expect_null(segment.base);
}

Test(shm_segment, every_page_is_backed_when_create_returns)
{
	struct cnre_segment segment = make(MIB, 0);
	unsigned char resident[256];

	cr_assert_eq(mincore(segment.base, segment.bytes, resident), 0);
	for (size_t i = 0; i < sizeof resident; i++)
		cr_assert(resident[i] & 1, "page %zu", i);
	cnre_segment_close(&segment);
}

Test(shm_segment, bad_arguments_are_einval_and_leave_the_output_alone)
{
	struct cnre_segment segment = {.fd = 77, .bytes = 5};

	cr_expect_eq(cnre_segment_create(&segment, "test", 0, CNRE_BACKING_4K, -1, 0), -EINVAL);
	cr_expect_eq(cnre_segment_create(&segment, "test", UINT64_MAX, CNRE_BACKING_4K, -1, 0), -EINVAL);
	cr_expect_eq(cnre_segment_create(&segment, "test", 4096, (enum cnre_backing)0, -1, 0), -EINVAL);
	cr_expect_eq(cnre_segment_create(&segment, "test", 4096, CNRE_BACKING_4K, 5000, 0), -EINVAL);
	cr_expect_eq(segment.fd, 77);
	cr_expect_eq(segment.bytes, 5);
}

Test(shm_segment, failure_leaves_no_descriptor_behind)
{
	struct cnre_segment segment;
	int before = dup(0), after;

	cr_assert_geq(before, 0);
	(void)close(before);
	cr_assert_lt(cnre_segment_create(&segment, "test", 4096, CNRE_BACKING_4K, 5000, 0), 0);
	after = dup(0);
	cr_expect_eq(after, before);
	(void)close(after);
}

/* ---- NUMA: H3. What lies where with two nodes is tests/system/numa.sh's, in a guest that has them. ---- */

/* The policy of a segment made so, in a child whose own policy is another one; 99: none could be set. */
static int policy_of(int numa_node, int own_mode)
{
	unsigned long own_nodes = 1;
	struct cnre_segment segment;
	int mode = -1;

	if (syscall(SYS_set_mempolicy, own_mode, &own_nodes, 64ul) < 0)
		return 99;
	if (cnre_segment_create(&segment, "test", MIB, CNRE_BACKING_4K, numa_node, 0) != 0 || segment.numa_error != 0)
		return 98;
	if (syscall(SYS_get_mempolicy, &mode, NULL, 0ul, segment.base, (unsigned long)MPOL_F_ADDR) < 0)
		return 97;
	return mode;
}

static int interleaved_under_bind(void *none)
{
	(void)none;
	return policy_of(CNRE_NUMA_INTERLEAVE, MPOL_BIND);
}

static int interleaved_under_preferred(void *none)
{
	(void)none;
	return policy_of(CNRE_NUMA_INTERLEAVE, MPOL_PREFERRED);
}

static int bound_under_interleave(void *none)
{
	(void)none;
	return policy_of(0, MPOL_INTERLEAVE);
}

static int unplaced_under_bind(void *none)
{
	(void)none;
	return policy_of(CNRE_NUMA_DEFAULT, MPOL_BIND);
}

Test(shm_segment, policy_of_the_process_does_not_reach_memory_with_a_policy_of_its_own)
{
	int first = child_run(interleaved_under_bind, NULL);

	if (first == 99 || first == 98)
		cr_skip("no NUMA policies here");
	cr_expect_eq(first, MPOL_INTERLEAVE);
	cr_expect_eq(child_run(interleaved_under_preferred, NULL), MPOL_INTERLEAVE);
	cr_expect_eq(child_run(bound_under_interleave, NULL), MPOL_BIND);
	cr_expect_eq(child_run(unplaced_under_bind, NULL), MPOL_DEFAULT, "asked for none: it has none");
}

Test(shm_segment, binding_to_node_0_works_everywhere)
{
	struct cnre_segment segment = {.fd = -1};

	cr_assert_eq(cnre_segment_create(&segment, "test", MIB, CNRE_BACKING_4K, 0, 0), 0);
	cnre_segment_close(&segment);
}

Test(shm_segment, binding_to_a_node_that_does_not_exist_is_einval)
{
	struct cnre_segment segment = {.fd = -1};

	if (access("/sys/devices/system/node/node1000", F_OK) == 0 ||
	    access("/sys/devices/system/node/node0", F_OK) != 0)
		cr_skip("no NUMA here, or a thousand nodes");
	cr_expect_eq(cnre_segment_create(&segment, "test", MIB, CNRE_BACKING_4K, 1000, 0), -EINVAL);
	cr_expect_eq(segment.fd, -1);
}

static int refuse_call(uint32_t number, uint32_t error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof code / sizeof code[0], code};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0;
}

struct refusal {
	uint32_t call;
	int error;
};

/* With the call refused, memory is made under each policy, is there, and says what happened. */
static int make_with_call_refused(void *argument)
{
	static const int policies[] = {CNRE_NUMA_INTERLEAVE, 0, CNRE_NUMA_DEFAULT};
	const struct refusal *refusal = argument;

	if (refuse_call(refusal->call, (uint32_t)refusal->error))
		return 99;
	for (int i = 0; i < 3; i++) {
		int is_asked = policies[i] == CNRE_NUMA_INTERLEAVE || (policies[i] == 0 && refusal->call == SYS_mbind);
		struct cnre_segment segment;

		if (cnre_segment_create(&segment, "test", MIB, CNRE_BACKING_4K, policies[i], 0) != 0)
			return 10 + i;
		if (segment.numa_error != (is_asked ? -refusal->error : 0))
			return 20 + i;
		((unsigned char *)segment.base)[MIB - 1] = 1;
		cnre_segment_close(&segment);
	}
	return 0;
}

Test(shm_segment, placement_that_a_filter_refuses_is_noted_and_memory_is_made)
{
	static const struct refusal refusals[] = {{SYS_mbind, EPERM}, {SYS_mbind, EACCES}, {SYS_get_mempolicy, EPERM}};

	for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
		int r = child_run(make_with_call_refused, (void *)&refusals[i]);

		if (r == 99)
			cr_skip("no seccomp filters here");
		cr_expect_eq(r, 0, "case %zu: %d", i, r);
	}
}

/* F9: nothing that could be left in /dev/shm, nothing that an exec of a child inherits. */
Test(shm_segment, nothing_is_named_and_every_descriptor_is_cloexec)
{
	struct cnre_segment segment = make(4096, 0);
	int readonly = cnre_segment_reopen_readonly(&segment);
	char path[64], target[128] = "";

	cr_assert_geq(readonly, 0);
	cr_expect(fcntl(segment.fd, F_GETFD) & FD_CLOEXEC);
	cr_expect(fcntl(readonly, F_GETFD) & FD_CLOEXEC);
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", segment.fd);
	cr_assert_gt(readlink(path, target, sizeof target - 1), 0);
	cr_expect_eq(strncmp(target, "/memfd:", 7), 0, "%s", target);
	(void)close(readonly);
	cnre_segment_close(&segment);
}

Test(shm_segment, size_is_sealed_even_for_the_manager)
{
	struct cnre_segment segment = make(8192, CNRE_SEGMENT_CLIENT_WRITES);
	int seals = fcntl(segment.fd, F_GET_SEALS);

	cr_expect_eq(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	cr_expect_eq(ftruncate(segment.fd, 0), -1);
	cr_expect_eq(ftruncate(segment.fd, 1 << 20), -1);
	cnre_segment_close(&segment);
}

Test(shm_segment, manager_can_map_its_segment_again_and_punch_it)
{
	struct cnre_segment segment = make(MIB, 0);
	unsigned char *again = mmap(NULL, segment.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd, 0);

	cr_assert_neq(again, MAP_FAILED);
	again[5000] = 7;
	cr_expect_eq(((unsigned char *)segment.base)[5000], 7);
	cr_expect_eq(cnre_segment_punch(&segment), 0);
	cr_expect_eq(((unsigned char *)segment.base)[5000], 0);
	(void)munmap(again, segment.bytes);
	cnre_segment_close(&segment);
}

static int is_unmapped_here(void *argument)
{
	const struct cnre_segment *segment = argument;
	unsigned char resident[4];

	return mincore(segment->base, 4096, resident) < 0 && errno == ENOMEM ? 0 : 1;
}

Test(shm_segment, mapping_is_not_inherited_by_a_forked_child)
{
	struct cnre_segment segment = make(4096, 0), mapped = {.fd = -1};

	cr_expect_eq(child_run(is_unmapped_here, &segment), 0);
	cr_assert_eq(cnre_segment_map(&mapped, segment.fd, 0, 4096, 0), 0);
	cr_expect_eq(child_run(is_unmapped_here, &mapped), 0);
	cnre_segment_close(&mapped);
	cnre_segment_close(&segment);
}

Test(shm_segment, own_birth_is_field_22_of_proc_stat_whatever_the_name)
{
	uint64_t birth;

	cr_assert_eq(prctl(PR_SET_NAME, "a) R 1 (b"), 0);
	birth = cnre_segment_birth(0);
	cr_expect_gt(birth, 0);
	cr_assert_eq(prctl(PR_SET_NAME, "plain"), 0);
	cr_expect_eq(cnre_segment_birth(0), birth);
	cr_expect_eq(cnre_segment_birth(getpid()), birth);
	cr_expect_eq(cnre_segment_birth(INT32_MAX), 0);
}

/* ---- the client's side ---- */

Test(shm_segment, client_maps_what_the_manager_published)
{
	struct cnre_segment segment = make_with_header(CNRE_SEGMENT_PAGE), mapped = {.fd = -1};
	int fd = cnre_segment_reopen_readonly(&segment);

	((unsigned char *)segment.base)[4096] = 42;
	cr_assert_eq(cnre_segment_map(&mapped, fd, CNRE_SEGMENT_PAGE, 8192, 0), 0);
	cr_expect_eq(mapped.bytes, 8192);
	cr_expect_eq(mapped.fd, -1, "the descriptor stays the caller's");
	cr_expect_eq(((unsigned char *)mapped.base)[4096], 42);
	cnre_segment_close(&mapped);
	cr_expect_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	(void)close(fd);
	cnre_segment_close(&segment);
}

struct bad_header {
	const char *what;
	int expected;
	uint64_t min_bytes;
	void (*spoil)(struct cnre_segment_header *header);
};

static void spoil_magic(struct cnre_segment_header *h)
{
	h->magic ^= 1;
}
static void spoil_version(struct cnre_segment_header *h)
{
	h->version++;
}
static void spoil_kind(struct cnre_segment_header *h)
{
	h->kind = CNRE_SEGMENT_LEDGER;
}
static void spoil_bytes(struct cnre_segment_header *h)
{
	h->bytes = 1 << 30;
}
static void spoil_short(struct cnre_segment_header *h)
{
	h->bytes = 100;
}
static void spoil_ready(struct cnre_segment_header *h)
{
	atomic_store(&h->ready, 0);
}
static void spoil_nothing(struct cnre_segment_header *h)
{
	(void)h;
}

Test(shm_segment, header_that_does_not_fit_is_refused)
{
	static const struct bad_header cases[] = {
		{"magic", -EBADMSG, 200, spoil_magic},   {"version", -EPROTO, 200, spoil_version},
		{"kind", -EBADMSG, 200, spoil_kind},     {"bytes", -EBADMSG, 200, spoil_bytes},
		{"short", -EBADMSG, 200, spoil_short},   {"ready", -EBADMSG, 200, spoil_ready},
		{"size", -EBADMSG, 8193, spoil_nothing},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct cnre_segment segment = make_with_header(CNRE_SEGMENT_PAGE), mapped = {.fd = 99, .bytes = 3};

		cases[i].spoil(segment.base);
		cr_expect_eq(cnre_segment_map(&mapped, segment.fd, CNRE_SEGMENT_PAGE, cases[i].min_bytes, 0),
			     cases[i].expected, "%s", cases[i].what);
		cr_expect(mapped.fd == 99 && mapped.bytes == 3, "%s: output is untouched", cases[i].what);
		cnre_segment_close(&segment);
	}
}

Test(shm_segment, what_is_no_file_of_bytes_cannot_be_mapped)
{
	struct cnre_segment mapped;
	int pair[2];

	cr_assert_eq(pipe(pair), 0);
	cr_expect_eq(cnre_segment_map(&mapped, pair[0], 0, 1, 0), -EBADMSG);
	cr_expect_eq(cnre_segment_map(&mapped, -1, 0, 1, 0), -EBADF);
	(void)close(pair[0]);
	(void)close(pair[1]);
}

Test(shm_segment, client_maps_its_own_channel_writable_and_cannot_resize_it)
{
	struct cnre_segment segment = make(8192, CNRE_SEGMENT_CLIENT_WRITES), mapped;

	cnre_segment_fill_header(segment.base, CNRE_SEGMENT_CHANNEL, 8192);
	cnre_segment_publish(segment.base);
	cr_assert_eq(cnre_segment_map(&mapped, segment.fd, CNRE_SEGMENT_CHANNEL, 8192, 1), 0);
	((unsigned char *)mapped.base)[100] = 9;
	cr_expect_eq(((unsigned char *)segment.base)[100], 9);
	cnre_segment_close(&mapped);
	cnre_segment_close(&segment);
}

/* ---- another user ---- */

static int become_nobody(void)
{
	return setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0;
}

struct passed {
	int fd, manager_fd; /* what the client got; the manager's own number */
	uint64_t bytes;
	int writable;
};

/* Each way to a writable mapping or another size; the number of the first that works. */
static int attack(const struct passed *passed)
{
	char path[64];
	int fd;
	void *base = mmap(NULL, passed->bytes, PROT_READ, MAP_SHARED, passed->fd, 0);

	if (base == MAP_FAILED)
		return 1;
	if (mprotect(base, passed->bytes, PROT_READ | PROT_WRITE) == 0)
		return 2;
	if (mmap(NULL, passed->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, passed->fd, 0) != MAP_FAILED)
		return 3;
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", passed->fd);
	fd = open(path, O_RDWR);
	if (fd >= 0)
		return 4;
	(void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getppid(), passed->manager_fd);
	fd = open(path, O_RDWR);
	if (fd >= 0)
		return 5;
	if (ftruncate(passed->fd, 0) == 0 || ftruncate(passed->fd, 1 << 30) == 0)
		return 6;
	if (fallocate(passed->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0)
		return 7;
	if (madvise(base, passed->bytes, MADV_REMOVE) == 0)
		return 8;
	if (fchmod(passed->fd, 0777) == 0)
		return 9;
	if (fcntl(passed->fd, F_ADD_SEALS, F_SEAL_WRITE) == 0)
		return 10;
	if (pwrite(passed->fd, "z", 1, 0) >= 0)
		return 11;
	return 0;
}

static int attack_as_nobody(void *argument)
{
	const struct passed *passed = argument;

	(void)close(passed->manager_fd); /* a client has only what was sent to it */
	return become_nobody() ? 100 : attack(passed);
}

static void expect_safe(enum cnre_backing backing, uint64_t bytes)
{
	struct cnre_segment segment;
	struct passed passed;

	cr_assert_eq(cnre_segment_create(&segment, "test", bytes, backing, -1, CNRE_SEGMENT_NO_DUMP), 0);
	memset(segment.base, 0xab, segment.bytes);
	passed = (struct passed){cnre_segment_reopen_readonly(&segment), segment.fd, segment.bytes, 0};
	cr_assert_geq(passed.fd, 0);
	cr_expect_eq(child_run(attack_as_nobody, &passed), 0);
	cr_expect_eq(*(unsigned char *)segment.base, 0xab);
	(void)close(passed.fd);
	cnre_segment_close(&segment);
}

Test(shm_segment, another_user_finds_no_way_to_a_writable_mapping_or_a_truncation)
{
	if (geteuid() != 0)
		cr_skip("needs root to become another user");
	expect_safe(CNRE_BACKING_4K, 4 * MIB);
}

static int use_channel_as_nobody(void *argument)
{
	const struct passed *passed = argument;
	struct cnre_segment mapped;

	if (become_nobody())
		return 100;
	if (cnre_segment_map(&mapped, passed->fd, CNRE_SEGMENT_CHANNEL, passed->bytes, 1) != 0)
		return 1;
	((unsigned char *)mapped.base)[4000] = 1;
	return ftruncate(passed->fd, 0) == 0 ? 2 : 0;
}

Test(shm_segment, another_user_can_write_the_channel_passed_to_it)
{
	struct cnre_segment segment;
	struct passed passed;

	if (geteuid() != 0)
		cr_skip("needs root to become another user");
	segment = make(8192, CNRE_SEGMENT_CLIENT_WRITES);
	cnre_segment_fill_header(segment.base, CNRE_SEGMENT_CHANNEL, 8192);
	cnre_segment_publish(segment.base);
	passed = (struct passed){segment.fd, segment.fd, segment.bytes, 1};
	cr_expect_eq(child_run(use_channel_as_nobody, &passed), 0);
	cr_expect_eq(((unsigned char *)segment.base)[4000], 1);
	cnre_segment_close(&segment);
}

/* ---- huge pages: H1 ---- */

#define NR_HUGEPAGES "/proc/sys/vm/nr_hugepages"
#define HUGETLB_GROUPS "/sys/fs/cgroup/unified"

static long read_long(const char *path)
{
	long value = -1;
	FILE *file = fopen(path, "re");

	if (file == NULL)
		return -1;
	if (fscanf(file, "%ld", &value) != 1)
		value = -1;
	(void)fclose(file);
	return value;
}

static int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), r = -1;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) == (ssize_t)strlen(text))
		r = 0;
	(void)close(fd);
	return r;
}

static void set_huge_pages(long count)
{
	char text[32];

	(void)snprintf(text, sizeof text, "%ld\n", count);
	(void)write_text(NR_HUGEPAGES, text);
}

/* In a group with a hugetlb limit the mapping succeeds and the first touch beyond would be SIGBUS. */
static int touch_beyond_limit(void *argument)
{
	struct cnre_segment segment;

	if (write_text(argument, "0\n") != 0)
		return 77;
	if (cnre_segment_create(&segment, "test", 4 * MIB, CNRE_BACKING_2M, -1, 0) != 0)
		return 1;
	return cnre_segment_create(&segment, "test", 6 * MIB, CNRE_BACKING_2M, -1, 0) == -ENOMEM ? 0 : 2;
}

static int run_in_limited_group(void)
{
	char group[128], path[192];
	int r = 77;

	(void)snprintf(group, sizeof group, HUGETLB_GROUPS "/cnre-test-%d", (int)getpid());
	(void)write_text(HUGETLB_GROUPS "/cgroup.subtree_control", "+hugetlb\n");
	if (mkdir(group, 0755) < 0)
		return 77;
	(void)snprintf(path, sizeof path, "%s/hugetlb.2MB.max", group);
	if (write_text(path, "8388608\n") == 0) {
		(void)snprintf(path, sizeof path, "%s/cgroup.procs", group);
		r = child_run(touch_beyond_limit, path);
	}
	(void)rmdir(group);
	return r;
}

/*
 * Goal: a shortage of huge pages is an error code, never SIGBUS, and huge segments are as safe as small ones.
 * Method: one test for all of it, since nr_hugepages belongs to the whole machine; it is put back in every case.
 */
Test(shm_segment, shortage_of_huge_pages_is_an_error_code)
{
	long before = read_long(NR_HUGEPAGES), free_pages;
	struct cnre_segment first = {.fd = -1}, second = {.fd = -1};
	int r_first, r_second, limited;

	if (before < 0 || geteuid() != 0)
		cr_skip("needs root to reserve huge pages");
	set_huge_pages(before + 16);
	free_pages = read_long("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
	r_first = cnre_segment_create(&first, "test", 5 * MIB, CNRE_BACKING_2M, -1, 0);
	r_second = cnre_segment_create(&second, "test", (uint64_t)(free_pages > 0 ? free_pages : 1) * 2 * MIB,
				       CNRE_BACKING_2M, -1, 0);
	limited = free_pages >= 8 ? run_in_limited_group() : 77;
	if (r_first == 0)
		expect_safe(CNRE_BACKING_2M, 4 * MIB);
	cnre_segment_close(&first);
	cnre_segment_close(&second);
	set_huge_pages(before);
	if (free_pages < 8)
		cr_skip("the machine has no 2 MiB pages to spare");
	cr_expect_eq(r_first, 0);
	cr_expect(r_second == -ENOMEM || r_second == -ENOSPC, "%d", r_second);
	cr_expect(limited == 0 || limited == 77, "in a group with a hugetlb limit: %d", limited);
	cr_expect_eq(read_long(NR_HUGEPAGES), before);
}

static uint64_t huge_mapped_kib(void)
{
	char line[256];
	unsigned long long kib = 0;
	FILE *file = fopen("/proc/self/smaps_rollup", "re");

	while (file != NULL && fgets(line, sizeof line, file) != NULL)
		if (sscanf(line, "ShmemPmdMapped: %llu", &kib) == 1)
			break;
	if (file != NULL)
		(void)fclose(file);
	return kib;
}

/* The size is kept to the page, so that a pool of odd windows wastes nothing; only its end lies on small pages. */
Test(shm_segment, transparent_huge_pages_are_really_huge_or_refused)
{
	struct cnre_segment segment;
	uint64_t before = huge_mapped_kib();
	int r = cnre_segment_create(&segment, "test", 5 * MIB, CNRE_BACKING_THP, -1, 0);

	if (r == -ENOSPC)
		cr_skip("this kernel gives no transparent huge pages to shared memory");
	cr_assert_eq(r, 0);
	cr_expect_eq(segment.bytes, 5 * MIB);
	cr_expect_eq((uintptr_t)segment.base % (2 * MIB), 0);
	cr_expect_eq(huge_mapped_kib() - before, 4096);
	cnre_segment_close(&segment);
}

Test(shm_segment, a_segment_below_a_huge_page_is_refused_as_one)
{
	struct cnre_segment segment;

	cr_expect_eq(cnre_segment_create(&segment, "test", MIB, CNRE_BACKING_THP, -1, 0), -ENOSPC);
}

Test(shm_segment, client_maps_pool_memory_at_a_multiple_of_2_mib)
{
	struct cnre_segment segment = make(4 * MIB, CNRE_SEGMENT_NO_DUMP), mapped;

	cr_assert_eq(cnre_segment_map(&mapped, segment.fd, 0, 4 * MIB, 0), 0);
	cr_expect_eq((uintptr_t)mapped.base % (2 * MIB), 0);
	cnre_segment_close(&mapped);
	cnre_segment_close(&segment);
}

Test(shm_segment, closing_an_empty_or_zeroed_struct_closes_nothing)
{
	struct cnre_segment zeroed = {0}, empty = {.fd = -1};

	cnre_segment_close(NULL);
	cnre_segment_close(&zeroed);
	cnre_segment_close(&empty);
	cr_expect_geq(fcntl(0, F_GETFD), 0);
}
