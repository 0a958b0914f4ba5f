/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tries what the manager's unit should refuse and what it must allow, one line each: "NAME allowed" or "NAME refused
 * ERRNO". Run once in the unit's confinement and once as the same user without it: a line that does not differ proves
 * nothing. usage: confined WRITABLE-DIRECTORY DEVICE OWN-DIRECTORY CHECKPOINT-FILE
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#define PAGE 4096u

static void say(const char *name, long result)
{
	if (result < 0)
		printf("%s refused %s\n", name, strerrorname_np(errno));
	else
		printf("%s allowed\n", name);
}

static int open_in(const char *directory, int flags)
{
	char path[512];

	(void)snprintf(path, sizeof path, "%s/confined-probe", directory);
	return open(path, flags, 0600);
}

static long map_writable_code(void)
{
	void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return page == MAP_FAILED ? -1 : 0;
}

static long make_code_of_data(void)
{
	void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return page == MAP_FAILED ? -1 : mprotect(page, PAGE, PROT_READ | PROT_EXEC);
}

static long set_user_bit(const char *directory)
{
	int fd = open_in(directory, O_CREAT | O_RDWR);

	return fd < 0 ? -1 : fchmod(fd, 04700);
}

static long make_ring(void)
{
	struct io_uring_params parameters = {0};

	return syscall(SYS_io_uring_setup, 4u, &parameters);
}

/* No waiters at all are EINVAL where the call exists; a filter says EPERM before that. */
static long wait_for_none(void)
{
	long r = syscall(SYS_futex_waitv, NULL, 0u, 0u, NULL, 0);

	return r < 0 && (errno == EINVAL || errno == ENOSYS) ? 0 : r;
}

/* Of @resources; that threads may give way (setpriority) is allowed. */
static int same_cpus(void)
{
	cpu_set_t cpus;

	return sched_getaffinity(0, sizeof cpus, &cpus) < 0 ? -1 : sched_setaffinity(0, sizeof cpus, &cpus);
}

int main(int argc, char *argv[])
{
	if (argc != 5)
		return 2;
	say("write-elsewhere", open_in(argv[1], O_CREAT | O_WRONLY));
	say("open-device", open(argv[2], O_RDONLY));
	say("writable-code", map_writable_code());
	say("data-to-code", make_code_of_data());
	say("internet", socket(AF_INET, SOCK_STREAM, 0));
	say("set-user-bit", set_user_bit(argv[3]));
	say("other-abi", personality(PER_LINUX32));
	say("affinity", same_cpus());
	say("others-in-proc", open("/proc/1/status", O_RDONLY));
	say("own-state", open_in(argv[3], O_CREAT | O_WRONLY));
	say("checkpoint", open(argv[4], O_RDONLY));
	say("unix-socket", socket(AF_UNIX, SOCK_SEQPACKET, 0));
	say("memfd", (long)memfd_create("probe", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	say("io_uring", make_ring());
	say("futex_waitv", wait_for_none());
	say("meminfo", open("/proc/meminfo", O_RDONLY));
	return 0;
}
