/* SPDX-License-Identifier: Apache-2.0 */
/* One look at a manager, for explain: what its verbs say, as numbers. */
#ifndef CNRE_TOOLS_CTL_EXPLAIN_SAMPLE_H
#define CNRE_TOOLS_CTL_EXPLAIN_SAMPLE_H

#include "tools/ctl/verb.h"

#include <stdint.h>

#define EXPLAIN_CLIENTS_MAX 1024u /* as many as a manager has sessions; more are not looked at */
#define EXPLAIN_DRIVES_MAX 64u
#define EXPLAIN_NAME_BYTES 64u
#define EXPLAIN_REASON_BYTES 256u

struct explain_client {
	uint64_t session, accesses;
	double felt_wait_s;
};

struct explain_drive {
	char name[EXPLAIN_NAME_BYTES]; /* the kernel's, or the numbers of the device */
	char state[16];
	uint64_t bytes, reads, in_flight;
	double read_s;
};

/* All zeros for a manager that was not to use GPUs, and for one of a release before them. */
struct explain_vram {
	int is_asked_for, is_on;
	uint32_t device_count, lost_count;
	char lost[EXPLAIN_NAME_BYTES];    /* the UUID of the first that is lost */
	char reason[EXPLAIN_REASON_BYTES]; /* why it is; or why none is used */
	uint64_t hits, uploads;
};

struct explain_sample {
	double uptime_s;
	uint64_t accesses, misses, loads, bytes_read, evictions, resident_bytes, resident_objects, budget_bytes;
	uint64_t loads_in_flight, loads_queued;
	double felt_wait_s, service_s;
	uint32_t client_count, drive_count;
	struct explain_client client[EXPLAIN_CLIENTS_MAX];
	struct explain_drive drive[EXPLAIN_DRIVES_MAX];
	/* Shares of lookups that miss with the memory of now, and with twice of it, evenly divided and LRU; known 0: nothing was seen. */
	int curve_known;
	double miss_share_now, miss_share_double;
	uint64_t all_bytes, object_count; /* of every model that is served */
	struct explain_vram vram;
};

/* 0, or -errno with a message. It asks stats last, so that its clock is the moment of the sample. */
int explain_sample_take(const struct verb_asker *asker, struct explain_sample *ret_sample, char message[CTL_MESSAGE_BYTES]);

#endif
