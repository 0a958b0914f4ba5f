/* SPDX-License-Identifier: Apache-2.0 */
/* Drives that stop answering; see hung_drive.h. */
#include "tests/support/hung_drive.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROOT_GROUP "/sys/fs/cgroup/blkio"

static int put(const char *group, const char *file, const char *text)
{
	char path[160];
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof path, "%s/%s", group, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = write(fd, text, strlen(text));
	(void)close(fd);
	return n < 0 ? -errno : 0;
}

static int put_pid(const char *group, pid_t pid)
{
	char text[16];

	(void)snprintf(text, sizeof text, "%d", (int)pid);
	return put(group, "cgroup.procs", text);
}

static int limit(const struct hung_drives *drives, int which, unsigned bytes_per_second)
{
	char text[64];
	struct stat status;

	if (stat(drives->drive[which].device, &status) < 0)
		return -errno;
	(void)snprintf(text, sizeof text, "%u:%u %u", major(status.st_rdev), minor(status.st_rdev), bytes_per_second);
	return put(drives->group, "blkio.throttle.read_bps_device", text);
}

/* Who is left there dies with the test or moves out; a group with members cannot go. */
static void empty_group(const struct hung_drives *drives)
{
	char path[160];
	FILE *members;
	int pid;

	(void)snprintf(path, sizeof path, "%s/cgroup.procs", drives->group);
	members = fopen(path, "re");
	while (members != NULL && fscanf(members, "%d", &pid) == 1)
		(void)put_pid(ROOT_GROUP, (pid_t)pid);
	if (members != NULL)
		(void)fclose(members);
}

static void undo(struct hung_drives *drives)
{
	for (int i = 0; i < drives->count; i++)
		(void)limit(drives, i, 0);
	for (int i = 0; i < 100 && rmdir(drives->group) < 0 && errno == EBUSY; i++) {
		empty_group(drives);
		(void)usleep(10000);
	}
	for (int i = 0; i < drives->count; i++)
		faulty_drive_close(&drives->drive[i]);
}

/* Waits for the test's end of the pipe to close, which its death does too. */
static int start_janitor(struct hung_drives *drives)
{
	int ends[2];
	char byte;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	drives->lifeline = ends[1];
	drives->janitor = fork();
	if (drives->janitor < 0)
		return -errno;
	if (drives->janitor == 0) {
		(void)setsid();
		(void)close(ends[1]);
		while (read(ends[0], &byte, 1) < 0 && errno == EINTR)
			;
		undo(drives);
		_exit(0);
	}
	(void)close(ends[0]);
	return 0;
}

const char *hung_drives_open(struct hung_drives *drives, const char *directory, int count, unsigned megabytes)
{
	const char *reason = NULL;

	memset(drives, 0, sizeof *drives);
	(void)snprintf(drives->group, sizeof drives->group, ROOT_GROUP "/cnre-test-%d", (int)getpid());
	if (geteuid() != 0)
		return "needs root for loop devices and a cgroup";
	if (access(ROOT_GROUP "/blkio.throttle.read_bps_device", W_OK) < 0)
		return "needs the blkio controller of cgroup v1 with throttling";
	if (mkdir(drives->group, 0755) < 0)
		return "cannot make a blkio cgroup";
	for (int i = 0; i < count && reason == NULL; i++) {
		char folder[128];

		(void)snprintf(folder, sizeof folder, "%s/%d", directory, i);
		(void)mkdir(folder, 0755);
		reason = faulty_drive_open(&drives->drive[i], folder, megabytes);
		drives->count += reason == NULL;
	}
	if (reason == NULL && start_janitor(drives) < 0)
		reason = "cannot fork";
	if (reason != NULL)
		undo(drives);
	return reason;
}

void hung_drives_close(struct hung_drives *drives)
{
	(void)close(drives->lifeline);
	(void)waitpid(drives->janitor, NULL, 0);
}

void hung_drives_enter(const struct hung_drives *drives, pid_t pid)
{
	cr_assert_eq(put_pid(drives->group, pid), 0);
}

void hung_drives_leave(pid_t pid)
{
	cr_assert_eq(put_pid(ROOT_GROUP, pid), 0);
}

void hung_drives_throttle(const struct hung_drives *drives, int which, unsigned bytes_per_second)
{
	sync(); /* what the test wrote there must be on the drive */
	cr_assert_eq(limit(drives, which, bytes_per_second), 0);
}

void hung_drives_stop(const struct hung_drives *drives, int which)
{
	hung_drives_throttle(drives, which, 1);
}

void hung_drives_go(const struct hung_drives *drives, int which)
{
	cr_assert_eq(limit(drives, which, 0), 0);
}

void hung_drives_slow(const struct hung_drives *drives, int which, unsigned bytes_per_second)
{
	cr_assert_eq(limit(drives, which, bytes_per_second), 0);
}
