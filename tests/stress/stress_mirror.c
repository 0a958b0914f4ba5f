/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mirrors that are checked at the same time, for TSan: each has a thread of its own, and what one finds is taken by the core
 * thread while the others go on. Two of them are the same files, of which one is used; now and then all is closed in the middle.
 *
 * usage: stress_mirror [ROUNDS]
 */
#include "base/log.h"
#include "manager/manager.h"
#include "manager/mirror.h"
#include "manager/settings.h"
#include "tests/support/mirrored.h"

#include <stdio.h>
#include <stdlib.h>

enum { MIRRORS = 4, SHARDS = 2 };

static struct mirrored mirrored;
static struct manager manager; /* of which mirrors need little */
static struct cnre_counters counters;
static char folder[MIRRORS][160];
static struct settings_list list;

static void make_folders(void)
{
	static const char *const name[MIRRORS] = {"a", "b", "c", "d"};

	mirrored_open(&mirrored);
	for (int i = 0; i < MIRRORS; i++) {
		const int all[] = {1, 2, 0}, none[] = {0};

		(void)mirrored_copy(&mirrored, name[i], i == 1 ? none : all, folder[i]);
		list.item[list.count++] = folder[i];
	}
	mirrored_run(&mirrored, "ln '%s'/a/* '%s'/b/");
}

static int open_files(struct served_model *model)
{
	if (loader_open(&manager.loader, &(struct loader_setup){.engine = LOADER_ENGINE_POOL}) < 0)
		return -1;
	for (uint32_t i = 0; i < model->catalog->shard_count; i++) {
		int file = loader_add_file(manager.loader, model->catalog->shard[i].path, model->catalog->shard[i].bytes);

		if (file < 0)
			return -1;
		model->files_of_shard[i] = (struct shard_files){.count = 1, .file = {(uint32_t)file}};
	}
	return 0;
}

static const char *judge(const struct served_model *model)
{
	uint32_t proven = 0, refused = 0;

	for (uint32_t i = 0; i < MIRRORS; i++) {
		struct mirror_status status;

		mirror_get_status(&manager, i, &status);
		proven += status.proven;
		refused += status.refused;
	}
	if (proven != SHARDS * (MIRRORS - 1) || refused != SHARDS)
		return "the same file in two mirrors is not used once";
	for (uint32_t i = 0; i < SHARDS; i++)
		if (model->files_of_shard[i].count != MIRRORS)
			return "a shard has not the files that it should have";
	return NULL;
}

static const char *run_round(unsigned round)
{
	struct served_model *model = &manager.model[0];
	const char *wrong = "cannot open";

	if (open_files(model) == 0 && mirror_open(&manager, &list) == 0) {
		wrong = NULL;
		if (round % 4 != 3) {
			mirror_wait(&manager);
			wrong = judge(model);
		}
	}
	mirror_close(&manager);
	manager.loader = loader_close(manager.loader);
	return wrong;
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 100;
	struct served_model *model = &manager.model[0];
	char message[MODEL_MESSAGE_BYTES];
	const char *wrong = NULL;

	cnre_log_open("stress_mirror", CNRE_LOG_ERROR);
	make_folders();
	if (model_catalog_open(&model->catalog, mirrored.model, message) < 0) {
		(void)fprintf(stderr, "stress_mirror: %s\n", message);
		return 1;
	}
	model->files_of_shard = calloc(model->catalog->shard_count, sizeof *model->files_of_shard);
	manager.counters = &counters;
	manager.model_count = 1;
	manager.owner_count = model->catalog->object_count;
	for (unsigned round = 0; round < rounds && wrong == NULL; round++)
		wrong = run_round(round);
	free(model->files_of_shard);
	(void)model_catalog_close(model->catalog);
	mirrored_close(&mirrored);
	if (wrong != NULL)
		(void)fprintf(stderr, "stress_mirror: %s\n", wrong);
	return wrong != NULL;
}
