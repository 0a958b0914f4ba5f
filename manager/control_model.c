/* SPDX-License-Identifier: Apache-2.0 */
/* Which model a request is about; see control_inner.h. */
#include "manager/control_inner.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct served_model *find(const struct manager *manager, const char *name)
{
	for (uint32_t i = 0; i < manager->model_count; i++)
		if (strcmp(manager->model[i].catalog->name, name) == 0)
			return &manager->model[i];
	return NULL;
}

const struct served_model *control_find_model(const struct manager *manager, const json_t *request, struct answer *answer)
{
	const char *name = json_string_value(json_object_get(request, "model"));
	const struct served_model *model = NULL;

	if (name != NULL)
		model = find(manager, name);
	else if (manager->model_count == 1)
		model = &manager->model[0];
	if (model != NULL)
		return model;
	answer->status = -ENOENT;
	if (name == NULL)
		(void)snprintf(answer->message, sizeof answer->message,
			       "several models are served: name one with --model NAME; cnrectl status lists them");
	else
		(void)snprintf(answer->message, sizeof answer->message,
			       "%.64s: no such model is served; cnrectl status lists them", name);
	return NULL;
}
