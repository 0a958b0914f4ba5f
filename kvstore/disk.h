/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of KV blocks, on drives that may be slow, full, read-only, shared with other hosts, or hang. One thread with an
 * io_uring of its own (or plain calls where that is forbidden) does everything; the core thread hands jobs over and reaps
 * them, and never waits.
 *
 *   DIRECTORY/<folder>/<2 hex digits>/<64 hex digits of the key>     a block (kvstore/block.h)
 *   DIRECTORY/<folder>/quarantine/<key>.<n>                          a file that was not what its name says
 *
 * A file is written to an O_TMPFILE by one vectored write, synced, and linked in: no torn file is ever visible. Where there
 * is no O_TMPFILE (NFS, CephFS) it is `<name>.tmp.<boot id>.<pid>.<n>`, fsync, link without replacing, unlink (R36); what
 * a dead process of this boot left is removed at open, and what another host left after a day. EEXIST is success: the
 * name is the content.
 */
#ifndef KVSTORE_DISK_H
#define KVSTORE_DISK_H

#include "kvstore/block.h"

#define KV_DISK_JOBS_MAX 64u              /* reads and writes in the ring at once */
#define KV_DISK_FOLDER_BYTES 96u          /* name of a folder, with its end */
#define KV_DISK_SCAN_BATCH 64u            /* blocks that one round of a scan brings */
#define KV_DISK_MESSAGE_BYTES 256u

struct kv_disk;
struct kv_folder;                         /* one namespace's */

enum kv_disk_kind { KV_DISK_WRITE, KV_DISK_READ, KV_DISK_REMOVE, KV_DISK_SCAN };

/*
 * One thing to do. The caller owns it and everything it names, and keeps all of it still until `done` was called.
 *
 * WRITE   block and memory are the file. status 0 (or there already), -ENOSPC, -EROFS, -EIO, …: nothing is visible then.
 * READ    block->key names the file, block->bytes is the room at memory; the header must say the same block in every field
 *         but compute_ns, and the payload its check. 0, -ENOENT, -EBADMSG (quarantined), -ESTALE (a good file of another
 *         form: other bytes for the same tokens; it stays), -EPROTO (of a newer version; it stays), -EIO, -ETIMEDOUT is
 *         never: a drive that hangs keeps its job.
 * REMOVE  unlinks. 0 or -ENOENT, -EROFS, …
 * SCAN    the next blocks of the folder: found[0..found_count) and file_bytes; found_count 0: the round is over. The first
 *         scan of a folder brings every good file, and a later round those in directories that changed since. Files that
 *         do not decode are quarantined and counted.
 */
struct kv_disk_job {
	enum kv_disk_kind kind;
	struct kv_folder *folder;
	struct kv_block *block;
	void *memory;                     /* multiple of 4096; for a READ room for bytes rounded up to 4096 */
	struct kv_block *found;           /* SCAN: KV_DISK_SCAN_BATCH of them */
	uint32_t found_count;
	void (*done)(struct kv_disk_job *job); /* from kv_disk_reap, on the caller's thread */
	int status;                       /* 0 or -errno */
	int64_t begun_ns, ended_ns;       /* CLOCK_MONOTONIC */
	struct kv_disk_job *next;         /* the disk's own from here on */
	void *own;
};

struct kv_disk_setup {
	const char *directory;            /* made if only its last part is missing; mode 0700 */
	int plain;                        /* 1: never io_uring */
	int no_tmpfile;                   /* 1: as where O_TMPFILE is not known (tests) */
	uint32_t depth;                   /* jobs at once; 0: default */
	int held_fd;                      /* > 0: stays open until the last read of a killed process has landed (R20) */
};

/* 0, or -errno and what to do about it. Leftovers of dead processes are removed here. */
int kv_disk_open(struct kv_disk **ret_disk, const struct kv_disk_setup *setup, char message[KV_DISK_MESSAGE_BYTES]);
/*
 * Finishes what is in flight, then calls the rest's `done` with -ECANCELED. timeout_ns: a drive that hangs is not waited
 * for longer; -ETIMEDOUT then, and thread, jobs and memory must be left as they are until the process ends.
 */
int kv_disk_close(struct kv_disk *disk, int64_t timeout_ns);

/* A folder by name ([A-Za-z0-9._-], no leading dot); made at the first write. -EINVAL, -ENOMEM. Valid until close. */
int kv_disk_folder(struct kv_disk *disk, const char *name, struct kv_folder **ret_folder);
/* Names of folders that are there, sorted; free each and the array. Count or -errno. Blocks: before serving only. */
int kv_disk_list_folders(struct kv_disk *disk, char ***ret_names);

void kv_disk_submit(struct kv_disk *disk, struct kv_disk_job *job);
int kv_disk_event_fd(const struct kv_disk *disk); /* readable when a job is done */
int kv_disk_reap(struct kv_disk *disk);           /* calls `done`; how many */

struct kv_disk_status {
	int uring, tmpfile;               /* what is in use */
	uint64_t blocks_written, blocks_read, bytes_written, bytes_read, present_already, removed;
	uint64_t write_errors, read_errors, quarantined;
	uint64_t syscalls;                /* of the disk's thread for reads and writes: divide by blocks */
	uint32_t jobs_waiting, jobs_running;
	int64_t oldest_ns;                /* since when the oldest running job runs; 0: none */
	char last_error[KV_DISK_MESSAGE_BYTES];
};
void kv_disk_get_status(struct kv_disk *disk, struct kv_disk_status *ret_status);

#endif
