/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of prefixes as cnre.h describes it, in the memory of a test: the cnre_kv_ functions themselves, for tests that
 * link no client. Exact to the token, one thread, published at once. Knobs make it fail as a real one may. A call that the
 * contract forbids (a read after unpin, a commit without a stage) is counted in misuses.
 */
#ifndef CNRE_TESTS_STANDIN_FAKE_KV_STORE_H
#define CNRE_TESTS_STANDIN_FAKE_KV_STORE_H

#include "cnre/cnre.h"

struct fake_kv_store {
	/* Knobs. */
	int open_error, match_error;      /* what the calls return instead; 0: they work */
	int block_fails_at;               /* index whose cnre_kv_block is -ETIMEDOUT; -1: none */
	int stages_refused;               /* so many stages are -EAGAIN */
	int stages_stale;                 /* so many are -ESTALE, after the store forgot every block */
	int stage_error;                  /* what every stage is; 0: it works */
	int bad_bytes;                    /* cnre_kv_block says so many bytes too many */
	const char *route_name;           /* what cnre_kv_route answers; NULL: nobody */

	/* Seen. */
	int matches, stages, commits, misuses, open_chains;
	long long last_timeout_ns;        /* of cnre_kv_block */
	unsigned long long compute_ns;    /* of the last commit */
	char representation[512], position[512], salt[64], space[64];
};

extern struct fake_kv_store fake_kv_store;

/* Forgets all blocks, and what was seen; knobs off. */
void fake_kv_store_reset(void);
void fake_kv_store_forget_blocks(void);
int fake_kv_store_block_count(void);

#endif
