/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a checkpoint, read from its shards by a small reader of the test's own, to compare leased
 * experts with: neither the manager's catalog nor its loader is believed. Reports by return value, so children may use it.
 */
#ifndef CNRE_TESTS_TRUTH_H
#define CNRE_TESTS_TRUTH_H

#include "cnre/cnre.h"

#include <stddef.h>
#include <stdint.h>

struct truth;

int truth_open(struct truth **ret_truth, const char *directory); /* 0 or -errno */
void truth_close(struct truth *truth);
uint32_t truth_shards(const struct truth *truth);

struct truth_tensor {
	const unsigned char *data;
	uint64_t bytes;
	const char *dtype;                /* as the header spells it */
	uint32_t rank;
	uint64_t last;                    /* of its dimensions; 0: it has none */
};
/* 1 and the tensor of that name, or 0. */
int truth_tensor(const struct truth *truth, const char *name, struct truth_tensor *ret_tensor);

/* Of OLMoE. 0: every part has the size and the bytes of the file; otherwise 1 + the role of the first that differs. */
int truth_compare(const struct truth *truth, const struct cnre_expert *expert);

/* Pages of all shards that lie in the page cache, first and last page of each left out. */
size_t truth_cached_pages(const struct truth *truth);
/* Asks the kernel to forget them. */
void truth_drop_cache(const struct truth *truth);

/* Acquires, compares and releases one expert: 0, -errno, or 1000 + what truth_compare said. */
int truth_check_one(const struct truth *truth, struct cnre *client, uint32_t layer, uint32_t expert);

#endif
