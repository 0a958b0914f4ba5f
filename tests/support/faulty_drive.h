/* SPDX-License-Identifier: Apache-2.0 */
/* A small ext4 file system on a loop device of its own whose every read can be made to fail with EIO, and healed. Root only. */
#ifndef CNRE_TESTS_FAULTY_DRIVE_H
#define CNRE_TESTS_FAULTY_DRIVE_H

struct faulty_drive {
	char image[128], mount[128], device[64];
};

/* NULL, or the reason why there can be none here (the test skips with it). */
const char *faulty_drive_open(struct faulty_drive *drive, const char *directory, unsigned megabytes);
void faulty_drive_close(struct faulty_drive *drive);

/* From now on reads behind the first MiB of the device fail: metadata in the page cache stays good. */
void faulty_drive_break(struct faulty_drive *drive);
void faulty_drive_heal(struct faulty_drive *drive);

#endif
