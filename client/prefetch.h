/* SPDX-License-Identifier: Apache-2.0 */
/* Which prefetches were of use: marks compared with the ledger's own access counts, so that a hit pays nothing. */
#ifndef CNRE_CLIENT_PREFETCH_H
#define CNRE_CLIENT_PREFETCH_H

#include "client/client.h"

#define CNRE_PREFETCH_MARK (1ull << 63)   /* the low half: accesses when it was prefetched */

/* The object was asked for ahead of need. */
void cnre_prefetch_mark(struct cnre *client, uint32_t object);

/* 1: the object was prefetched and has been asked for since. */
uint32_t cnre_prefetch_is_used(const struct cnre *client, uint32_t object);

#endif
