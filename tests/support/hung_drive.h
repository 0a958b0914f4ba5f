/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives that stop answering on demand and go on later, with nothing lost: loop devices with ext4, and a blkio cgroup
 * whose members read one byte a second from a stopped one. Only members hang, so a test can let one process hang and
 * another read. Root and cgroup v1 only. Everything is undone by a process of its own, however the test ends.
 */
#ifndef CNRE_TESTS_HUNG_DRIVE_H
#define CNRE_TESTS_HUNG_DRIVE_H

#include "tests/support/faulty_drive.h"

#include <sys/types.h>

#define HUNG_DRIVES_MAX 3

struct hung_drives {
	struct faulty_drive drive[HUNG_DRIVES_MAX];
	int count;
	char group[96];
	int lifeline; /* closed: everything is undone */
	pid_t janitor;
};

/* NULL, or the reason why there can be none here (for cr_skip). Mounted at drive[i].mount. */
const char *hung_drives_open(struct hung_drives *drives, const char *directory, int count, unsigned megabytes);
void hung_drives_close(struct hung_drives *drives);

void hung_drives_enter(const struct hung_drives *drives,
		       pid_t pid); /* this process hangs from now on, and its children */
void hung_drives_leave(pid_t pid); /* what it reads from now on does not hang */
/* Members read so many bytes a second from it; 0: as fast as it can. */
void hung_drives_throttle(const struct hung_drives *drives, int which, unsigned bytes_per_second);
void hung_drives_stop(const struct hung_drives *drives, int which);
void hung_drives_go(const struct hung_drives *drives, int which); /* what hung completes */
/* Slow instead of hung: members read so many bytes a second from it. 0: as fast as it is. */
void hung_drives_slow(const struct hung_drives *drives, int which, unsigned bytes_per_second);

#endif
