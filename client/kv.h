/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's side of KV prefixes. A namespace (struct cnre_kv_space) is mapped once and shared by every identity that
 * the program opens in it (struct cnre_kv), and those by their chains. Finding a block asks nobody: names are computed,
 * the index is walked, and what it leads to is believed only under a lease and after a comparison (shm/kv.h). Only what
 * must be read from a file, and what is published, goes through the slots of the namespace's channel.
 *
 * Locks, in this order: a chain's (stage, commit, unpin), then its namespace's, which is held for a few instructions and
 * never across a wait. The connection's (client/connection.h) is taken for what asks the manager: open, new pool
 * segments, invalidate; with neither of the others held.
 *
 * Ordering map:
 *   [V3] release store of a pool segment's base (client/map.c) -> [KV1] acquire load    its mapping and its size
 *   [KV6] acq_rel give up a use of an identity                            the last one sees what the others did
 */
#ifndef CNRE_CLIENT_KV_H
#define CNRE_CLIENT_KV_H

#include "client/client.h"
#include "client/kv_staging.h"
#include "kvstore/key.h"
#include "shm/kv_channel.h"
#include "shm/kv_index.h"

#define CNRE_KV_ANSWER_NS 30000000000LL   /* how long open and invalidate wait for the manager's word */
#define CNRE_KV_OPEN_TRIES_MAX 8          /* each restart of the manager leaves one answer unread at most */

_Static_assert(KV_KEY_BYTES == CNRE_KV_KEY_BYTES && KV_BLOCK_TOKENS_MAX == CNRE_KV_TOKENS_MAX, "names fit entries");
_Static_assert(sizeof(struct kv_media) == sizeof(struct cnre_kv_media) &&
		       offsetof(struct kv_media, digest) == offsetof(struct cnre_kv_media, digest) &&
		       offsetof(struct kv_media, digest_bytes) == offsetof(struct cnre_kv_media, digest_bytes),
	       "one array of media is both");

/* A request that the manager has not finished, or whose result was not read. */
struct cnre_kv_sent {
	struct cnre_kv_chain *chain;      /* who published; NULL: nobody asks for the result any more */
	uint64_t staging_off;
	uint64_t ticket;
	uint32_t is_publish, is_ancestor; /* ancestor: later blocks of the chain lie on it */
};

struct cnre_kv_space {
	/* Written before anybody else knows it. */
	struct cnre *client;
	uint32_t number;                  /* what the manager calls it */
	uint32_t is_named;
	char name[CNRE_WIRE_KV_NAME_BYTES];
	struct cnre_segment fixed[CNRE_KV_FD_COUNT];
	const struct cnre_kv_directory *directory;
	const struct cnre_kv_entry *entry;
	struct cnre_kv_channel *channel;
	_Atomic uint64_t *ledger, *log;
	uint32_t entry_count;
	struct cnre_pool_map *pool;       /* [CNRE_KV_SEGMENTS_MAX]; filled under the connection's lock */
	_Atomic uint64_t log_position;
	uint64_t granted_bytes;           /* largest block_bytes_max that the manager said yes to; under client->kv_lock */

	pthread_mutex_t lock;             /* everything below */
	uint32_t *pins;                   /* [entry_count] of each entry by the chains of this process */
	uint64_t pinned_bytes;            /* of entries with pins; at most the directory's pin_bytes_max */
	uint32_t pinned_count;
	uint32_t promised;                /* slots kept free for blocks that are staged */
	uint64_t next_ticket;
	uint64_t in_flight;               /* a bit for each slot in sent[] */
	struct cnre_kv_sent sent[CNRE_KV_SLOTS];
	struct cnre_kv_staging staging;
};

struct cnre_kv {
	struct cnre *client;
	struct cnre_kv_space *space;
	_Atomic uint32_t users;           /* the program, and each chain */
	unsigned char root[KV_KEY_BYTES];
	uint32_t block_tokens, flags;
	uint64_t block_bytes_max;
};

#define CNRE_KV_ATTEMPT_SEEN (1u << 31)

struct cnre_kv_item {                     /* a block of a match */
	uint32_t entry;
	uint32_t tokens;                  /* usable ones */
	uint32_t flags;                   /* CNRE_KV_ENTRY_… */
	uint32_t is_whole;                /* full-size, all of it: others can lie on it */
	uint32_t attempt;                 /* CNRE_KV_ATTEMPT_SEEN | generation at which it was not READY yet (R8); 0: it was */
	uint64_t bytes;                   /* of the payload */
	unsigned char key[KV_KEY_BYTES];
};

struct cnre_kv_chain {
	struct cnre_kv *kv;
	_Atomic uint32_t is_pinned;       /* 1: the items' leases are up */
	_Atomic uint32_t is_unposted;     /* 1: some load found no slot at the match */

	pthread_mutex_t lock;
	unsigned char tip[KV_KEY_BYTES];  /* of the last whole block; the root before the first */
	uint64_t base;                    /* tokens up to there */
	uint64_t tip_ticket;              /* of the request that publishes the tip; 0: it was there */
	uint32_t is_stale;                /* under the namespace's lock: a block that others lie on was not stored */
	uint32_t is_staged;
	unsigned char staged_key[KV_KEY_BYTES];
	struct cnre_kv_request staged;

	uint32_t item_count, item_room;
	struct cnre_kv_item item[];
};

/* ---- kv_space.c: namespaces of a client ---- */

/* The namespace, mapped now if it was not. name NULL: the one of the caller's uid. */
int cnre_kv_space_get(struct cnre *client, const char *name, uint64_t block_bytes_max, struct cnre_kv_space **ret_space);
/* Entries that this client pins, of all its namespaces. */
uint32_t cnre_kv_space_pins(struct cnre *client);
/* At detach: unmaps and frees. In a forked child: frees, the mappings did not come along. */
void cnre_kv_space_close_all(struct cnre *client);
void cnre_kv_space_free_all(struct cnre *client);

/* ---- kv_map.c ---- */

/* Maps the descriptors of KV_OPENED and checks what they say of themselves. Nothing is left on failure. */
int cnre_kv_map_fixed(struct cnre_kv_space *space, const int *fds);
void cnre_kv_map_done(struct cnre_kv_space *space);
/* As cnre_map_pool_segment, of the namespace's pool. */
int cnre_kv_map_segment(struct cnre_kv_space *space, uint32_t segment, int64_t timeout_ns, const char **ret_base);

/* ---- kv_open.c ---- */

struct cnre_kv *cnre_kv_ref(struct cnre_kv *kv);
void cnre_kv_unref(struct cnre_kv *kv);
/* 0, -EINVAL, -ECHILD: the first line of every call on a namespace. */
int cnre_kv_check(const struct cnre_kv *kv);

/* ---- kv_find.c: from a name to a leased entry ---- */

struct cnre_kv_name {                     /* what a block is called, and what it must say of itself */
	const unsigned char *root, *parent;
	const int32_t *tokens;
	uint64_t position;
	uint32_t count, block_tokens;
	struct kv_media_mark mark;
	unsigned char key[KV_KEY_BYTES];
};

/* Mark and key from the rest. 0, -ENODATA (media without digest), -EINVAL, -ENOMEM. */
int cnre_kv_name_fill(struct cnre_kv_name *name, const struct kv_media *media, size_t media_count);

/* Raises a lease on a candidate. 1 and the state word; 0: it names nothing, the lease is back. */
int cnre_kv_lease(struct cnre_kv_space *space, uint32_t index, uint32_t *ret_word);
void cnre_kv_drop(struct cnre_kv_space *space, uint32_t index);
/* Under a lease: whether what the entry says of its own size can be used at all. */
int cnre_kv_is_sane(const struct cnre_kv_entry *entry, uint32_t block_tokens);
/* The entry of that name with a lease up, and its state word; or CNRE_KV_NONE. */
uint32_t cnre_kv_find(struct cnre_kv_space *space, const struct cnre_kv_name *name, uint32_t *ret_word);
/* Whether a block of that key and root is in the index now. */
int cnre_kv_is_there(struct cnre_kv_space *space, const unsigned char *root, const unsigned char *key);

/* ---- kv_pin.c: what is leased for longer than a look ---- */

/* Counts a leased entry as pinned. 0, or -ENOSPC: over the quota, nothing is changed. */
int cnre_kv_pin(struct cnre_kv_space *space, uint32_t index, uint64_t bytes);
/* Counts it back and gives its lease back. */
void cnre_kv_unpin_item(struct cnre_kv_space *space, const struct cnre_kv_item *item);

/* ---- kv_run.c: the longest run of blocks from token 0 ---- */

struct cnre_kv_query {
	struct cnre_kv *kv;
	const int32_t *tokens;
	size_t count;
	const struct kv_media *media;
	size_t media_count;
	int is_probe;                     /* no lease is kept, and no quota asked */
};

/* 0, or -EINVAL, -ENOMEM. */
int cnre_kv_query_check(const struct cnre_kv_query *query);
/* A chain with its items, pinned unless it is a probe. Tokens covered, or -errno. */
int cnre_kv_run(const struct cnre_kv_query *query, struct cnre_kv_chain **ret_chain);

/* ---- kv_chain.c ---- */

int cnre_kv_chain_open(struct cnre_kv *kv, size_t item_room, struct cnre_kv_chain **ret_chain);
void cnre_kv_chain_close(struct cnre_kv_chain *chain);
int cnre_kv_chain_check(const struct cnre_kv_chain *chain);
/* Gives up what is staged and not committed. Chain's lock held. */
void cnre_kv_chain_unstage(struct cnre_kv_chain *chain);
/* The chain has one more whole block. Chain's lock held. */
void cnre_kv_chain_advance(struct cnre_kv_chain *chain, const unsigned char *key, uint64_t ticket);
/* -ESTALE: what would be stored on the chain's tip would lie on nothing. Chain's lock held. */
int cnre_kv_chain_check_tip(struct cnre_kv_chain *chain);

/* ---- kv_post.c: the slots of a namespace ---- */

/* Reads the results that have come. Namespace's lock held. */
void cnre_kv_reap_locked(struct cnre_kv_space *space);
/* Asks for those that are ABSENT, and rings. 1 all are asked for, 0: no slot for some. */
int cnre_kv_post_loads(struct cnre_kv_space *space, const struct cnre_kv_item *items, uint32_t count);
/* Takes staging room and a slot's promise. 0, or -EAGAIN. */
int cnre_kv_promise(struct cnre_kv_space *space, uint64_t bytes, uint64_t *ret_off);
void cnre_kv_unpromise(struct cnre_kv_space *space, uint64_t off);
/* Hands the staged block of a chain over, whose promise this uses. 0 and the ticket, or -EAGAIN. Rings. */
int cnre_kv_post_publish(struct cnre_kv_chain *chain, uint64_t *ret_ticket);

#endif
