/* SPDX-License-Identifier: Apache-2.0 */
/* Loop devices for tests; see loop_disk.h. */
#include "tests/support/loop_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRIES_MAX 32 /* other tests take loop devices at the same time */

/* AUTOCLEAR: the device lets go of the memory with its last user. A descriptor, or -1. */
static int attach(int memory_fd, unsigned sector_bytes, char path[32])
{
	struct loop_config config = {
		.fd = (unsigned)memory_fd, .block_size = sector_bytes, .info.lo_flags = LO_FLAGS_AUTOCLEAR};
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), fd = -1;

	for (int i = 0; i < TRIES_MAX && control >= 0; i++) {
		int number = ioctl(control, LOOP_CTL_GET_FREE);

		(void)snprintf(path, 32, "/dev/loop%d", number);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd >= 0 && ioctl(fd, LOOP_CONFIGURE, &config) == 0)
			break;
		if (fd >= 0)
			(void)close(fd);
		fd = -1;
	}
	if (control >= 0)
		(void)close(control);
	return fd;
}

static int make_file_system(char *device, unsigned block_bytes)
{
	char block[16];
	char *arguments[] = {"mkfs.ext4", "-q", "-F", "-m", "0", "-b", block, device, NULL};
	char *environment[] = {"PATH=/usr/sbin:/sbin:/usr/bin:/bin", NULL};
	pid_t child;
	int status;

	(void)snprintf(block, sizeof(block), "%u", block_bytes);
	if (posix_spawnp(&child, "/sbin/mkfs.ext4", NULL, NULL, arguments, environment) != 0)
		return -1;
	if (waitpid(child, &status, 0) != child)
		return -1;
	return status;
}

const char *loop_disk_open(struct loop_disk *disk, uint64_t bytes, unsigned sector_bytes, unsigned block_bytes)
{
	char path[32];
	int memory_fd;

	disk->fd = -1;
	if (geteuid() != 0)
		return "a loop device needs root";
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return "no mount namespace of our own";
	memory_fd = memfd_create("loop-disk", MFD_CLOEXEC);
	if (memory_fd < 0 || ftruncate(memory_fd, (off_t)bytes) < 0)
		return "no memory for a disk";
	disk->fd = attach(memory_fd, sector_bytes, path);
	(void)close(memory_fd);
	if (disk->fd < 0)
		return "no free loop device";
	if (make_file_system(path, block_bytes) != 0)
		return "mkfs.ext4 is missing or refuses";
	if (mount(path, LOOP_DISK_PATH, "ext4", 0, NULL) < 0)
		return "the kernel does not mount it";
	return NULL;
}

void loop_disk_close(struct loop_disk *disk)
{
	if (disk->fd < 0)
		return;
	(void)umount2(LOOP_DISK_PATH, MNT_DETACH);
	(void)close(disk->fd);
	disk->fd = -1;
}

int loop_disk_limit(struct loop_disk *disk, uint64_t bytes)
{
	struct loop_info64 information;

	if (ioctl(disk->fd, LOOP_GET_STATUS64, &information) < 0)
		return -errno;
	information.lo_sizelimit = bytes;
	return ioctl(disk->fd, LOOP_SET_STATUS64, &information) < 0 ? -errno : 0;
}
