/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: one per attached client and model. A session begins with HELLO and ends with DETACH or with the death of
 * the process (its pidfd), never by time (R11). A socket that hung up while the process lives makes it "disconnected":
 * leases and reservation stay. Ending is O(1) for the core thread; summing up and unmapping is a worker's job. But for who had
 * VRAM open: what it did there is added up at once, a word for each object and device (vram_session.c).
 */
#ifndef CNRE_MANAGER_SESSION_H
#define CNRE_MANAGER_SESSION_H

#include "base/log.h"
#include "manager/loop.h"
#include "manager/manager.h"
#include "manager/peer.h"
#include "manager/worker.h"
#include "shm/access_log.h"
#include "shm/kv.h"
#include "shm/ring.h"
#include "shm/vram.h"
#include "shm/wire.h"

#include <sys/types.h>

struct feed_client;
struct kv_session;
struct vram_session;

#define SESSION_MESSAGE_BYTES 256
#define SESSIONS_PER_UID_MAX 256u         /* of one user other than root (R27) */

/* What a client's accounts and ledger add up to. From shared memory, so bounded before it is believed (session_totals). */
struct session_totals {
	uint64_t accesses, misses, joins, failures, wait_ns;
	uint64_t bytes;                   /* payload of what was looked up, as often as it was */
	uint64_t vram_hits, vram_bytes;   /* of the accesses and bytes: served from GPUs */
};

struct session {
	struct loop_source socket;        /* .fd < 0: disconnected */
	struct loop_source process;       /* pidfd; .fd < 0: none could be had */
	struct manager *manager;
	struct served_model *model;
	uint32_t number;                  /* never 0, unique in an epoch */
	uint32_t slot;                    /* below CNRE_SESSIONS_MAX: its place in tables and queues */
	uint32_t reserve_slabs;
	uint32_t hello_id;                /* what its WELCOME answers */
	struct peer peer;
	int64_t attached_ns;
	char name[CNRE_NAME_BYTES];
	struct cnre_segment channel_segment, ledger_segment;
	struct cnre_channel *channel;     /* every word in it is input */
	struct cnre_ledger *ledger;       /* likewise */
	uint32_t ring_head;
	struct cnre_access_log_reader log_reader;
	int bell_armed;
	struct worker_job cleanup;        /* runs after the session left every table */
	struct session_totals totals;     /* filled by the cleanup, unless */
	struct session_totals *by_layer;  /* likewise; NULL: none, or no memory was left for it */
	int is_settled;                   /* they were added to the retired ones already */
	int64_t heard_ns;                 /* when its log last had something new; 0: never */
	struct feed_client *feed;         /* of feed.c; NULL until its first visit */
	struct kv_session *kv[CNRE_KV_NAMESPACES_PER_CLIENT]; /* NULL: none in this place */
	struct vram_session *vram[CNRE_VRAM_DEVICES_MAX];     /* by device; NULL: it has not opened it */
	uint32_t vram_count;              /* that it has opened */
	int tells_tokens;                 /* it said when one ended: its lookups need not stand for any */
	struct session_totals *vram_ended; /* [layer_count] in ledgers that are closed already; NULL: none are */
};

struct session_table {
	struct session *active[CNRE_SESSIONS_MAX];   /* dense, in no order */
	struct session *by_slot[CNRE_SESSIONS_MAX];
	uint32_t active_count;
	uint32_t reserved_slabs;          /* sum over active sessions */
	struct session_totals retired;    /* of sessions that ended */
	uint32_t cleanups;                /* running in workers */
	uint64_t ended_count;             /* of sessions, ever */
	struct cnre_log_limit log_limit;  /* of lines about beginning and ending, which a client can provoke */
};

int session_table_open(struct session_table **ret_table);
struct session_table *session_table_close(struct session_table *table);   /* no session is active any more */

/*
 * session_begin - attach a client and welcome it
 *
 * In the order of R10: channel and ledger, state segment, scan list, and only then the descriptors. Takes over the
 * peer's socket and pidfd on success; on failure both stay the caller's, and `message` says why, for client and log.
 */
int session_begin(struct manager *manager, const struct peer *peer, const struct cnre_wire_hello *hello,
		  char message[SESSION_MESSAGE_BYTES]);

/*
 * Rebuilds the session of a state-segment entry from its stored descriptors, into the scan list but not yet counted in
 * the pool's guarantee (reservation_apply does that for all). 0, or -errno: what it had is closed. Where the entry is
 * still there then, its client may live and hold leases: nothing may be adopted without it.
 */
int session_adopt(struct manager *manager, uint32_t slot);
/* Every lease on an object that is not there is a demand (R7); requests in slots are taken by the next turn. */
void session_adopt_requests(struct manager *manager);

/*
 * Adds up at once what it did, for one that detaches: a manager that is killed after the answer has nothing of it to lose. No
 * slower than making its ledger was.
 */
void session_settle(struct session *session);

/* Ends a session now: off every list at once, the rest in a worker. */
void session_end(struct session *session, int died);

/* 1 if any active session holds a lease on object `index` of the model (seq_cst scans: R1). */
int session_any_lease(const struct session_table *table, const struct served_model *model, uint32_t index);

/* What its account of a layer says now. Input: it may be anything, and may go backwards. */
uint64_t session_layer_wait_ns(const struct session *session, uint32_t layer);
uint64_t session_layer_joins(const struct session *session, uint32_t layer);

/*
 * Adds up a session's ledger and accounts, clamped to what can be true: begins with zeros, goes on for so many words of
 * the ledger, and returns 1 when that was all. Layer by layer, so that each layer is clamped, and all of them are the total.
 */
struct session_count {
	struct session_totals totals;
	uint32_t leased, vram_leased;
	uint32_t objects;                 /* counted so far */
	uint32_t layer;                   /* that is being counted */
	struct session_totals in_layer;   /* so far */
	struct session_totals *by_layer;  /* [layer_count of its model], where each is added; NULL: they are not wanted */
};
int session_count(const struct session *session, struct session_count *count, uint32_t words);

#endif
