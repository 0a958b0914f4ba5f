/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl warm: begins, ends and shows a warm list; see warm.h. */
#include "manager/control_inner.h"

#include "base/clock.h"
#include "manager/report.h"
#include "manager/warm.h"

#include <errno.h>
#include <string.h>

/* 0, or -EINVAL: not a size, or not a time. */
static int take_limits(const json_t *request, struct warm_limits *ret_limits)
{
	const json_t *bytes = json_object_get(request, "bytes_max"), *seconds = json_object_get(request, "seconds_max");

	if (bytes != NULL && json_integer_value(bytes) <= 0)
		return -EINVAL;
	if (seconds != NULL && (json_integer_value(seconds) <= 0 || json_integer_value(seconds) > INT64_MAX / CNRE_NS_PER_S))
		return -EINVAL;
	ret_limits->bytes = (uint64_t)json_integer_value(bytes);
	ret_limits->time_ns = (uint64_t)json_integer_value(seconds) * (uint64_t)CNRE_NS_PER_S;
	return 0;
}

static void refuse_start(int r, struct answer *answer)
{
	if (r == -EALREADY)
		control_refuse(answer, r, "a warm list is under way: cnrectl warm shows it, cnrectl warm stop ends it");
	else
		control_refuse(answer, r, "the file of the list that was stopped is still being read: its drive may hang");
}

static void start(struct manager *manager, const json_t *request, int *fd, struct answer *answer)
{
	const struct served_model *model = control_find_model(manager, request, answer);
	const char *name = json_string_value(json_object_get(request, "file"));
	struct warm_limits limits;
	int r;

	if (model == NULL)
		return;
	if (*fd < 0) {
		control_refuse(answer, -EBADF, "the request came without a file");
		return;
	}
	if (take_limits(request, &limits) < 0) {
		control_refuse(answer, -EINVAL, "bytes_max is no size, or seconds_max no time");
		return;
	}
	r = warm_start(manager, model, name == NULL ? "a file" : name, *fd, &limits);
	if (r < 0) {
		refuse_start(r, answer);
		return;
	}
	*fd = -1;
	answer->json = report_warm(manager);
}

int control_is_warm_question(const json_t *request)
{
	const char *action = json_string_value(json_object_get(request, "action"));

	return action != NULL && strcmp(action, "status") == 0;
}

void control_warm(struct manager *manager, const json_t *request, int *fd, struct answer *answer)
{
	const char *action = json_string_value(json_object_get(request, "action"));

	if (action != NULL && strcmp(action, "start") == 0) {
		start(manager, request, fd, answer);
	} else if (action != NULL && strcmp(action, "stop") == 0) {
		if (warm_stop(manager) < 0)
			control_refuse(answer, -ENOENT, "no warm list is under way");
		else
			answer->json = report_warm(manager);
	} else if (action != NULL && strcmp(action, "status") == 0) {
		answer->json = report_warm(manager);
	} else {
		control_refuse(answer, -EINVAL, "no such action of warm: start, stop, status");
	}
}
