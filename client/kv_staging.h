/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room in the staging segment: a few ranges in the order of their offsets, first fit. As many as there are slots, since a
 * staged block has one promised to it. Plain memory of the caller, which locks.
 */
#ifndef CNRE_CLIENT_KV_STAGING_H
#define CNRE_CLIENT_KV_STAGING_H

#include "shm/kv.h"

#define CNRE_KV_STAGING_ALIGNMENT CNRE_PAGE_BYTES

struct cnre_kv_staging {
	uint64_t bytes;                   /* of the segment */
	uint32_t count;
	struct {
		uint64_t off, bytes;
	} range[CNRE_KV_SLOTS];
};

/* bytes at least 1. 0, or -EAGAIN: no gap is as large. */
int cnre_kv_staging_take(struct cnre_kv_staging *staging, uint64_t bytes, uint64_t *ret_off);
/* An offset that take gave; another is ignored. */
void cnre_kv_staging_give(struct cnre_kv_staging *staging, uint64_t off);

#endif
