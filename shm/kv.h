/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is shared for KV prefixes, byte for byte; the rules of shm/layout.h hold here too.
 *
 *   segment        manager  client            content
 *   kv directory   RW       RO, own namespace index of the namespace, an entry per block: name, tokens, state, place
 *   kv pool        RW       RO, own namespace payloads; no header
 *   kv channel     RW       RW, its own only  requests, uses, ledger: one word per entry
 *   kv staging     RO       RW, its own only  payloads on their way in; no header; pages come when the client fills them
 *
 * A match needs no manager: the client computes names, walks the index, and raises a lease on what it finds BEFORE it looks
 * closer. Everything in an entry but its links is still while its state, seen under a lease, is ABSENT, LOADING or READY
 * (Dekker, shm/ledger.h); FREE and EVICTING mean "let go, it names nothing". So a stale link leads to a block of another
 * name, which the comparison of key and tokens turns into a miss, never into wrong bytes.
 *
 *   FREE -> (filled) READY          published
 *   FREE -> (filled) ABSENT         found in a file
 *   ABSENT -> LOADING -> READY      read from its file, on demand of a lease; or -> ABSENT, generation + 1, error class
 *   READY -> EVICTING -> ABSENT     memory given back, the file is there;  or -> FREE
 *   ABSENT -> EVICTING -> FREE      forgotten
 */
#ifndef CNRE_SHM_KV_H
#define CNRE_SHM_KV_H

#include "shm/layout.h"

#define CNRE_KV_NAMESPACES_MAX 64u        /* of one manager */
#define CNRE_KV_NAMESPACES_PER_CLIENT 8u
#define CNRE_KV_NAME_BYTES 96u            /* of a namespace, as the manager calls it */
#define CNRE_KV_KEY_BYTES 32u
#define CNRE_KV_TOKENS_MAX 256u           /* of a block */
#define CNRE_KV_ENTRIES_MAX (1u << 20)    /* of a namespace */
#define CNRE_KV_SEGMENTS_MAX 1024u        /* pool segments of a namespace */
#define CNRE_KV_SLOTS 64u                 /* requests of one client and namespace in flight */
#define CNRE_KV_WALK_MAX 64u              /* entries of one bucket that a reader looks at */
#define CNRE_KV_NONE UINT32_MAX           /* no entry */

/* Beside enum cnre_state, in the state word of an entry that names no block. */
#define CNRE_KV_STATE_FREE 4u

enum {
	CNRE_KV_ENTRY_POINT = 1u << 0,        /* its end can be resumed */
	CNRE_KV_ENTRY_CHECKPOINTS = 1u << 1,  /* of a root that is resumed at points only */
};

struct cnre_kv_entry {
	struct cnre_entry load;           /* state word, place, and what the last read was: as an expert's */

	/* Links and what is written about it while it is used; the manager's alone. */
	_Atomic uint64_t tag, parent_tag; /* first 8 bytes of key and of parent: chosen before a lease is raised */
	_Atomic uint32_t next_of_key, next_of_parent; /* CNRE_KV_NONE: the end */
	_Atomic uint32_t is_indexed;      /* 0: nobody finds it any more; leases of before stay good */
	_Atomic uint32_t on_disk;
	_Atomic uint64_t holder;          /* session << 32 | place in holder[]; 0: none: who used it last */
	uint64_t reserved0;

	/* Still under a lease. */
	uint64_t id;                      /* never reused in the life of the namespace, never 0 */
	unsigned char root[CNRE_KV_KEY_BYTES], parent[CNRE_KV_KEY_BYTES], key[CNRE_KV_KEY_BYTES], media[CNRE_KV_KEY_BYTES];
	uint64_t position, bytes, compute_ns;
	uint32_t token_count, block_tokens, media_first, flags;
	unsigned char check[16];
	uint64_t reserved1[10];
	int32_t token[CNRE_KV_TOKENS_MAX];
};
_Static_assert(sizeof(struct cnre_entry) == 64, "is ABI");
_Static_assert(offsetof(struct cnre_kv_entry, id) == 112, "is ABI");
_Static_assert(offsetof(struct cnre_kv_entry, token) == 384, "is ABI");
_Static_assert(sizeof(struct cnre_kv_entry) == 1408, "is ABI");

struct cnre_kv_bucket {                   /* heads of the two chains that a hash leads to */
	_Atomic uint32_t of_key, of_parent;
};

struct cnre_kv_holder {                   /* a client of the namespace, for cnre_kv_route */
	_Atomic uint32_t session;         /* 0: nobody; stored last, cleared first */
	char name[CNRE_NAME_BYTES];
	uint32_t reserved;
};
_Static_assert(sizeof(struct cnre_kv_holder) == 40, "is ABI");

struct cnre_kv_directory {
	struct cnre_segment_header header;
	char name[CNRE_KV_NAME_BYTES];
	uint32_t number;                  /* of the namespace, in this world */
	uint32_t entry_count, bucket_count; /* buckets: a power of two */
	uint32_t reserved0;
	_Atomic uint64_t sequence;        /* odd while chains are changed (shm/kv_index.h) */
	_Atomic uint64_t next_id;
	_Atomic uint32_t segment_count;   /* pool segments made so far */
	uint32_t reserved1;
	_Atomic uint64_t pin_bytes_max;   /* that one client may lease at once; moves with the budget */
	uint64_t reserved2[4];
	struct cnre_kv_holder holder[CNRE_SESSIONS_MAX];
	struct cnre_kv_bucket bucket[];   /* then, at CNRE_KV_ENTRIES_OFF, the entries */
};
_Static_assert(offsetof(struct cnre_kv_directory, sequence) == 176, "is ABI");
_Static_assert(offsetof(struct cnre_kv_directory, holder) == 240, "is ABI");
_Static_assert(offsetof(struct cnre_kv_directory, bucket) == 41200, "is ABI");

#define CNRE_KV_ENTRIES_OFF(bucket_count) ((41200u + (uint64_t)(bucket_count) * 8u + 4095u) & ~4095ull)
#define CNRE_KV_DIRECTORY_BYTES(entry_count, bucket_count) \
	((CNRE_KV_ENTRIES_OFF(bucket_count) + (uint64_t)(entry_count) * sizeof(struct cnre_kv_entry) + 4095u) & ~4095ull)

/* ---- channel ---- */

enum cnre_kv_request_kind { CNRE_KV_PUBLISH = 1, CNRE_KV_LOAD = 2 };

/*
 * FREE -> CLAIMED -> SUBMITTED by the client; SUBMITTED -> DONE by the manager, when its effect is in shared memory (R13)
 * and the staging range is the client's again (R25); DONE -> FREE by the client, which reads `result`.
 */
enum cnre_kv_slot_state { CNRE_KV_SLOT_FREE = 0, CNRE_KV_SLOT_CLAIMED = 1, CNRE_KV_SLOT_SUBMITTED = 2, CNRE_KV_SLOT_DONE = 3 };

struct cnre_kv_request {                  /* plain: copied word by word in and out of a slot */
	uint64_t ticket;                  /* order among the requests of this channel */
	uint32_t kind;                    /* enum cnre_kv_request_kind */
	uint32_t count;                   /* PUBLISH: tokens. LOAD: entries, whose indices are in token[] */
	uint64_t staging_off, bytes, compute_ns, position;
	uint32_t block_tokens, media_first, flags, reserved; /* flags: CNRE_KV_ENTRY_… */
	unsigned char root[CNRE_KV_KEY_BYTES], parent[CNRE_KV_KEY_BYTES], media[CNRE_KV_KEY_BYTES];
	int32_t token[CNRE_KV_TOKENS_MAX];
};
#define CNRE_KV_REQUEST_WORDS (sizeof(struct cnre_kv_request) / 8)
_Static_assert(sizeof(struct cnre_kv_request) == 1184, "is ABI");

struct cnre_kv_slot {
	_Atomic uint32_t state;           /* enum cnre_kv_slot_state; a futex word */
	_Atomic int32_t result;           /* PUBLISH: 0 stored, 1 was there, or -errno: not stored */
	_Atomic uint64_t word[CNRE_KV_REQUEST_WORDS];
};
_Static_assert(sizeof(struct cnre_kv_slot) == 1192, "is ABI");

struct cnre_kv_channel {
	struct cnre_segment_header header;
	/* Written by the manager before the channel is passed. */
	uint32_t session, number;         /* whose, and of which namespace */
	uint32_t entry_count, reserved0;
	uint64_t staging_bytes;
	uint64_t reserved1[5];
	_Alignas(64) _Atomic uint64_t submitted; /* a bit per slot: look there. Set after SUBMITTED, before the bell */
	_Alignas(64) struct cnre_kv_slot slot[CNRE_KV_SLOTS];
};
_Static_assert(offsetof(struct cnre_kv_channel, submitted) == 128, "is ABI");
_Static_assert(offsetof(struct cnre_kv_channel, slot) == 192, "is ABI");

/* Uses: words of shm/access_log.h, kind CNRE_LOG_KV_USE, value: entry, argument: tokens used of it. */
#define CNRE_KV_CHANNEL_LOG_OFF 77824u
#define CNRE_KV_CHANNEL_LEDGER_OFF (CNRE_KV_CHANNEL_LOG_OFF + CNRE_LOG_ENTRIES * 8u)
#define CNRE_KV_CHANNEL_BYTES(entry_count) ((CNRE_KV_CHANNEL_LEDGER_OFF + (uint64_t)(entry_count) * 8u + 4095u) & ~4095ull)
_Static_assert(sizeof(struct cnre_kv_channel) <= CNRE_KV_CHANNEL_LOG_OFF, "the log begins behind the slots");

/* Where parts of mapped segments are, in this process. */
static inline struct cnre_kv_entry *cnre_kv_entries(const struct cnre_kv_directory *directory)
{
	return (struct cnre_kv_entry *)((char *)directory + CNRE_KV_ENTRIES_OFF(directory->bucket_count));
}

static inline _Atomic uint64_t *cnre_kv_log(struct cnre_kv_channel *channel)
{
	return (_Atomic uint64_t *)((char *)channel + CNRE_KV_CHANNEL_LOG_OFF);
}

static inline _Atomic uint64_t *cnre_kv_ledger(struct cnre_kv_channel *channel)
{
	return (_Atomic uint64_t *)((char *)channel + CNRE_KV_CHANNEL_LEDGER_OFF);
}

#endif
