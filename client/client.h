/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of struct cnre: one attached model. The first part is written at attach and then only read; the words that
 * change have lines of their own. Everything shared with the manager is behind pointers into mapped segments, which a
 * forked child does not have (MADV_DONTFORK): so every public call first asks cnre_client_check (R12).
 */
#ifndef CNRE_CLIENT_CLIENT_H
#define CNRE_CLIENT_CLIENT_H

#include "client/lease.h"
#include "cnre/cnre.h"
#include "shm/counters.h"
#include "shm/kv.h"
#include "shm/layout.h"
#include "shm/segment.h"
#include "shm/wire.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sys/types.h>

#define CNRE_NO_LAYER UINT32_MAX
#define CNRE_SPIN_MIN_NS 1000
#define CNRE_SPIN_MAX_NS 20000           /* a futex wake costs up to 100 us on a halted CPU */
#define CNRE_ANSWER_MIN_NS 50000000LL    /* even a poll waits so long for a segment that is new to this process */
#define CNRE_DETACH_NS 1000000000LL      /* how long detach waits for the manager's word */
#define CNRE_BATCH_EXPERTS_MAX (1u << 20)
#define CNRE_SPARE_BATCHES_MAX 64u

_Static_assert(CNRE_ROLE_COUNT == CNRE_ROLES, "roles of cnre.h and of the catalog are the same");
_Static_assert(sizeof(struct cnre_part) == 32 && sizeof(struct cnre_expert) == 312, "the public view is ABI");

/* One pool segment as this process sees it. */
struct cnre_pool_map {
	_Atomic(const char *) base;       /* NULL: not mapped (yet) */
	uint64_t bytes;                   /* set before base, never changed */
};

/* What cnre_stats adds up; the slow path only writes here. */
struct cnre_tally {
	_Atomic uint64_t misses, joins, failures, wait_ns, bytes_read, service_ns, prefetched, prefetch_hits;
};

struct cnre_places;
struct cnre_vram;

struct cnre {
	/* Read by every call, written at attach. */
	const _Atomic uint32_t *owner;    /* its own MADV_WIPEONFORK page: 1 here, 0 in a forked child */
	const struct cnre_entry *entry;
	_Atomic uint64_t *ledger;
	_Atomic uint64_t *log;
	const struct cnre_catalog_layer *layer;
	const struct cnre_catalog_object *object;
	const struct cnre_catalog_shape *shape;
	const struct cnre_expert *shape_view;     /* the public view of each shape, data NULL */
	const uint32_t **shape_part_off;          /* [shape_count] offsets of parts common to a shape's objects, or NULL */
	struct cnre_pool_map *pool;               /* [CNRE_SEGMENTS_MAX] */
	struct cnre_cookies cookies;
	struct cnre_channel *channel;
	struct cnre_account *account;             /* [layer_count], in the channel */
	const struct cnre_page *page;
	const struct cnre_catalog *catalog;
	uint32_t layer_count, object_count, shape_count, reserve_slabs;
	uint32_t session, spin_limit_ns;          /* 0: one CPU, never spin */
	uint64_t reserve_bytes;
	_Atomic uint32_t *claim;                  /* [object_count] load sequence whose miss this process has counted */
	_Atomic uint64_t *prefetch;               /* [object_count] marks of client/prefetch.h; 0: none */
	struct cnre_segment fixed[CNRE_FD_COUNT];

	/* Written by every acquire and release. */
	_Alignas(64) _Atomic uint64_t gauge;      /* client/lease.h */
	_Atomic uint32_t last_layer;              /* of the latest visit; CNRE_NO_LAYER before the first */

	/* Written on the slow path. */
	_Alignas(64) struct cnre_tally tally;
	_Atomic uint32_t spin_ns;                 /* adapts between CNRE_SPIN_MIN_NS and the limit */
	_Atomic uint32_t gone;                    /* 1: the socket hung up; misses are -EPIPE */

	struct cnre_places *places;               /* attached by its path; NULL: by a served model's name */

	pthread_mutex_t control;                  /* asking */
	pthread_cond_t asked;                     /* asking is 0 again; on CLOCK_MONOTONIC */
	int asking;                               /* 1: a thread has the socket, buffer, next_id, and the pool's map */
	int socket;
	dev_t socket_device;                      /* whether the number is still the socket that was connected */
	ino_t socket_inode;
	uint32_t next_id;
	char *buffer;                             /* CNRE_WIRE_MESSAGE_MAX */

	pthread_mutex_t admission;                /* the two lists below */
	struct cnre_batch *queue_head, *queue_tail;
	struct cnre_batch *spare;
	uint32_t spare_count;

	pthread_mutex_t kv_lock;                  /* the list of namespaces, which only grows (client/kv_space.c) */
	struct cnre_kv_space *kv_space[CNRE_KV_NAMESPACES_PER_CLIENT];
	uint32_t kv_space_count;
	int knows_payload;                        /* likewise under kv_lock */
	unsigned char payload[16];                /* of the weights in `places` (base/payload.h) */

	struct cnre_vram *vram;                   /* NULL: not asked for at attach (client/vram.h) */

	/* Process-wide list of clients (client/fork.c). */
	struct cnre *next;
	int lingering;                            /* detached with leases out: mappings stay until exit */
	char socket_path[108];                    /* as connected: sun_path */
};

/* The first line of every public call: 0, -EINVAL without a client, -ECHILD in a forked child. */
static inline int cnre_client_check(const struct cnre *client)
{
	if (client == NULL)
		return -EINVAL;
	/* [O1] relaxed: set before the client was returned; the kernel wipes it at fork. */
	return atomic_load_explicit(client->owner, memory_order_relaxed) != 0 ? 0 : -ECHILD;
}

/* The manager's incarnation; 0 before the page is mapped. A new one has taken the segments over as they were (R28). */
static inline uint32_t cnre_client_epoch(const struct cnre *client)
{
	/* [O6] relaxed: only compared; what the successor did is behind words with orders of their own. */
	return client->page == NULL ? 0 : atomic_load_explicit(&client->page->epoch, memory_order_relaxed);
}

/* 0 and the object's index, or -ENOENT: no such layer, a dense one, or no such expert. */
static inline int cnre_client_find(const struct cnre *client, uint32_t layer, uint32_t expert, uint32_t *ret_object)
{
	if (layer >= client->layer_count || expert >= client->layer[layer].expert_count)
		return -ENOENT;
	*ret_object = client->layer[layer].first_object + expert;
	return 0;
}

static inline void cnre_tally_add(_Atomic uint64_t *cell, uint64_t amount)
{
	/* [O2] relaxed: statistics carry nothing else. */
	(void)atomic_fetch_add_explicit(cell, amount, memory_order_relaxed);
}

#endif
