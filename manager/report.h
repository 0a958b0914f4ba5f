/* SPDX-License-Identifier: Apache-2.0 */
/* What the manager says about itself, as JSON objects for the control plane. The keys are stable (doc/man/cnrectl.1). */
#ifndef CNRE_MANAGER_REPORT_H
#define CNRE_MANAGER_REPORT_H

#include "manager/manager.h"

struct json_t;

struct json_t *report_status(struct manager *manager);
struct json_t *report_stats(struct manager *manager);
struct json_t *report_layers(const struct manager *manager);
struct json_t *report_clients(struct manager *manager);

/* A string that may be no UTF-8: what is not is shown as '?'. */
struct json_t *report_text(const char *bytes);

#endif
