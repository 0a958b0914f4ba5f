/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of vram.h share; private to vram*.c. */
#ifndef CNRE_MANAGER_VRAM_INNER_H
#define CNRE_MANAGER_VRAM_INNER_H

#include "gpu/device.h"
#include "manager/extent.h"
#include "manager/loop.h"
#include "manager/residency.h"
#include "manager/session.h"
#include "manager/settings.h"
#include "manager/vram.h"
#include "policy/tier.h"
#include "shm/vram.h"

#include <assert.h>

#define VRAM_UPLOADS_MAX 4u               /* on their way at once, of all devices */
#define VRAM_MOVES_PER_TURN 8u            /* of the policy; each is some microseconds */
#define VRAM_EVICTIONS_PER_TURN 64u       /* of a device that gives memory back */
#define VRAM_SWEEP_PER_TURN 4096u         /* entries of a lost device */
#define VRAM_ARENA_BYTES (256ull << 20)   /* of an arena, or … */
#define VRAM_ARENA_PARTS 128u             /* … this part of the budget, so that a device has some hundred at most */
#define VRAM_RETRY_NS 10000000            /* releases and closings ring no bell: look again then */
#define VRAM_GROW_RETRY_NS 10000000000    /* the driver had no memory, or others have the reserve: ask again then */
#define VRAM_RELEARN_NS 1000000000        /* there was room, but in no one piece: try again then */
#define VRAM_ENFORCE_NS 100000000         /* one client's leases are counted, and no more often than this (R19) */
#define VRAM_ABANDON_NS 60000000000       /* nobody has had a device open for so long: its memory goes back */
#define VRAM_HOLD_NS 1000000000          /* an upload failed: the next one to that device */
#define VRAM_SUSPECTS_MAX 16u             /* damaged objects that are still held */
#define VRAM_PROBE_NS 1000000000          /* a device that somebody has open is asked whether it works, and what is free */
#define VRAM_WATCH_NS 1000000000          /* while the driver is in a call: whether it hangs */
#define VRAM_LOOK_NS 50000000             /* at processes that are ending */

/* Of a client that is gone, until its places may be others'; see vram_session.c. */
#define VRAM_SETTLE_NS 1000000000         /* after its process ended */
#define VRAM_BLIND_NS 10000000000         /* where no pidfd tells when that is */
#define VRAM_LEAVING_MAX 256u             /* more of them, and nobody opens a device until one has gone */
#define VRAM_LEAVING_OF_ONE 16u           /* of one process; more, and it opens none: it alone says how long they stay */

#define VRAM_NO_OWNER UINT32_MAX

_Static_assert(VRAM_UPLOADS_MAX < RESIDENCY_PINS_MAX, "one is the scrub's");
_Static_assert(GPU_DEVICES_MAX <= CNRE_VRAM_DEVICES_MAX && GPU_DEVICES_MAX <= TIER_DEVICES_MAX, "a device has a number everywhere");
_Static_assert(GPU_HANDLE_BYTES == CNRE_VRAM_HANDLE_BYTES && GPU_UUID_BYTES == CNRE_VRAM_UUID_BYTES &&
	       GPU_TOKEN_BYTES == CNRE_VRAM_TOKEN_BYTES, "what gpu/ gives is what is shared");

struct vram_device;
struct vram_table;

/* A client's ledger of one model and device. */
struct vram_session {
	struct session *session;          /* NULL: it ended, and what is left of it is waited for */
	struct vram_table *table;
	struct vram_session *next;        /* of the table: every one that counts, whose session ended or not */
	struct vram_session *next_leaving;
	struct cnre_segment segment;
	struct cnre_vram_ledger *ledger;  /* every word in it is input */
	int holds;                        /* its leases count */
	int pidfd;                        /* of a leaving one; -1: none, or its process has ended */
	pid_t process;                    /* whose it was, of a leaving one */
	int64_t leaves_ns;                /* not before then; CNRE_NEVER: when its process has ended */
};

/* A model on a device. Made for all models when the first client opens the device. */
struct vram_table {
	struct vram_device *device;
	const struct served_model *model;
	struct cnre_segment segment;
	struct cnre_vram_directory *directory; /* NULL: nobody opened the device yet */
	struct vram_session *sessions;
};

enum vram_arena_state { VRAM_ARENA_NONE, VRAM_ARENA_LIVE, VRAM_ARENA_CLOSING, VRAM_ARENA_FREEING };

struct vram_arena {
	enum vram_arena_state state;
	uint64_t address, bytes, charged_bytes;
	unsigned char handle[GPU_HANDLE_BYTES];
	uint32_t id;
	struct vram_device *device;
	struct gpu_job job;               /* that frees it */
};

enum vram_growth { VRAM_GROWS_NOT, VRAM_MEASURES, VRAM_ALLOCATES };

struct vram_device {
	struct vram *vram;
	uint32_t number;
	int is_open;                      /* tables are there */
	int is_lost;
	uint32_t sweep_model, sweep_object; /* of a lost one: what is still to be told */
	uint64_t budget_bytes;            /* as set */
	uint64_t target_bytes;            /* as in force: 0 while nobody has the device open */
	uint64_t charged_bytes;           /* by the driver, for arenas; CLOSING and FREEING ones too */
	uint64_t overhead_bytes;          /* what the driver charged beyond what was asked for, the most it ever was */
	uint64_t arena_bytes_max;         /* not more was to be had at the last try */
	struct extent_map room;
	struct vram_arena arena[CNRE_VRAM_ARENAS_MAX];
	struct vram_table table[MANAGER_MODELS_MAX];
	uint32_t session_count;           /* that have it open now */
	int64_t abandoned_ns;             /* when the last one left */
	enum vram_growth growth;
	struct gpu_job grow_job;
	int64_t grow_ns;                  /* not before then */
	struct gpu_job probe_job;
	int is_probing;
	int64_t probe_ns;                 /* the next one */
	int is_short;                     /* less than the budget could be had */
	char shortage[VRAM_MESSAGE_BYTES]; /* why */
	int64_t relearn_ns;               /* not 0: the policy was told a smaller budget until then */
	int trimming;                     /* more is charged than may be */
	int64_t hold_ns;                  /* an upload failed: no other before then */
	int is_blocked;                   /* a lease was in the way of an eviction since the last count of leases */
	uint64_t uploads, evictions, refused, failures, upload_bytes;
};

struct vram_upload {
	struct gpu_job job;               /* first: `done` gets its address */
	struct vram *vram;
	struct residency_pin pin;
	uint32_t owner, device;
	int is_busy;
};

struct vram {
	struct manager *manager;
	struct gpu *gpu;                  /* NULL: none serves, and `fault` says why */
	char fault[VRAM_MESSAGE_BYTES];
	int is_fault;                     /* it was asked for: among what is degraded */
	struct loop_source events;        /* gpu_event_fd */
	int pidfd;                        /* of this process, for clients */
	gid_t group;                      /* of the control socket */
	uint32_t trust;                   /* enum settings_vram_trust */
	uint64_t reserve_bytes, staging_bytes;
	uint32_t device_count;
	struct vram_device *device;       /* [device_count] */
	struct tier *tier;
	unsigned char *wanted;            /* [model_count] 1: a client of it opened a device once */
	unsigned char *missed;            /* [owner_count] lookups whose load was awaited when they were heard of; 255: or more */
	int heard;                        /* lookups came since the last pass of the policy */
	uint32_t next_id;                 /* of an arena */
	struct vram_upload upload[VRAM_UPLOADS_MAX];
	uint32_t uploads_active;
	struct vram_session *leaving;
	uint32_t leaving_count;
	int64_t look_ns, enforce_ns, retry_ns; /* not before then */
	uint32_t enforce_slot;            /* of the session to be counted next */
	uint32_t suspect[VRAM_SUSPECTS_MAX];
	uint32_t suspect_count;
	int is_fired;                     /* the driver's side has news */
	int closings;                     /* arenas are on their way back */
	uint64_t unspent_accesses;        /* lookups since the last token that was guessed */
	struct cnre_log_limit limit;
};

/* ---- vram_table.c ---- */

static inline struct vram_device *vram_device_at(const struct manager *manager, uint32_t number)
{
	return &manager->vram->device[number];
}

const struct served_model *vram_model_of(const struct manager *manager, uint32_t owner);
struct vram_table *vram_table_of(struct vram_device *device, uint32_t owner);
struct cnre_entry *vram_entry_of(struct vram_device *device, uint32_t owner);
uint64_t vram_place_bytes(const struct manager *manager, uint32_t owner); /* that a place takes */
/* The directories of a device, for all models. 0 or -errno. */
int vram_tables_open(struct vram_device *device);
void vram_tables_close(struct vram_device *device);
void vram_tables_state(struct vram_device *device, enum cnre_vram_state state);
/* What clients see of one arena, in every directory of its device. */
void vram_tables_show(struct vram_device *device, uint32_t arena);
void vram_tables_store_state(struct vram_device *device, uint32_t arena, enum cnre_arena_state state);

/* ---- vram_arena.c ---- */

/* Memory for a place: 0, or -ENOSPC: none now. */
int vram_arena_take(struct vram_device *device, uint32_t owner, uint32_t *ret_arena, uint64_t *ret_off);
void vram_arena_give(struct vram_device *device, uint64_t place);
/* Asks the driver for one more arena, if that may be and is of use. 1: asked for, and the answer comes. */
int vram_arena_grow(struct vram_device *device);
/* Closes arenas until no more is charged than may be, and frees those that nobody has open. 1: more is to be done. */
int vram_arena_trim(struct vram_device *device);
void vram_arenas_close(struct vram_device *device);

/* ---- vram_device.c ---- */

void vram_device_open(struct vram *vram, uint32_t number, uint64_t budget_bytes);
/* The budget in force: what was set, while somebody has it open. Tells the policy. */
void vram_device_apply(struct vram_device *device);
void vram_device_lost(struct vram_device *device);
int vram_device_sweep(struct vram_device *device); /* 1: more is to be done */
void vram_device_probe(struct vram_device *device, int64_t now_ns);
void vram_device_short(struct vram_device *device, const char *why); /* NULL: it is not any more */
void vram_count(struct vram *vram); /* counters that are levels */

/* ---- vram_session.c ---- */

int vram_any_lease(const struct vram_table *table, uint32_t object);
/* 1: a client says that it has that arena open. */
int vram_any_open(const struct vram_device *device, uint32_t arena);
int vram_sessions_look(struct vram *vram); /* at those that are leaving; 1: one has gone */
/* R19: counts one client's leases, and ends its session if they are more than it may have. */
void vram_sessions_enforce(struct vram *vram);
void vram_sessions_close(struct vram *vram);

/* ---- vram_trust.c ---- */

/* 0, or -EACCES with one line. */
int vram_trust_check(const struct vram *vram, const struct session *session, char message[VRAM_MESSAGE_BYTES]);

/* ---- vram_place.c ---- */

int vram_is_in_ram(const struct manager *manager, uint32_t owner); /* 1: READY there */
int vram_place_turn(struct vram *vram); /* 1: there may be more to do at once */
/* For the policy (struct tier_setup). */
int vram_can_upload(void *vram, uint32_t owner);
int vram_can_leave(void *vram, uint32_t owner);

/* ---- vram_evict.c ---- */

/* R1 on the ledgers of one model and device. 0, or -EBUSY: leased, or an upload is under way. */
int vram_evict(struct vram_device *device, uint32_t owner);
void vram_evict_suspects(struct vram *vram);

#endif
