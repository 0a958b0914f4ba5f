/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of a namespace: two chains per bucket, by a block's own name and by its parent's. One writer (the manager),
 * any number of readers in other processes, which hold nothing while they walk. What a reader is led to is only a
 * candidate: it raises its lease, sees the state, and compares key or parent under it.
 *
 * A reader that found nothing while the writer was at work looks again (CNRE_KV_WALK_TRIES), so that a present block is
 * missed only while the index changes without pause; a missed block costs its computation and nothing else.
 *
 * Ordering map:
 *   [K1] release store of a head or link (manager) -> [K2] acquire load (client)     the entry behind it is filled
 *   [K3] sequence odd, then the change, then even (manager, release) -> [K4] acquire loads around a walk (client)
 */
#ifndef CNRE_SHM_KV_INDEX_H
#define CNRE_SHM_KV_INDEX_H

#include "shm/kv.h"

#define CNRE_KV_WALK_TRIES 4u

enum cnre_kv_chain_kind { CNRE_KV_BY_KEY, CNRE_KV_BY_PARENT };

/* Manager: an empty index: heads and links to none, every entry FREE. Once, before the segment is published. */
void cnre_kv_index_init(struct cnre_kv_directory *directory);
/* Manager: a filled entry becomes findable by its key and by its parent; and no more so. Twice is once. */
void cnre_kv_index_insert(struct cnre_kv_directory *directory, uint32_t index);
void cnre_kv_index_remove(struct cnre_kv_directory *directory, uint32_t index);
/*
 * Manager: all that the caller says, in two looks at every chain, since one by one each costs a walk along its own. How many.
 */
uint32_t cnre_kv_index_remove_if(struct cnre_kv_directory *directory, int (*is_out)(void *context, uint32_t index),
				 void *context);
/* Manager: chains anew from the entries that say is_indexed, after a writer that died at work. How many there are. */
uint32_t cnre_kv_index_rebuild(struct cnre_kv_directory *directory);
/* Manager: the entry with this key, or CNRE_KV_NONE; and whether any entry has this parent. Exact: the caller is the writer. */
uint32_t cnre_kv_index_lookup(const struct cnre_kv_directory *directory, const unsigned char key[CNRE_KV_KEY_BYTES]);
uint32_t cnre_kv_index_child(const struct cnre_kv_directory *directory, const unsigned char parent[CNRE_KV_KEY_BYTES],
			     uint32_t after); /* CNRE_KV_NONE: the first; the next one behind `after`, or CNRE_KV_NONE */

struct cnre_kv_walk {                     /* client: candidates for a name */
	const struct cnre_kv_directory *directory;
	enum cnre_kv_chain_kind kind;
	uint64_t tag, sequence;
	uint32_t next, steps, tries;
};
/* The directory's sizes were checked when it was mapped; links are not believed. */
void cnre_kv_walk_begin(struct cnre_kv_walk *walk, const struct cnre_kv_directory *directory, enum cnre_kv_chain_kind kind,
			const unsigned char name[CNRE_KV_KEY_BYTES]);
/* The next candidate below entry_count, or CNRE_KV_NONE. It may come twice after a disturbance. */
uint32_t cnre_kv_walk_next(struct cnre_kv_walk *walk);

#endif
