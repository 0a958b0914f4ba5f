/* SPDX-License-Identifier: Apache-2.0 */
/* What the manager says about itself, as JSON objects for the control plane. The keys are stable (doc/man/cnrectl.1). */
#ifndef CNRE_MANAGER_REPORT_H
#define CNRE_MANAGER_REPORT_H

#include "manager/manager.h"

struct histogram;
struct json_t;
struct session;
struct session_count;
struct session_totals;

struct json_t *report_status(struct manager *manager);
struct json_t *report_settings(const struct manager *manager); /* of status */
struct json_t *report_warm(const struct manager *manager);
struct json_t *report_drives(struct manager *manager); /* cnrectl drives */
void report_drives_degraded(const struct manager *manager, void (*add)(struct json_t *list, const char *what, const char *advice),
			    struct json_t *list);
/* All of what a survey has counted (survey.h): all sessions, those that ended included, and one. */
struct json_t *report_stats(struct manager *manager, const struct session_totals *sum, uint64_t leased);
struct json_t *report_layers(const struct manager *manager);
struct json_t *report_client(const struct session *session, const struct session_count *count);

/* Sets NAME_p50_s and NAME_p99_s: null, where nothing was observed. */
void report_quantiles(struct json_t *to, const char *name, const struct histogram *histogram);

/* A string that may be no UTF-8: what is not is shown as '?'. */
struct json_t *report_text(const char *bytes);

#endif
