/* SPDX-License-Identifier: Apache-2.0 */
/* See file_extents.h. */
#include "tools/inspect/file_extents.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define EXTENTS_AT_ONCE 256u
#define SECTOR_BYTES 512u
#define KERNEL_MINOR_BITS 20u
#define NO_PLACE (FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_ENCODED | FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_DATA_TAIL)

uint64_t file_extents_device(dev_t device)
{
	return (uint64_t)major(device) << KERNEL_MINOR_BITS | minor(device);
}

dev_t file_extents_number(uint64_t device)
{
	return makedev((unsigned)(device >> KERNEL_MINOR_BITS), (unsigned)(device & ((1u << KERNEL_MINOR_BITS) - 1)));
}

/* The block layer counts from the start of the disk, a file system from that of its partition. */
static int partition_start(dev_t device, uint64_t *ret_bytes)
{
	unsigned long long sectors = 0;
	char path[96];
	FILE *file;

	(void)snprintf(path, sizeof path, "/sys/dev/block/%u:%u", major(device), minor(device));
	if (access(path, F_OK) != 0)
		return -ENOTBLK;
	(void)snprintf(path, sizeof path, "/sys/dev/block/%u:%u/start", major(device), minor(device));
	file = fopen(path, "re");
	if (file != NULL && fscanf(file, "%llu", &sectors) != 1)
		sectors = 0;
	if (file != NULL)
		(void)fclose(file);
	*ret_bytes = sectors * SECTOR_BYTES;
	return 0;
}

static int add_some(struct extent_map *map, uint32_t file, const struct fiemap *answer, uint64_t start, struct file_extents *ret)
{
	for (uint32_t i = 0; i < answer->fm_mapped_extents; i++) {
		const struct fiemap_extent *from = &answer->fm_extents[i];
		int r;

		if ((from->fe_flags & NO_PLACE) != 0) {
			ret->unmapped_bytes += from->fe_length;
			continue;
		}
		r = extent_map_add(map, &(struct extent){.device = ret->device,
							 .begin = from->fe_physical + start,
							 .bytes = from->fe_length,
							 .file_off = from->fe_logical,
							 .file = file});
		if (r < 0 && r != -EINVAL)
			return r;
	}
	return 0;
}

static int add_all(struct extent_map *map, int fd, uint32_t file, uint64_t start, struct file_extents *ret)
{
	struct fiemap *answer = calloc(1, sizeof *answer + EXTENTS_AT_ONCE * sizeof answer->fm_extents[0]);
	uint64_t from = 0;
	int r = answer == NULL ? -ENOMEM : 0;

	/* Each turn gets further, and there are EXTENT_MAP_MAX extents at most. */
	while (r == 0) {
		const struct fiemap_extent *last;

		memset(answer, 0, sizeof *answer);
		answer->fm_start = from;
		answer->fm_length = FIEMAP_MAX_OFFSET - from;
		answer->fm_flags = FIEMAP_FLAG_SYNC;
		answer->fm_extent_count = EXTENTS_AT_ONCE;
		if (ioctl(fd, FS_IOC_FIEMAP, answer) < 0) {
			r = errno == EOPNOTSUPP || errno == ENOTTY || errno == EINVAL ? -EOPNOTSUPP : -errno;
			break;
		}
		r = add_some(map, file, answer, start, ret);
		if (r < 0 || answer->fm_mapped_extents == 0)
			break;
		last = &answer->fm_extents[answer->fm_mapped_extents - 1];
		if ((last->fe_flags & FIEMAP_EXTENT_LAST) != 0 || last->fe_logical + last->fe_length <= from)
			break;
		from = last->fe_logical + last->fe_length;
	}
	free(answer);
	return r;
}

int file_extents_add(struct extent_map *map, const char *path, uint32_t file, struct file_extents *ret_extents)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), r;
	struct stat status;
	uint64_t start = 0;

	if (fd < 0)
		return -errno;
	r = fstat(fd, &status) < 0 ? -errno : !S_ISREG(status.st_mode) ? -EINVAL : 0;
	if (r == 0) {
		*ret_extents = (struct file_extents){.device = file_extents_device(status.st_dev),
						     .inode = status.st_ino,
						     .bytes = (uint64_t)status.st_size};
		r = partition_start(status.st_dev, &start);
	}
	if (r == 0)
		r = add_all(map, fd, file, start, ret_extents);
	(void)close(fd);
	return r;
}
