/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are being written under a name of their own, where there is no O_TMPFILE, and what is left of them (R36):
 * `<key>.tmp.<boot id>.<pid>.<n>`, where n holds the pid namespace and a count. In one boot and namespace a writer whose
 * pid is gone is dead. A pid of another namespace says nothing here; but each writer holds flock on its file, which the
 * kernel drops some time after its death, so a lock that can be had is a dead writer's. A file of another boot or host,
 * whose locks are not seen here, must be a day old.
 */
#ifndef KVSTORE_LEFTOVER_H
#define KVSTORE_LEFTOVER_H

#include "kvstore/fanout.h"

/* A name for a new file of this process, beside the block's. */
void leftover_name(const char *path, char ret_fresh[FANOUT_PATH_BYTES]);

/* Removes what dead processes left in all folders below. How many. */
uint32_t leftover_sweep(int root_fd);

#endif
