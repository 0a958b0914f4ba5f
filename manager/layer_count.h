/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is counted layer by layer, and with that model by model, since this manager started. Lookups are not counted here
 * while their sessions live: ledgers and accounts hold them, exactly, and a survey adds them up (survey.h), so the path of a
 * hit pays nothing and no log that was overwritten is missing. Core thread only, but for payload_bytes, which never changes.
 *
 * For each layer: resident = adopted + loads - evictions, and over all layers the sums are what counters.def counts, less what
 * former managers had counted.
 */
#ifndef CNRE_MANAGER_LAYER_COUNT_H
#define CNRE_MANAGER_LAYER_COUNT_H

#include "manager/histogram.h"
#include "manager/manager.h"
#include "manager/session.h"

#include <stdint.h>

/* What became of a prefetch; PREFETCH_ENDS is none of them. */
enum prefetch_end { PREFETCH_USED, PREFETCH_LATE, PREFETCH_WASTED, PREFETCH_FAILED, PREFETCH_ENDS };

struct layer_count {
	uint64_t payload_bytes;           /* of each of its experts; 0: they differ */
	uint64_t adopted, resident;       /* experts: found there at the start; there now */
	uint64_t loads, evictions, rejections, load_errors;
	uint64_t bytes_read, bytes_loaded, bytes_evicted;
	uint64_t prefetches, prefetches_ended[PREFETCH_ENDS];
	struct histogram service;         /* of loads, from submission to completion */
	struct histogram wait;            /* felt, of visits that missed */
};

/* What former managers had counted, whose layers are not known any more. */
struct layer_before {
	struct session_totals ended;
	uint64_t loads, evictions, bytes_read, prefetches;
};

struct layer_counts {
	struct layer_before before;
	uint32_t count;                   /* layers of all models */
	struct layer_count *layer;        /* [count] */
	struct session_totals *ended;     /* [count] of sessions that ended under this manager */
};

/* After feed_open, which numbers the layers. 0 or -ENOMEM. */
int layer_counts_open(struct manager *manager);
void layer_counts_close(struct manager *manager);
/* A successor has taken over what was shared, and nothing has happened since. */
void layer_counts_adopted(struct manager *manager);

/* The layer of an object. */
struct layer_count *layer_count_of(struct manager *manager, uint32_t owner);

/* Adds what one session did in each layer of its model. totals: [its layer_count], or NULL: then nothing is added. */
void layer_counts_ended(struct manager *manager, const struct served_model *model, const struct session_totals *totals);

void session_totals_add(struct session_totals *to, const struct session_totals *from);

#endif
