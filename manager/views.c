/* SPDX-License-Identifier: Apache-2.0 */
/* Views of the settings to served models; see views.h. */
#include "manager/views.h"

#include "base/log.h"
#include "base/message.h"
#include "manager/serve.h"
#include "manager/settings.h"
#include "model/view.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* One --view: what it asks for, and where the answer goes. */
struct wanted {
	const char *option, *text;
	const char *view;
	int model_bytes;    /* of text, before its '='; -1: every model */
	uint32_t served;    /* models that are served in it */
	char *message;
	size_t message_bytes;
};

static int refuse(const struct wanted *wanted, int error, const char *why)
{
	return cnre_message(wanted->message, wanted->message_bytes, error, "--%s %.100s: %s", wanted->option, wanted->text, why);
}

static int is_meant(const struct wanted *wanted, const struct served_model *model)
{
	const char *name = model->catalog->name;

	return wanted->model_bytes < 0 || (strlen(name) == (size_t)wanted->model_bytes &&
					   strncmp(name, wanted->text, (size_t)wanted->model_bytes) == 0);
}

static int is_served(const struct manager *manager, const struct served_model *model, const struct model_view *view)
{
	for (uint32_t i = 0; i < manager->model_count; i++)
		if (manager->model[i].checkpoint == model && manager->model[i].catalog->view == view)
			return 1;
	return 0;
}

static int add_catalog(struct manager *manager, struct wanted *wanted, struct served_model *model,
		       struct model_catalog *catalog)
{
	char reason[SERVE_MESSAGE_BYTES];
	int r = serve_add_catalog(manager, catalog, model, reason);

	if (r < 0) {
		(void)model_catalog_close(catalog);
		return refuse(wanted, r, reason);
	}
	wanted->served++;
	return 0;
}

/* A model that has it not is no error where no model was named: then another one may. */
static int add_one(struct manager *manager, struct wanted *wanted, struct served_model *model)
{
	const struct model_view *view = model_view_find(model->catalog, wanted->view);
	char reason[MODEL_MESSAGE_BYTES], known[96];
	struct model_catalog *catalog;
	int r;

	if (view == NULL && wanted->model_bytes < 0)
		return 0;
	if (view == NULL) {
		(void)snprintf(reason, sizeof reason, "a %s model has no such view; it has %s", model->catalog->family,
			       model_view_list(model->catalog, known, sizeof known));
		return refuse(wanted, -ENOTSUP, reason);
	}
	if (is_served(manager, model, view)) {
		wanted->served++;
		return 0;
	}
	r = model_view_open(&catalog, model->catalog, view, reason);
	if (r == -ENOTSUP && wanted->model_bytes < 0)
		return 0;
	return r < 0 ? refuse(wanted, r, reason) : add_catalog(manager, wanted, model, catalog);
}

static int add_wanted(struct manager *manager, struct wanted *wanted, uint32_t model_count)
{
	uint32_t meant = 0;
	int r = 0;

	for (uint32_t i = 0; i < model_count && r == 0; i++) {
		if (!is_meant(wanted, &manager->model[i]))
			continue;
		meant++;
		r = add_one(manager, wanted, &manager->model[i]);
	}
	if (r < 0)
		return r;
	if (meant == 0)
		return refuse(wanted, -ENOENT, "no model of that name is served: it is the last part of a --model directory");
	if (wanted->served == 0)
		return refuse(wanted, -ENOENT, "no model that is served has such a view; see cnre-managerd(8) for those that there are");
	return 0;
}

static int add_text(struct manager *manager, const char *option, const char *text, uint32_t model_count, char *message,
		    size_t message_bytes)
{
	const char *equals = strrchr(text, '=');
	struct wanted wanted = {.option = option,
				.text = text,
				.view = equals != NULL ? equals + 1 : text,
				.model_bytes = equals != NULL ? (int)(equals - text) : -1,
				.message = message,
				.message_bytes = message_bytes};

	return add_wanted(manager, &wanted, model_count);
}

int views_add(struct manager *manager, char *message, size_t message_bytes)
{
	const struct settings *settings = manager->settings;
	uint32_t model_count = manager->model_count; /* views have none */
	int r;

	for (uint32_t i = 0; i < settings->view.count; i++) {
		r = add_text(manager, "view", settings->view.item[i], model_count, message, message_bytes);
		if (r < 0)
			return r;
	}
	for (uint32_t i = 0; i < settings->try_view.count; i++) {
		r = add_text(manager, "try-view", settings->try_view.item[i], model_count, message, message_bytes);
		if (r == -ENOENT || r == -ENOTSUP)
			cnre_log(CNRE_LOG_WARNING, "%s", message);
		else if (r < 0)
			return r;
	}
	return 0;
}
