/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is shared for experts in the memory of GPUs, byte for byte; the rules of shm/layout.h hold here too.
 *
 *   segment          manager  client            content
 *   vram directory   RW       RO, trusted only  of one model and device: its arenas, and an entry per object
 *   vram ledger      RW       RW, its own only  arenas that this client has open; one word per object, as in struct cnre_ledger
 *
 * The bytes themselves lie in arenas: device memory that the manager's process allocated and exported. An importer can write
 * in it (CUDA IPC knows no read-only mapping), so the manager offers the tier only to clients that its settings trust.
 *
 * An entry is a struct cnre_entry as in the model's directory, with the same states and the same two halves of Dekker's
 * pattern (shm/ledger.h): a lease in the vram ledger is raised BEFORE the state is looked at. Its place names an arena in the
 * upper 16 bits. LOADING is an upload on its way: nobody need ask for one, who goes there is the manager's choice.
 *
 * All of it dies with the manager (R29): device memory belongs to its process, so neither segment is kept for a successor, who
 * makes new ones. A client knows by the pidfd that came with them, and asks anew.
 *
 * An arena is freed when no entry lies in it and no client says in its ledger that it has it open: freeing what an importer
 * has open is undefined. A client sets its bit before it opens and clears it after it closed; it closes what is CLOSING when
 * it comes by and holds no lease there.
 *
 * Ordering map:
 *   [VO1] seq_cst set open (client), then lease down [L5] -> [VO3] seq_cst look (manager), after no lease was seen [L4]:
 *         an arena is opened under a lease in it, so who has moved all entries out of it sees every bit
 *   [VO2] release clear open (client) -> [VO3]: the arena is closed before it is freed. Where the driver does not close it, the
 *         bit stays: then the end of the process does
 */
#ifndef CNRE_SHM_VRAM_H
#define CNRE_SHM_VRAM_H

#include "shm/layout.h"

#define CNRE_VRAM_DEVICES_MAX 16u
#define CNRE_VRAM_ARENAS_MAX 256u         /* of one device */
#define CNRE_VRAM_UUID_BYTES 16u
#define CNRE_VRAM_TOKEN_BYTES 16u
#define CNRE_VRAM_HANDLE_BYTES 64u        /* of a CUipcMemHandle */

enum cnre_vram_state {
	CNRE_VRAM_OFF = 0,
	CNRE_VRAM_SERVING = 1,
	CNRE_VRAM_LOST = 2,               /* the device does not work any more; nothing in it can be read or comes back */
};

enum cnre_arena_state {
	CNRE_ARENA_NONE = 0,
	CNRE_ARENA_LIVE = 1,
	CNRE_ARENA_CLOSING = 2,           /* will be freed; whoever has it open shall close it */
};

struct cnre_vram_arena {
	_Atomic uint32_t state;           /* enum cnre_arena_state; LIVE is stored last */
	uint32_t id;                      /* of this use of the place: never 0, never used again in an incarnation */
	uint64_t bytes;
	uint64_t local;                   /* its address in the manager's process */
	unsigned char handle[CNRE_VRAM_HANDLE_BYTES];
	uint64_t reserved;
};
_Static_assert(sizeof(struct cnre_vram_arena) == 96, "is ABI");

struct cnre_vram_directory {
	struct cnre_segment_header header;
	unsigned char uuid[CNRE_VRAM_UUID_BYTES];   /* of the device */
	unsigned char token[CNRE_VRAM_TOKEN_BYTES]; /* of the exporting process: who has the same is that process (gpu/import.h) */
	uint32_t object_count;
	uint32_t device;                  /* the manager's number of it, below CNRE_VRAM_DEVICES_MAX */
	_Atomic uint32_t state;           /* enum cnre_vram_state */
	uint32_t reserved0;
	uint64_t reserved[2];
	struct cnre_vram_arena arena[CNRE_VRAM_ARENAS_MAX];
	struct cnre_entry entry[];        /* object_count */
};
_Static_assert(offsetof(struct cnre_vram_directory, arena) == 128, "is ABI");
_Static_assert(offsetof(struct cnre_vram_directory, entry) == 24704, "is ABI");
_Static_assert(offsetof(struct cnre_vram_directory, entry) % 64 == 0, "an entry is one line");

struct cnre_vram_ledger {
	struct cnre_segment_header header;
	_Atomic uint64_t open[CNRE_VRAM_ARENAS_MAX / 64]; /* bit by arena: this client has it open, or is about to */
	uint64_t reserved[4];
	_Atomic uint64_t word[];          /* accesses:32 | leases:32, one per object: hits in this device's memory */
};
_Static_assert(offsetof(struct cnre_vram_ledger, word) == 128, "is ABI");

/* Client: says that it has an arena open, before it opens it; a lease of an entry in it is up. */
static inline void cnre_vram_mark_open(struct cnre_vram_ledger *ledger, uint32_t arena)
{
	/* [VO1] seq_cst, pairs with [VO3]: before the lease goes down, and before the driver is asked. */
	(void)atomic_fetch_or_explicit(&ledger->open[arena / 64], 1ull << arena % 64, memory_order_seq_cst);
}

/* Client: after it was closed. */
static inline void cnre_vram_unmark_open(struct cnre_vram_ledger *ledger, uint32_t arena)
{
	/* [VO2] release, pairs with [VO3]: it is closed. */
	(void)atomic_fetch_and_explicit(&ledger->open[arena / 64], ~(1ull << arena % 64), memory_order_release);
}

/* Manager: whether that client has it open, or is about to. Asked when no entry lies in the arena any more. */
static inline int cnre_vram_is_open(const struct cnre_vram_ledger *ledger, uint32_t arena)
{
	/* [VO3] seq_cst, pairs with [VO1] and [VO2]: a bit set under a lease that is seen down is seen. */
	return (atomic_load_explicit(&ledger->open[arena / 64], memory_order_seq_cst) >> arena % 64 & 1) != 0;
}

#endif
