/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of a loop device and of its file system; see drive_fault.h. */
#include "tests/support/drive_fault.h"

#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#define EXT4_SHUTDOWN _IOR('X', 125, unsigned) /* of the kernel's ext4.h, which is not among the headers for programs */
#define SHUTDOWN_WITHOUT_LOG 2u
#define TRUNCATED_BYTES (1 << 20)
#define UNMOUNT_SECONDS 20

const char *drive_fault_name(enum drive_fault fault)
{
	static const char *const names[DRIVE_FAULTS] = {
		[DRIVE_FAULT_LIMIT] = "end of device",
		[DRIVE_FAULT_SHUTDOWN] = "file system shut down",
		[DRIVE_FAULT_TRUNCATED] = "backing file truncated",
		[DRIVE_FAULT_HANGS] = "hang",
	};

	return names[fault];
}

/* ---- shutdown ---- */

static void shut_down(const struct faulty_drive *drive)
{
	unsigned how = SHUTDOWN_WITHOUT_LOG;
	int fd;

	sync(); /* nothing of the test's own may be lost with it */
	fd = open(drive->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	cr_assert_eq(ioctl(fd, EXT4_SHUTDOWN, &how), 0, "%s", strerror(errno));
	(void)close(fd);
}

/* Busy as long as somebody has a file open there. */
static int unmount(void *argument)
{
	const struct faulty_drive *drive = argument;

	return umount(drive->mount) == 0;
}

static void mount_again(struct faulty_drive *drive)
{
	cr_assert(world_wait_until(unmount, drive, UNMOUNT_SECONDS), "%s is busy: somebody keeps files of it open",
		  drive->mount);
	cr_assert_eq(mount(drive->device, drive->mount, "ext4", 0, NULL), 0, "%s", strerror(errno));
}

/* ---- truncation ---- */

static void copy(const char *from, const char *to)
{
	cr_assert_eq(world_run("/bin/cp", (const char *const[]){"--sparse=always", from, to, NULL}, NULL, 0), 0);
}

static const char *saved_path(const struct faulty_drive *drive, char path[160])
{
	(void)snprintf(path, 160, "%s.saved", drive->image);
	return path;
}

static void truncate_image(const struct faulty_drive *drive)
{
	char saved[160];

	sync();
	copy(drive->image, saved_path(drive, saved));
	cr_assert_eq(truncate(drive->image, TRUNCATED_BYTES), 0);
}

/* cp writes into the same inode, which the device has open. */
static void restore_image(const struct faulty_drive *drive)
{
	char saved[160];

	copy(saved_path(drive, saved), drive->image);
	(void)unlink(saved);
}

/* ---- all of them ---- */

void drive_fault_begin(struct hung_drives *drives, int which, enum drive_fault fault)
{
	struct faulty_drive *drive = &drives->drive[which];

	switch (fault) {
	case DRIVE_FAULT_LIMIT:
		faulty_drive_break(drive);
		break;
	case DRIVE_FAULT_SHUTDOWN:
		shut_down(drive);
		break;
	case DRIVE_FAULT_TRUNCATED:
		truncate_image(drive);
		break;
	case DRIVE_FAULT_HANGS:
		hung_drives_stop(drives, which);
		break;
	case DRIVE_FAULTS:
		break;
	}
}

void drive_fault_end(struct hung_drives *drives, int which, enum drive_fault fault)
{
	struct faulty_drive *drive = &drives->drive[which];

	switch (fault) {
	case DRIVE_FAULT_LIMIT:
		faulty_drive_heal(drive);
		break;
	case DRIVE_FAULT_SHUTDOWN:
		mount_again(drive);
		break;
	case DRIVE_FAULT_TRUNCATED:
		restore_image(drive);
		break;
	case DRIVE_FAULT_HANGS:
		hung_drives_go(drives, which);
		break;
	case DRIVE_FAULTS:
		break;
	}
}
