/* SPDX-License-Identifier: Apache-2.0 */
/* Mirrors of served models: what becomes a file of a shard, in which order, and what is counted and said of the rest. */
#include "manager/mirror.h"

#include "base/clock.h"
#include "base/log.h"
#include "manager/loop.h"
#include "manager/manager.h"
#include "manager/settings.h"
#include "tests/support/mirrored.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct mirrored mirrored;
static struct manager manager; /* of which mirrors need little */
static struct cnre_counters counters;
static struct settings_list list;
static char folder[4][256], path[256];

static void add_model(const char *directory)
{
	struct served_model *model = &manager.model[manager.model_count];
	char message[MODEL_MESSAGE_BYTES];

	cr_assert_eq(model_catalog_open(&model->catalog, directory, message), 0, "%s", message);
	model->files_of_shard = calloc(model->catalog->shard_count, sizeof *model->files_of_shard);
	for (uint32_t i = 0; i < model->catalog->shard_count; i++) {
		int file =
			loader_add_file(manager.loader, model->catalog->shard[i].path, model->catalog->shard[i].bytes);

		cr_assert_geq(file, 0);
		model->files_of_shard[i] = (struct shard_files){.count = 1, .file = {(uint32_t)file}};
	}
	model->number = manager.model_count++;
	manager.owner_count += model->catalog->object_count;
}

static void make(void)
{
	cnre_log_open("test", CNRE_LOG_ERROR);
	mirrored_open(&mirrored);
	manager.counters = &counters;
	cr_assert_eq(loader_open(&manager.loader, &(struct loader_setup){.engine = LOADER_ENGINE_POOL}), 0);
	add_model(mirrored.model);
}

static void clean(void)
{
	mirror_close(&manager);
	manager.loader = loader_close(manager.loader);
	for (uint32_t i = 0; i < manager.model_count; i++) {
		free(manager.model[i].files_of_shard);
		(void)model_catalog_close(manager.model[i].catalog);
	}
	mirrored_close(&mirrored);
}

TestSuite(manager_mirror, .init = make, .fini = clean, .timeout = 60);

/* A mirror more, with these shards of the first model. */
static void add_mirror(const char *name, const int *shards)
{
	list.item[list.count] = folder[list.count];
	(void)mirrored_copy(&mirrored, name, shards, folder[list.count]);
	list.count++;
}

static struct mirror_status checked(uint32_t mirror)
{
	struct mirror_status status;

	if (manager.mirrors == NULL) {
		cr_assert_eq(mirror_open(&manager, &list), 0);
		mirror_wait(&manager);
	}
	mirror_get_status(&manager, mirror, &status);
	cr_expect_eq(status.waiting, 0);
	cr_expect_eq(status.waiting + status.proven + status.refused + status.absent, status.shards);
	return status;
}

static const struct shard_files *files_of(uint32_t model, uint32_t shard)
{
	return &manager.model[model].files_of_shard[shard];
}

Test(manager_mirror, without_a_directory_there_is_none)
{
	cr_assert_eq(mirror_open(&manager, &list), 0);
	cr_expect_null(manager.mirrors);
	cr_expect_eq(mirror_count(&manager), 0);
	cr_expect_eq(mirror_deadline_ns(&manager), CNRE_NEVER);
}

/* D5: users mirror what they have room for. */
Test(manager_mirror, a_partial_mirror_is_used_for_what_it_has_and_its_coverage_is_known)
{
	struct mirror_status status;
	uint64_t bytes = manager.model[0].catalog->payload_bytes_total;

	add_mirror("some", (const int[]){2, 0});
	status = checked(0);
	cr_expect_str_eq(status.fault, "");
	cr_expect_eq(status.shards, 2, "the dense shard needs no copy");
	cr_expect_eq(status.proven, 1);
	cr_expect_eq(status.absent, 1);
	cr_expect_eq(status.refused, 0);
	cr_expect_eq(status.bytes, bytes / 2);
	cr_expect_eq(status.bytes_of, bytes);
	cr_expect_eq(status.on_same_disk, 1, "as this test's folders do");
	cr_expect_eq(files_of(0, 0)->count, 1);
	cr_expect_eq(files_of(0, 1)->count, 2);
	cr_expect_eq(files_of(0, 2)->count, 1);
	cr_expect_eq(files_of(0, 1)->mirror[0], 0);
	cr_expect_eq(files_of(0, 1)->mirror[1], 1);
	cr_expect_neq(files_of(0, 1)->file[1], files_of(0, 1)->file[0]);
}

Test(manager_mirror, each_of_four_mirrors_gives_a_file_and_says_which_it_is)
{
	unsigned seen = 0;

	add_mirror("a", (const int[]){1, 2, 0});
	add_mirror("b", (const int[]){1, 0});
	add_mirror("c", (const int[]){1, 0});
	add_mirror("d", (const int[]){1, 0});
	for (uint32_t i = 0; i < 4; i++)
		cr_expect_eq(checked(i).proven, i == 0 ? 2 : 1);
	cr_assert_eq(files_of(0, 0)->count, 5);
	for (uint32_t i = 0; i < 5; i++)
		seen |= 1u << files_of(0, 0)->mirror[i];
	cr_expect_eq(seen, 0x1f);
	cr_expect_eq(files_of(0, 0)->mirror[0], 0, "the primary stays in front");
}

/* D1, C11: the shard stays with the primary, the rest of the mirror is used. */
Test(manager_mirror, a_refused_copy_leaves_the_rest_in_use)
{
	struct mirror_status status;

	add_mirror("bad", (const int[]){1, 2, 0});
	mirrored_flip(mirrored_shard(&mirrored, "bad", 1, path), 40000, 16);
	cr_assert_eq(truncate(path, (off_t)manager.model[0].catalog->shard[0].bytes - 1), 0);
	status = checked(0);
	cr_expect_eq(status.proven, 1);
	cr_expect_eq(status.refused, 1);
	cr_assert_eq(status.refusals, 1);
	cr_expect(strstr(status.reason[0], path) != NULL, "%s", status.reason[0]);
	cr_expect_eq(files_of(0, 0)->count, 1);
	cr_expect_eq(files_of(0, 1)->count, 2);
}

Test(manager_mirror, a_mirror_of_another_fine_tune_gives_nothing)
{
	struct mirror_status status;

	mirrored_write(&mirrored, "tuned", 2, MIRRORED_WIDTH);
	add_mirror("tuned", (const int[]){0});
	status = checked(0);
	cr_expect_eq(status.refused, 2);
	cr_expect_eq(status.refusals, 2);
	cr_expect_eq(status.bytes, 0);
	cr_expect_eq(files_of(0, 0)->count, 1);
	cr_expect_eq(files_of(0, 1)->count, 1);
}

Test(manager_mirror, the_checkpoints_own_directory_is_refused_in_one_line)
{
	struct mirror_status status;

	add_mirror("model", (const int[]){0});
	status = checked(0);
	cr_expect_eq(status.refused, 2);
	cr_assert_eq(status.refusals, 1);
	cr_expect(strstr(status.reason[0], "own directory") != NULL, "%s", status.reason[0]);
}

Test(manager_mirror, a_directory_that_is_not_there_is_left_out_with_the_reason)
{
	struct mirror_status status;

	add_mirror("a", (const int[]){1, 2, 0});
	list.item[list.count++] = (char *)"/nonexistent/mirror";
	status = checked(1);
	cr_expect_str_eq(status.fault, "No such file or directory");
	cr_expect_eq(status.proven, 0);
	cr_expect_eq(checked(0).proven, 2, "the other one is used");
}

Test(manager_mirror, the_same_copies_in_two_mirrors_are_used_once)
{
	add_mirror("a", (const int[]){1, 2, 0});
	add_mirror("b", (const int[]){0});
	mirrored_run(&mirrored, "ln '%s'/a/* '%s'/b/");
	cr_expect_eq(checked(0).proven + checked(1).proven, 2);
	cr_expect_eq(checked(0).refused + checked(1).refused, 2);
	cr_expect_eq(files_of(0, 0)->count, 2);
	cr_expect_eq(files_of(0, 1)->count, 2);
}

/* Two models with shards of the same names: a folder each, or what lies beside them is whose size and header it has. */
Test(manager_mirror, two_models_find_their_own_copies)
{
	struct mirror_status status;
	char other[128];

	mirrored_write(&mirrored, "other", 3, 96);
	(void)snprintf(other, sizeof other, "%s/other", mirrored.path);
	add_model(other);
	add_mirror("both", (const int[]){1, 2, 0});
	mirrored_run(&mirrored, "mkdir '%s/both/other'; cp -p '%s'/other/model-00002* '%s/both/other/'");
	status = checked(0);
	cr_expect_eq(status.shards, 4);
	cr_expect_eq(status.proven, 3, "both of the first model, one of the other");
	cr_expect_eq(status.refused, 0, "the first model's copy of shard 1 is no fault of the other");
	cr_expect_eq(status.absent, 1);
	cr_expect_eq(files_of(0, 0)->count, 2);
	cr_expect_eq(files_of(0, 1)->count, 2);
	cr_expect_eq(files_of(1, 0)->count, 1);
	cr_expect_eq(files_of(1, 1)->count, 2);
}

Test(manager_mirror, without_a_loader_it_is_only_counted)
{
	manager.loader = loader_close(manager.loader);
	add_mirror("a", (const int[]){1, 2, 0});
	cr_expect_eq(checked(0).proven, 2);
	cr_expect_eq(files_of(0, 0)->count, 1);
}

Test(manager_mirror, the_report_has_coverage_and_reasons)
{
	json_t *report;

	add_mirror("bad", (const int[]){1, 2, 0});
	mirrored_flip(mirrored_shard(&mirrored, "bad", 2, path), 10, 1);
	(void)checked(0);
	report = mirror_report(&manager);
	cr_assert_eq(json_array_size(report), 1);
	cr_expect_str_eq(json_string_value(json_object_get(json_array_get(report, 0), "state")), "checked");
	cr_expect_eq(json_integer_value(json_object_get(json_array_get(report, 0), "used")), 1);
	cr_expect_eq(json_integer_value(json_object_get(json_array_get(report, 0), "expert_bytes")) * 2,
		     json_integer_value(json_object_get(json_array_get(report, 0), "expert_bytes_of")));
	cr_expect_eq(json_array_size(json_object_get(json_array_get(report, 0), "refusals")), 1);
	json_decref(report);
}

/* Nothing is taken from its thread here until the end, as where a read does not return. */
Test(manager_mirror, one_that_does_not_go_on_is_said_to_be_silent_until_it_does)
{
	struct mirror_status status = {.is_silent = 0};
	int64_t now_ns = cnre_clock_now_ns();

	add_mirror("a", (const int[]){1, 2, 0});
	cr_assert_eq(loop_open(&manager.loop), 0);
	cr_assert_eq(mirror_open(&manager, &list), 0);
	for (int i = 0; i < 1000 && !status.is_silent; i++) {
		(void)usleep(1000); /* its thread may be working for the moment */
		now_ns += MIRROR_ANSWER_NS;
		cr_expect_leq(mirror_deadline_ns(&manager), now_ns);
		mirror_tick(&manager, now_ns);
		mirror_get_status(&manager, 0, &status);
	}
	cr_assert(status.is_silent);
	cr_expect_eq(status.waiting, 2);
	for (int i = 0; i < 10000 && (status.waiting > 0 || status.is_silent); i++) {
		(void)usleep(1000); /* as above */
		loop_poll(manager.loop);
		mirror_get_status(&manager, 0, &status);
	}
	cr_expect_eq(status.proven, 2);
	cr_expect_not(status.is_silent);
	cr_expect_eq(mirror_deadline_ns(&manager), CNRE_NEVER);
	mirror_close(&manager);
	manager.loop = loop_close(manager.loop);
}

/* Closed at once, whatever is still to be checked. */
Test(manager_mirror, it_can_be_closed_in_the_middle)
{
	add_mirror("a", (const int[]){1, 2, 0});
	cr_assert_eq(mirror_open(&manager, &list), 0);
	mirror_close(&manager);
	cr_expect_null(manager.mirrors);
	cr_expect_eq(files_of(0, 0)->count, 1, "nothing is taken from a check that nobody waited for");
}
