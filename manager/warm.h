/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A warm list: experts that a file names are loaded before anybody asks for them, the most used a byte first. It is the
 * lowest class of loads: nothing of it begins while a demand or a prefetch is queued or on its way, it takes a quarter of
 * the places for loads, and a place stays free. It evicts nobody: where nothing is free it ends, and does not churn. It
 * ends by itself, at its limits, or when it is told to; then no load of it begins, and those on their way arrive. Nothing
 * of it outlives the manager but what it has loaded. Core thread only, but for the reading of the file.
 */
#ifndef CNRE_MANAGER_WARM_H
#define CNRE_MANAGER_WARM_H

#include "manager/manager.h"

#include <stdint.h>

#define WARM_IN_FLIGHT_MAX 64u
#define WARM_LOOKS_PER_TURN 256u     /* of the list: residents are passed over quickly, but there may be many */
#define WARM_LOOK_NS 100000000       /* nothing of it is on its way: whether it may begin now */
#define WARM_ERROR_BYTES 256

struct warm;

struct warm_limits {
	uint64_t bytes;              /* of slabs; 0: none */
	uint64_t time_ns;            /* from when the file was read; 0: none */
};

/* Begins that of --warm, unless residents were taken over from a manager before this one. 0 or -ENOMEM. */
int warm_open(struct manager *manager);
void warm_close(struct manager *manager); /* after the writer */

/* fd is taken over on success. 0; -EALREADY: one is under way; -EAGAIN: the file of one that was stopped is still read. */
int warm_start(struct manager *manager, const struct served_model *model, const char *name, int fd,
	       const struct warm_limits *limits);
int warm_stop(struct manager *manager); /* 0, or -ENOENT: none is under way */

/* After residency_pump, every turn. */
void warm_pump(struct manager *manager);
int64_t warm_deadline_ns(const struct manager *manager);

enum warm_state { WARM_NONE, WARM_READING, WARM_LOADING, WARM_OVER };
/* Why it is over: all that it names is resident; a limit; no room without evicting; told to; the file. */
enum warm_end { WARM_END_NONE, WARM_END_ALL, WARM_END_BYTES, WARM_END_TIME, WARM_END_FULL, WARM_END_STOPPED, WARM_END_FILE };

struct warm_status {
	enum warm_state state;
	enum warm_end end;
	const struct served_model *model; /* NULL: there was none */
	const char *name, *kind, *writer, *error; /* of the file; "" where there is nothing to say */
	struct warm_limits limits;
	uint32_t listed;             /* experts of this model */
	uint32_t looked_at;
	uint32_t loaded, present, refused, failed; /* refused: their layer has all that the policy gives it */
	uint32_t on_their_way;
	uint64_t bytes_loaded;
	double seconds;              /* since the file was read */
};
void warm_get_status(const struct manager *manager, struct warm_status *ret_status);

#endif
