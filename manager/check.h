/* SPDX-License-Identifier: Apache-2.0 */
/* What the manager would do with this machine (--check), and whether the budget is enough to serve at all. */
#ifndef CNRE_MANAGER_CHECK_H
#define CNRE_MANAGER_CHECK_H

#include "manager/manager.h"

/* Prints models, budget with every term, NUMA placement, the store of prefixes, and settings with their sources. 0, or -errno if it could not serve. */
int check_print(struct manager *manager, const char *socket);

/* 0, or -EINVAL: that node has no memory for this process, or is none; message says so. Words for no node are fine. */
int check_numa(int numa_node, char *message, size_t message_bytes);

/* 0, or -ENOSPC: too small for one layer's top-k and a read; message says the least and what bounds it. */
int check_budget(struct manager *manager, char *message, size_t message_bytes);

#endif
