/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl usage: histories of uses from and for engines; see use_import.h. */
#include "manager/control_inner.h"

#include "manager/feed.h"
#include "manager/report.h"
#include "manager/use_import.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *action_of(const json_t *request)
{
	const char *action = json_string_value(json_object_get(request, "action"));

	return action == NULL ? "" : action;
}

static json_t *describe(const struct manager *manager)
{
	static const char *const words[] = {"none", "reading", "done", "failed"};
	struct use_import_status status;

	use_import_get_status(manager, &status);
	return json_pack("{s:s, s:o, s:s, s:o, s:o, s:I, s:I, s:o, s:b}", "state", words[status.state], "file",
			 report_text(status.name), "kind", status.kind, "writer", report_text(status.writer), "error",
			 report_text(status.error), "experts", (json_int_t)status.experts, "uses", (json_int_t)status.uses,
			 "model", report_text(status.model == NULL ? "" : status.model->catalog->name), "kept",
			 status.model != NULL && feed_keeps_uses(manager, status.model));
}

static void export(struct manager *manager, const json_t *request, struct answer *answer)
{
	const struct served_model *model = control_find_model(manager, request, answer);
	struct use_export made;
	int r;

	if (model == NULL)
		return;
	r = use_export_make(manager, model, &made);
	if (r < 0) {
		control_refuse(answer, r, strerror(-r));
		return;
	}
	answer->json = json_pack("{s:o, s:s, s:I, s:I, s:s#}", "model", report_text(model->catalog->name), "engine", made.engine,
				 "experts", (json_int_t)made.experts, "uses", (json_int_t)made.uses, "text", made.text,
				 made.bytes);
	free(made.text);
}

static void import(struct manager *manager, const json_t *request, int *fd, struct answer *answer)
{
	const struct served_model *model = control_find_model(manager, request, answer);
	const char *name = json_string_value(json_object_get(request, "file"));

	if (model == NULL)
		return;
	if (*fd < 0) {
		control_refuse(answer, -EBADF, "the request came without a file");
	} else if (use_import_start(manager, model, name == NULL ? "a file" : name, *fd) < 0) {
		control_refuse(answer, -EALREADY, "another import is still reading its file");
	} else {
		*fd = -1;
		answer->json = describe(manager);
	}
}

int control_is_usage_question(const json_t *request)
{
	return strcmp(action_of(request), "export") == 0 || strcmp(action_of(request), "status") == 0;
}

void control_usage(struct manager *manager, const json_t *request, int *fd, struct answer *answer)
{
	const char *action = action_of(request);

	if (strcmp(action, "export") == 0)
		export(manager, request, answer);
	else if (strcmp(action, "import") == 0)
		import(manager, request, fd, answer);
	else if (strcmp(action, "status") == 0)
		answer->json = describe(manager);
	else
		control_refuse(answer, -EINVAL, "no such action of usage: export, import, status");
}
