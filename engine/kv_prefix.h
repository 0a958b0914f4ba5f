/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefixes of conversations that somebody computed before: rows are copied from the shared store instead of computed, and
 * what is computed here is published for others. The store's blocks are copied into own rows and their leases given back
 * at once. Nothing here can fail a conversation: what is not found, does not come in time or cannot be published is
 * computed, or is not shared. Only copying ever waits, before the first token, and not for long.
 */
#ifndef ENGINE_KV_PREFIX_H
#define ENGINE_KV_PREFIX_H

#include "cnre/cnre.h"
#include "engine/kv_identity.h"
#include "engine/kv_rows.h"

struct kv_store {                         /* one of a process */
	struct cnre_kv *kv;
	const struct config *config;
	struct kv_identity identity;
	uint64_t token_bytes;
};

/*
 * kv_store_open - open the store of this model's prefixes
 *
 * @kv_namespace  NULL: the user's own
 * @salt          NULL: none; rows are shared among equal salts only
 *
 * Returns:  0, or what cnre_kv_open returns: -ENOTSUP if the manager keeps no prefixes
 */
int kv_store_open(struct kv_store *ret_store, struct cnre *client, const struct config *config, const char *kv_namespace,
		  const char *salt);
void kv_store_close(struct kv_store *store);

struct kv_prefix {                        /* a conversation's place in the store */
	const struct kv_store *store;     /* NULL: none, and every call does nothing */
	struct cnre_kv_chain *chain;      /* NULL: match first */
	uint32_t staged;                  /* tokens of whole blocks that the chain has passed */
	uint32_t partial;                 /* tokens behind them that the store has, too */
	uint32_t tried;                   /* whole blocks' tokens when publishing failed last: not again before the next */
	uint32_t published_blocks;        /* handed over since the caller last set it to 0 */
	uint32_t positions;
	uint64_t *cost_ns;                /* [positions]: what computing a token took; 0: it was copied */
};

/* Returns 0 or -ENOMEM. Without a store (NULL) nothing is allocated. */
int kv_prefix_init(struct kv_prefix *prefix, const struct kv_store *store, uint32_t positions);
void kv_prefix_done(struct kv_prefix *prefix);

/*
 * Copies the rows of the longest known prefix of count tokens into an empty cache and moves its count. Returns the
 * number of tokens copied. Waits for blocks on their way from a drive, some seconds at most.
 */
uint32_t kv_prefix_copy(struct kv_prefix *prefix, const uint32_t *tokens, uint32_t count, struct kv_cache *cache);

/* The tokens of span were computed in so much time. */
void kv_prefix_note_cost(struct kv_prefix *prefix, struct kv_span span, uint64_t ns);

/* Publishes whole blocks among the cache's rows, a few at a time. Never waits. */
void kv_prefix_publish(struct kv_prefix *prefix, const uint32_t *tokens, const struct kv_cache *cache);

/* The same at the end of a request, with the partial last block. Returns how many blocks are not in the store. */
uint32_t kv_prefix_finish(struct kv_prefix *prefix, const uint32_t *tokens, const struct kv_cache *cache);

/* Rows were dropped or taken back: the next call matches anew. */
void kv_prefix_forget(struct kv_prefix *prefix);

#endif
