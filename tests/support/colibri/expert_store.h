/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for Colibri's header of that name; see tensor.h. */
#ifndef CNRE_TESTS_SUPPORT_COLIBRI_EXPERT_STORE_H
#define CNRE_TESTS_SUPPORT_COLIBRI_EXPERT_STORE_H

#include "tests/support/colibri/tensor.h"

typedef struct ColiExpertStore ColiExpertStore;

typedef struct {
	int layer, expert;
} ColiExpertKey;

typedef struct {
	ColiExpertKey key;
	ColiTensorView gate, down, up;
	void *lease;
} ColiExpertView;

typedef struct {
	uint64_t requests, hits, misses, prefetched, prefetch_hits, bytes_read, resident_bytes, capacity_bytes;
} ColiExpertStoreStats;

/* Trees differ in what stands before destroy; one operation that is not ours stands here for all of those. */
typedef struct {
	int (*lookup)(ColiExpertStore *store, ColiExpertKey key, ColiExpertView *view);
	void (*release)(ColiExpertStore *store, ColiExpertView *view);
	int (*prefetch)(ColiExpertStore *store, const ColiExpertKey *keys, size_t count);
	void (*stats)(const ColiExpertStore *store, ColiExpertStoreStats *stats);
	int (*emap)(const ColiExpertStore *store, char *hex, size_t bytes, void *ret_telemetry);
	void (*destroy)(ColiExpertStore *store);
} ColiExpertStoreOps;

struct ColiExpertStore {
	const ColiExpertStoreOps *ops;
	void *state;
	void *gpu;
};

#endif
