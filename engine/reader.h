/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of experts past the page cache: a few threads, each with one blocking read, so that the reads of a batch
 * overlap. It opens the shards again with O_DIRECT and falls back to the buffered descriptors where a file system
 * refuses.
 */
#ifndef ENGINE_READER_H
#define ENGINE_READER_H

#include "engine/expert_table.h"
#include "engine/shard.h"

#define READER_THREADS 8u                 /* as Colibri's loader pool */
#define READER_CHUNK_BYTES (1u << 20)     /* one read at most */

struct reader;

struct reader_ticket {                    /* the reads of one expert; private to reader.c */
	uint32_t pending;
	int error;
};

/* job_count: chunks that may be queued at once. Returns 0, -ENOMEM, or an error of pthread_create. */
int reader_open(struct reader **ret_reader, const struct shard_set *shards, uint32_t job_count);
struct reader *reader_close(struct reader *reader);

/* How many chunks the runs of a plan make. */
uint32_t reader_chunk_count(const struct expert_plan *plan);

/*
 * Queues every run of the plan into buffer (aligned to EXPERT_READ_ALIGNMENT). The ticket must stay in place until
 * reader_wait. Returns 0, or -EAGAIN if that needs more than job_count jobs at once, and then nothing is queued.
 */
int reader_submit(struct reader *reader, const struct expert_plan *plan, char *buffer, struct reader_ticket *ticket);

/* Until every read of the ticket is done. Returns 0, -ENODATA (a shard became shorter), or an error of pread. */
int reader_wait(struct reader *reader, struct reader_ticket *ticket);

/* Bytes that arrived so far, alignment included. */
uint64_t reader_bytes(struct reader *reader);

#endif
