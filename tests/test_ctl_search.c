/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ctl/search.c: which manager is meant, and who may stand in for one. */
#include "tools/ctl/search.h"

#include "tests/support/fake_manager.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(ctl_search, .timeout = 20);

#define NOWHERE "/tmp/cnre-test-no-such-folder/managerd.sock"

static struct fake_manager first, second;
static char path[SEARCH_PATH_BYTES] = "untouched";
static char message[CTL_MESSAGE_BYTES];

static void start_both(void)
{
	first = (struct fake_manager){.text = "{}"};
	cr_assert_eq(fake_manager_start(&first), 0);
	second = (struct fake_manager){.text = "{}"};
	snprintf(second.path, sizeof second.path, "%s/other.sock", first.directory);
	cr_assert_eq(fake_manager_start(&second), 0);
}

static void stop_both(void)
{
	fake_manager_stop(&second);
	fake_manager_stop(&first);
}

static void expect_found(const struct search_places *places, const char *expected)
{
	int connected = search_connect(places, path, message);

	cr_expect_geq(connected, 0, "%s", message);
	cr_expect_str_eq(path, expected);
	close(connected);
}

Test(ctl_search, given_path_is_the_only_one_tried, .init = start_both, .fini = stop_both)
{
	struct search_places places = {.given = NOWHERE, .system = first.path, .user = {first.directory}};

	cr_expect_eq(search_connect(&places, path, message), -ENOENT);
	cr_expect_str_eq(path, "untouched");
	cr_expect_not_null(strstr(message, NOWHERE));
	places.given = second.path;
	expect_found(&places, second.path);
}

Test(ctl_search, system_manager_comes_before_the_users, .init = start_both, .fini = stop_both)
{
	struct search_places places = {.system = second.path, .user = {first.directory}};

	expect_found(&places, second.path);
}

Test(ctl_search, the_users_only_manager_is_found_once_by_two_names_of_its_folder)
{
	struct fake_manager only = {.text = "{}"};
	struct search_places places = {.system = NOWHERE};

	cr_assert_eq(fake_manager_start(&only), 0);
	places.user[0] = places.user[1] = only.directory;
	expect_found(&places, only.path);
	fake_manager_stop(&only);
}

Test(ctl_search, several_managers_of_the_user_are_listed_not_guessed, .init = start_both, .fini = stop_both)
{
	struct search_places places = {.system = NOWHERE, .user = {first.directory}};

	cr_expect_eq(search_connect(&places, path, message), -ENOTUNIQ);
	cr_expect_not_null(strstr(message, first.path));
	cr_expect_not_null(strstr(message, second.path));
	cr_expect_not_null(strstr(message, "--socket"));
	cr_expect_str_eq(path, "untouched");
}

/* Goal: nobody who may write to /tmp can answer in a manager's place. */
Test(ctl_search, folder_that_others_may_write_to_is_not_looked_into, .init = start_both, .fini = stop_both)
{
	struct search_places places = {.system = NOWHERE, .user = {first.directory}};

	cr_assert_eq(chmod(first.directory, 0777), 0);
	cr_expect_eq(search_connect(&places, path, message), -ENOENT);
	cr_assert_eq(chmod(first.directory, 0700), 0);
}

Test(ctl_search, symbolic_link_as_folder_is_not_followed, .init = start_both, .fini = stop_both)
{
	char link_path[128];
	struct search_places places = {.system = NOWHERE, .user = {link_path}};

	snprintf(link_path, sizeof link_path, "%s.link", first.directory);
	cr_assert_eq(symlink(first.directory, link_path), 0);
	cr_expect_eq(search_connect(&places, path, message), -ENOENT);
	unlink(link_path);
}
