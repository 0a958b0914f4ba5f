/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that the loader reads, and a bounded cache of their descriptors: a model has hundreds of shards, and
 * descriptors are needed for clients. A file is known by a number for good; its descriptor sits in a slot while
 * it is cached, and slots that a read uses are pinned. Each file is direct or buffered, decided once when it is added.
 * A file that is opened again must still be the same one (device, inode, when it was made, size).
 * Core thread only. It issues no reads but the probing one.
 */
#ifndef CNRE_MANAGER_FILE_H
#define CNRE_MANAGER_FILE_H

#include <stdint.h>
#include <sys/types.h>

#define FILE_OPEN_MIN 8u                  /* slots, however low RLIMIT_NOFILE is, unless the caller asks for fewer */
#define FILE_OPEN_MAX 4096u

struct file_table;

struct file_table_setup {
	uint32_t files_max;
	uint32_t open_max;                /* slots; 0: a quarter of RLIMIT_NOFILE, the rest is for clients */
	int force_buffered;
	/* A slot got a descriptor, or is about to lose it (fd -1). May be NULL. */
	void (*slot_changed)(void *context, uint32_t slot, int fd);
	void *context;
};

struct file_counts { uint32_t direct, buffered, open; };

int file_table_open(struct file_table **ret_table, const struct file_table_setup *setup);
struct file_table *file_table_close(struct file_table *table); /* no slot may be pinned; NULL is fine */
uint32_t file_table_slots(const struct file_table *table);

/*
 * file_add - make a file known
 *
 * Returns:  its number, or -errno of opening or probing it, -EBADMSG (not expected_bytes long), -EINVAL (not a regular
 *           file), -ENOSPC (files_max reached).
 */
int file_add(struct file_table *table, const char *path, uint64_t expected_bytes);

/*
 * file_pin - an open descriptor that stays until file_unpin
 *
 * Returns:  0, -EAGAIN (every slot is pinned: unpin one first), -ESTALE (the path names another file now), -EBUSY (its
 *           owner has a lease on it), or -errno of open(2); on -EMFILE and -ENFILE idle slots were given up first.
 */
int file_pin(struct file_table *table, uint32_t file, uint32_t *ret_slot, int *ret_fd);
void file_unpin(struct file_table *table, uint32_t slot);

int file_is_direct(const struct file_table *table, uint32_t file);
/*
 * Direct, and its file system said so itself (statx): a read is handed to a drive, and whoever asks for it does not wait. Of a
 * network's, FUSE's or one in memory nobody knows: it may be answered, or copied, while it is asked for.
 */
int file_is_prompt(const struct file_table *table, uint32_t file);
int file_is_fuse(const struct file_table *table, uint32_t file);
dev_t file_device(const struct file_table *table, uint32_t file);
ino_t file_inode(const struct file_table *table, uint32_t file);
const char *file_path(const struct file_table *table, uint32_t file); /* valid until file_table_close */

/* Closes the descriptors of files on a device that are not pinned; the next file_pin opens them again. */
void file_close_idle(struct file_table *table, dev_t device);

/* Direct reads were refused after all: from now on buffered, on the descriptor in its slot too. 0 or -errno. */
int file_make_buffered(struct file_table *table, uint32_t file);

struct file_counts file_table_counts(const struct file_table *table);

/*
 * Whether what statx(2) says about alignment allows O_DIRECT with everything in multiples of 4096. Not reported: try.
 * Some kernels report 0 for "impossible", and some file systems want more than 4096.
 */
int file_alignment_allows_direct(int is_reported, uint32_t memory_align, uint32_t offset_align);

#endif
