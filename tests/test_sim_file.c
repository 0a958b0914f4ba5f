/* SPDX-License-Identifier: Apache-2.0 */
/* New files appear whole, under their name only at the end, and in place of nothing. */
#include "tools/sim/file.h"

#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(sim_file, .timeout = 60);

static struct folder folder;
static char path[128], message[512];

static void begin(void)
{
	folder_make(&folder);
	(void)folder_path(&folder, "out", path, sizeof path);
	message[0] = '\0';
}

/* That nothing else was left in it, too: the folder could not be removed otherwise. */
static void expect_content(const char *expected)
{
	char *text = NULL;
	size_t bytes = 0;

	cr_assert_eq(sim_file_read(path, 100, &text, &bytes, message, sizeof message), 0, "%s", message);
	cr_expect_str_eq(text, expected);
	cr_expect_eq(bytes, strlen(expected));
	free(text);
	(void)unlink(path);
	cr_expect_eq(rmdir(folder.path), 0, "a temporary file was left");
}

Test(sim_file, the_name_is_not_there_before_the_end)
{
	struct sim_output output;

	begin();
	cr_assert_eq(sim_output_open(&output, path, 0, message, sizeof message), 0, "%s", message);
	(void)fputs("new", output.file);
	cr_expect_eq(access(path, F_OK), -1);
	cr_expect_eq(sim_output_commit(&output, 0, message, sizeof message), 0, "%s", message);
	expect_content("new");
}

Test(sim_file, a_file_that_came_to_be_meanwhile_is_not_replaced)
{
	struct sim_output output;

	begin();
	cr_assert_eq(sim_output_open(&output, path, 0, message, sizeof message), 0, "%s", message);
	(void)fputs("new", output.file);
	folder_write(&folder, "out", "old", 3);
	cr_expect_eq(sim_output_commit(&output, 0, message, sizeof message), -EEXIST);
	cr_expect_not_null(strstr(message, "use --force"), "%s", message);
	expect_content("old");
}

Test(sim_file, force_replaces_and_abandoning_leaves_what_was)
{
	struct sim_output output;

	begin();
	folder_write(&folder, "out", "old", 3);
	cr_expect_eq(sim_output_open(&output, path, 0, message, sizeof message), -EEXIST);
	cr_assert_eq(sim_output_open(&output, path, 1, message, sizeof message), 0, "%s", message);
	(void)fputs("lost", output.file);
	sim_output_abandon(&output);
	cr_assert_eq(sim_output_open(&output, path, 1, message, sizeof message), 0, "%s", message);
	(void)fputs("new", output.file);
	cr_expect_eq(sim_output_commit(&output, 1, message, sizeof message), 0, "%s", message);
	expect_content("new");
}

Test(sim_file, what_is_too_large_or_no_file_is_not_read)
{
	char *text = NULL;
	size_t bytes = 77;

	begin();
	folder_write(&folder, "out", "12345", 5);
	cr_expect_eq(sim_file_read(path, 4, &text, &bytes, message, sizeof message), -EINVAL);
	cr_expect_not_null(strstr(message, "more than 4 bytes"), "%s", message);
	cr_expect_eq(sim_file_read(folder.path, 100, &text, &bytes, message, sizeof message), -EINVAL);
	cr_expect_not_null(strstr(message, "not a regular file"), "%s", message);
	cr_expect(text == NULL && bytes == 77, "untouched on failure");
	expect_content("12345");
}
