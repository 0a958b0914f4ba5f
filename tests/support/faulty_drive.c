/* SPDX-License-Identifier: Apache-2.0 */
/* A drive that fails on demand: LOOP_SET_STATUS64 with a size limit turns reads behind it into EIO, reversibly. */
#include "tests/support/faulty_drive.h"

#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static int attach_loop(struct faulty_drive *drive)
{
	const char *const arguments[] = {"--show", "-f", "--direct-io=on", drive->image, NULL};

	if (world_run("/sbin/losetup", arguments, drive->device, sizeof drive->device) != 0)
		return -1;
	drive->device[strcspn(drive->device, "\n")] = '\0';
	return strncmp(drive->device, "/dev/loop", 9) == 0 ? 0 : -1;
}

static void detach_loop(const struct faulty_drive *drive)
{
	const char *const arguments[] = {"-d", drive->device, NULL};

	(void)world_run("/sbin/losetup", arguments, NULL, 0);
}

const char *faulty_drive_open(struct faulty_drive *drive, const char *directory, unsigned megabytes)
{
	const char *const make[] = {"-q", "-F", "-m", "0", drive->image, NULL};
	int fd;

	memset(drive, 0, sizeof *drive);
	if (geteuid() != 0)
		return "needs root for a loop device";
	(void)snprintf(drive->image, sizeof drive->image, "%s/drive.image", directory);
	(void)snprintf(drive->mount, sizeof drive->mount, "%s/drive", directory);
	fd = open(drive->image, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)megabytes << 20) < 0)
		return "no room for a drive image";
	(void)close(fd);
	if (world_run("/sbin/mkfs.ext4", make, NULL, 0) != 0)
		return "needs mkfs.ext4";
	if (attach_loop(drive) < 0)
		return "needs a free loop device";
	if (mkdir(drive->mount, 0755) < 0 || mount(drive->device, drive->mount, "ext4", 0, NULL) < 0) {
		detach_loop(drive);
		return "cannot mount a loop device here";
	}
	return NULL;
}

void faulty_drive_close(struct faulty_drive *drive)
{
	faulty_drive_heal(drive);
	(void)umount2(drive->mount, MNT_DETACH);
	detach_loop(drive);
	(void)rmdir(drive->mount);
	(void)unlink(drive->image);
}

static void limit(const struct faulty_drive *drive, unsigned long long bytes)
{
	struct loop_info64 info;
	int fd = open(drive->device, O_RDWR | O_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(ioctl(fd, LOOP_GET_STATUS64, &info), 0);
	info.lo_sizelimit = bytes;
	cr_assert_eq(ioctl(fd, LOOP_SET_STATUS64, &info), 0);
	(void)close(fd);
}

void faulty_drive_break(struct faulty_drive *drive)
{
	sync(); /* dirty pages must be on the image before it shrinks */
	limit(drive, 1 << 20);
}

void faulty_drive_heal(struct faulty_drive *drive)
{
	limit(drive, 0);
}
