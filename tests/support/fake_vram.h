/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The VRAM side of the fake host (fake_host.h): one device's table with real segments, whose entries and arenas change just as
 * the test says, and an exporter, which is a process that only waits to be killed. What lies in an arena is host memory of the
 * test: every 32-bit word of an object is its index. Give it to the host in fake_host_setup.vram; stop it after the host.
 */
#ifndef CNRE_TESTS_SUPPORT_FAKE_VRAM_H
#define CNRE_TESTS_SUPPORT_FAKE_VRAM_H

#include "shm/vram.h"

#include <sys/types.h>

#define FAKE_VRAM_ARENAS 4u
#define FAKE_VRAM_DEVICE 5u       /* the manager's number of the first device */

/* Memory of a driver, in place of the test's own. */
struct fake_vram_exported {
	unsigned char uuid[CNRE_VRAM_UUID_BYTES], token[CNRE_VRAM_TOKEN_BYTES];
	unsigned char handle[FAKE_VRAM_ARENAS][CNRE_VRAM_HANDLE_BYTES];
	uint64_t local[FAKE_VRAM_ARENAS];
	pid_t exporter;           /* a child of the test */
};

struct fake_vram_setup {          /* zero: the default in brackets */
	uint32_t object_count;    /* [64] */
	int ordinal;              /* whose UUID it serves [0] */
	int32_t open_status;      /* answer of every VRAM_OPEN [0] */
	uint32_t ignored_opens;   /* the first so many are not answered [0] */
	const struct fake_vram_exported *exported; /* [memory of the test, of a process that only waits] */
	int is_local;             /* it says that it is this process */
	/* Lies about itself, for what a client checks when it maps. */
	uint32_t said_objects, said_device;
	int lies_about_uuid, sends_no_pidfd;
	uint64_t said_arena_bytes;
};

struct fake_vram;

struct fake_vram *fake_vram_start(const struct fake_vram_setup *setup); /* aborts when it cannot */
void fake_vram_stop(struct fake_vram *vram);
/* For the host: answers a VRAM_OPEN of a session. 0: it is none. */
int fake_vram_answer(struct fake_vram *vram, int socket, uint32_t session, const void *message);

/* ---- what it saw ---- */
uint32_t fake_vram_opens(struct fake_vram *vram);
uint32_t fake_vram_leases(struct fake_vram *vram, uint32_t object);   /* of all sessions */
uint32_t fake_vram_accesses(struct fake_vram *vram, uint32_t object);
int fake_vram_is_open(struct fake_vram *vram, uint32_t arena);        /* a client says so */
const char *fake_vram_memory(struct fake_vram *vram, uint32_t arena);
uint64_t fake_vram_bytes(const struct fake_vram *vram);               /* of an arena */

/* ---- what it does ---- */
void fake_vram_fill(struct fake_vram *vram, uint32_t object, uint32_t arena); /* READY there; wakes */
void fake_vram_store_state(struct fake_vram *vram, uint32_t object, enum cnre_state state);
int fake_vram_evict(struct fake_vram *vram, uint32_t object);                 /* 1 gone, 0 leased */
void fake_vram_close_arena(struct fake_vram *vram, uint32_t arena);           /* CLOSING */
void fake_vram_renew_arena(struct fake_vram *vram, uint32_t arena);           /* another one in its place, of other memory */
/* What a manager does when it frees one that nobody has open: 1 done, and its memory is gone; 0 somebody has. */
int fake_vram_free_arena(struct fake_vram *vram, uint32_t arena);
/* Of an object's place in an arena, which nobody may read now: what an upload writes, or leaves half done. */
void fake_vram_write(struct fake_vram *vram, uint32_t object, uint32_t arena, uint32_t value);
void fake_vram_lose(struct fake_vram *vram);                                  /* the device */
void fake_vram_kill_exporter(struct fake_vram *vram);                         /* and leaves a zombie */
/* Another incarnation: table, ledgers and exporter are new, nothing is READY. The one before stays mapped where it is. */
void fake_vram_succeed(struct fake_vram *vram);
void fake_vram_set_status(struct fake_vram *vram, int32_t status);

#endif
