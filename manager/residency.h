/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which objects are resident: the only writer of every directory. Single flight, queues of demand and prefetch, slabs
 * and their eviction, and the budget. It asks the policy whom to evict, the pool for room, the loader for bytes, and the
 * sessions' ledgers whether anybody holds a lease.
 *
 * Crash notes (who repairs what is in doc/shared-memory.md): a load writes place, then LOADING, then submits; a killed
 * manager leaves LOADING with a place, whose slab late DMA may still write. An eviction writes EVICTING, scans, then
 * ABSENT or READY; a killed manager leaves EVICTING, which adoption decides by scanning again.
 */
#ifndef CNRE_MANAGER_RESIDENCY_H
#define CNRE_MANAGER_RESIDENCY_H

#include "manager/manager.h"

#include <stdint.h>

#define RESIDENCY_PREFETCH_QUEUE_MAX 1024u  /* queued prefetches of all clients; more are dropped */
#define RESIDENCY_VICTIM_TRIES 64u          /* evictions in policy order before a window is emptied instead */
#define RESIDENCY_REFUSALS_PER_TURN 16u     /* of prefetches: each is a look at victims, and somebody may ask for many */
#define RESIDENCY_REFUSALS_NS 1000000       /* then others come first, and the next ones so soon after */
#define RESIDENCY_STARVED_RETRY_NS 5000000  /* a demand found no room although R15 promises it: look again then */
#define RESIDENCY_OVERSLEPT_NS 1000000000  /* later than that to look at time-outs: we were stopped, not the drive */
#define RESIDENCY_EXPIRE_RETRY_NS 100000000 /* a late read that could not be put in quarantine: look again then */
#define RESIDENCY_ENFORCE_NS 100000000      /* and no more often than this, at whose leases are in the way (R19) */

struct policy;
struct session;
struct stalls;

struct residency_setup {
	const char *policy;
	uint32_t pool;                    /* enum policy_pool */
	uint32_t loads_max;
	uint64_t budget_bytes;
};
int residency_open(struct manager *manager, const struct residency_setup *setup);
void residency_close(struct manager *manager);

/*
 * A client asks for an object: queues it, joins what is on its way, or does nothing if it is resident. 1, or 0: a demand
 * beyond what the client's reservation lets it wait for, ignored; its lease stays, and it may ask again.
 */
enum residency_kind { RESIDENCY_DEMAND, RESIDENCY_PREFETCH };
int residency_request(struct manager *manager, struct session *session, uint32_t owner, enum residency_kind kind);

/* The order in which clients used objects, for the policy (from the access log). */
void residency_visit(struct manager *manager, struct session *session, uint32_t layer, uint32_t token_count);
void residency_access(struct manager *manager, uint32_t owner, int hit);

/* Queued demands of a session that ends go to a common queue: others may wait for them. Prefetches are dropped. */
void residency_forget_session(struct manager *manager, uint32_t slot);

/* Submits what can be submitted. Call once per loop turn, after the channels were looked at. */
void residency_pump(struct manager *manager);

/* When residency_pump wants to be called again at the latest; CNRE_NEVER: when something happens. */
int64_t residency_deadline_ns(const struct manager *manager);

/*
 * The budget at run time: 0 done, 1 done as far as leases allow (the rest follows), -ENOSPC below the guarantee, and
 * then nothing was evicted.
 * Resident bytes never exceed the old budget on the way, and the new one from the moment this returns, leases aside.
 */
int residency_set_budget(struct manager *manager, uint64_t budget_bytes);

/*
 * Holds what is resident within less than the budget from now on, within this pass but for leases, and gives back what
 * memory of the pool it can. The least that anybody asked for counts, but never less than the guarantee; UINT64_MAX: who
 * asks holds nothing any more. A new budget ends every hold.
 */
enum residency_hold { RESIDENCY_HOLD_MEASURE, RESIDENCY_HOLD_PRESSURE, RESIDENCY_HOLDS };
void residency_hold_to(struct manager *manager, enum residency_hold who, uint64_t bytes);

/* Drives that did not answer in manager->read_timeout_ns (R16); see stall.h. */
const struct stalls *residency_stalls(const struct manager *manager);

/* Evicts every object that nobody holds; counts. */
void residency_evict_all(struct manager *manager, uint32_t *ret_evicted, uint32_t *ret_kept);

/*
 * For the scrub and for uploads: keeps a READY object where it is while a worker or a GPU reads it, leased or not. READY
 * means that no read can land in its slab any more, late ones of a dead incarnation included: those lie in quarantine. Each
 * pin takes the place of a load in flight, so the count behind reservations (R15) stays true. Pins are this process's only:
 * a successor knows of none, and needs none, since who read there died with us.
 * residency_pin returns 0, -ENOENT (not READY) or -EAGAIN (every load or every pin is in use).
 */
#define RESIDENCY_PINS_MAX 5u
struct residency_pin {
	const struct model_catalog *catalog;
	uint32_t object, generation;
	const char *slab;
	uint32_t number;                 /* of the pin */
};
int residency_pin(struct manager *manager, uint32_t owner, struct residency_pin *ret_pin);
void residency_unpin(struct manager *manager, const struct residency_pin *pin);
uint32_t residency_loads_free(const struct manager *manager); /* loads, or pins, that could begin now */
/* Its bytes were wrong: the next load compares them with the digest, and asks every replica. */
void residency_suspect(struct manager *manager, uint32_t owner);
int residency_is_suspect(const struct manager *manager, uint32_t owner); /* and it was not loaded since */
/* 1 while the object is READY and was not evicted since the generation. */
int residency_is_ready(struct manager *manager, uint32_t owner, uint32_t generation);

uint32_t residency_objects(const struct manager *manager, const struct served_model *model); /* resident now */
uint64_t residency_bytes(const struct manager *manager, const struct served_model *model);   /* of their slabs */
uint32_t residency_queued(const struct manager *manager);
uint64_t residency_budget_bytes(const struct manager *manager);

/* How the latest load of an object ended. 0; -ENOENT: none did since this manager started. */
struct residency_load {
	int64_t ended_ns;
	uint32_t drive, attempts;        /* attempts: with other replicas, that came to nothing before */
	int status;                      /* 0 or -errno */
};
int residency_last_load(const struct manager *manager, uint32_t owner, struct residency_load *ret_load);
int residency_is_queued(const struct manager *manager, uint32_t owner); /* 1: demanded, and its load has not begun */

struct policy *residency_policy(const struct manager *manager);
const char *residency_policy_name(const struct manager *manager);
/* Another policy at run time, told of the residents in the order of the one before. 0, -ENOENT (no such one) or -ENOMEM. */
int residency_set_policy(struct manager *manager, const char *name);

/*
 * After a restart: takes over every object as the dead manager left it. READY keeps its slab; LOADING goes to quarantine
 * and is ABSENT again, with the same generation; EVICTING is decided by the ledgers. The sessions are in the scan list.
 * 0, -EBADMSG (two owners of one slab: R21b), -ENOSPC (no room for one more quarantine) or -ENOMEM.
 */
int residency_adopt(struct manager *manager);

/* Answers for the pool (struct pool_tenants). */
int residency_is_busy(void *manager, uint32_t owner);
int residency_evict(void *manager, uint32_t owner);

#endif
