/* SPDX-License-Identifier: Apache-2.0 */
/* How far a warm list is, as JSON; see report.h. */
#include "manager/report.h"

#include "manager/warm.h"

#include <jansson.h>

json_t *report_warm(const struct manager *manager)
{
	static const char *const states[] = {"none", "reading", "loading", "over"};
	static const char *const ends[] = {"", "all", "bytes", "time", "full", "stopped", "file"};
	struct warm_status status;

	warm_get_status(manager, &status);
	return json_pack("{s:s, s:s, s:o, s:o, s:s, s:o, s:o, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "state",
			 states[status.state], "end", ends[status.end], "model",
			 report_text(status.model == NULL ? "" : status.model->catalog->name), "file", report_text(status.name),
			 "kind", status.kind, "writer", report_text(status.writer), "error", report_text(status.error), "bytes_max",
			 (json_int_t)status.limits.bytes, "seconds_max", (double)status.limits.time_ns / 1e9, "listed",
			 (json_int_t)status.listed, "looked_at", (json_int_t)status.looked_at, "loaded",
			 (json_int_t)status.loaded, "present", (json_int_t)status.present, "refused",
			 (json_int_t)status.refused, "failed", (json_int_t)status.failed, "on_their_way",
			 (json_int_t)status.on_their_way, "bytes_loaded", (json_int_t)status.bytes_loaded, "seconds",
			 status.seconds);
}
