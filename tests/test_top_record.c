/* SPDX-License-Identifier: Apache-2.0 */
/* tools/top/record.c and source.c: samples into a file and out of it, and from a manager. */
#include "tests/support/fake_manager.h"
#include "tests/support/folder.h"
#include "tests/support/top_sample.h"
#include "tools/top/record.h"
#include "tools/top/source.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(top_record, .timeout = 60);

static char message[TOP_MESSAGE_BYTES];
static char path[256];

static const char *new_path(const struct folder *folder, const char *name)
{
	return folder_path(folder, name, path, sizeof path);
}

Test(top_record, what_was_put_comes_back_in_order_and_ends)
{
	struct top_record record;
	struct folder folder;
	json_t *sample = NULL;

	folder_make(&folder);
	cr_assert_eq(top_record_create(&record, new_path(&folder, "a"), message), 0, "%s", message);
	for (int n = 1; n < 4; n++) {
		json_t *made = top_sample_make(n);

		cr_assert_eq(top_record_put(&record, made, message), 0);
		json_decref(made);
	}
	cr_assert_eq(top_record_close(&record), 0);
	cr_assert_eq(top_record_open(&record, path, message), 0, "%s", message);
	for (int n = 1; n < 4; n++) {
		json_t *made = top_sample_make(n);

		cr_assert_eq(top_record_next(&record, &sample, message), 1, "%s", message);
		cr_expect(json_equal(sample, made));
		json_decref(sample);
		json_decref(made);
	}
	cr_expect_eq(top_record_next(&record, &sample, message), 0);
	cr_expect_eq(top_record_close(&record), 0);
	folder_remove(&folder);
}

Test(top_record, nothing_is_written_over)
{
	struct top_record record;
	struct folder folder;
	struct stat status;

	folder_make(&folder);
	folder_write(&folder, "a", "precious", 8);
	cr_expect_eq(top_record_create(&record, new_path(&folder, "a"), message), -EEXIST);
	cr_expect_not_null(strstr(message, "never written over"), "%s", message);
	cr_expect_eq(stat(path, &status), 0);
	cr_expect_eq(status.st_size, 8);
	folder_remove(&folder);
}

Test(top_record, a_full_recording_stays_as_it_is)
{
	struct top_record record;
	struct folder folder;
	json_t *made = top_sample_make(1);
	struct stat status;

	folder_make(&folder);
	cr_assert_eq(top_record_create(&record, new_path(&folder, "a"), message), 0);
	record.bytes_max = 2000;
	for (int i = 0; i < 5; i++)
		cr_expect_eq(top_record_put(&record, made, message), 0);
	cr_expect(record.is_full);
	cr_assert_eq(top_record_close(&record), 0);
	cr_assert_eq(stat(path, &status), 0);
	cr_expect_leq(status.st_size, 2000);
	cr_expect_gt(status.st_size, 1000, "one sample is there");
	json_decref(made);
	folder_remove(&folder);
}

Test(top_record, a_drive_that_is_full_is_an_error)
{
	struct top_record record = {.file = fopen("/dev/full", "w"), .bytes_max = 1 << 20};
	json_t *made = top_sample_make(1);

	cr_assert_not_null(record.file);
	cr_expect_eq(top_record_put(&record, made, message), -ENOSPC);
	(void)top_record_close(&record);
	json_decref(made);
}

Test(top_record, other_files_are_no_recordings)
{
	static const char *const contents[] = {"", "{\"cnre-top\":2}\n", "hello", "{\"cnre-top\":1} \n"};
	struct top_record record;
	struct folder folder;

	folder_make(&folder);
	for (size_t i = 0; i < sizeof contents / sizeof contents[0]; i++) {
		folder_write(&folder, "a", contents[i], strlen(contents[i]));
		cr_expect_eq(top_record_open(&record, new_path(&folder, "a"), message), -EBADMSG, "%zu", i);
	}
	cr_expect_eq(top_record_open(&record, new_path(&folder, "none"), message), -ENOENT);
	folder_remove(&folder);
}

static int first_of(const struct folder *folder, const char *line, size_t bytes)
{
	char *text = malloc(bytes + 32);
	int length = sprintf(text, "{\"cnre-top\":1}\n"), r;
	struct top_record record;
	json_t *sample = NULL;

	memcpy(text + length, line, bytes);
	folder_write(folder, "a", text, (size_t)length + bytes);
	free(text);
	cr_assert_eq(top_record_open(&record, new_path(folder, "a"), message), 0, "%s", message);
	r = top_record_next(&record, &sample, message);
	if (r == 1)
		json_decref(sample);
	cr_expect_eq(top_record_close(&record), 0);
	return r;
}

Test(top_record, lines_that_are_no_samples_are_refused_with_their_number)
{
	static const char *const lines[] = {"\n", "[]\n", "{\"a\":1", "{\"a\":1,\"a\":2}\n", "{\"a\":1}x\n", "{\"\\u0001\":1}\n"};
	char *text = malloc(TOP_RECORD_LINE_MAX + 2);
	struct folder folder;

	folder_make(&folder);
	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
		cr_expect_eq(first_of(&folder, lines[i], strlen(lines[i])), -EBADMSG, "%zu", i);
		cr_expect_not_null(strstr(message, "line 2"), "%s", message);
	}
	cr_expect_eq(first_of(&folder, "{\"a\":\0}\n", 8), -EBADMSG, "a zero byte");
	memset(text, '[', TOP_RECORD_LINE_MAX + 2);
	cr_expect_eq(first_of(&folder, text, TOP_RECORD_LINE_MAX), -EBADMSG, "nested beyond all bounds");
	cr_expect_eq(first_of(&folder, text, TOP_RECORD_LINE_MAX + 1), -E2BIG);
	free(text);
	folder_remove(&folder);
}

/* ---- from a manager ---- */

static int take(struct fake_manager *manager, const char *model, json_t **ret_sample)
{
	struct top_source source = {.model = model, .stop_fd = -1};
	int r;

	cr_assert_eq(fake_manager_start(manager), 0);
	source.places.given = manager->path;
	r = top_source_take(&source, 0, ret_sample, message);
	fake_manager_stop(manager);
	return r;
}

Test(top_record, a_sample_is_four_answers_and_names_the_model)
{
	static const char *const keys[] = {"stats", "clients", "drives", "experts"};
	struct fake_manager manager = {.text = "{\"models\":[{\"name\":\"tiny\"}]}"}, other = {.text = "{}"};
	json_t *sample = NULL;

	cr_assert_eq(take(&manager, NULL, &sample), 0, "%s", message);
	cr_expect_eq(manager.question_count, 5, "which models there are, once");
	cr_expect_not_null(strstr(manager.asked, "\"model\":\"tiny\""), "%s", manager.asked);
	for (size_t i = 0; i < 4; i++)
		cr_expect(json_is_object(json_object_get(sample, keys[i])), "%s", keys[i]);
	json_decref(sample);
	cr_assert_eq(take(&other, "other", &sample), 0, "%s", message);
	cr_expect_eq(other.question_count, 4);
	cr_expect_not_null(strstr(other.asked, "\"model\":\"other\""), "%s", other.asked);
	json_decref(sample);
}

Test(top_record, a_manager_with_gpus_is_asked_how_they_are_and_only_that_is_kept)
{
	struct fake_manager manager = {.text = "{\"models\":[{\"name\":\"tiny\"}],\"layers\":[{},{\"vram\":\"..\"}],"
					       "\"vram\":{\"state\":\"on\"}}"};
	json_t *sample = NULL;

	cr_assert_eq(take(&manager, "tiny", &sample), 0, "%s", message);
	cr_expect_eq(manager.question_count, 5);
	cr_expect_not_null(strstr(manager.asked, "\"status\""), "%s", manager.asked);
	cr_expect_str_eq(json_string_value(json_object_get(json_object_get(sample, "vram"), "state")), "on");
	cr_expect_null(json_object_get(json_object_get(sample, "vram"), "models"));
	json_decref(sample);
}

Test(top_record, hostile_managers_are_errors_and_leave_the_output)
{
	static const enum fake_behaviour behaviours[] = {FAKE_HANGS_UP,      FAKE_CHANGES_ID,        FAKE_SENDS_NO_TEXT, FAKE_SENDS_PIPE,
							 FAKE_PROMISES_MORE, FAKE_PROMISES_TOO_MUCH, FAKE_IS_NEWER,      FAKE_SENDS_GARBAGE};
	static const char *const texts[] = {"{}", "[]", "", "{\"models\":[{\"name\":5}]}", "{\"models\":"};
	json_t *sample = NULL;

	for (size_t i = 0; i < sizeof behaviours / sizeof behaviours[0]; i++) {
		struct fake_manager manager = {.behaviour = behaviours[i], .text = "{}"};

		cr_expect_lt(take(&manager, "m", &sample), 0, "%zu", i);
	}
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		struct fake_manager manager = {.text = texts[i]};

		cr_expect_eq(take(&manager, NULL, &sample), -EBADMSG, "%zu", i);
	}
	cr_expect_null(sample);
}
