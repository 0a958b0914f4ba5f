/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a disk. A job runs as a task: a small state machine that issues steps (one call each) and goes on when
 * all of them are back. A backend makes the calls: disk_uring.c hands all steps of a turn to the kernel at once,
 * disk_plain.c makes them one after another. Everything here belongs to the disk's thread but what stands under `lock`.
 */
#ifndef KVSTORE_DISK_INNER_H
#define KVSTORE_DISK_INNER_H

#include "kvstore/fanout.h"

#include <pthread.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define DISK_DEPTH_DEFAULT 16u
#define DISK_CHUNK_BYTES (1u << 20)       /* of a payload per read */
#define DISK_STEPS 16u                    /* of one task at once: chunks in flight */
#define DISK_PAGE_BYTES 4096u             /* alignment of everything that goes past the page cache */
#define DISK_FD_PATH_BYTES 32u
#define DISK_FILE_MODE 0600
#define DISK_VECTORS 3u                   /* header, payload, and a page to see that nothing lies behind it */
_Static_assert(KV_BLOCK_HEADER_BYTES == DISK_PAGE_BYTES, "a header is read and written past the page cache");
_Static_assert(DISK_CHUNK_BYTES % DISK_PAGE_BYTES == 0, "so are chunks");

enum disk_call { DISK_OPEN, DISK_STAT, DISK_READ, DISK_WRITE, DISK_SYNC, DISK_LINK, DISK_UNLINK, DISK_CLOSE, DISK_CALLS };

struct disk_step {
	enum disk_call call;
	int fd;                           /* or the directory that path is relative to */
	int flags;
	struct disk_step *then;           /* made only if this one did everything; else it is -ECANCELED */
	const char *path, *to;            /* valid until the step is back, as are vectors and stat */
	struct statx *stat;
	struct iovec vector[DISK_VECTORS];
	unsigned vector_count;
	uint64_t off, bytes;              /* of the vectors together */
	struct disk_task *task;
	struct disk_step *next;           /* in a list of first steps */
};

struct disk_steps {                       /* first in, first out */
	struct disk_step *first, **end;
};

struct disk_chunk {                       /* of a READ, in step[] of the same index */
	uint64_t from, got, exact;        /* in the file; there should be `exact` bytes from there */
};

struct disk_write {
	struct statx there;
	uint64_t written;
	int is_present, is_named;         /* the key is there already; fresh is a name */
	int was_made;                     /* its directories, once */
	int result[3];                    /* of write, sync, link */
	char fd_path[DISK_FD_PATH_BYTES], fresh[FANOUT_PATH_BYTES];
};

struct disk_read {
	struct disk_chunk chunk[DISK_STEPS];
	uint64_t next;                    /* byte of the file that no chunk has yet */
	int is_bad;                       /* too short or too long */
};

struct disk_task {
	struct kv_disk *disk;
	struct kv_disk_job *job;          /* NULL: free */
	int (*went)(struct disk_task *task, struct disk_step *step, int result); /* a step is back. 1: issued it again */
	void (*go_on)(struct disk_task *task); /* all are */
	uint32_t pending;
	int fd, is_direct, error;
	char path[FANOUT_PATH_BYTES];
	struct disk_step step[DISK_STEPS];
	unsigned char *header;            /* a page of its own */
	union {
		struct disk_write write;
		struct disk_read read;
	} as;
};

struct disk_scan;                         /* disk_scan.c */

struct disk_queue {
	struct kv_disk_job *first, **end;
	uint32_t count;
};

struct disk_backend {
	void (*issue)(struct disk_backend *backend, struct disk_step *first); /* it and all that it leads to */
	void (*turn)(struct disk_backend *backend); /* makes or ends calls, waits if there is nothing else to do */
	void (*close)(struct disk_backend *backend);
};

struct kv_disk {
	char *directory;
	int root_fd;                      /* always this number; what it is may be made anew */
	uint32_t depth;
	int plain, tmpfile, is_direct;    /* the last two: until the drive says no */
	int held_fd;                      /* of the setup */
	pthread_t thread;
	int wake_fd;                      /* by kv_disk_submit: there is something new */
	int event_fd;                     /* by the thread: something is done */

	/* The thread's own. */
	struct disk_backend *backend;
	struct disk_task *task;           /* depth of them */
	unsigned char *pages;
	unsigned char *scratch;           /* a page that nobody reads */
	struct disk_queue reads, writes, scans;
	uint32_t running, writes_running, reads_in_a_row;
	struct disk_scan *scan;
	int scan_is_busy;
	struct disk_queue ended;          /* not handed over yet */
	struct kv_disk_status work;

	pthread_mutex_t lock;
	pthread_cond_t changed;           /* is_ready, is_over */
	struct disk_queue incoming, done;
	struct kv_folder *folders;
	uint32_t folder_count;
	struct kv_disk_status status;     /* a copy of work */
	int is_ready, is_stopping, is_over;
};

/* ---- disk_turn.c ---- */
void disk_queue_init(struct disk_queue *queue);
void disk_queue_add(struct disk_queue *queue, struct kv_disk_job *job);
struct kv_disk_job *disk_queue_take(struct disk_queue *queue); /* NULL: empty */
void disk_queue_move(struct disk_queue *from, struct disk_queue *to); /* all of them */
void disk_raise(int event_fd);
void *disk_run(void *disk);               /* the thread */
__attribute__((format(printf, 2, 3))) void disk_note(struct kv_disk *disk, const char *format, ...); /* last_error */

/* ---- disk.c ---- */
/* Opens the directory again if it was deleted; makes it, too. 0: another try may go better. */
int disk_open_root_again(struct kv_disk *disk, int make);

/* ---- disk_task.c ---- */
void disk_steps_init(struct disk_steps *steps);
void disk_steps_add(struct disk_steps *steps, struct disk_step *step);
struct disk_step *disk_steps_take(struct disk_steps *steps);
void disk_start_jobs(struct kv_disk *disk);
void disk_step_done(struct disk_step *step, int result); /* by the backend */
void disk_issue(struct disk_task *task, struct disk_step *first);
void disk_finish(struct disk_task *task, int status);
int disk_step_was_full(const struct disk_step *step, int result); /* it did everything */
int disk_lower_to_cached(struct disk_task *task); /* no direct I/O for this file; 0 or -errno */

/* ---- the kinds of jobs ---- */
void disk_write_start(struct disk_task *task);
void disk_read_start(struct disk_task *task);
void disk_remove_start(struct disk_task *task);
void disk_scan_start(struct disk_task *task);
int disk_scan_open(struct kv_disk *disk, unsigned char *pages); /* KV_DISK_SCAN_BATCH pages for headers */
void disk_scan_close(struct kv_disk *disk);

/* ---- backends ---- */
int disk_plain_open(struct kv_disk *disk, struct disk_backend **ret_backend);
int disk_plain_call(struct kv_disk *disk, const struct disk_step *step); /* what the call returned, or -errno */
int disk_uring_open(struct kv_disk *disk, struct disk_backend **ret_backend);

#endif
