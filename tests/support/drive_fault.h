/* SPDX-License-Identifier: Apache-2.0 */
/* The ways in which one of a test's drives can fail, while the others and everything else of the machine go on. */
#ifndef CNRE_TESTS_DRIVE_FAULT_H
#define CNRE_TESTS_DRIVE_FAULT_H

#include "tests/support/hung_drive.h"

enum drive_fault {
	DRIVE_FAULT_LIMIT,     /* the device ends early: EIO behind its first MiB, no data lost */
	DRIVE_FAULT_SHUTDOWN,  /* the file system is shut down, as when a drive is pulled: EIO, for opening too */
	DRIVE_FAULT_TRUNCATED, /* the device's own file is cut: EIO, and the data is gone until it is restored */
	DRIVE_FAULT_HANGS,     /* nothing is answered (to members of the drives' group) */
	DRIVE_FAULTS
};

const char *drive_fault_name(enum drive_fault fault);

/* Each fails the test where it cannot be done; so does the end of SHUTDOWN where its file system stays busy for 20 s. */
void drive_fault_begin(struct hung_drives *drives, int which, enum drive_fault fault);
void drive_fault_end(struct hung_drives *drives, int which, enum drive_fault fault);

#endif
