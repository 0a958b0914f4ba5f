/* SPDX-License-Identifier: Apache-2.0 */
/* Mirrors in `cnrectl status`; see mirror.h. */
#include "manager/mirror.h"

#include "manager/report.h"

#include <jansson.h>
#include <stdio.h>

static json_t *report_refusals(const struct mirror_status *status)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < status->refusals; i++)
		(void)json_array_append_new(
			list, json_pack("{s:o, s:s}", "what", report_text(status->reason[i]), "do", status->advice[i]));
	return list;
}

static const char *state_of(const struct mirror_status *status)
{
	if (status->fault[0] != '\0')
		return "left out";
	if (status->is_silent)
		return "does not answer";
	return status->waiting > 0 ? "being checked" : "checked";
}

json_t *mirror_report(const struct manager *manager)
{
	json_t *list = json_array();
	struct mirror_status status;

	for (uint32_t i = 0; i < mirror_count(manager); i++) {
		mirror_get_status(manager, i, &status);
		(void)json_array_append_new(
			list,
			json_pack("{s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "directory",
				  report_text(status.directory), "state", state_of(&status), "fault", status.fault,
				  "shards", (json_int_t)status.shards, "used", (json_int_t)status.proven, "refused",
				  (json_int_t)status.refused, "absent", (json_int_t)status.absent, "waiting",
				  (json_int_t)status.waiting, "on_same_disk", (json_int_t)status.on_same_disk,
				  "expert_bytes", (json_int_t)status.bytes, "expert_bytes_of",
				  (json_int_t)status.bytes_of, "refusals", report_refusals(&status)));
	}
	return list;
}

/* Partial mirrors are as they should be; what is said here is what somebody wanted otherwise. */
static void report_one(const struct mirror_status *status,
		       void (*add)(json_t *list, const char *what, const char *advice), json_t *list)
{
	char what[512];

	if (status->fault[0] != '\0') {
		(void)snprintf(what, sizeof what, "mirror %.300s is left out: %s", status->directory, status->fault);
		add(list, what, "mount its drive, then restart the manager");
	}
	if (status->is_silent) {
		(void)snprintf(what, sizeof what,
			       "mirror %.300s is not checked: it, or the checkpoint's drive, does not answer",
			       status->directory);
		add(list, what, "check the drive; it is used when it answers");
	}
	if (status->refused > 0) {
		(void)snprintf(what, sizeof what, "mirror %.200s: %u shards are refused: %.250s", status->directory,
			       status->refused, status->refusals > 0 ? status->reason[0] : "out of memory");
		add(list, what, status->refusals > 0 ? status->advice[0] : "free memory");
	}
	if (status->on_same_disk > 0) {
		(void)snprintf(what, sizeof what, "mirror %.300s: %u shards lie on the checkpoint's own disk",
			       status->directory, status->on_same_disk);
		add(list, what, "nothing is gained by it: use another drive");
	}
}

void mirror_report_degraded(const struct manager *manager,
			    void (*add)(json_t *list, const char *what, const char *advice), json_t *list)
{
	struct mirror_status status;

	for (uint32_t i = 0; i < mirror_count(manager); i++) {
		mirror_get_status(manager, i, &status);
		report_one(&status, add, list);
	}
}
