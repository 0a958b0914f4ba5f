/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl trace: begins, ends and shows the recording of what the policy is told; see feed.h and recorder.h. */
#include "manager/control_inner.h"

#include "base/log.h"
#include "manager/feed.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static json_t *describe(const struct manager *manager)
{
	static const char *const words[] = {"none", "recording", "ending", "over"};
	struct recorder_status status;
	enum feed_recording state = feed_record_status(manager, &status);

	return json_pack("{s:s, s:I, s:I, s:I, s:b, s:s}", "state", words[state], "records", (json_int_t)status.records,
			 "lost", (json_int_t)status.lost, "bytes", (json_int_t)status.bytes, "full", status.is_full,
			 "error", status.error < 0 ? strerror(-status.error) : "");
}

static void start(struct manager *manager, const json_t *request, int *fd, struct answer *answer)
{
	const struct served_model *model = control_find_model(manager, request, answer);
	const json_t *bytes_max = json_object_get(request, "bytes_max");
	json_int_t most = bytes_max == NULL ? (json_int_t)RECORDER_BYTES_DEFAULT : json_integer_value(bytes_max);

	if (*fd < 0) {
		control_refuse(answer, -EBADF, "the request came without a file");
	} else if (model == NULL) {
		return; /* refused */
	} else if (most <= 0) {
		control_refuse(answer, -EINVAL, "bytes_max is no size");
	} else {
		answer->status = feed_record(manager, model, *fd, (uint64_t)most, answer->message, sizeof answer->message);
		if (answer->status < 0)
			return;
		*fd = -1;
		cnre_log(CNRE_LOG_NOTICE, "trace: recording %.64s", model->catalog->name);
		answer->json = describe(manager);
	}
}

/* Full, or failed: who comes to stop it is told how it ended. */
static int has_ended_by_itself(const struct manager *manager)
{
	struct recorder_status status;

	return feed_record_status(manager, &status) == FEED_RECORDING_OVER && (status.is_full || status.error < 0);
}

void control_trace(struct manager *manager, const json_t *request, int *fd, struct answer *answer)
{
	const char *action = json_string_value(json_object_get(request, "action"));

	if (action != NULL && strcmp(action, "record") == 0) {
		start(manager, request, fd, answer);
	} else if (action != NULL && strcmp(action, "stop") == 0) {
		if (feed_record_stop(manager) < 0 && !has_ended_by_itself(manager))
			control_refuse(answer, -ENOENT, "no recording is under way");
		else
			answer->json = describe(manager);
	} else if (action != NULL && strcmp(action, "status") == 0) {
		feed_record_flush(manager); /* so that a drive that is full is known when somebody looks, not a MiB later */
		answer->json = describe(manager);
	} else {
		control_refuse(answer, -EINVAL, "no such action of trace: record, stop, status");
	}
}
