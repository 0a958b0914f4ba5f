/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is between the common part of the loader (loader.c) and an engine (loader_uring.c, loader_pool.c). An engine
 * carries out single reads and reports what the kernel said, unchanged: short counts, -EINTR and all. What that means
 * for a run is decided in the common part only, so both engines give the same results. Not for anyone else.
 */
#ifndef CNRE_MANAGER_LOADER_BACKEND_H
#define CNRE_MANAGER_LOADER_BACKEND_H

#include "manager/loader.h"

struct loader_backend;

#define LOADER_WAIT_NS 100000000L         /* a slice of loader_close's wait */

/* One piece of a run on its way. */
struct loader_chunk {
	struct loader_read *read;
	uint32_t run, drive;
	uint64_t run_off;                 /* where in the run it begins */
	uint32_t bytes, needed, got;      /* whole chunk; complete with `needed`; arrived so far */
	uint32_t stalls;                  /* continuations since the last byte of progress */

	/* The attempt that the engine carries out: bytes - got at file_off + got, to memory + got. */
	uint32_t slot;                    /* of the descriptor cache, pinned */
	int fd, is_direct, is_prompt;     /* prompt: as file_is_prompt */
	uint64_t file_off;
	char *memory;

	int result;                       /* the engine's, until it is reported */
	struct loader_chunk *next;        /* of the list it is in: free, waiting, done */
};

struct loader_chunks {                    /* a queue of chunks */
	struct loader_chunk *first, **end; /* end: where the next one is linked; NULL means first, so zeros are empty */
};

static inline void loader_chunks_add(struct loader_chunks *queue, struct loader_chunk *chunk)
{
	chunk->next = NULL;
	if (queue->first == NULL)
		queue->first = chunk;
	else
		*queue->end = chunk;
	queue->end = &chunk->next;
}

static inline struct loader_chunk *loader_chunks_take(struct loader_chunks *queue)
{
	struct loader_chunk *chunk = queue->first;

	if (chunk != NULL)
		queue->first = chunk->next;
	return chunk;
}

struct loader_report {                    /* where an engine's results go; context is the common part's */
	void *context;
	void (*chunk_done)(void *context, struct loader_chunk *chunk, int result); /* may issue again */
	void (*foreign)(void *context, uint64_t user_data, int result);
};

struct loader_backend_calls {
	/* Takes the chunk; never fails: what cannot be handed on yet waits in the engine. */
	void (*issue)(struct loader_backend *backend, struct loader_chunk *chunk);
	void (*flush)(struct loader_backend *backend);
	void (*reap)(struct loader_backend *backend, const struct loader_report *report);
	void (*wait)(struct loader_backend *backend); /* until reap has something to report, or LOADER_WAIT_NS passed */
	void (*nudge)(struct loader_backend *backend); /* makes the event descriptor readable, after the next flush */
	int (*add_drive)(struct loader_backend *backend, uint32_t drive); /* 0 or -errno */
	/* 0, or 1: not registered. */
	int (*add_memory)(struct loader_backend *backend, void *base, uint64_t bytes, uint32_t segment);
	void (*remove_memory)(struct loader_backend *backend, uint32_t segment);
	int (*hold)(struct loader_backend *backend, int fd); /* see loader_hold */
	void (*slot_changed)(struct loader_backend *backend, uint32_t slot, int fd);
	int (*event_fd)(struct loader_backend *backend); /* or -errno */
	void (*close)(struct loader_backend *backend); /* nothing may be in flight */
};

struct loader_backend {
	const struct loader_backend_calls *calls;
	struct io_uring *ring;            /* NULL with the pool */
	struct loader_status *status;     /* the loader's: reason, registered_* */
};

/* Both write the reason of a failure or a step down to status->reason. slots: of the descriptor cache. */
int loader_uring_open(struct loader_backend **ret_backend, struct loader_status *status, uint32_t slots);
int loader_pool_open(struct loader_backend **ret_backend, struct loader_status *status, uint32_t threads_per_drive);

/* Adds a sentence to the reason, cut at its end; a reason is kept whole once it is there twice. */
void loader_note(struct loader_status *status, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
