/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of KV prefixes: what the rest of the manager knows of it. A *namespace* is what its clients share: an index, a
 * pool of memory and a folder of files of its own (shm/kv.h, kvstore/). Its memory is bounded by --kv-ram together with all
 * others', apart from the experts'. Core thread only.
 *
 *   kv_store.c      opening, the turn, closing          kv_publish.c  a client's block becomes everybody's
 *   kv_namespace.c  who may open what                   kv_load.c     from its file, when somebody leases it
 *   kv_session.c    a client's channel and staging      kv_evict.c    which block goes
 *   kv_entry.c      states and leases of one block      kv_files.c    saved, found, removed
 *   kv_memory.c     segments of memory                  kv_uses.c     what clients say that they used
 *   kv_share.c      from which namespace to which       kv_transfer.c one prefix as a file
 *   kv_adopt.c      after a restart                     kv_report.c, control_kv.c  what people see and say
 *   kv_settings.c   checked before anything is opened
 */
#ifndef CNRE_MANAGER_KV_H
#define CNRE_MANAGER_KV_H

#include "manager/manager.h"

#define KV_MESSAGE_BYTES 256u
#define KV_RAM_MIN (4ull << 20)

struct json_t;
struct kv_store;
struct peer;
struct session;
struct settings;

/* What was set and has no effect, as a line for people; NULL: nothing. */
const char *kv_settings_unused(const struct settings *settings);
/* What kv_open would refuse, as far as it can be seen before. 0, or -errno and what to do. */
int kv_settings_check(const struct settings *settings, char message[KV_MESSAGE_BYTES]);

/*
 * Before the first client. What an incarnation before left of namespaces is taken over, their clients not yet. 0, also where
 * there is no store (no --kv-ram), or -errno and what to do.
 */
int kv_open(struct manager *manager, char message[KV_MESSAGE_BYTES]);
/*
 * When no client is left: saves what is not saved yet, for KV_CLOSE_NS at most, and lets everything go. kv_leave: saves, and
 * leaves memory and clients to a successor.
 */
void kv_close(struct manager *manager);
void kv_leave(struct manager *manager);

/*
 * Adoption: a session's channels, when it is entered; then, when all are, the blocks. 0 or -errno: what was left cannot be
 * trusted.
 */
int kv_adopt_session(struct session *session);
int kv_adopt_blocks(struct manager *manager);

/* No read of a dead incarnation can land any more. */
void kv_fence_fell(struct manager *manager, uint32_t epoch);

/* One turn. 1: there is more to do at once. */
int kv_turn(struct manager *manager);
int kv_any_pending(const struct manager *manager);
int64_t kv_deadline_ns(const struct manager *manager);

/* A message of a client, if it is one of KV: 1 answered, 0 it is none, or -errno: hang up. */
int kv_answer(struct session *session, const void *buffer, int received_bytes);
/* Off every list at once; what is being copied for it ends later. */
void kv_end_session(struct session *session);

/* `set kv-ram`: at once, or as leases end. 0, 1 some is still in use, -ENOTSUP there is no store, -EINVAL too little. */
int kv_set_budget(struct manager *manager, uint64_t bytes);
uint64_t kv_budget_bytes(const struct manager *manager);
/* What it may still take of the machine's memory, also before kv_open: the experts' budget leaves it alone. */
uint64_t kv_claim_bytes(const struct manager *manager);

/* Stores again what the descriptor store has not (a new keeper). */
void kv_persist(struct manager *manager);

/* The store in short, for status; and what is not as it should be: `add` is called for each, with what to do about it. */
struct json_t *kv_report_short(const struct manager *manager);
void kv_report_degraded(const struct manager *manager, void (*add)(struct json_t *list, const char *what, const char *advice),
			struct json_t *list);

uint64_t kv_file_bytes(const struct manager *manager); /* of blocks in files, of all namespaces */

/* The namespaces that the asker may open; all for who may administer: names of blocks tell who can guess a prompt. */
struct json_t *kv_report(const struct manager *manager, const struct peer *peer);

#endif
