/* SPDX-License-Identifier: Apache-2.0 */
/* The file table and its descriptor cache. Slots are reused by the clock algorithm; pinned ones never. */
#include "manager/file.h"

#include "base/check.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PROBE_BYTES 4096u
#define TRIES_MAX 16    /* of a call that was interrupted */
#define ALIGNMENT 4096u /* of everything the loader asks for */
#define NO_SLOT UINT32_MAX
#define NO_FILE UINT32_MAX

struct file {
	char *path;
	uint64_t bytes;
	dev_t device;
	ino_t inode;
	int64_t born_ns; /* 0: the file system does not tell */
	uint32_t slot;
	int is_direct, is_prompt, is_fuse;
};

struct slot {
	int fd; /* -1: empty */
	uint32_t file, pins;
	int was_used; /* since the clock's hand last passed */
};

struct file_table {
	struct file_table_setup setup;
	struct file *file;
	uint32_t file_count, file_room;
	struct slot *slot;
	uint32_t slot_count, hand, open;
	uint32_t direct;
};

int file_alignment_allows_direct(int is_reported, uint32_t memory_align, uint32_t offset_align)
{
	if (!is_reported)
		return 1;
	return memory_align != 0 && offset_align != 0 && ALIGNMENT % memory_align == 0 && ALIGNMENT % offset_align == 0;
}

static uint32_t slots_by_limit(void)
{
	struct rlimit limit;
	uint64_t slots;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return FILE_OPEN_MIN;
	slots = limit.rlim_cur / 4;
	if (slots > FILE_OPEN_MAX)
		return FILE_OPEN_MAX;
	return slots < FILE_OPEN_MIN ? FILE_OPEN_MIN : (uint32_t)slots;
}

int file_table_open(struct file_table **ret_table, const struct file_table_setup *setup)
{
	struct file_table *table = calloc(1, sizeof(*table));

	if (table == NULL)
		return -ENOMEM;
	table->setup = *setup;
	table->slot_count = setup->open_max != 0 ? setup->open_max : slots_by_limit();
	if (table->slot_count > FILE_OPEN_MAX)
		table->slot_count = FILE_OPEN_MAX;
	table->slot = calloc(table->slot_count, sizeof(*table->slot));
	if (table->slot == NULL) {
		free(table);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < table->slot_count; i++)
		table->slot[i] = (struct slot){.fd = -1, .file = NO_FILE};
	*ret_table = table;
	return 0;
}

static void empty_slot(struct file_table *table, uint32_t index)
{
	struct slot *slot = &table->slot[index];

	CNRE_CHECK(slot->fd >= 0 && slot->pins == 0);
	if (table->setup.slot_changed != NULL)
		table->setup.slot_changed(table->setup.context, index, -1);
	table->file[slot->file].slot = NO_SLOT;
	(void)close(slot->fd); /* opened read-only: nothing can be lost */
	*slot = (struct slot){.fd = -1, .file = NO_FILE};
	table->open--;
}

struct file_table *file_table_close(struct file_table *table)
{
	if (table == NULL)
		return NULL;
	for (uint32_t i = 0; i < table->slot_count; i++)
		if (table->slot[i].fd >= 0)
			empty_slot(table, i);
	for (uint32_t i = 0; i < table->file_count; i++)
		free(table->file[i].path);
	free(table->file);
	free(table->slot);
	free(table);
	return NULL;
}

uint32_t file_table_slots(const struct file_table *table)
{
	return table->slot_count;
}

/* An empty slot, or a victim of the clock; two rounds clear every was_used. */
static int find_slot(struct file_table *table, uint32_t *ret_slot)
{
	for (uint64_t step = 0; step < 2ull * table->slot_count; step++) {
		struct slot *slot = &table->slot[table->hand];
		uint32_t index = table->hand;

		table->hand = (table->hand + 1) % table->slot_count;
		if (slot->pins != 0)
			continue;
		if (slot->fd >= 0 && slot->was_used) {
			slot->was_used = 0;
			continue;
		}
		if (slot->fd >= 0)
			empty_slot(table, index);
		*ret_slot = index;
		return 0;
	}
	return -EAGAIN;
}

/* Closes one idle descriptor, wherever the hand finds it; 0 if every open one is pinned. */
static int give_one_up(struct file_table *table)
{
	for (uint32_t i = 0; i < table->slot_count; i++) {
		uint32_t index = (table->hand + i) % table->slot_count;

		if (table->slot[index].fd < 0 || table->slot[index].pins != 0)
			continue;
		empty_slot(table, index);
		return 1;
	}
	return 0;
}

/* O_NONBLOCK: a FIFO in place of a shard must not stop the core; it is cleared once the file is known regular. */
static int open_path(struct file_table *table, const char *path, int direct)
{
	int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (direct ? O_DIRECT : 0);
	int interrupted = 0;

	for (;;) {
		int fd = open(path, flags), r = -errno;

		if (fd >= 0)
			return fd;
		if (r == -EINTR && ++interrupted < TRIES_MAX)
			continue; /* network file systems do this */
		if ((r != -EMFILE && r != -ENFILE) || !give_one_up(table))
			return r; /* every turn of the loop closed one of our own, so it ends */
	}
}

static int become_blocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

static int alignment_allows_direct(int fd, int *ret_is_reported)
{
	struct statx status;

	*ret_is_reported = 0;
	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) < 0)
		return 1; /* no statx: the probing read decides */
	*ret_is_reported = (status.stx_mask & STATX_DIOALIGN) != 0;
	return file_alignment_allows_direct(*ret_is_reported, status.stx_dio_mem_align, status.stx_dio_offset_align);
}

/* Some file systems accept O_DIRECT and refuse it at the first read. 0, -EINVAL (refused), or another -errno. */
static int probe_read(int fd)
{
	void *memory = NULL;
	ssize_t got = -1;
	int r = posix_memalign(&memory, ALIGNMENT, PROBE_BYTES);

	if (r != 0)
		return -r;
	for (int i = 0; i < TRIES_MAX; i++) {
		got = pread(fd, memory, PROBE_BYTES, 0);
		if (got >= 0 || (errno != EINTR && errno != EAGAIN))
			break;
	}
	r = got >= 0 ? 0 : -errno;
	free(memory);
	return r == -EOPNOTSUPP || r == -ENOSYS ? -EINVAL : r;
}

/* Or of a file system that does not say what it is. */
static int is_fuse(int fd)
{
	struct statfs status;

	return fstatfs(fd, &status) < 0 || status.f_type == FUSE_SUPER_MAGIC;
}

/* An open descriptor, and in the file whether it is direct and prompt; or -errno. */
static int open_and_decide(struct file_table *table, const char *path, struct file *file)
{
	int fd = -EINVAL, is_reported, r;

	if (!table->setup.force_buffered)
		fd = open_path(table, path, 1);
	if (fd == -EINVAL || fd == -EOPNOTSUPP)
		return open_path(table, path, 0);
	if (fd < 0)
		return fd;
	/* Where the file system says it all, nothing is read: a drive that hangs must not keep a new manager from starting. */
	r = alignment_allows_direct(fd, &is_reported) ? 0 : -EINVAL;
	if (r == 0 && !is_reported)
		r = probe_read(fd);
	if (r == 0) {
		file->is_direct = 1;
		file->is_prompt = is_reported;
		return fd;
	}
	(void)close(fd); /* read-only */
	return r == -EINVAL ? open_path(table, path, 0) : r;
}

/* File systems give the inode of a file that was removed to the next one that is made: only when it was made is its own. */
static int64_t birth_ns(int fd)
{
	struct statx status;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &status) < 0 || (status.stx_mask & STATX_BTIME) == 0)
		return 0;
	return status.stx_btime.tv_sec * CNRE_NS_PER_S + status.stx_btime.tv_nsec;
}

static int check_kind(int fd, uint64_t expected_bytes, struct file *file)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return -errno;
	if (!S_ISREG(status.st_mode))
		return -EINVAL;
	if (status.st_size < 0 || (uint64_t)status.st_size != expected_bytes)
		return -EBADMSG;
	file->bytes = expected_bytes;
	file->device = status.st_dev;
	file->inode = status.st_ino;
	file->born_ns = birth_ns(fd);
	return become_blocking(fd);
}

static int grow_files(struct file_table *table)
{
	uint32_t room = table->file_room == 0 ? 64 : table->file_room * 2;
	struct file *file;

	if (table->file_count >= table->setup.files_max)
		return -ENOSPC;
	if (table->file_count < table->file_room)
		return 0;
	file = realloc(table->file, room * sizeof(*file));
	if (file == NULL)
		return -ENOMEM;
	table->file = file;
	table->file_room = room;
	return 0;
}

static void fill_slot(struct file_table *table, uint32_t index, uint32_t number, int fd)
{
	CNRE_CHECK(table->slot[index].fd < 0);
	table->slot[index] = (struct slot){.fd = fd, .file = number, .was_used = 1};
	table->file[number].slot = index;
	table->open++;
	if (table->setup.slot_changed != NULL)
		table->setup.slot_changed(table->setup.context, index, fd);
}

/* Refuses what is no regular file before it is opened for real: opening some devices has effects. */
static int check_path(const char *path)
{
	struct stat status;

	if (stat(path, &status) < 0)
		return -errno;
	return S_ISREG(status.st_mode) ? 0 : -EINVAL;
}

int file_add(struct file_table *table, const char *path, uint64_t expected_bytes)
{
	struct file file = {.slot = NO_SLOT};
	uint32_t index, number = table->file_count;
	int fd, r = grow_files(table);

	if (r == 0)
		r = check_path(path);
	if (r < 0)
		return r;
	fd = open_and_decide(table, path, &file);
	if (fd < 0)
		return fd;
	r = check_kind(fd, expected_bytes, &file);
	if (r < 0)
		goto fail;
	file.is_fuse = !file.is_prompt && is_fuse(fd); /* prompt ones are asked nothing more: their drive may hang */
	file.path = strdup(path);
	r = -ENOMEM;
	if (file.path == NULL)
		goto fail;
	table->file[number] = file;
	table->file_count++;
	table->direct += file.is_direct != 0;
	if (find_slot(table, &index) == 0)
		fill_slot(table, index, number, fd);
	else
		(void)close(fd); /* every slot is busy; it is opened again when needed */
	return (int)number;
fail:
	(void)close(fd);
	return r;
}

static int is_same(const struct file *a, const struct file *b)
{
	return a->device == b->device && a->inode == b->inode &&
	       (a->born_ns == b->born_ns || a->born_ns == 0 || b->born_ns == 0);
}

static int open_again(struct file_table *table, uint32_t number)
{
	struct file *file = &table->file[number], now = {0};
	int fd = open_path(table, file->path, file->is_direct), r;

	if (fd < 0)
		return fd == -EAGAIN ? -EBUSY : fd; /* of a lease on the file, not for want of a slot */
	r = check_kind(fd, file->bytes, &now);
	if (r == 0 && !is_same(&now, file))
		r = -ESTALE;
	if (r == 0)
		return fd;
	(void)close(fd);
	return r == -EINVAL || r == -EBADMSG ? -ESTALE : r;
}

int file_pin(struct file_table *table, uint32_t file, uint32_t *ret_slot, int *ret_fd)
{
	uint32_t index;
	int fd, r;

	CNRE_CHECK(file < table->file_count);
	index = table->file[file].slot;
	if (index == NO_SLOT) {
		r = find_slot(table, &index);
		if (r < 0)
			return r;
		fd = open_again(table, file);
		if (fd < 0)
			return fd;
		fill_slot(table, index, file, fd);
	}
	table->slot[index].pins++;
	table->slot[index].was_used = 1;
	*ret_slot = index;
	*ret_fd = table->slot[index].fd;
	return 0;
}

void file_unpin(struct file_table *table, uint32_t slot)
{
	CNRE_CHECK(slot < table->slot_count && table->slot[slot].pins > 0);
	table->slot[slot].pins--;
}

int file_is_direct(const struct file_table *table, uint32_t file)
{
	CNRE_CHECK(file < table->file_count);
	return table->file[file].is_direct;
}

int file_is_prompt(const struct file_table *table, uint32_t file)
{
	CNRE_CHECK(file < table->file_count);
	return table->file[file].is_direct && table->file[file].is_prompt;
}

int file_is_fuse(const struct file_table *table, uint32_t file)
{
	CNRE_CHECK(file < table->file_count);
	return table->file[file].is_fuse;
}

dev_t file_device(const struct file_table *table, uint32_t file)
{
	CNRE_CHECK(file < table->file_count);
	return table->file[file].device;
}

ino_t file_inode(const struct file_table *table, uint32_t file)
{
	CNRE_CHECK(file < table->file_count);
	return table->file[file].inode;
}

const char *file_path(const struct file_table *table, uint32_t file)
{
	CNRE_CHECK(file < table->file_count);
	return table->file[file].path;
}

void file_close_idle(struct file_table *table, dev_t device)
{
	for (uint32_t i = 0; i < table->slot_count; i++)
		if (table->slot[i].fd >= 0 && table->slot[i].pins == 0 &&
		    table->file[table->slot[i].file].device == device)
			empty_slot(table, i);
}

int file_make_buffered(struct file_table *table, uint32_t file)
{
	uint32_t index;
	int flags;

	CNRE_CHECK(file < table->file_count);
	index = table->file[file].slot;
	if (index != NO_SLOT) {
		flags = fcntl(table->slot[index].fd, F_GETFL);
		if (flags < 0 || fcntl(table->slot[index].fd, F_SETFL, flags & ~O_DIRECT) < 0)
			return -errno;
	}
	table->direct -= table->file[file].is_direct != 0;
	table->file[file].is_direct = 0;
	return 0;
}

struct file_counts file_table_counts(const struct file_table *table)
{
	return (struct file_counts){
		.direct = table->direct, .buffered = table->file_count - table->direct, .open = table->open};
}
