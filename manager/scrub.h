/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scrub: from time to time one resident object is hashed again by a worker and compared with its digest, in turn
 * over all of them. What differs was damaged in memory; it is evicted, so that the next request reads it from the drive.
 * An object that somebody holds cannot go before it is released; until then its holders read what is there.
 *
 * One object at a time, pinned by residency_pin meanwhile. Core thread only.
 */
#ifndef CNRE_MANAGER_SCRUB_H
#define CNRE_MANAGER_SCRUB_H

#include <stdint.h>

#define SCRUB_DAMAGED_MAX 16u      /* damaged objects that are still held; with as many the scrub waits for one to go */
#define SCRUB_RETRY_NS 10000000    /* a release rings no bell, nor does a load that ends: look again then */

struct manager;

int scrub_open(struct manager *manager, int64_t period_ns); /* 0: none. Needs manager->digests */
void scrub_close(struct manager *manager);                  /* after the workers have ended */

/* Begins what is due, and evicts what is damaged. Call once per loop turn. */
void scrub_pump(struct manager *manager);
int64_t scrub_deadline_ns(const struct manager *manager);   /* when it wants to be called again at the latest */

#endif
