/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One access on its way from a raised lease to readable bytes: the rules R6-R9 of waiting, and who is counted for what.
 * Single acquires and batches share it. An access begins with its lease up and ends by cnre_access_take (the lease is
 * the caller's) or cnre_access_drop (given back).
 */
#ifndef CNRE_CLIENT_ACCESS_H
#define CNRE_CLIENT_ACCESS_H

#include "client/client.h"
#include "shm/ring.h"

#define CNRE_ATTEMPT_SEEN (1u << 31)

struct cnre_access {
	uint32_t object;
	/* CNRE_ATTEMPT_SEEN | the generation at which ABSENT or LOADING was first seen (R8); 0: not yet. Atomic because
	 * several threads may look at one batch. */
	_Atomic uint32_t attempt;
	_Atomic uint32_t taken;           /* batches: 1 while one caller has or awaits it */
	uint16_t missed;                  /* not READY at the first look */
	uint16_t repeated;                /* batches: an earlier index names the same object */
	uint64_t position;                /* its log position: makes the cookie unique */
};

/* What the caller calls it. */
struct cnre_access_name {
	uint32_t layer, expert, index;
};

/* One look at a state word by an access whose lease is up: 1 READY, 0 wait, -Exxx its attempt failed. */
int cnre_access_judge(struct cnre_access *access, uint32_t word);

/* 1: ABSENT or LOADING was seen under its lease, and its generation is remembered. */
static inline int cnre_access_is_seen(const struct cnre_access *access)
{
	/* [J9] relaxed: set once by whoever looks first; a stale 0 posts a hint once too often. */
	return atomic_load_explicit(&access->attempt, memory_order_relaxed) != 0;
}

/* Whether a demand should be posted for an object in this state: nobody reads it yet, or only a prefetch does. */
int cnre_access_needs_post(const struct cnre_entry *entry, uint32_t word);

/* Posts again what is still wanted (R9), once a slice. */
struct cnre_access_repost {
	void (*post)(void *context);
	void *context;
};

/*
 * Waits until one access is READY. deadline_ns as cnre_clock_deadline_ns.
 * Returns 0, -ETIMEDOUT (lease still up), -EPIPE (the manager is gone), or the errno of the failed attempt.
 */
int cnre_access_wait(struct cnre *client, struct cnre_access *access, int64_t deadline_ns,
		     struct cnre_access_repost repost);

/* What a wait looks at besides its words: at the end of each slice, and when another incarnation has taken over. */
struct cnre_slice {
	int64_t end_ns;
	uint32_t epoch;
};

void cnre_slice_begin(const struct cnre *client, struct cnre_slice *ret_slice);

/* How long to sleep now: until the slice ends, at most left_ns. */
int64_t cnre_slice_sleep_ns(const struct cnre_slice *slice, int64_t left_ns);

/* After every sleep. When a look is due: -EPIPE, or 0 after posting again, and the next slice has begun. Else 0. */
int cnre_slice_look(struct cnre *client, struct cnre_slice *slice, struct cnre_access_repost repost);

/* Settles a miss that ended (READY or failed) as the one that started its load, or as a join. 1: joined. */
int cnre_access_settle(struct cnre *client, uint32_t layer, const struct cnre_access *access);

/* The access ends in an error: lease back, counted. Returns r. */
int cnre_access_fail(struct cnre *client, uint32_t layer, const struct cnre_access *access, int r);

/* Counts time that a caller was blocked since start_ns, and returns it. */
uint64_t cnre_access_add_wait(struct cnre *client, uint32_t layer, int64_t start_ns);
void cnre_access_add_misses(struct cnre *client, uint32_t layer, uint32_t count);

/* ---- client/request.c: posting ---- */

struct cnre_post {                        /* collects objects of one layer into as few slots as possible */
	struct cnre *client;
	struct cnre_request request;
	uint32_t posted;                  /* objects handed over so far */
	int full;                         /* no slot was free */
	int marks;                        /* what is handed over is marked as prefetched (client/prefetch.h) */
};

void cnre_post_begin(struct cnre_post *post, struct cnre *client, enum cnre_request_kind kind, uint32_t layer,
		     uint32_t token_count);
void cnre_post_add(struct cnre_post *post, uint32_t object);
/* Hands over the rest, rings once; demands without a slot ask for a scan of the ledger. Objects posted. */
uint32_t cnre_post_end(struct cnre_post *post);
void cnre_post_one(struct cnre *client, enum cnre_request_kind kind, uint32_t layer, uint32_t object);

/* ---- client/view.c ---- */

/* The public views of all shapes, data NULL. -ENOMEM. */
int cnre_view_init(struct cnre *client);

#endif
