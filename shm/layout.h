/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that two processes share, byte for byte: the segments, who may write them, and every struct inside.
 * Read this file first; the rest of the project moves these words about.
 *
 *   segment        manager  client            content
 *   page           RW       RO                epoch, awake flag, size of the pool
 *   counters       RW       RO                telemetry (shm/counters.def)
 *   catalog        RW once  RO                geometry of a model: shapes, parts, where a part lies in its slab
 *   directory      RW       RO                one 64-byte entry per object: state word, place
 *   pool           RW       RO                slabs: the bytes of objects; no header
 *   channel        RW       RW, its own only  bell, request slots and ring, access log, wait accounts
 *   ledger         RW       RW, its own only  one word per object: accesses and leases of this client
 *   state          RW       never passed      what a restarted manager must know
 *
 * Rules: every reference is an offset from the start of a segment, never a pointer. A word that a client can write is
 * input for the manager: loaded once into a local, checked, used. A manager-owned segment is trusted by its clients.
 * Every size and offset here is ABI between processes of one CNRE_LAYOUT_VERSION and pinned below.
 */
#ifndef CNRE_SHM_LAYOUT_H
#define CNRE_SHM_LAYOUT_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define CNRE_LAYOUT_MAGIC 0x3130455243455243ull
#define CNRE_LAYOUT_VERSION 1u

#define CNRE_PAGE_BYTES 4096u
#define CNRE_ROLE_COUNT 8u   /* = CNRE_ROLES of cnre.h, which shm/ does not include */
#define CNRE_NAME_BYTES 32u
#define CNRE_IDENTITY_BYTES 32u
#define CNRE_VIEW_NAME_BYTES 28u

/* Bounds, named once. A model or client beyond one of them is refused with the number. */
#define CNRE_SEGMENT_BYTES_MAX (1ull << 30) /* a pool segment: one io_uring registered buffer holds at most 1 GiB */
#define CNRE_SEGMENTS_MAX 4096u             /* pool segments of a manager: 4 TiB */
#define CNRE_OBJECTS_MAX (1u << 22)         /* objects of a model */
#define CNRE_LAYERS_MAX 1024u
#define CNRE_SESSIONS_MAX 1024u
#define CNRE_SLOTS 64u              /* requests of one client in flight */
#define CNRE_SLOT_OBJECTS 26u       /* objects in one request */
#define CNRE_LOG_ENTRIES 8192u      /* access log of one client; power of two */

_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2, "shared words must be lock-free");

enum cnre_segment_kind {
	CNRE_SEGMENT_PAGE = 1,
	CNRE_SEGMENT_COUNTERS,
	CNRE_SEGMENT_CATALOG,
	CNRE_SEGMENT_DIRECTORY,
	CNRE_SEGMENT_POOL,
	CNRE_SEGMENT_CHANNEL,
	CNRE_SEGMENT_LEDGER,
	CNRE_SEGMENT_STATE,
	CNRE_SEGMENT_KV_DIRECTORY,   /* shm/kv.h */
	CNRE_SEGMENT_KV_CHANNEL,
	CNRE_SEGMENT_VRAM_DIRECTORY, /* shm/vram.h */
	CNRE_SEGMENT_VRAM_LEDGER,
};

/* At the start of every segment but the pool's. */
struct cnre_segment_header {
	uint64_t magic;
	uint32_t version;         /* CNRE_LAYOUT_VERSION */
	uint32_t kind;            /* enum cnre_segment_kind */
	uint64_t bytes;           /* of the whole segment */
	uint64_t creator_birth;   /* start time of the creating process, clock ticks since boot (proc/PID/stat field 22) */
	uint32_t creator_pid;
	_Atomic uint32_t ready;   /* 1: everything else is in place; the creator's last store */
	uint64_t reserved[3];
};
_Static_assert(sizeof(struct cnre_segment_header) == 64, "is ABI");

/* ---- page ---- */

struct cnre_page {
	struct cnre_segment_header header;
	_Atomic uint32_t epoch;           /* changes when a new manager incarnation adopts the segments */
	_Atomic uint32_t awake;           /* 1: the manager will look at every channel before it sleeps; no bell needed */
	_Atomic uint32_t segment_count;   /* pool segments made so far in this epoch; they only grow in number */
	_Atomic uint32_t vram_devices;    /* GPUs whose memory holds experts now (shm/vram.h); 0: none */
	_Atomic uint64_t budget_bytes;    /* in force now */
	_Atomic uint64_t resident_bytes;  /* slabs of READY and LOADING objects */
	_Atomic uint64_t pool_bytes;      /* backed memory of the pool */
	uint64_t reserved[11];
};
_Static_assert(sizeof(struct cnre_page) == 192, "is ABI");
_Static_assert(offsetof(struct cnre_page, epoch) == 64 && offsetof(struct cnre_page, awake) == 68, "is ABI");

/* ---- directory ---- */

/*
 * The state word of an object: generation:24 | error:5 | state:3. It is a futex word that clients map read-only.
 * The generation moves exactly at failure and at eviction (R8); the error class says why the last attempt failed.
 */
enum cnre_state { CNRE_STATE_ABSENT = 0, CNRE_STATE_LOADING = 1, CNRE_STATE_READY = 2, CNRE_STATE_EVICTING = 3 };

#define CNRE_STATE_BITS 3u
#define CNRE_ERROR_BITS 5u
#define CNRE_GENERATION_SHIFT (CNRE_STATE_BITS + CNRE_ERROR_BITS)

/* Error classes of a failed load, in the state word of the ABSENT object it left. */
enum cnre_load_error {
	CNRE_LOAD_OK = 0,
	CNRE_LOAD_EIO = 1,      /* unreadable on every replica */
	CNRE_LOAD_EBADMSG = 2,  /* digest differs */
	CNRE_LOAD_ENOSPC = 3,   /* no slab could be had */
	CNRE_LOAD_ETIMEDOUT = 4,/* the drive did not answer in its time */
	CNRE_LOAD_ERRORS
};

struct cnre_entry {
	_Atomic uint32_t state;
	_Atomic uint32_t load_sequence;   /* counts completed attempts; with `starter` tells the miss from its joins */
	_Atomic uint64_t place;           /* segment:16 | offset:48, bytes; valid under READY and a lease (R2) */
	_Atomic uint32_t starter;         /* session number whose demand began the last load; 0: prefetch or warm-up */
	_Atomic uint32_t read_bytes;      /* physical bytes of the last load */
	_Atomic uint64_t service_ns;      /* its time from submission to completion */
	uint64_t reserved[4];
};
_Static_assert(sizeof(struct cnre_entry) == 64, "one line an object; is ABI");

struct cnre_directory {
	struct cnre_segment_header header;
	uint32_t object_count;
	uint32_t reserved0;
	uint64_t reserved[7];
	struct cnre_entry entry[];        /* object_count */
};
_Static_assert(offsetof(struct cnre_directory, entry) == 128, "is ABI");

/* ---- catalog: written once before the model is served ---- */

struct cnre_catalog_part {            /* one role of a shape; bytes 0: the model has no such part */
	uint64_t bytes;
	uint32_t rows, columns;           /* as stored, elements of dtype */
	uint16_t dtype;                   /* enum cnre_dtype of cnre.h */
	uint16_t block_rows, block_columns;
	uint16_t reserved;
};
_Static_assert(sizeof(struct cnre_catalog_part) == 24, "is ABI");

struct cnre_catalog_shape {           /* objects of equal geometry share one */
	uint64_t payload_bytes;           /* sum of its parts */
	uint64_t slab_bytes;              /* what one object occupies in the pool; a multiple of 4096 */
	struct cnre_catalog_part part[CNRE_ROLE_COUNT];
};
_Static_assert(sizeof(struct cnre_catalog_shape) == 208, "is ABI");

struct cnre_catalog_layer {
	uint32_t first_object;            /* objects of a layer are consecutive: index = first_object + expert */
	uint32_t expert_count;            /* 0: a dense layer */
};

struct cnre_catalog_object {
	uint32_t shape;                           /* index of its shape */
	uint32_t part_off[CNRE_ROLE_COUNT];       /* of each part, relative to the object's place; multiples of 64 */
};
_Static_assert(sizeof(struct cnre_catalog_object) == 36, "is ABI");

struct cnre_catalog {
	struct cnre_segment_header header;
	char family[CNRE_NAME_BYTES];
	char name[64];                            /* last component of the checkpoint's path */
	unsigned char identity[CNRE_IDENTITY_BYTES];
	uint32_t layer_count, expert_count, top_k, object_count;
	uint32_t shape_count, capabilities;
	uint64_t payload_bytes_min, payload_bytes_max, payload_bytes_total;
	uint64_t slab_bytes_max;
	uint64_t layers_off, shapes_off, objects_off; /* from the start of the segment */
	unsigned char payload[16];                /* of the weights (base/payload.h), for KV prefixes; zeros: not known */
	/*
	 * The layout that shapes and places are of (model/view.h); empty and 0: as in the checkpoint. Appended without another
	 * version: what follows the struct begins at a multiple of 64, and the bytes before it were zeros.
	 */
	char view[CNRE_VIEW_NAME_BYTES];
	uint32_t view_version;
};
_Static_assert(offsetof(struct cnre_catalog, view) == 288 && sizeof(struct cnre_catalog) == 320, "is ABI");

/* ---- ledger ---- */

/* accesses:32 | leases:32, leases low (R4): an acquire adds both in one step, a release subtracts a lease. */
#define CNRE_LEDGER_LEASE 1ull
#define CNRE_LEDGER_ACCESS (1ull << 32)
#define CNRE_LEDGER_LEASES(word) ((uint32_t)(word))
#define CNRE_LEDGER_ACCESSES(word) ((uint32_t)((word) >> 32))

struct cnre_ledger {
	struct cnre_segment_header header;
	_Atomic uint64_t word[];          /* one per object of the table */
};
_Static_assert(offsetof(struct cnre_ledger, word) == 64, "is ABI");

/* ---- channel ---- */

enum cnre_slot_state { CNRE_SLOT_FREE = 0, CNRE_SLOT_CLAIMED = 1, CNRE_SLOT_SUBMITTED = 2 };
enum cnre_request_kind { CNRE_REQUEST_LOAD = 1, CNRE_REQUEST_PREFETCH = 2 };

/*
 * One request. FREE -> CLAIMED -> SUBMITTED by the client; SUBMITTED -> FREE by the manager once the effect no longer
 * depends on the slot. LOAD is a hint: the leases in the ledger are the demand (R7), so a lost slot costs a wait slice.
 */
struct cnre_slot {
	_Atomic uint32_t state;           /* enum cnre_slot_state; a futex word for a client that waits for a free slot */
	_Atomic uint32_t kind;            /* enum cnre_request_kind */
	_Atomic uint32_t count;           /* objects used, at most CNRE_SLOT_OBJECTS */
	_Atomic uint32_t token_count;     /* tokens that the visit stands for (statistics of a prefill union) */
	_Atomic uint32_t layer;
	_Atomic uint32_t reserved;
	_Atomic uint32_t object[CNRE_SLOT_OBJECTS];
};
_Static_assert(sizeof(struct cnre_slot) == 128, "is ABI");

/*
 * Access-log entry, one 64-bit word (R35): lap:16 | kind:4 | argument:12 | value:32. `lap` is the low 16 bits of
 * (position / CNRE_LOG_ENTRIES + 1), so that a reader tells a fresh entry from the previous lap's.
 */
enum cnre_log_kind {
	CNRE_LOG_VISIT = 1,     /* a layer visit begins: value = layer, argument = tokens it stands for (saturating) */
	CNRE_LOG_ACCESS = 2,    /* value = object, argument: CNRE_LOG_HIT …, the device in the bits from CNRE_LOG_DEVICE_SHIFT */
	CNRE_LOG_TOKEN_END = 3, /* value = tokens */
	CNRE_LOG_KV_USE = 4,    /* of a KV channel: value = entry, argument = tokens of it that were used */
};

/* Of an access. Without CNRE_LOG_VRAM_WANTED it was one for memory only, as most are: then the argument is CNRE_LOG_HIT or 0. */
enum {
	CNRE_LOG_HIT = 1u << 0,         /* it waited for nothing */
	CNRE_LOG_VRAM_WANTED = 1u << 1, /* cnre_acquire_vram */
	CNRE_LOG_VRAM_HIT = 1u << 2,    /* and that served it: no access of the object in memory */
};
#define CNRE_LOG_DEVICE_SHIFT 4u        /* 4 bits: the manager's number of the device */

#define CNRE_RING_MARK 0x80u              /* in every written cell of the ring: a cell of zeros is never one of any lap */

struct cnre_account {                     /* one per layer; written by the client on its slow path only */
	_Atomic uint64_t wait_ns;         /* felt wait: time that callers were blocked */
	_Atomic uint64_t misses;          /* accesses that had to wait; joins are part of them */
	_Atomic uint64_t joins;           /* of those: served by a load that another access began */
	_Atomic uint64_t failures;        /* accesses that ended in an error */
};
_Static_assert(sizeof(struct cnre_account) == 32, "is ABI");

struct cnre_channel {
	struct cnre_segment_header header;

	/* Written by the manager before the channel is passed; the manager itself never reads them back. */
	uint32_t session;                 /* number, unique within an epoch, never 0 */
	uint32_t account_count;
	uint64_t log_off, accounts_off;
	uint64_t reserved0[5];

	_Alignas(64) _Atomic uint32_t bell;       /* the client adds 1 and wakes when the manager is not awake (R14) */
	_Atomic uint32_t want_scan;               /* 1: no slot was free; the manager shall look for demands in the ledger */
	_Alignas(64) _Atomic uint32_t ring_tail;  /* next cell to fill; producers fetch_add it */
	_Alignas(64) _Atomic uint32_t ring[CNRE_SLOTS];   /* (position / CNRE_SLOTS + 1) << 8 | CNRE_RING_MARK | slot index */
	_Alignas(64) struct cnre_slot slot[CNRE_SLOTS];
};
_Static_assert(offsetof(struct cnre_channel, bell) == 128, "is ABI");
_Static_assert(offsetof(struct cnre_channel, ring_tail) == 192, "is ABI");
_Static_assert(offsetof(struct cnre_channel, ring) == 256, "is ABI");
_Static_assert(offsetof(struct cnre_channel, slot) == 512, "is ABI");
_Static_assert(sizeof(struct cnre_channel) == 8704, "is ABI");

/* Where the variable parts of a channel lie, from its account count alone: the manager derives, never reads, them. */
#define CNRE_CHANNEL_LOG_OFF 12288u
#define CNRE_CHANNEL_ACCOUNTS_OFF (CNRE_CHANNEL_LOG_OFF + CNRE_LOG_ENTRIES * 8u)
#define CNRE_CHANNEL_BYTES(account_count) \
	((CNRE_CHANNEL_ACCOUNTS_OFF + (uint64_t)(account_count) * sizeof(struct cnre_account) + 4095u) & ~4095ull)

/* ---- state: what a restarted manager must know and no client may see (R3) ---- */

struct cnre_state_session {
	_Atomic uint32_t session;         /* 0: free; stored last, cleared first */
	uint32_t uid, gid, pid;
	uint32_t reserve_slabs;           /* R15: objects leased or waited for at once */
	uint32_t model;                   /* index of its model */
	char name[CNRE_NAME_BYTES];
	int64_t attached_ns;              /* CLOCK_MONOTONIC */
	uint32_t hello_id;                /* what WELCOME answers */
	uint32_t welcomed;                /* 0: WELCOME may not have been sent; then the successor sends it again */
};
_Static_assert(sizeof(struct cnre_state_session) == 72, "is ABI");

struct cnre_state_quarantine {            /* a slab that late DMA may still write */
	uint64_t place, bytes;
	_Atomic uint32_t fence;           /* incarnation whose reads may land; 0: free; stored last, cleared first */
	uint32_t reserved;
};
_Static_assert(sizeof(struct cnre_state_quarantine) == 24, "is ABI");

#define CNRE_QUARANTINES_MAX 256u

struct cnre_state_pressure {              /* an episode of short memory outlives the manager (manager/pressure.h) */
	uint64_t oom_kills_plus_one;      /* of the manager's control group when it last looked; 0: it never could */
	int64_t oom_ns;                   /* CLOCK_MONOTONIC; when the last OOM kill was found */
	uint32_t oom_steps;               /* parts of the budget that were given up for it; 0: none is known */
	uint32_t steps, after_oom;        /* given up now, and whether an OOM kill is among the reasons */
	uint32_t reserved;
};
_Static_assert(sizeof(struct cnre_state_pressure) == 32, "is ABI");

struct cnre_state_table {
	struct cnre_segment_header header;
	uint32_t epoch;
	uint32_t next_session;
	uint64_t budget_bytes;            /* in force */
	char policy[CNRE_NAME_BYTES];     /* set at run time; empty: the configured one */
	/* What ended sessions added up to: accesses, misses, joins, failures, wait_ns. */
	uint64_t retired[5];
	uint32_t model_count;             /* of the directories that belong to this state */
	uint32_t serving_epoch;           /* the last incarnation that began reads; LOADING entries are its */
	struct cnre_state_session session[CNRE_SESSIONS_MAX];
	struct cnre_state_quarantine quarantine[CNRE_QUARANTINES_MAX];
	struct cnre_state_pressure pressure;
	/* Of the path that the stored listening socket was bound to, as it was then; inode 0: not known. */
	uint64_t socket_device, socket_inode;
	uint64_t kv_budget_bytes;         /* set at run time; 0: the configured one */
	uint64_t retired_bytes;           /* payload that ended sessions had looked up */
	uint64_t vram_budget_plus_one;    /* of each device, set at run time; 0: the configured one */
	uint64_t retired_vram_hits;       /* of the accesses in `retired` */
	/* Of attached clients, when they were last counted: their ledgers of VRAM die with the manager. */
	uint64_t live_vram_hits, live_vram_bytes;
};
/*
 * This one is appended to without another version: its segment is whole pages, zeroed, and 0 in a new word means that the
 * manager before did not know it. That holds as long as the pages are as many.
 */
_Static_assert(offsetof(struct cnre_state_table, session) == 160, "is ABI");
_Static_assert(offsetof(struct cnre_state_table, pressure) == 80032, "is ABI");
_Static_assert(offsetof(struct cnre_state_table, socket_device) == 80064, "is ABI");
_Static_assert(sizeof(struct cnre_state_table) <= 20 * CNRE_PAGE_BYTES, "more pages are another version");

#endif
