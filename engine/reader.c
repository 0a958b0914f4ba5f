/* SPDX-License-Identifier: Apache-2.0 */
/* See reader.h. One mutex guards everything but the reads themselves: a read takes longer than all the locking. */
#include "engine/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

struct job {
	struct reader_ticket *ticket;
	char *buffer;
	uint64_t file_off, bytes, needed_bytes;
	uint32_t shard;
};

struct reader {
	const struct shard_set *shards;
	int *direct_fd; /* [file_count]; -1: refused */
	pthread_mutex_t mutex;
	pthread_cond_t queued, finished;
	struct job *job; /* ring of job_room */
	uint32_t job_room, first, count;
	uint64_t bytes;
	bool stop;
	uint32_t started;
	pthread_t thread[READER_THREADS];
};

/* One read with every retry it needs; the bytes that arrived, or -Exxx. */
static int64_t read_once(const struct reader *reader, const struct job *job, uint64_t done)
{
	int fd = reader->direct_fd[job->shard];
	bool direct = fd >= 0 && done % EXPERT_READ_ALIGNMENT == 0;

	for (;;) {
		ssize_t got = pread(direct ? fd : reader->shards->file[job->shard].fd, job->buffer + done,
				    job->bytes - done, (off_t)(job->file_off + done));

		if (got >= 0)
			return got;
		if (errno == EINVAL && direct)
			direct = false; /* the file system refuses after all */
		else if (errno != EINTR)
			return -errno;
	}
}

static int read_job(const struct reader *reader, const struct job *job, uint64_t *ret_bytes)
{
	uint64_t done = 0;

	while (done < job->needed_bytes) {
		int64_t got = read_once(reader, job, done);

		if (got <= 0)
			return got < 0 ? (int)got : -ENODATA;
		done += (uint64_t)got;
	}
	*ret_bytes = done;
	return 0;
}

static void *serve(void *argument)
{
	struct reader *reader = argument;

	pthread_mutex_lock(&reader->mutex);
	for (;;) {
		struct job job;
		uint64_t bytes = 0;
		int error;

		while (reader->count == 0 && !reader->stop)
			pthread_cond_wait(&reader->queued, &reader->mutex);
		if (reader->count == 0)
			break;
		job = reader->job[reader->first];
		reader->first = (reader->first + 1) % reader->job_room;
		reader->count--;
		pthread_mutex_unlock(&reader->mutex);
		error = read_job(reader, &job, &bytes);
		pthread_mutex_lock(&reader->mutex);
		reader->bytes += bytes;
		if (error < 0)
			job.ticket->error = error;
		if (--job.ticket->pending == 0)
			pthread_cond_signal(&reader->finished);
	}
	pthread_mutex_unlock(&reader->mutex);
	return NULL;
}

static uint32_t chunks_of(const struct expert_run *run)
{
	return (uint32_t)((run->bytes + READER_CHUNK_BYTES - 1) / READER_CHUNK_BYTES);
}

uint32_t reader_chunk_count(const struct expert_plan *plan)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < plan->run_count; i++)
		count += chunks_of(&plan->run[i]);
	return count;
}

static void queue_run(struct reader *reader, const struct expert_run *run, char *buffer, struct reader_ticket *ticket)
{
	for (uint64_t off = 0; off < run->bytes; off += READER_CHUNK_BYTES) {
		uint64_t bytes = run->bytes - off < READER_CHUNK_BYTES ? run->bytes - off : READER_CHUNK_BYTES;
		uint64_t needed = run->needed_bytes - off < bytes ? run->needed_bytes - off : bytes;

		reader->job[(reader->first + reader->count++) % reader->job_room] = (struct job){
			.ticket = ticket,
			.buffer = buffer + run->buffer_off + off,
			.file_off = run->file_off + off,
			.bytes = bytes,
			.needed_bytes = needed,
			.shard = run->shard,
		};
	}
}

int reader_submit(struct reader *reader, const struct expert_plan *plan, char *buffer, struct reader_ticket *ticket)
{
	uint32_t chunks = reader_chunk_count(plan);
	int error = 0;

	pthread_mutex_lock(&reader->mutex);
	if (chunks > reader->job_room - reader->count) {
		error = -EAGAIN;
	} else {
		*ticket = (struct reader_ticket){.pending = chunks};
		for (uint32_t i = 0; i < plan->run_count; i++)
			queue_run(reader, &plan->run[i], buffer, ticket);
	}
	pthread_mutex_unlock(&reader->mutex);
	for (uint32_t i = 0; i < chunks && i < READER_THREADS; i++)
		pthread_cond_signal(&reader->queued);
	return error;
}

int reader_wait(struct reader *reader, struct reader_ticket *ticket)
{
	int error;

	pthread_mutex_lock(&reader->mutex);
	while (ticket->pending > 0)
		pthread_cond_wait(&reader->finished, &reader->mutex);
	error = ticket->error;
	pthread_mutex_unlock(&reader->mutex);
	return error;
}

uint64_t reader_bytes(struct reader *reader)
{
	uint64_t bytes;

	pthread_mutex_lock(&reader->mutex);
	bytes = reader->bytes;
	pthread_mutex_unlock(&reader->mutex);
	return bytes;
}

static int open_direct(struct reader *reader)
{
	const struct shard_set *shards = reader->shards;

	reader->direct_fd = calloc(shards->file_count, sizeof *reader->direct_fd);
	if (!reader->direct_fd)
		return -ENOMEM;
	for (uint32_t i = 0; i < shards->file_count; i++) /* a refusal means buffered reads of that shard */
		reader->direct_fd[i] = open(shards->file[i].path, O_RDONLY | O_CLOEXEC | O_DIRECT);
	return 0;
}

int reader_open(struct reader **ret_reader, const struct shard_set *shards, uint32_t job_count)
{
	struct reader *reader = calloc(1, sizeof *reader);
	int error = 0;

	if (!reader)
		return -ENOMEM;
	reader->shards = shards;
	reader->job_room = job_count;
	pthread_mutex_init(&reader->mutex, NULL);
	pthread_cond_init(&reader->queued, NULL);
	pthread_cond_init(&reader->finished, NULL);
	reader->job = calloc(job_count, sizeof *reader->job);
	if (!reader->job || open_direct(reader) < 0)
		error = ENOMEM;
	while (error == 0 && reader->started < READER_THREADS) {
		error = pthread_create(&reader->thread[reader->started], NULL, serve, reader);
		reader->started += error == 0;
	}
	if (error != 0) {
		reader_close(reader);
		return -error;
	}
	*ret_reader = reader;
	return 0;
}

/* Reads still queued are done first: their buffers belong to the caller until then. */
struct reader *reader_close(struct reader *reader)
{
	if (!reader)
		return NULL;
	pthread_mutex_lock(&reader->mutex);
	reader->stop = true;
	pthread_cond_broadcast(&reader->queued);
	pthread_mutex_unlock(&reader->mutex);
	for (uint32_t i = 0; i < reader->started; i++)
		pthread_join(reader->thread[i], NULL);
	for (uint32_t i = 0; reader->direct_fd && i < reader->shards->file_count; i++)
		if (reader->direct_fd[i] >= 0)
			(void)close(reader->direct_fd[i]); /* read only: nothing can be lost */
	pthread_cond_destroy(&reader->finished);
	pthread_cond_destroy(&reader->queued);
	pthread_mutex_destroy(&reader->mutex);
	free(reader->direct_fd);
	free(reader->job);
	free(reader);
	return NULL;
}
