/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of each kvstore/checker_*.c, compiled for its kind of CPU: everything here is static. The hash is compiled in: no
 * library is needed to run.
 */
#include "kvstore/check_inner.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static void put_hash(XXH128_hash_t hash, unsigned char ret_check[KV_BLOCK_CHECK_BYTES])
{
	XXH128_canonical_t canonical;

	_Static_assert(sizeof canonical == KV_BLOCK_CHECK_BYTES, "is the file's format");
	XXH128_canonicalFromHash(&canonical, hash);
	memcpy(ret_check, &canonical, sizeof canonical);
}

static void begin(void *state)
{
	(void)XXH3_128bits_reset(state); /* these fail on NULL only */
}

static void add(void *state, const void *bytes, size_t count)
{
	(void)XXH3_128bits_update(state, bytes, count);
}

static void end(const void *state, unsigned char ret_check[KV_BLOCK_CHECK_BYTES])
{
	put_hash(XXH3_128bits_digest(state), ret_check);
}

static void whole(const void *payload, size_t bytes, unsigned char ret_check[KV_BLOCK_CHECK_BYTES])
{
	put_hash(XXH3_128bits(payload, bytes), ret_check);
}

#define CHECKER                                                                                                 \
	{                                                                                                       \
		.state_bytes = sizeof(XXH3_state_t), .state_alignment = _Alignof(XXH3_state_t), .begin = begin, \
		.add = add, .end = end, .whole = whole                                                          \
	}
