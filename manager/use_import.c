/* SPDX-License-Identifier: Apache-2.0 */
/* Histories from and for engines; see use_import.h. */
#include "manager/use_import.h"

#include "base/log.h"
#include "manager/feed.h"
#include "model/engine_name.h"

#include <errno.h>
#include <stdlib.h>

#define WRITER_BYTES 64

struct use_import {
	struct use_file file;
	struct manager *manager;
	enum use_import_state state;
	char writer[WRITER_BYTES];
	const char *kind;
	uint64_t experts, uses;
};

static void add_uses(struct use_import *import)
{
	const struct served_model *model = import->file.model;
	const struct usage *usage = &import->file.list.usage;

	for (uint32_t i = 0; i < model->catalog->object_count; i++) {
		const struct model_object *object = &model->catalog->object[i];
		uint32_t uses = usage->count[(size_t)object->layer * usage->experts + object->expert];

		if (uses == 0)
			continue;
		feed_add_uses(import->manager, model->first_owner + i, uses);
		import->experts++;
		import->uses += uses;
	}
}

static void was_read(void *owner)
{
	struct use_import *import = owner;

	import->state = import->file.result < 0 ? USE_IMPORT_FAILED : USE_IMPORT_DONE;
	if (import->state == USE_IMPORT_FAILED) {
		cnre_log(CNRE_LOG_WARNING, "usage: import of %s: %s: nothing was added", import->file.name,
			 import->file.message);
		return;
	}
	import->kind = use_list_kind_name(import->file.list.kind);
	if (use_file_other_writer(&import->file, import->writer, sizeof import->writer) != NULL)
		cnre_log(CNRE_LOG_NOTICE, "usage: %s was written by %s: taken since it was named", import->file.name,
			 import->writer);
	add_uses(import);
	use_list_close(&import->file.list);
	cnre_log(CNRE_LOG_NOTICE, "usage: %s of %s: %llu uses of %llu experts added", import->kind, import->file.name,
		 (unsigned long long)import->uses, (unsigned long long)import->experts);
}

int use_import_start(struct manager *manager, const struct served_model *model, const char *name, int fd)
{
	struct use_import *import = manager->use_import;

	if (import->file.is_reading)
		return -EALREADY;
	*import = (struct use_import){.manager = manager, .state = USE_IMPORT_READING, .kind = ""};
	import->file.model = model;
	import->file.owner = import;
	import->file.done = was_read;
	use_file_name(&import->file, name);
	use_file_read_fd(&import->file, manager->writer, fd);
	return 0;
}

void use_import_get_status(const struct manager *manager, struct use_import_status *ret_status)
{
	const struct use_import *import = manager->use_import;

	*ret_status = (struct use_import_status){
		.state = import->state,
		.model = import->file.model,
		.name = import->file.name,
		.kind = import->kind,
		.writer = import->writer,
		.error = import->state == USE_IMPORT_FAILED ? import->file.message : "",
		.experts = import->experts,
		.uses = import->uses,
	};
}

int use_export_make(struct manager *manager, const struct served_model *model, struct use_export *ret_export)
{
	const struct model_catalog *catalog = model->catalog;
	struct use_export made = {.engine = engine_name_of(catalog->family)};
	const uint32_t *uses = feed_uses(manager);
	struct usage usage;
	int r = usage_open(&usage, catalog->layer_count, catalog->expert_count, engine_name_id(catalog->family));

	if (r < 0)
		return r;
	usage.own_layers = catalog->main_layer_count;
	for (uint32_t i = 0; i < catalog->object_count; i++) {
		uint32_t count = uses[model->first_owner + i];

		usage_count(&usage, catalog->object[i].layer, catalog->object[i].expert, count);
		made.experts += count > 0;
		made.uses += count;
	}
	r = usage_write_text(&usage, &made.text, &made.bytes);
	usage_close(&usage);
	if (r == 0)
		*ret_export = made;
	return r;
}

int use_import_open(struct manager *manager)
{
	struct use_import *import = calloc(1, sizeof *import);

	if (import == NULL)
		return -ENOMEM;
	import->kind = "";
	manager->use_import = import;
	return 0;
}

void use_import_close(struct manager *manager)
{
	if (manager->use_import != NULL)
		use_list_close(&manager->use_import->file.list);
	free(manager->use_import);
	manager->use_import = NULL;
}
