/* SPDX-License-Identifier: Apache-2.0 */
/* The engine finds the shards that libcnre finds, wherever they lie. */
#include "engine/places.h"

#include "base/places.h"
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct folder first, second, third;
static char message[ENGINE_MESSAGE_BYTES], list[256];

static void make(void)
{
	folder_make(&first);
	folder_make(&second);
	folder_make(&third);
	folder_write(&first, "b.safetensors", "1", 1);
	folder_write(&second, "c.safetensors", "2", 1);
	folder_write(&second, "b.safetensors", "2", 1);
	folder_write(&third, "a.safetensors", "3", 1);
	folder_write(&third, "c.safetensors", "3", 1);
	folder_write(&third, "notes.txt", "3", 1);
	(void)snprintf(list, sizeof list, "%s:%s", second.path, third.path);
}

static void clean(void)
{
	folder_remove(&first);
	folder_remove(&second);
	folder_remove(&third);
}

TestSuite(engine_places, .init = make, .fini = clean, .timeout = 30);

/* Engine and library must come to the same shards, and share no code. */
static void expect_as_the_library(uint32_t count)
{
	struct cnre_places *expected;
	struct places found;

	cr_assert_eq(cnre_places_open_list(&expected, first.path, list, NULL, 0), 0);
	cr_assert_eq(places_list(&found, first.path, list, message), 0, "%s", message);
	cr_assert_eq(found.count, count);
	cr_assert_eq(expected->shard_count, count);
	for (uint32_t i = 0; i < count; i++)
		cr_expect_str_eq(found.shard[i].path, expected->shard[i].path);
	places_free(&found);
	(void)cnre_places_close(expected);
}

Test(engine_places, of_one_name_the_first_directory_wins_as_in_the_library)
{
	expect_as_the_library(3);
}

Test(engine_places, a_folder_with_the_checkpoints_name_goes_before_the_directory_itself)
{
	char inner[160], path[192];
	FILE *file;

	(void)snprintf(inner, sizeof inner, "%s%s", third.path, strrchr(first.path, '/'));
	cr_assert_eq(mkdir(inner, 0755), 0);
	(void)snprintf(path, sizeof path, "%s/d.safetensors", inner);
	file = fopen(path, "w");
	cr_assert_not_null(file);
	(void)fclose(file);
	expect_as_the_library(3);
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(rmdir(inner), 0);
}

Test(engine_places, without_a_list_there_is_one_directory)
{
	struct places found;

	cr_assert_eq(places_list(&found, first.path, NULL, message), 0);
	cr_expect_eq(found.count, 1);
	places_free(&found);
	cr_assert_eq(places_list(&found, first.path, "", message), 0);
	places_free(&found);
}

Test(engine_places, what_cannot_be_listed_is_named)
{
	struct places untouched = {.count = 77};

	cr_expect_eq(places_list(&untouched, first.path, "/nonexistent", message), -ENOENT);
	cr_expect_not_null(strstr(message, "/nonexistent"), "%s", message);
	cr_expect_eq(places_list(&untouched, first.path, "/tmp::/tmp", message), -EINVAL);
	cr_expect_eq(places_list(&untouched, "/nonexistent", NULL, message), -ENOENT);
	cr_expect_eq(untouched.count, 77);
}
