/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often each expert was used, over all managers that ever served a model: a file a model in the folder of --usage,
 * in Colibri's format (model/usage.h), so that engines and people can read it. What was counted since the last save is
 * added to what the file holds then, under a lock: two managers that save to one folder lose nothing of each other's.
 * A file that cannot be read is left alone and said once; counting goes on. Saved every HISTORY_SAVE_NS by a worker, and
 * at the end; a manager that is killed loses what it counted since.
 */
#ifndef CNRE_MANAGER_HISTORY_H
#define CNRE_MANAGER_HISTORY_H

#include "manager/manager.h"

#include <stdint.h>

#define HISTORY_SAVE_NS 300000000000ll
#define HISTORY_RETRY_NS 10000000000ll /* another manager had the lock, or the drive was full */
#define HISTORY_LOCK_TRIES 6u           /* one after another, and it is said that somebody does not let the lock go */

struct history;

/* 0, or -ENOENT, -ENOTDIR, -EACCES, -EPERM (others may write there)… with one line: no folder to keep histories in. NULL is fine. */
int history_check_folder(const char *folder, char *message, size_t message_bytes);

/*
 * history_open - what is known of the models in manager->model[]
 *
 * @folder   must exist, be writable, and belong to this user or root, not writable for everybody; NULL: nothing is kept, but
 *           the engine's own file beside a checkpoint is still read
 *
 * Returns: 0 or -ENOMEM, -EPERM, -ENOENT, -EACCES… of the folder, with one line. A file in it that is no history is no failure.
 */
int history_open(struct history **ret_history, const struct manager *manager, const char *folder, char *message,
		 size_t message_bytes);
/* Saves, in this thread; there are no workers any more. NULL is fine. */
struct history *history_close(struct history *history);

void history_count(struct history *history, uint32_t owner, uint32_t uses);
/* 1: what is counted of that model (its number) goes to a file. */
int history_is_kept(const struct history *history, uint32_t model);
/* [owner_count] uses, this manager's included: valid until the next call. */
const uint32_t *history_uses(struct history *history);

/* Submits a save where one is due. */
void history_tick(struct history *history, struct worker *worker, int64_t now_ns);
int64_t history_deadline_ns(const struct history *history);

#endif
