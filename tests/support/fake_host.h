/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A manager for tests of the client library: threads of the test process that serve real sockets and real segments with
 * an invented model, and change the state of objects just as the test says. It does as little as the protocol allows,
 * so that each step of a client's wait can be made to happen, or not to happen, on purpose. It has no policy and never
 * evicts by itself.
 *
 * The model is called "fake". Every object has the parts gate, up and down; each 32-bit word of a loaded slab is the
 * object's index.
 */
#ifndef CNRE_TESTS_SUPPORT_FAKE_HOST_H
#define CNRE_TESTS_SUPPORT_FAKE_HOST_H

#include "shm/layout.h"

struct fake_kv;
struct fake_vram;

#define FAKE_HOST_MODEL "fake"
#define FAKE_HOST_PART_BYTES 512u
#define FAKE_HOST_LATER 1 /* of a load hook: stays LOADING until fake_host_finish */

struct fake_host_setup {                  /* zero: the default in brackets */
	uint32_t layer_count;             /* [4] */
	uint32_t expert_count;            /* a layer [16] */
	uint32_t dense_layers;            /* first layers without experts [0] */
	uint32_t reserve_slabs;           /* granted to each session [8] */
	uint32_t segment_count;           /* pool segments; objects lie in them by turns [1] */
	uint32_t segments_shown;          /* so many exist at first [all] */
	uint32_t hole;                    /* number + 1 of a segment that was given back; none lies in it [none] */
	int32_t welcome_status;           /* answer of every HELLO [0] */
	uint32_t ignored_hellos;          /* the first so many are not answered [0] */
	int eof_count;                    /* the first so many connections are closed before an answer [0] */
	int segments_eof_count;           /* the first so many SEGMENTS that ask on are answered by a hang-up [0] */
	int keeps_disconnected;           /* a client's hang-up leaves its session (R11) [ends it] */
	int is_f32;                       /* parts are matrices of F32, 8 x 16 and 16 x 8, that belong together [16 x 16 BF16] */
	/* 0 loaded, FAKE_HOST_LATER, or an enum cnre_load_error negated. Called on the loader's thread. [NULL: loaded] */
	int (*load)(void *context, uint32_t object);
	void *context;
	struct fake_kv *kv;               /* prefixes (fake_kv.h) [KV_OPEN is -ENOTSUP] */
	struct fake_vram *vram;           /* a GPU (fake_vram.h) [none is served] */
	/* Answers its messages: fake_vram_answer; so that who has no GPU need not link one. */
	int (*vram_answer)(struct fake_vram *vram, int socket, uint32_t session, const void *message);
	const char *socket;               /* [a new one in a directory of its own] */
};

struct fake_host;

struct fake_host *fake_host_start(const struct fake_host_setup *setup); /* aborts when it cannot */
void fake_host_stop(struct fake_host *host);
const char *fake_host_socket(const struct fake_host *host);

/* ---- what it saw ---- */
uint32_t fake_host_loads(struct fake_host *host, uint32_t object);
uint32_t fake_host_requests(struct fake_host *host, uint32_t kind);
/* Waits until so many requests of a kind have come. */
void fake_host_await_requests(struct fake_host *host, uint32_t kind, uint32_t count);
uint32_t fake_host_sessions(struct fake_host *host);      /* attached now */
uint32_t fake_host_hello_flags(struct fake_host *host);   /* of the last one */
uint32_t fake_host_detaches(struct fake_host *host);
/* Leases and accesses of an object, summed over all sessions. */
uint32_t fake_host_leases(struct fake_host *host, uint32_t object);
uint32_t fake_host_accesses(struct fake_host *host, uint32_t object);
/* Waits until the leases are so many. */
void fake_host_await_leases(struct fake_host *host, uint32_t object, uint32_t count);
/* Waits until so many accesses in a layer have looked and found nothing: each then remembers the generation it saw. */
void fake_host_await_misses(struct fake_host *host, uint32_t layer, uint32_t count);
/* What every client maps read-only. */
struct cnre_page *fake_host_page(struct fake_host *host);
/* The channel of the first session. */
struct cnre_channel *fake_host_channel(struct fake_host *host);

/* ---- what it does ---- */
void fake_host_fill(struct fake_host *host, uint32_t object);                 /* READY, as if by warm-up */
void fake_host_finish(struct fake_host *host, uint32_t object, enum cnre_load_error error);
void fake_host_store_state(struct fake_host *host, uint32_t object, enum cnre_state state); /* the same generation, no wake */
void fake_host_wake(struct fake_host *host, uint32_t object);
/* As a manager evicts: 1 gone, 0 leased, so READY again. */
int fake_host_evict(struct fake_host *host, uint32_t object);
/* The same, but only if it is READY: for a thread that evicts at random. */
int fake_host_evict_ready(struct fake_host *host, uint32_t object);
void fake_host_show_segments(struct fake_host *host, uint32_t count);
void fake_host_hang_up(struct fake_host *host);                               /* closes every session's socket */
void fake_host_say_to_nobody(struct fake_host *host); /* to the first session: an answer with descriptors, of an old id */

/*
 * ---- restarts ----
 *
 * A pause is what a client sees of a manager that was stopped, or died while somebody keeps its descriptors: nothing
 * is read, nothing is answered, no socket ends. Resume is SIGCONT. Restart is a successor: half-done loads and
 * evictions are undone, demands looked for, the epoch changed, every word woken; connections that are no session yet
 * end.
 */
#define FAKE_HOST_FORGETS 1u /* the successor looks for no demand and forgets the requests that it finds */

void fake_host_pause(struct fake_host *host);
void fake_host_resume(struct fake_host *host);
void fake_host_restart(struct fake_host *host, unsigned flags);
void fake_host_change_epoch(struct fake_host *host);              /* of a paused host; it stays paused */
/* Of a paused host: waits for the next message of the first session and loses it, as a manager that dies. */
void fake_host_lose_message(struct fake_host *host);
void fake_host_await_unread(struct fake_host *host, uint32_t bytes);  /* of the first session's messages */
void fake_host_await_connection(struct fake_host *host);              /* one that is not accepted yet */
void fake_host_await_hellos(struct fake_host *host, uint32_t count);
/* Waits until the first session has posted so many requests, taken or not. */
void fake_host_await_posts(struct fake_host *host, uint32_t count);
void fake_host_await_detaches(struct fake_host *host, uint32_t count);

#endif
