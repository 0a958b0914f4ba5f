/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of struct cnre_batch: one layer's selection, its place in the admission queue, and one access an index. */
#ifndef CNRE_CLIENT_BATCH_H
#define CNRE_CLIENT_BATCH_H

#include "client/access.h"

struct cnre_batch {
	struct cnre *client;
	struct cnre_batch *next;          /* in the queue, or among the spare ones; under the admission lock */
	uint32_t layer, count, token_count;
	uint32_t distinct;                /* objects: what the batch counts in the reservation */
	uint32_t capacity;                /* room in access[] */
	uint64_t *seen;                   /* one bit an expert of a layer; behind access[capacity]; used by begin */
	_Atomic uint32_t admitted;        /* 1: leases up, missing experts asked for; a futex word */
	struct cnre_access access[];
};

/* Raises every lease, looks at every state, logs, posts. Room for `distinct` objects and count + 1 words was taken. */
void cnre_batch_admit(struct cnre_batch *batch, uint64_t position);

/* Posts what is still missing and not taken. For struct cnre_access_repost: context is the batch. */
void cnre_batch_post(void *context);

#endif
