/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of residency share: its state, one load, and the steps on one object. residency.c: what is asked and
 * told; object.c: an object's entry; evict.c: who goes, and slabs; load*.c: from the drive to READY; pump.c: queues and
 * drives that do not answer; adopt_objects.c: after a restart. Private to them.
 */
#ifndef CNRE_MANAGER_RESIDENCY_INNER_H
#define CNRE_MANAGER_RESIDENCY_INNER_H

#include "base/check.h"
#include "base/log.h"
#include "manager/drive.h"
#include "manager/layer_count.h"
#include "manager/loader.h"
#include "manager/object.h"
#include "manager/pool.h"
#include "manager/queue.h"
#include "manager/residency.h"
#include "manager/session.h"
#include "manager/stall.h"
#include "policy/policy.h"
#include "shm/word.h"

/* What one drive reads of an object. */
struct load_part {
	struct loader_read read; /* first: `done` gets its address */
	struct load *load;
	uint32_t drive;
	uint64_t bytes;
	int64_t patience_ns; /* in which it should have come back, while another replica is there */
	int is_out;          /* with the loader, whose memory it is until `done` */
	int is_late;         /* and its drive counts as one that does not answer */
};

/* The last error of a load: what is said if no replica is left. */
struct load_error {
	int status;
	uint32_t file, attempts; /* attempts: that came to nothing */
	uint64_t off;
};

/* Whom a load is for; cnre-probes(7) shows the numbers. */
enum load_kind { LOAD_OF_DEMAND, LOAD_OF_PREFETCH, LOAD_OF_NOBODY };

/* One object on its way from the drives. As many as reads in flight may be (R16): a slab is taken only with one of these. */
struct load {
	struct load_part part[REPLICA_PARTS_MAX];
	uint32_t part_count, parts_out;
	struct worker_job job;
	struct model_plan plan;
	struct manager *manager;
	struct load *next_free;
	char *slab; /* its address: a worker may not ask the pool */
	const struct model_catalog *catalog;
	const struct model_shape *shape;
	uint32_t object; /* of the catalog */
	uint64_t digest; /* where is_hashed, once the worker is done */
	uint64_t place;
	uint32_t owner;
	uint32_t number;            /* in the order of their beginnings, for probes; wraps */
	enum load_kind kind;        /* as it began */
	int is_prefetch, is_hashed;
	int is_reading;             /* parts are out */
	int is_waiting;             /* another replica shall be read, and its drive has no room yet */
	int is_late;                /* given up, and parts are still out */
	struct drive_bans bans;     /* replicas that came to nothing */
	uint32_t tried;             /* bit by replica: read alone, since the digest was wrong */
	uint32_t wrong_count, wrong_file[LOADER_REPLICAS_MAX]; /* files that gave such bytes alone */
	struct load_error error;
	int status;                 /* of this attempt: the first error */
	int64_t begun_ns, ended_ns; /* the first submission, of an attempt that was given up too; the last completion */
	uint64_t bytes_read;        /* by all attempts */
};

/* The latest load of an object that ended, for people: what stands not in its entry. */
struct last_load {
	int64_t ended_ns;      /* 0: none since this manager started */
	uint16_t drive;        /* that gave its first part at the end */
	uint16_t attempts;     /* of other replicas that came to nothing before */
	int32_t status;        /* 0 or -errno */
};

struct residency {
	struct policy *policy;
	uint32_t pool; /* enum policy_pool: what was asked for, whatever the policy */
	struct queue *queue;
	struct load *load; /* as many as the first budget allows in flight */
	uint32_t load_count;
	struct load *free_load;
	uint32_t loads_begun;                       /* since this manager started; wraps */
	uint32_t loads_active, prefetches_active;
	uint32_t loads_waiting;                     /* those that are */
	uint32_t loads_of_drive[LOADER_DRIVES_MAX]; /* with a part out there */
	uint64_t bytes_of_drive[LOADER_DRIVES_MAX]; /* of those parts */
	struct stalls stalls;
	uint32_t held_demands;  /* queued for drives that do not answer, at the last look */
	int64_t *demanded_ns;   /* [owner_count] when it was queued as a demand */
	int64_t *moved_ns;      /* [owner_count] not 0: queued again as a demand, and its first read was submitted then */
	struct last_load *last_load; /* [owner_count] */
	unsigned char *suspect; /* [owner_count] 1: its bytes were wrong, so the next load compares them */
	int64_t expire_ns;      /* nothing is over its time before then */
	int64_t awake_since_ns; /* time in which this process could not run counts against no drive */
	uint64_t budget_bytes, used_bytes;
	/* Below the budget: memory costs more than planned (measure.h), or is missed elsewhere (pressure.h). */
	uint64_t held_to_bytes[RESIDENCY_HOLDS];
	uint32_t *resident_of_model; /* [model_count] */
	uint64_t *bytes_of_model;    /* [model_count] their slabs */
	unsigned char *prefetched;   /* [owner_count] 1: loaded or on its way by prefetch and not yet looked up */
	int64_t refused_ns;          /* not 0: as many prefetches were refused as a turn may, at that time */
	int64_t starved_ns;          /* not 0: a demand found no room at that time */
	int64_t enforce_ns;          /* not before then: a look at who is in the way */
	int trimming;
	struct load *pin[RESIDENCY_PINS_MAX]; /* each lent to the object that is pinned, or NULL */
	uint32_t pin_count;
	struct cnre_log_limit error_limit;
};

/* ---- owners ---- */

static inline struct served_model *model_of(struct manager *manager, uint32_t owner)
{
	uint32_t i = manager->model_count - 1;

	CNRE_CHECK(owner < manager->owner_count);
	while (manager->model[i].first_owner > owner)
		i--;
	return &manager->model[i];
}

static inline struct cnre_entry *entry_of(struct manager *manager, uint32_t owner)
{
	struct served_model *model = model_of(manager, owner);

	return &model->directory->entry[owner - model->first_owner];
}

static inline uint64_t slab_bytes_of(struct manager *manager, uint32_t owner)
{
	const struct served_model *model = model_of(manager, owner);
	const struct model_catalog *catalog = model->catalog;

	return catalog->shape[catalog->object[owner - model->first_owner].shape].slab_bytes;
}

static inline int is_leased(struct manager *manager, uint32_t owner)
{
	const struct served_model *model = model_of(manager, owner);

	return session_any_lease(manager->sessions, model, owner - model->first_owner);
}

static inline int is_pinned(const struct manager *manager, uint32_t owner)
{
	const struct residency *residency = manager->residency;

	for (uint32_t i = 0; i < RESIDENCY_PINS_MAX && residency->pin_count > 0; i++)
		if (residency->pin[i] != NULL && residency->pin[i]->owner == owner)
			return 1;
	return 0;
}

/* ---- object.c: one object's entry (object.h), and what it counts for ---- */

void object_note_attempt(struct cnre_entry *entry, const struct load *load, int64_t ended_ns);
/* R8: a failed load is ABSENT with a new generation and an error class; nothing is cached, all waiters are woken. */
void object_fail(struct manager *manager, uint32_t owner, enum cnre_load_error error);
/* Its bytes count as used, or no longer; it counts as resident, or no longer. */
void object_charge(struct manager *manager, uint32_t owner);
void object_discharge(struct manager *manager, uint32_t owner);
void object_count(struct manager *manager, uint32_t owner, int change);
void object_reject(struct manager *manager, uint32_t owner); /* a load that nobody waits for is refused by the policy */
/* What became of a prefetch: judged once; for what is none, or was judged already, nothing is done. */
void object_prefetch(struct manager *manager, uint32_t owner); /* its load has begun */
void object_judge_prefetch(struct manager *manager, uint32_t owner, enum prefetch_end end);

/* ---- evict.c ---- */

/* What may be resident: the budget, or what it is held to; but what R15 promises to clients can always be resident. */
uint64_t evict_target_bytes(const struct manager *manager);
/* Evicts in policy order until at most `bytes` are in use, for an object or POLICY_NONE. 0, or -EBUSY. */
int evict_down_to(struct manager *manager, uint64_t bytes, uint32_t object);
/* Whether the policy would rather have this object than the one that would go for it: for what nobody waits for. */
int evict_pays(struct manager *manager, uint32_t owner);
/* Whether evict_take_slab would evict nobody: 0, -EBUSY (its layer has all that the policy gives it) or -ENOSPC. */
int evict_find_room(struct manager *manager, uint32_t owner);
/* A slab for an object: within the budget, by policy order, and as a last resort by emptying a window (R15). */
int evict_take_slab(struct manager *manager, uint32_t owner, uint64_t *ret_place);

/* ---- load.c: a slab, and what becomes of it ---- */

int load_open_all(struct manager *manager, uint32_t loads_max);
/* Begins the load of an ABSENT object: 0, or -ENOSPC when no slab can be had now. After pump.c has asked the drives. */
int load_begin(struct manager *manager, uint32_t owner, uint32_t starter, enum load_kind kind);
void load_note_last(const struct load *load, int64_t ended_ns, int status); /* for cnrectl why */
void load_arrived(struct load *load);          /* every byte is there */
void load_fail(struct load *load, int status); /* no replica is left */
void load_free(struct load *load);

/* ---- load_parts.c: reads, and other replicas ---- */

/* 1: each drive of the split has room for one more read. */
int load_has_room(const struct manager *manager, const struct replica_split *split);
void load_submit(struct load *load, const struct replica_split *split);
/* The bytes that arrived are not the object's: 0 another replica is asked, -EBADMSG there is none left. */
int load_read_other(struct load *load);
/* They are, after a replica had given others. */
void load_prove(const struct load *load);
/* Those that wait for room on the drive of another replica. */
void load_retry_waiting(struct manager *manager);

/* ---- load_late.c: time-outs ---- */

/*
 * R16: gives a read up whose drive did not answer in time. While another replica is there its object goes back to where it
 * was before, and is demanded anew; else it fails. When to look again.
 */
int64_t load_expire(struct load *load, int64_t now_ns);
/* The parts that were late are over: nobody waits for them, and the slab is room again. */
void load_end_late(struct load *load);

/* ---- load_log.c ---- */

void load_log_failure(struct load *load, int status);
void load_log_mismatch(struct load *load, uint64_t expected);
void load_log_failover(struct load *load, int64_t ns);

/* ---- pump.c ---- */

/* A place for one more load, and a slab beside what clients reserve: a smaller budget has fewer (R16). */
int pump_may_load(const struct manager *manager);
/*
 * Begins the load of an ABSENT object that nobody asked for, where that costs nobody anything; `own` is how many such loads
 * are on their way. 1 begun, 0 not now, -ENOSPC no room but by evicting, -EBUSY the same of its layer, -EIO its drive
 * does not answer.
 */
int pump_idle(struct manager *manager, uint32_t owner, uint32_t own);

#endif
