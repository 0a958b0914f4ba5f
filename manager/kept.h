/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the manager knows of its descriptor store: each name, and whether a descriptor lies under it. Exact after any
 * failure, since a name counts once however often it is put, and a removal that could not be said is remembered. Core
 * thread.
 */
#ifndef CNRE_MANAGER_KEPT_H
#define CNRE_MANAGER_KEPT_H

#include "manager/keep_wire.h"

#include <stdint.h>

#define KEPT_NAMES_MAX 16384u             /* twice STORE_FDS_MAX: as many may be missing as are there */

enum kept_state {
	KEPT_NOT,
	KEPT_THERE,
	KEPT_MISSING,                     /* wanted, and not there: it does not survive this manager */
	KEPT_STALE,                       /* there, and to be removed */
};

struct kept;

int kept_open(struct kept **ret_kept);
struct kept *kept_close(struct kept *kept);

enum kept_state kept_state(const struct kept *kept, const char *name);
/* KEPT_NOT takes the name out. Names of no bytes are passed over. 0, or -ENOSPC and nothing changed. */
int kept_set(struct kept *kept, const char *name, enum kept_state state);
void kept_clear(struct kept *kept);

uint32_t kept_there(const struct kept *kept); /* descriptors in the store, stale ones too */
uint32_t kept_missing(const struct kept *kept);
/* Bytes of LISTEN_FDNAMES that the store makes of them: each name and what ends it. */
uint32_t kept_name_bytes(const struct kept *kept);
/* Any name in this state, or NULL. Valid until the next kept_set. */
const char *kept_find(const struct kept *kept, enum kept_state state);

#endif
