/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manager's eye on its keeper (R31): when it dies, another one is started and given everything; when one that did not
 * answer does again, it gets what it missed.
 */
#ifndef CNRE_MANAGER_GUARD_H
#define CNRE_MANAGER_GUARD_H

#include "manager/manager.h"

#define GUARD_RESTARTS_MAX 10u            /* keepers started by one manager; then it serves on without */
#define GUARD_LOOK_NS (100 * 1000000LL)   /* at a store that does not answer */

int guard_open(struct manager *manager);  /* 0, also without a keeper; or -errno */
void guard_close(struct manager *manager);

/* Call once per turn. */
void guard_tick(struct manager *manager, int64_t now_ns);
int64_t guard_deadline_ns(const struct manager *manager);

#endif
