/* SPDX-License-Identifier: Apache-2.0 */
/* Which disk a file system lies on, in a tree made as sysfs makes it. */
#include "base/disk.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

static char root[64];

/* sda with two partitions, nvme0n1 whole, dm-0 on sda2, dm-1 on dm-0, md0 over both disks. */
static const char script[] =
	"set -e; cd '%s'; mkdir -p sys/dev/block sys/devices/sda/sda1 sys/devices/sda/sda2 sys/devices/nvme0n1/slaves "
	"sys/devices/virtual/dm-0/slaves sys/devices/virtual/dm-1/slaves sys/devices/virtual/md0/slaves; "
	"touch sys/devices/sda/sda1/partition sys/devices/sda/sda2/partition; "
	"ln -s ../../devices/sda/sda1 sys/dev/block/8:1; ln -s ../../devices/sda/sda2 sys/dev/block/8:2; "
	"ln -s ../../devices/nvme0n1 sys/dev/block/259:0; ln -s ../../devices/virtual/dm-0 sys/dev/block/253:0; "
	"ln -s ../../devices/virtual/dm-1 sys/dev/block/253:1; ln -s ../../devices/virtual/md0 sys/dev/block/9:0; "
	"ln -s ../../../sda/sda2 sys/devices/virtual/dm-0/slaves/sda2; ln -s ../../dm-0 sys/devices/virtual/dm-1/slaves/dm-0; "
	"ln -s ../../../sda/sda1 sys/devices/virtual/md0/slaves/sda1; ln -s ../../../nvme0n1 sys/devices/virtual/md0/slaves/nvme0n1";

static void make(void)
{
	char command[2048];

	(void)snprintf(root, sizeof root, "/tmp/cnre-test-disk-XXXXXX");
	cr_assert_not_null(mkdtemp(root));
	(void)snprintf(command, sizeof command, script, root);
	cr_assert_eq(system(command), 0);
}

static void clean(void)
{
	char command[128];

	(void)snprintf(command, sizeof command, "rm -rf '%s'", root);
	cr_assert_eq(system(command), 0);
}

TestSuite(base_disk, .init = make, .fini = clean, .timeout = 30);

static void expect_disk(unsigned a, unsigned b, const char *name)
{
	char disk[CNRE_DISK_NAME_BYTES] = "untouched";
	int r = cnre_disk_of(root, makedev(a, b), disk);

	if (name == NULL) {
		cr_expect_eq(r, -ENOENT);
		cr_expect_str_eq(disk, "untouched");
		return;
	}
	cr_assert_eq(r, 0, "%u:%u: %d", a, b, r);
	cr_expect_str_eq(disk, name, "%u:%u is on %s", a, b, disk);
}

Test(base_disk, partitions_and_mappers_upon_one_disk_are_that_disk)
{
	expect_disk(8, 1, "sda");
	expect_disk(8, 2, "sda");
	expect_disk(253, 0, "sda");
	expect_disk(253, 1, "sda");
	expect_disk(259, 0, "nvme0n1");
	expect_disk(9, 0, "md0");
	expect_disk(0, 42, NULL);
}

Test(base_disk, two_file_systems_on_one_disk_share_it_and_unknown_ones_do_not)
{
	cr_expect(cnre_disk_is_shared(root, makedev(8, 1), makedev(8, 2)));
	cr_expect(cnre_disk_is_shared(root, makedev(8, 1), makedev(253, 1)));
	cr_expect(cnre_disk_is_shared(root, makedev(0, 42), makedev(0, 42)), "the same file system");
	cr_expect_not(cnre_disk_is_shared(root, makedev(8, 1), makedev(259, 0)));
	cr_expect_not(cnre_disk_is_shared(root, makedev(8, 1), makedev(9, 0)));
	cr_expect_not(cnre_disk_is_shared(root, makedev(0, 42), makedev(0, 43)));
}

Test(base_disk, a_ring_of_mappers_ends)
{
	char command[256], disk[CNRE_DISK_NAME_BYTES];

	(void)snprintf(command, sizeof command,
		       "cd '%s/sys/devices/virtual' && rm dm-0/slaves/sda2 && ln -s ../../dm-1 dm-0/slaves/dm-1", root);
	cr_assert_eq(system(command), 0);
	cr_expect_eq(cnre_disk_of(root, makedev(253, 1), disk), 0);
}
