/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of VRAM that speaks the protocol without libcnre and calls no driver, so that a test sees, and does, each step of it
 * on its own: VRAM_OPEN, leases in the ledger, bits of arenas. Functions report by return value only.
 */
#ifndef CNRE_TESTS_VRAM_RAW_H
#define CNRE_TESTS_VRAM_RAW_H

#include "shm/vram.h"
#include "shm/wire.h"

struct vram_raw {
	int socket;
	uint32_t reserve_slabs;
	struct cnre_page *page;
	const struct cnre_catalog *catalog;
	struct cnre_channel *channel;
	uint64_t log_position;
	/* after vram_raw_open */
	const struct cnre_vram_directory *directory;
	struct cnre_vram_ledger *ledger;
	int exporter, directory_fd;       /* descriptors */
	uint32_t device;
	char message[256];                /* of the last answer */
};

int vram_raw_attach(struct vram_raw *raw, const char *socket, const char *model, uint64_t reserve_bytes); /* 0 or -errno */
/* The status of the answer; NULL: the stand-in's first device. Mapped again at each success. */
int vram_raw_open(struct vram_raw *raw, const unsigned char *uuid);
void vram_raw_close(struct vram_raw *raw);
int vram_raw_detach(struct vram_raw *raw); /* says goodbye, whatever its ledgers say, and hangs up */

/* One lookup, as the library does it, but it never waits: 1 a lease is up and the object is READY, 0 it was taken back. */
int vram_raw_try(struct vram_raw *raw, uint32_t object);
void vram_raw_release(struct vram_raw *raw, uint32_t object);
/* Words into the access log; nobody is woken. */
void vram_raw_log(struct vram_raw *raw, enum cnre_log_kind kind, uint32_t argument, uint32_t value);

enum cnre_state vram_raw_state(const struct vram_raw *raw, uint32_t object);
uint32_t vram_raw_ready(const struct vram_raw *raw); /* how many are */
/* Copies a part's bytes out of VRAM: opens its arena through the driver and closes it. 0 or -errno. */
int vram_raw_read(struct vram_raw *raw, uint32_t object, uint32_t role, void *to, size_t bytes);
uint32_t vram_raw_arenas(const struct vram_raw *raw, enum cnre_arena_state state);

#endif
