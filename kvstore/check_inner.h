/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The check of payloads for one kind of CPU; check.c chooses once, by what this one can do. All give the same bytes. The
 * hash is what publishing and loading a block cost beside the copy: with AVX2 it takes a third of the time.
 */
#ifndef KVSTORE_CHECK_INNER_H
#define KVSTORE_CHECK_INNER_H

#include "kvstore/block.h"

struct kv_checker {
	size_t state_bytes, state_alignment;
	void (*begin)(void *state);
	void (*add)(void *state, const void *bytes, size_t count);
	void (*end)(const void *state, unsigned char ret_check[KV_BLOCK_CHECK_BYTES]);
	void (*whole)(const void *payload, size_t bytes, unsigned char ret_check[KV_BLOCK_CHECK_BYTES]);
};

extern const struct kv_checker kv_checker_plain;
const struct kv_checker *kv_checker_avx2(void); /* NULL: this CPU has none */

#endif
