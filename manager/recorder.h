/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace of what the policy is told, into a file that cnrectl opened for us: whoever may write there decides where, and
 * the manager needs no rights of its own. The core thread fills one of two buffers while a worker writes the other; a
 * drive that is too slow costs records, which are counted in the trace, and never the core thread's time. Core thread only.
 */
#ifndef CNRE_MANAGER_RECORDER_H
#define CNRE_MANAGER_RECORDER_H

#include "policy/record.h"

#include <stddef.h>
#include <stdint.h>

#define RECORDER_BUFFER_BYTES (1u << 20)
#define RECORDER_BYTES_DEFAULT (1ull << 30) /* then the recording ends by itself */

struct recorder;
struct worker;

/*
 * recorder_open - begin with a header
 *
 * @fd        a regular file, opened for writing by the asker; taken over on success
 * @header    copied
 *
 * Returns: 0, -EINVAL (no regular file) or -ENOMEM.
 */
int recorder_open(struct recorder **ret_recorder, struct worker *worker, int fd, const struct record_header *header,
		  uint64_t bytes_max);

void recorder_put(struct recorder *recorder, const struct record *record);

/* Gives what is buffered to the worker; once it is idle, the rest follows by itself. */
void recorder_flush(struct recorder *recorder);

/* The end mark is on its way; what remains is written by the worker. Then recorder_is_over says so. */
void recorder_stop(struct recorder *recorder);
int recorder_is_stopping(const struct recorder *recorder);
int recorder_is_over(const struct recorder *recorder); /* nothing is written any more: stopped, failed, or full */

/* Writes what remains here and now; for the end of the process, when there are no workers any more. NULL is fine. */
struct recorder *recorder_close(struct recorder *recorder);

struct recorder_status {
	uint64_t records, lost, bytes;
	int error;                   /* -errno of a write, or 0 */
	int is_full;                 /* bytes_max was reached */
};
void recorder_get_status(const struct recorder *recorder, struct recorder_status *ret_status);

#endif
