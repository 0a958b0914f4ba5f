/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one process has of its devices: contexts, addresses, streams, events, registered memory. All of it under
 * process.lock, which is taken before the lock of the world. Handles are numbers in the shape of pointers, of kind,
 * generation and index, so that one that is gone is known for that.
 *
 * Every operation of a stream has a number of its own there, from 1, and a clock: for each stream of the process, up to
 * which of its operations this one comes after. A stream executes an operation once everything before it by the clock is
 * done, and two accesses are ordered if the clock of the later one, or what the host has observed when it was queued,
 * covers the earlier one.
 */
#ifndef CNRE_TESTS_STANDIN_FAKECUDA_PROCESS_H
#define CNRE_TESTS_STANDIN_FAKECUDA_PROCESS_H

#include "gpu/cuda_api.h"
#include "tests/standin/fakecuda/world.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum { STREAMS_MAX = 64, EVENTS_MAX = 4096, RANGES_MAX = 8192, HOST_RANGES_MAX = 1024, MODULES_MAX = 16 };
/* Device addresses: no process can have host memory there, and to touch one is SIGSEGV, as with a real device. */
#define DEVICE_ADDRESSES 0xa00000000000ULL
#define DEVICE_ADDRESSES_PER_SLOT 0x1000000000000ULL

enum kind { KIND_NONE, KIND_CONTEXT, KIND_STREAM, KIND_EVENT, KIND_MODULE, KIND_FUNCTION };

struct clock {
	uint64_t seq[STREAMS_MAX];
};

struct context { /* the primary one of each visible device */
	uint32_t references, generation;
	uint32_t device_generation; /* world_device.generation when it was made */
	int device;                 /* in the world */
	int failed;                 /* sticky code */
	int null_stream;            /* index */
};

enum op_kind { OP_COPY, OP_HOST_FUNCTION, OP_CALLBACK, OP_EVENT, OP_CHECKSUM };

/* A piece of device memory: where it lies in the file. */
struct piece {
	uint64_t id, file_offset, bytes, offset; /* offset: in its allocation */
	int allocation;
};

struct op {
	struct op *next;
	enum op_kind kind;
	uint64_t seq;
	struct clock after;
	struct piece to, from; /* id 0: host memory */
	void *host;
	void *staged; /* what host pointed to, copied when it was queued; freed with the operation */
	uint64_t host_bytes, host_sum;
	CUhostFn call;
	CUstreamCallback callback;
	void *user;
	CUstream handle;
};

struct stream {
	int is_used, is_dying, is_non_blocking, is_null, context;
	uint32_t generation;
	uint64_t queued, done, observed;
	struct clock clock; /* what the next operation comes after */
	struct op *first, **last;
	struct op *running;
	pthread_cond_t wake;
	CUstreamCaptureStatus capture;
	CUstreamCaptureMode capture_mode;
	pthread_t capture_thread; /* that began it */
};

struct event {
	int is_used, is_recorded, is_captured, stream, context;
	uint32_t generation;
	struct clock clock; /* with the operation that it is itself */
};

struct range { /* of device addresses */
	uint64_t address, bytes, id, file_offset;
	int allocation, is_import, is_gone, is_freed_by_exporter, context;
	uint64_t opened; /* imports: how often */
};

struct host_range {
	uintptr_t address;
	size_t bytes;
	int is_allocated; /* by cuMemHostAlloc */
	int pending;      /* copies that wait */
};

struct process {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* something was done, or failed */
	_Atomic int is_ready, is_forked;
	int slot, visible_count, visible[DEVICES_MAX];
	int64_t wait_limit_ns;
	struct context context[DEVICES_MAX];
	struct stream stream[STREAMS_MAX];
	struct event event[EVENTS_MAX];
	struct range range[RANGES_MAX];
	int range_count;
	uint64_t next_address;
	struct host_range host_range[HOST_RANGES_MAX];
	uint32_t module_generation[MODULES_MAX];
	int module_is_used[MODULES_MAX];
};
extern struct process process;

/* Begins a call of the driver: finds what forbids it, and locks the process if nothing does. LEAVE unlocks. */
enum need { NEED_NOTHING, NEED_INIT, NEED_CONTEXT };
CUresult enter(const char *function, enum need need, struct context **ret_context);
CUresult leave(CUresult result);
extern _Thread_local int thread_is_driver; /* in what a stream calls */

/* context.c */
CUcontext context_handle(int index);
struct context *context_current(void);
int context_index(const struct context *context);
CUresult context_failed(struct context *context); /* its sticky code, also of the device's loss */
void context_fail(struct context *context, CUresult code);

uintptr_t handle_make(enum kind kind, uint32_t generation, int index);
int handle_index(const void *handle, enum kind kind, uint32_t *ret_generation, int limit); /* -1: it is none */

/* memory.c: where `bytes` at `address` lie. Breaks rules as it finds them. */
CUresult memory_find(uint64_t address, uint64_t bytes, struct piece *ret_piece);
struct range *memory_range_at(uint64_t address);
struct range *memory_range_new(uint64_t bytes, uint64_t id, int allocation, uint64_t file_offset, int context);
void memory_drop_context(int context); /* all that was allocated and opened in it */

/* host.c: the registered range that holds all of it; NULL: pageable. */
struct host_range *host_find(const void *address, size_t bytes);
void host_pending(const void *address, size_t bytes, int change); /* copies that wait for it */
uint64_t host_sum(const void *memory, size_t bytes);
void host_count_staged(int64_t bytes);

/* access.c, with the world unlocked. */
void access_begin(const struct piece *piece, int is_write, int stream, const struct op *op);
void access_observe(int stream, uint64_t seq);
int access_is_pending(uint64_t id, int own); /* own: of this process; else of others */
void access_forget(uint64_t id);             /* of this process */

/* stream.c */
CUresult stream_find(CUstream handle, struct context *current, int *ret_index);
int stream_new(int context, int is_null, int is_non_blocking); /* -1: too many */
struct op *op_new(enum op_kind kind);
void op_free(struct op *op);
/* Takes op. ret_clock, which may be NULL: what comes after it comes after that. */
void stream_queue(int stream, struct op *op, struct clock *ret_clock);
CUresult stream_wait(int stream, uint64_t seq);   /* with process.lock, which it gives away meanwhile */
CUresult stream_wait_context(int context);
int stream_is_done(int stream);       /* with all that it waits for; then the host has observed it */
CUresult stream_finish(int stream);   /* waits until it is */
void stream_observe(const struct clock *clock);
int stream_must_stop(const struct stream *stream); /* its context has failed */
void clock_join(struct clock *into, const struct clock *other);
void stream_drop_context(int context);

/* capture.c: 0, or the error of a call that a capture forbids, which it ends. */
CUresult capture_check(void);

/* work.c: executes one operation, with process.lock, which it gives away meanwhile. */
void work_run(struct stream *stream, struct op *op);
/* Until stream and operation may run: not held, and its time over. Gives process.lock away. */
void work_delay(struct stream *stream, const struct op *op);

/* failure.c: what tests have asked to fail; 0 if nothing. */
CUresult failure_take(const char *function);
void failure_read_environment(void);

#endif
