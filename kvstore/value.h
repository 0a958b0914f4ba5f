/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a block is worth to keep: probable uses x computing time that each avoids / bytes. Uses fade by half in
 * KV_HALF_LIFE_NS, so that a prefix of this morning gives way to one of the last minutes. Pure.
 */
#ifndef KVSTORE_VALUE_H
#define KVSTORE_VALUE_H

#include <stdint.h>

#define KV_HALF_LIFE_NS (30 * 60 * 1000000000LL)
#define KV_COMPUTE_NS_MAX (3600 * 1000000000ull) /* a publisher says what computing took: no more than an hour counts */
#define KV_USE_OF_NEW 1.0                        /* who has just computed it will most probably come back */
#define KV_USE_OF_FOUND 0.25                     /* in a file, of a time that nobody remembers */

struct kv_use {
	double count;                     /* faded, as of at_ns */
	int64_t at_ns;                    /* CLOCK_MONOTONIC; never goes back */
};

void kv_use_add(struct kv_use *use, double amount, int64_t now_ns);
double kv_use_count(const struct kv_use *use, int64_t now_ns);

/* Nanoseconds per byte; larger is worth more. bytes at least 1. */
double kv_value(const struct kv_use *use, uint64_t compute_ns, uint64_t bytes, int64_t now_ns);

#endif
