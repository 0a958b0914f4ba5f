/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One prefix out of a namespace into a file, or from a file into one (cnrectl kv export, kv import). The file was opened by
 * who asked; reading and writing it is the writer thread's, since drives may hang. One at a time.
 */
#ifndef CNRE_MANAGER_KV_TRANSFER_H
#define CNRE_MANAGER_KV_TRANSFER_H

#include "manager/kv_inner.h"

struct json_t;

/*
 * By the name of its last block, in hex. Takes the descriptor over. 0, -EBUSY another transfer is under way, -ENOENT no such
 * block, -ESTALE a block before it is gone, -EINVAL, -ENOMEM; message says what to do.
 */
int kv_transfer_export(struct kv_store *store, const char *key_hex, int fd, char message[KV_MESSAGE_BYTES]);
/*
 * name: a namespace as `cnrectl kv` shows it, or as a client of the asker would say it; NULL: the asker's own. It begins here
 * where it is not open yet. 0, -EBUSY, -EINVAL, -EACCES, -ENOSPC, -ENOMEM.
 */
int kv_transfer_import(struct kv_store *store, const char *name, const struct peer *peer, int fd, char message[KV_MESSAGE_BYTES]);

void kv_transfer_turn(struct kv_store *store);
int kv_transfer_is_running(const struct kv_store *store);
int kv_transfer_is_at_work(const struct kv_store *store); /* 1: a job or a copy of it is on its way */
/* Drops what is not under way; NULL is fine. When no worker runs for it any more. */
void kv_transfer_close(struct kv_store *store);

/* {"kind", "state": "running"|"done"|"failed", "blocks", "present", "tokens", "bytes", "error"}, or null: there was none. */
struct json_t *kv_transfer_report(const struct kv_store *store);

#endif
