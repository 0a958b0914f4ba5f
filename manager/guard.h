/* SPDX-License-Identifier: Apache-2.0 */
/* The manager's eye on its keeper (R31): when it dies, another one is started and given everything. */
#ifndef CNRE_MANAGER_GUARD_H
#define CNRE_MANAGER_GUARD_H

#include "manager/manager.h"

#define GUARD_RESTARTS_MAX 10u            /* keepers started by one manager; then it serves on without */

int guard_open(struct manager *manager);  /* 0, also without a keeper; or -errno */
void guard_close(struct manager *manager);

#endif
