/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The KV side of the fake host (fake_host.h): namespaces with real segments, whose blocks are published, evicted, read
 * and forgotten just when the test says so. Requests are served by fake_kv_serve, on the test's own thread; only messages
 * are answered by the host's. Give it to the host in fake_host_setup.kv, and stop it after the host.
 *
 * Functions on blocks act on the namespace that was opened first. Entries are used in order: the first block published is
 * entry 0.
 */
#ifndef CNRE_TESTS_SUPPORT_FAKE_KV_H
#define CNRE_TESTS_SUPPORT_FAKE_KV_H

#include "shm/kv.h"

struct fake_kv_setup {                    /* zero: the default in brackets */
	uint32_t entry_count;             /* [64] */
	uint32_t bucket_count;            /* [16] */
	uint32_t segment_count;           /* of the pool; entries lie in them by turns [1] */
	uint64_t block_bytes;             /* room of an entry [4096] */
	uint64_t staging_bytes;           /* [1 MiB] */
	uint64_t pin_bytes_max;           /* [no limit] */
	int32_t open_status;              /* answer of every KV_OPEN [0] */
	/* Lies about itself, for what a client checks when it maps. */
	uint32_t said_entries, said_buckets, said_number, said_channel_entries;
	uint64_t said_staging_bytes;
	int segments_lie;                 /* answers KV_SEGMENTS with none [all from `first` on] */
};

struct fake_kv;

struct fake_kv *fake_kv_start(const struct fake_kv_setup *setup); /* aborts when it cannot */
void fake_kv_stop(struct fake_kv *kv);

/* For the host: answers a KV message of a session. 0: it is none. */
int fake_kv_answer(struct fake_kv *kv, int socket, uint32_t session, const void *message);

/* ---- what it saw ---- */
uint32_t fake_kv_opens(struct fake_kv *kv);
uint32_t fake_kv_segment_asks(struct fake_kv *kv);
struct cnre_kv_directory *fake_kv_directory(struct fake_kv *kv);
struct cnre_kv_entry *fake_kv_entry(struct fake_kv *kv, uint32_t index);
struct cnre_kv_channel *fake_kv_channel(struct fake_kv *kv);        /* of the first session */
uint32_t fake_kv_leases(struct fake_kv *kv, uint32_t index);        /* of all sessions */
uint32_t fake_kv_loads(struct fake_kv *kv);                         /* entries in LOAD requests so far */
/* The last published request. */
const struct cnre_kv_request *fake_kv_published(struct fake_kv *kv);

/* ---- what it does ---- */

/* Every request that is submitted. PUBLISH ends in `status`, or if that is 0 in a block; LOAD makes LOADING of ABSENT. */
uint32_t fake_kv_serve(struct fake_kv *kv, int status);
void fake_kv_await_posts(struct fake_kv *kv); /* until something is submitted */
/* LOADING becomes READY, or ABSENT with the next generation. Wakes. */
void fake_kv_finish(struct fake_kv *kv, uint32_t index, enum cnre_load_error error);
/* READY and not leased: its memory is given back, its file is there. 1 gone, 0 leased. */
int fake_kv_evict(struct fake_kv *kv, uint32_t index);
/* Not leased: it names nothing any more. 1 gone, 0 leased. */
int fake_kv_forget(struct fake_kv *kv, uint32_t index);
/* A client that used an entry last, under a place of its own. */
void fake_kv_hold(struct fake_kv *kv, uint32_t index, uint32_t session, uint32_t place, const char *name);

#endif
