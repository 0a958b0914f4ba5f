/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where experts come from while a model runs: the three cache modes behind one interface, so that nothing else in
 * the engine knows which is in use. One thread, one batch at a time: begin a layer's selection, wait for its
 * experts in the router's order, give each back, end. All reads of a batch are under way after begin.
 */
#ifndef ENGINE_EXPERT_SOURCE_H
#define ENGINE_EXPERT_SOURCE_H

#include "engine/config.h"
#include "engine/expert.h"
#include "engine/message.h"
#include "engine/shard.h"

#include <stdbool.h>

struct source_counters {
	uint64_t hits, misses, joins;
	uint64_t bytes_read;              /* physical, since the source was opened */
	uint64_t resident_bytes;          /* expert bytes in memory now, of this process or (mmap, cnre) shared */
	uint64_t felt_wait_ns;            /* time the computing thread was held up */
	bool has_bytes_read;              /* false: this system does not tell */
};

struct expert_source;

struct expert_source_ops {
	/* Experts are distinct; count is 1 .. top_k. Returns 0 or -Exxx; on failure there is no batch. */
	int (*begin)(struct expert_source *source, uint32_t layer, const uint32_t *experts, uint32_t count);

	/* The expert at index of the batch, readable until its release. */
	int (*wait)(struct expert_source *source, uint32_t index, struct expert *ret_expert);
	void (*release)(struct expert_source *source, uint32_t index);

	/* Gives back what is still held. */
	void (*end)(struct expert_source *source);
	void (*token_end)(struct expert_source *source, uint32_t token_count);
	int (*counters)(struct expert_source *source, struct source_counters *ret_counters);
	void (*close)(struct expert_source *source);
};

struct expert_source {
	const struct expert_source_ops *ops;
};

/* An own least-recently-used cache a layer, as engines have today. Exactly one of the two sizes is not 0. */
struct private_size {
	uint64_t bytes;                   /* of all layers together */
	uint32_t slots_per_layer;
};
int cache_private_open(struct expert_source **ret_source, const struct config *config, const struct shard_set *shards,
		       const struct private_size *size, char message[ENGINE_MESSAGE_BYTES]);

/* The shards mapped, the page cache as the cache. */
int cache_mmap_open(struct expert_source **ret_source, const struct config *config, const struct shard_set *shards,
		    char message[ENGINE_MESSAGE_BYTES]);

/*
 * The shared manager, through libcnre. The client stays the caller's, and must outlive the source; the layout is that of the
 * view that it is attached for.
 */
struct cnre;
int cache_cnre_open(struct expert_source **ret_source, const struct config *config, struct cnre *client,
		    enum matrix_layout layout, char message[ENGINE_MESSAGE_BYTES]);

#endif
