/* SPDX-License-Identifier: Apache-2.0 */
/* Two buffers, a worker, and an end mark; see recorder.h. */
#include "manager/recorder.h"

#include "base/check.h"
#include "base/file.h"
#include "manager/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct recorder {
	struct worker_job job; /* first: run and done get its address */
	struct worker *worker;
	int fd;
	unsigned char *header; /* not written yet, or NULL */
	size_t header_bytes;
	unsigned char *filling, *writing; /* RECORDER_BUFFER_BYTES each */
	size_t filled_bytes, writing_bytes;
	uint64_t bytes_max, lost_since;
	int is_writing, is_stopping, is_ended;
	int write_error; /* the job's, read when it is done */
	struct recorder_status status;
};

#define END_BYTES (2u * RECORD_BYTES_MAX) /* kept free in the buffer: a loss and the end mark always fit */

static void write_buffer(struct worker_job *job)
{
	struct recorder *recorder = (struct recorder *)job;

	recorder->write_error = cnre_file_write(recorder->fd, recorder->header, recorder->header_bytes);
	if (recorder->write_error == 0)
		recorder->write_error = cnre_file_write(recorder->fd, recorder->writing, recorder->writing_bytes);
}

static void take_result(struct recorder *recorder)
{
	recorder->is_writing = 0;
	recorder->status.error = recorder->write_error;
	if (recorder->write_error == 0)
		recorder->status.bytes += recorder->header_bytes + recorder->writing_bytes;
	free(recorder->header);
	recorder->header = NULL;
	recorder->header_bytes = recorder->writing_bytes = 0;
}

static void swap_buffers(struct recorder *recorder)
{
	unsigned char *filled = recorder->filling;

	recorder->filling = recorder->writing;
	recorder->writing = filled;
	recorder->writing_bytes = recorder->filled_bytes;
	recorder->filled_bytes = 0;
	recorder->is_writing = 1;
}

static void buffer_written(struct worker_job *job)
{
	struct recorder *recorder = (struct recorder *)job;

	take_result(recorder);
	if (recorder->is_stopping)
		recorder_flush(recorder);
}

int recorder_open(struct recorder **ret_recorder, struct worker *worker, int fd, const struct record_header *header,
		  uint64_t bytes_max)
{
	struct recorder *recorder;
	struct stat status;
	int r;

	if (fstat(fd, &status) < 0)
		return -errno;
	if (!S_ISREG(status.st_mode))
		return -EINVAL; /* a pipe that nobody reads would hold a worker for ever */
	recorder = calloc(1, sizeof *recorder);
	if (recorder == NULL)
		return -ENOMEM;
	recorder->filling = malloc(RECORDER_BUFFER_BYTES);
	recorder->writing = malloc(RECORDER_BUFFER_BYTES);
	r = recorder->filling == NULL || recorder->writing == NULL
		    ? -ENOMEM
		    : record_put_header(header, &recorder->header, &recorder->header_bytes);
	if (r < 0) {
		free(recorder->filling);
		free(recorder->writing);
		free(recorder);
		return r;
	}
	recorder->job = (struct worker_job){.run = write_buffer, .done = buffer_written};
	recorder->worker = worker;
	recorder->fd = fd;
	recorder->bytes_max = bytes_max;
	*ret_recorder = recorder;
	return 0;
}

static int has_room(const struct recorder *recorder)
{
	return RECORDER_BUFFER_BYTES - recorder->filled_bytes >= END_BYTES + 2 * RECORD_BYTES_MAX;
}

static void append(struct recorder *recorder, const struct record *record)
{
	recorder->filled_bytes += record_put(recorder->filling + recorder->filled_bytes, record);
	recorder->status.records++;
}

static void append_lost(struct recorder *recorder)
{
	struct record lost = {.kind = RECORD_LOST, .a = recorder->lost_since};

	if (recorder->lost_since > 0)
		append(recorder, &lost);
	recorder->lost_since = 0;
}

void recorder_put(struct recorder *recorder, const struct record *record)
{
	uint64_t bytes = recorder->status.bytes + recorder->header_bytes + recorder->writing_bytes + recorder->filled_bytes;

	if (recorder->is_stopping || recorder->status.error < 0)
		return;
	if (bytes + END_BYTES + 2 * RECORD_BYTES_MAX > recorder->bytes_max) {
		recorder->status.is_full = 1;
		recorder_stop(recorder);
		return;
	}
	if (!has_room(recorder))
		recorder_flush(recorder);
	if (!has_room(recorder)) {
		recorder->lost_since++;
		recorder->status.lost++;
		return;
	}
	append_lost(recorder);
	append(recorder, record);
}

void recorder_flush(struct recorder *recorder)
{
	if (recorder->is_writing || recorder->status.error < 0 || (recorder->filled_bytes == 0 && recorder->header == NULL))
		return;
	swap_buffers(recorder);
	worker_submit(recorder->worker, &recorder->job);
}

/* Its number of records is that before it. */
static void put_end(struct recorder *recorder)
{
	struct record end = {.kind = RECORD_END};

	if (recorder->is_ended)
		return;
	append_lost(recorder);
	end.a = recorder->status.records;
	recorder->filled_bytes += record_put(recorder->filling + recorder->filled_bytes, &end);
	recorder->is_ended = 1;
}

void recorder_stop(struct recorder *recorder)
{
	recorder->is_stopping = 1;
	put_end(recorder);
	recorder_flush(recorder);
}

int recorder_is_stopping(const struct recorder *recorder)
{
	return recorder->is_stopping;
}

int recorder_is_over(const struct recorder *recorder)
{
	return !recorder->is_writing &&
	       (recorder->status.error < 0 || (recorder->is_ended && recorder->filled_bytes == 0 && recorder->header == NULL));
}

struct recorder *recorder_close(struct recorder *recorder)
{
	if (recorder == NULL)
		return NULL;
	if (recorder->is_writing) /* the worker has finished it, but nobody was told */
		take_result(recorder);
	put_end(recorder);
	if (recorder->status.error == 0 && (recorder->filled_bytes > 0 || recorder->header != NULL)) {
		swap_buffers(recorder);
		write_buffer(&recorder->job);
	}
	(void)close(recorder->fd);
	free(recorder->header);
	free(recorder->filling);
	free(recorder->writing);
	free(recorder);
	return NULL;
}

void recorder_get_status(const struct recorder *recorder, struct recorder_status *ret_status)
{
	*ret_status = recorder->status;
}
