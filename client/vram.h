/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's side of the VRAM tier: experts in the memory of GPUs, leased as those in memory are, but by a table and a ledger a
 * device (shm/vram.h), against a gauge of their own, and with device pointers. Nothing of it is on the path of a hit in memory.
 *
 *   device   of this process, by its ordinal: its driver context, and its table now, if there is one
 *   table    what VRAM_OPENED brought: directory, ledger, the exporter's pidfd, and the arenas that this process has open. It
 *            dies with its exporter (R29); its successor has another one. A table that is no device's current one any more is
 *            closed when the last lease there is back
 *   point    a lease that a stream still uses (vram_point.c)
 *
 * A lease of this tier has CNRE_LEASE_IN_VRAM set, which no lease of memory has: its bits below are those of a log position, of
 * which there are 2^40, or of an object's index.
 *
 *   without cookies   1 at bit 41 | table:6 at bit 35 | object + 1
 *   cookies           slot:22 | 1 | table:6 | log position:35
 *
 * Ordering map:
 *   [VR2] acq_rel a use more <-> [VR3] acq_rel a use less    the last one closes the table and sees what all others did
 *   [VR21] release the first use -> [VR2]                    a struct is used again, and found whole
 *   [VR5] release current -> [VR1] acquire current           who finds a table sees its mappings
 *   [VA5] release word of an arena -> [VA1] acquire          who has a lease in it sees its address
 *   [VA2] release lease of an arena down -> [VA3] acquire    nobody uses it when it is closed
 *   [VG2] release held down -> [VG1] acquire held up         as [G3] and [G2] of lease.h
 *
 * Threads: any. After fork() a child only frees memory: no lock is taken there, and the driver is never called.
 */
#ifndef CNRE_CLIENT_VRAM_H
#define CNRE_CLIENT_VRAM_H

#include "client/access.h"
#include "client/vram_point.h"
#include "gpu/import.h"
#include "shm/vram.h"

#define CNRE_VRAM_TABLES_MAX 64u          /* current ones, and old ones with leases out */
#define CNRE_VRAM_OPEN_TRIES_MAX 8        /* each restart of the manager leaves one answer unread at most */
#define CNRE_VRAM_ASK_AGAIN_NS 1000000000LL /* after a refusal, of manager or driver, nobody is asked for so long */
#define CNRE_VRAM_TABLE_SHIFT 35u
#define CNRE_VRAM_OBJECT_MASK ((1ull << CNRE_VRAM_TABLE_SHIFT) - 1)

_Static_assert((uint64_t)CNRE_VRAM_TABLES_MAX << CNRE_VRAM_TABLE_SHIFT == CNRE_LEASE_IN_VRAM, "a table's number fits a lease");
_Static_assert(CNRE_LEASE_IN_VRAM < 1ull << CNRE_COOKIE_SHIFT, "a lease's bits fit a cookie's sequence");
_Static_assert(CNRE_VRAM_UUID_BYTES == GPU_UUID_BYTES && CNRE_VRAM_TOKEN_BYTES == GPU_TOKEN_BYTES &&
		       CNRE_VRAM_HANDLE_BYTES == GPU_HANDLE_BYTES && CNRE_VRAM_DEVICES_MAX == GPU_DEVICES_MAX,
	       "shm/vram.h and gpu/ say the same");

/* One arena as this process has it. */
struct cnre_vram_arena_use {
	_Atomic uint64_t word;            /* id:32 | leases:32; id 0: not open */
	uint64_t address, bytes;          /* under a lease of it, or the table's lock */
};

struct cnre_vram_table {
	_Atomic uint32_t uses;            /* threads in a call, leases, and 1 while it is current; 0: nobody may touch it */
	_Atomic uint32_t is_dead;         /* its exporter is gone */
	_Atomic uint32_t look;            /* arena that is looked at next */
	_Atomic int error;                /* of the driver, at the last arena that could not be opened */
	_Atomic int64_t retry_ns;         /* until then no other is tried */
	int is_claimed;                   /* under cnre_vram.lock */
	uint32_t number, ordinal, epoch;
	uint32_t device;                  /* the manager's number of it */
	struct gpu_import *import;
	struct cnre_segment segment[2];   /* directory, ledger */
	const struct cnre_vram_directory *directory;
	struct cnre_vram_ledger *ledger;
	_Atomic uint8_t *home;            /* [object_count] arena of an object that this client leases */
	int exporter;                     /* pidfd, or -1 */
	dev_t exporter_device;            /* whether the number is still that descriptor's */
	ino_t exporter_inode;
	pthread_mutex_t lock;             /* opening and closing arenas */
	struct cnre_vram_arena_use arena[CNRE_VRAM_ARENAS_MAX];
};

struct cnre_vram_device {
	pthread_mutex_t lock;             /* making the table, over a question to the manager */
	pthread_mutex_t import_lock;      /* inside of it; held over the driver only */
	_Atomic uint32_t current;         /* number of its table + 1; 0: none */
	_Atomic uint32_t is_wanted;       /* an acquire named it */
	_Atomic int error;                /* why there was no table when one was last asked for */
	_Atomic uint32_t error_epoch;
	_Atomic int64_t ask_again_ns;
	struct gpu_import *import;        /* under its lock until it is there, and then the same until detach */
};

struct cnre_vram {
	int is_wanted, may_use_ram;       /* flags of cnre_attach */
	_Atomic uint32_t held;            /* objects leased, of all tables */
	_Atomic uint64_t refused;         /* epoch + 1 of the manager that said -EACCES; 0: none did */
	_Atomic uint64_t retired;         /* accesses in tables that are closed */
	pthread_mutex_t lock;             /* which tables are claimed */
	struct cnre_points points;
	struct cnre_vram_device device[CNRE_VRAM_DEVICES_MAX];
	struct cnre_vram_table table[CNRE_VRAM_TABLES_MAX];
};

/* ---- client/vram.c: of the whole client; client->vram is NULL where it was not asked for ---- */

int cnre_vram_init(struct cnre *client, uint32_t attach_flags);
/* Waits a bounded time for streams. 1: leases are out, so nothing may be closed. No other call runs. */
int cnre_vram_is_busy(struct cnre *client);
void cnre_vram_close(struct cnre *client);
void cnre_vram_free(struct cnre *client);  /* memory only, also in a forked child */
void cnre_vram_close_in_child(struct cnre *client); /* the descriptors, right after fork */

int cnre_vram_is_served(const struct cnre *client);   /* the manager has memory of some GPU */
int cnre_vram_is_offered(const struct cnre *client);  /* and this client may have it, as far as it knows */
struct cnre_vram_sum {
	uint64_t accesses, leased_bytes;
};
struct cnre_vram_sum cnre_vram_sum(struct cnre *client);
/* Sets CNRE_VRAM where an object is in a device that this client has a table of. */
void cnre_vram_find_tiers(struct cnre *client, uint32_t layer, const uint32_t *experts, uint32_t count, uint8_t *tiers);

/* ---- client/vram_table.c ---- */

/*
 * The table of a device, asked for if there is none; a use of it is the caller's. The driver is loaded when it is first needed.
 * 0, or -ENODEV, -EACCES, -ENOMEM, -EPIPE, -ETIMEDOUT, -EAGAIN (another thread is at it, where is_patient is 0), …
 * -ENXIO: this process has no such device.
 */
int cnre_vram_table_get(struct cnre *client, uint32_t ordinal, int is_patient, int64_t deadline_ns, struct cnre_vram_table **ret_table);
/* The current one if there is one, whatever its state; or NULL. */
struct cnre_vram_table *cnre_vram_table_find(struct cnre *client, uint32_t ordinal);
/* By number, of a lease: NULL if nobody uses it. */
struct cnre_vram_table *cnre_vram_table_ref(struct cnre *client, uint32_t number);
void cnre_vram_table_unref(struct cnre *client, struct cnre_vram_table *table, uint32_t uses);
void cnre_vram_table_drop(struct cnre *client, uint32_t ordinal); /* no current one any more */
/* The device's context here, made if there was none; waits for the driver, and never for the manager. 0, -ENODEV, -ENXIO, -ENOMEM */
int cnre_vram_device_open(struct cnre_vram_device *device, uint32_t ordinal);

/* The current incarnation's, and its device works. */
int cnre_vram_table_is_current(const struct cnre *client, const struct cnre_vram_table *table);
int cnre_vram_table_is_lost(const struct cnre_vram_table *table);

/* ---- client/vram_map.c ---- */

struct cnre_answer;
struct cnre_vram_name {
	uint32_t ordinal, device, epoch;
	struct gpu_import *import;
};

/* From a VRAM_OPENED, with one use. 0, -EBADMSG, -ENOSPC (leases are out in too many old ones), -ENOMEM, … */
int cnre_vram_table_make(struct cnre *client, const struct cnre_answer *answer, const struct cnre_vram_name *name, struct cnre_vram_table **ret_table);
void cnre_vram_table_end(struct cnre *client, struct cnre_vram_table *table); /* nobody uses it */
void cnre_vram_table_close_exporter(struct cnre_vram_table *table);
/* The exporter is gone: one system call, and remembered. */
int cnre_vram_table_is_dead(struct cnre_vram_table *table);

/* ---- client/vram_arena.c ---- */

/* A lease of the arena in which a READY, leased object lies, opened if it was not. 0 and the object's address, or -errno. */
int cnre_vram_arena_raise(struct cnre *client, struct cnre_vram_table *table, uint32_t object, uint64_t *ret_address);
/* Where a leased object lies: asked before its lease goes down, since it may lie elsewhere right after. */
uint32_t cnre_vram_arena_of(const struct cnre_vram_table *table, uint32_t object);
void cnre_vram_arena_lower(struct cnre_vram_table *table, uint32_t arena);
/* Closes what is CLOSING and not leased: of a few arenas, or of all. Never waits for another thread. */
#define CNRE_VRAM_LOOKS 2u
void cnre_vram_arena_look(struct cnre_vram_table *table, uint32_t count);
void cnre_vram_arena_close_all(struct cnre_vram_table *table);

/* ---- client/vram_lease.c ---- */

/* One lease of an object up, or down; the same as in hot.h, of a table. */
int cnre_vram_lease_raise(struct cnre *client, struct cnre_vram_table *table, uint32_t object);
void cnre_vram_lease_undo(struct cnre *client, struct cnre_vram_table *table, uint32_t object);
/* Ledger, arena and table. 0 or -EINVAL: this client holds none of it. */
int cnre_vram_lease_lower(struct cnre *client, struct cnre_vram_table *table, uint32_t object);
int cnre_vram_lease_name(struct cnre *client, const struct cnre_vram_table *table, uint32_t object, uint64_t position, uint64_t *ret_lease);
/* What a lease names; its cookie has ended. -EINVAL: no lease. */
int cnre_vram_lease_object(struct cnre *client, uint64_t lease, uint32_t *ret_object);

static inline int cnre_vram_is_lease(uint64_t lease)
{
	return (lease & CNRE_LEASE_IN_VRAM) != 0;
}

static inline uint32_t cnre_vram_lease_table(uint64_t lease)
{
	return (uint32_t)(lease >> CNRE_VRAM_TABLE_SHIFT) & (CNRE_VRAM_TABLES_MAX - 1);
}

/* cnre_release of a lease of this tier. 0, -EINVAL, or -EPIPE: down, and the exporter is gone. */
int cnre_vram_release(struct cnre *client, struct cnre_expert *expert);

#endif
