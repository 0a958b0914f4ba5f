/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading objects from drives into slabs. One loader, used by the core thread only. Two engines behind one interface:
 * io_uring (registered buffers and files where the limits allow), and a pool of pread threads where io_uring is
 * forbidden; both give the same results, counters and errors. Files are opened O_DIRECT when the file system really
 * allows it (STATX_DIOALIGN, then a probing read), else through the page cache: decided per file, shown in status.
 * The loader knows runs of bytes and drives; it knows neither objects, nor leases, nor policy.
 */
#ifndef CNRE_MANAGER_LOADER_H
#define CNRE_MANAGER_LOADER_H

#include <stddef.h>
#include <stdint.h>

#define LOADER_RUNS_MAX 8u
#define LOADER_FILES_MAX 16384u           /* shards of all models and mirrors */
#define LOADER_DRIVES_MAX 16u
#define LOADER_REPLICAS_MAX 5u            /* of a file: the primary and four mirrors */
#define LOADER_READS_IN_FLIGHT_DEFAULT 4u /* objects per drive; measured, see loader.c */
#define LOADER_RETRIES_MAX 16u            /* continuations of one chunk without a byte of progress before it fails */

struct loader;

enum loader_engine { LOADER_ENGINE_AUTO, LOADER_ENGINE_URING, LOADER_ENGINE_POOL };

struct loader_setup {
	enum loader_engine engine;        /* AUTO: io_uring, or the pool with the reason in loader_status */
	uint32_t reads_in_flight_max;     /* objects per drive (R16); 0: LOADER default found by measurement */
	uint32_t chunk_bytes;             /* a read is split into chunks of this size; 0: default */
	uint32_t chunk_depth;             /* chunks in flight per drive; 0: default */
	uint32_t open_files_max;          /* bound of the descriptor cache; 0: derived from RLIMIT_NOFILE */
	uint32_t pool_threads;            /* 0: default */
	int force_buffered;               /* never O_DIRECT */
	/* O_DIRECT is, for this file, at once or at some later read: it is read through the page cache from now on. Or NULL. */
	void (*refused)(void *context, uint32_t file);
	void *refused_context;
};

struct loader_status {
	int uring;                        /* 1 io_uring, 0 pread pool */
	char reason[160];                 /* why not io_uring, or what was stepped down ("registered buffers refused: …") */
	int registered_buffers;           /* pool segments registered with the ring now */
	int registered_files;             /* 1: descriptors are registered too */
	uint32_t files_direct, files_buffered, files_open;
	uint32_t reads_in_flight_max, chunk_bytes, chunk_depth;
	uint32_t drives;                  /* with files */
};

struct loader_drive_status {
	uint64_t device;                  /* st_dev of its files */
	uint32_t reads, chunks;           /* in flight: submitted and not reported; with the kernel */
	uint64_t bytes;                   /* that arrived, whoever asked for them */
	int64_t busy_ns;                  /* time in which reads were in flight */
};

struct loader_run {
	uint32_t file;                    /* from loader_add_file */
	uint64_t file_off;                /* multiple of 4096 */
	uint64_t bytes;                   /* multiple of 4096; may reach past the end of the file */
	uint64_t needed_bytes;            /* complete when this many have arrived; fewer at end of file is -EBADMSG */
	void *memory;                     /* multiple of 4096, room for `bytes`; those after needed_bytes may stay untouched */
};

/* One object on its way. The caller owns the memory and keeps it still until `done` was called. */
struct loader_read {
	struct loader_run run[LOADER_RUNS_MAX];
	uint32_t run_count;
	void (*done)(struct loader_read *read, int status); /* core thread, from loader_reap; 0 or -errno */

	/* Filled by the loader before `done`. */
	uint64_t bytes_read;              /* physical, alignment included */
	uint32_t retries;
	int64_t submitted_ns, completed_ns;
	uint32_t failed_run;              /* on failure: which run, the first if several failed, */
	uint64_t failed_off;              /* and at which file offset it stopped */

	struct loader_read *next;         /* the loader's own from here on */
	uint32_t drive, chunks_in_flight, next_run;
	uint64_t next_off;
	int status;
	uint64_t run_got[LOADER_RUNS_MAX];
};

/* 0 or -errno. Never fails because io_uring is forbidden unless the setup insists on it. */
int loader_open(struct loader **ret_loader, const struct loader_setup *setup);
/*
 * Waits for what is in flight in the kernel, starts nothing more, and calls every outstanding `done` (-ECANCELED unless
 * the read was complete or had failed before). NULL is fine.
 */
struct loader *loader_close(struct loader *loader);

/*
 * Starts nothing more and waits until nothing is in flight in the kernel: 0, or -ETIMEDOUT, when a drive hangs. Then
 * loader_close would wait for it.
 */
int loader_drain(struct loader *loader, int64_t timeout_ns);

/*
 * Makes a file known: opens it, checks its size, decides direct or buffered, closes it again if the cache is full.
 * Returns the file's number, or -errno (-EBADMSG: the size is not expected_bytes; -EOPNOTSUPP: it lies on FUSE, which
 * io_uring cannot be trusted with: the pool can).
 */
int loader_add_file(struct loader *loader, const char *path, uint64_t expected_bytes);
/* What to do about an error of loader_add_file, for messages. */
const char *loader_file_advice(int error);
int loader_file_is_direct(const struct loader *loader, uint32_t file);

/* A pool segment that reads will go into: registered with the ring where allowed. 0, or 1 when left unregistered. */
int loader_add_memory(struct loader *loader, void *base, uint64_t bytes, uint32_t segment);
void loader_remove_memory(struct loader *loader, uint32_t segment); /* before its pages are punched out (R18) */

/* Room for one more object on the drive of this file. */
int loader_has_room(const struct loader *loader, uint32_t file);

/*
 * Takes the read; its first chunks are on their way after the next loader_flush. The caller has asked loader_has_room.
 * May be called from `done`. A read counts on the drive of its first run, wherever its other runs lie.
 */
void loader_submit(struct loader *loader, struct loader_read *read);

/*
 * Hands everything submitted to the kernel in one call: once per turn of the core loop, before it sleeps. What the
 * kernel refuses for the moment stays queued for the next flush, so the core should not sleep for ever.
 */
void loader_flush(struct loader *loader);

/* Calls `done` of everything that completed. Never waits. Returns how many. */
int loader_reap(struct loader *loader);

/* Objects in flight, over all drives. */
uint32_t loader_in_flight(const struct loader *loader);

uint32_t loader_drives(const struct loader *loader); /* with files */
/* The drive of a file, below LOADER_DRIVES_MAX, for queues per drive. */
uint32_t loader_drive_of(const struct loader *loader, uint32_t file);
void loader_get_drive(const struct loader *loader, uint32_t drive, struct loader_drive_status *ret_status);
const char *loader_file_path(const struct loader *loader, uint32_t file); /* valid until loader_close */
uint64_t loader_file_device(const struct loader *loader, uint32_t file); /* as of stat(2) */
uint64_t loader_file_inode(const struct loader *loader, uint32_t file);
/* Closes the descriptors of a drive's files that no read uses: one that failed can then be unmounted, and opened anew. */
void loader_let_go(struct loader *loader, uint32_t drive);
/* When the oldest read in flight on the drive of this file was submitted, for time-outs; INT64_MAX: none in flight. */
int64_t loader_oldest_ns(const struct loader *loader, uint32_t file);

/*
 * What to sleep on: a descriptor to poll (readable until the next loader_reap), or -errno; or, with io_uring, the ring
 * itself, by io_uring_submit_and_wait_timeout. The ring's own descriptor is not to be polled: its completion work waits
 * for the core thread, and poll does not see it. The core may add operations of its own (bells) through loader_ring,
 * with user data whose lowest bit is 1; their completions are handed to `foreign` during loader_reap.
 */
int loader_event_fd(struct loader *loader);
struct io_uring;
struct io_uring *loader_ring(struct loader *loader); /* NULL with the pool */
void loader_set_foreign(struct loader *loader, void (*foreign)(void *context, uint64_t user_data, int result),
			void *context);

/*
 * A descriptor that must not close before every read of this loader has landed: the write end of the fence (R20). It is
 * registered with the ring, which lets it go only when its last read is over, even if the process was killed. The pool's
 * threads need no more than the process's own copy. 0, or -ENOTSUP: no registered files, so no fence.
 */
int loader_hold(struct loader *loader, int fd);

void loader_get_status(const struct loader *loader, struct loader_status *ret_status);

#endif
