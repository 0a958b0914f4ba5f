/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of Colibri's engines: with --colibri-env they are settings, without they are said to be ignored. */
#include "manager/colibri_env.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct settings *settings;
static char message[512];

static void clear_environment(void)
{
	static const char *const names[] = {"COLI_MODEL_MIRROR", "SNAP_MIRROR",       "COLI_MODEL_DIRS", "K3_DIRS",  "MIMO_DIRS",
					    "COLI_DISK_WEIGHTS", "CNRE_COLIBRI_ENV", "CNRE_MIRRORS",    "CNRE_DIRS"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		(void)unsetenv(names[i]);
}

static void finish(void)
{
	settings = settings_close(settings);
}

TestSuite(manager_colibri_env, .timeout = 10, .init = clear_environment, .fini = finish);

static int open_with(const char *const words[])
{
	char *argv[16] = {(char *)"cnre-managerd", (char *)"--model", (char *)"/m"};
	int argc = 3;

	for (; words[argc - 3] != NULL; argc++)
		argv[argc] = (char *)words[argc - 3];
	settings = settings_close(settings);
	message[0] = '\0';
	return settings_open(&settings, argc, argv, message, sizeof message);
}

#define OPEN(...) open_with((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static void set(const char *name, const char *value)
{
	cr_assert_eq(setenv(name, value, 1), 0);
}

static const char *source_of(const char *name)
{
	static struct settings_line line;

	for (uint32_t i = 0; settings_describe(settings, i, &line); i++)
		if (strcmp(line.name, name) == 0)
			return line.source;
	return "";
}

/* What is said of a variable; "": nothing. */
static const char *said_of(const char *name)
{
	static struct colibri_env_line line;

	for (uint32_t i = 0; colibri_env_describe(settings, i, &line); i++)
		if (strcmp(line.name, name) == 0)
			return line.what;
	return "";
}

Test(manager_colibri_env, mirrors_and_directories_are_lists_of_either_separator)
{
	set("COLI_MODEL_MIRROR", "/a;/b,/c;");
	set("COLI_MODEL_DIRS", ",/d");
	cr_assert_eq(OPEN("--colibri-env"), 0, "%s", message);
	cr_expect_eq(settings->mirror.count, 3);
	cr_expect_str_eq(settings->mirror.item[2], "/c");
	cr_expect_eq(settings->dir.count, 1);
	cr_expect_str_eq(settings->dir.item[0], "/d");
	cr_expect_str_eq(source_of("mirror"), "environment COLI_MODEL_MIRROR");
	cr_expect_str_eq(source_of("dir"), "environment COLI_MODEL_DIRS");
	cr_expect_str_eq(said_of("COLI_MODEL_MIRROR"), "is --mirror");
}

Test(manager_colibri_env, without_the_flag_they_are_ignored_and_said)
{
	set("COLI_MODEL_MIRROR", "/a");
	set("K3_DIRS", "/d");
	cr_assert_eq(OPEN(), 0, "%s", message);
	cr_expect_eq(settings->mirror.count, 0);
	cr_expect_eq(settings->dir.count, 0);
	cr_expect_str_eq(source_of("mirror"), "default");
	cr_expect_str_eq(said_of("COLI_MODEL_MIRROR"), "ignored: with --colibri-env it would be --mirror");
	cr_expect_str_eq(said_of("K3_DIRS"), "ignored: with --colibri-env it would be --dir");
	cr_expect_str_eq(said_of("MIMO_DIRS"), "", "it is not set");
}

Test(manager_colibri_env, variable_asks_for_it_too_and_must_say_which)
{
	set("COLI_MODEL_MIRROR", "/a");
	set("CNRE_COLIBRI_ENV", "1");
	cr_assert_eq(OPEN(), 0, "%s", message);
	cr_expect_eq(settings->mirror.count, 1);
	cr_expect_eq(settings->colibri_env, 1);
	set("CNRE_COLIBRI_ENV", "0");
	cr_assert_eq(OPEN(), 0, "%s", message);
	cr_expect_eq(settings->mirror.count, 0);
	cr_expect_eq(settings->colibri_env, 0);
	set("CNRE_COLIBRI_ENV", "yes");
	cr_assert_eq(OPEN(), -EINVAL);
	cr_expect_str_eq(message, "CNRE_COLIBRI_ENV: write 1, or 0");
}

Test(manager_colibri_env, own_variables_and_the_command_line_have_precedence)
{
	set("COLI_MODEL_MIRROR", "/a");
	set("COLI_MODEL_DIRS", "/d");
	set("CNRE_MIRRORS", "/own");
	cr_assert_eq(OPEN("--colibri-env", "--dir", "/given"), 0, "%s", message);
	cr_expect_eq(settings->mirror.count, 1);
	cr_expect_str_eq(settings->mirror.item[0], "/own");
	cr_expect_str_eq(source_of("mirror"), "environment CNRE_MIRRORS");
	cr_expect_eq(settings->dir.count, 1);
	cr_expect_str_eq(settings->dir.item[0], "/given");
	cr_expect_str_eq(said_of("COLI_MODEL_MIRROR"), "ignored: --mirror comes from the environment");
	cr_expect_str_eq(said_of("COLI_MODEL_DIRS"), "ignored: --dir comes from the command line");
}

Test(manager_colibri_env, of_two_names_for_one_thing_the_first_counts)
{
	set("SNAP_MIRROR", "/snap");
	set("MIMO_DIRS", "/mimo");
	set("K3_DIRS", "/k3");
	cr_assert_eq(OPEN("--colibri-env"), 0, "%s", message);
	cr_expect_str_eq(settings->mirror.item[0], "/snap");
	cr_expect_str_eq(source_of("mirror"), "environment SNAP_MIRROR");
	cr_expect_eq(settings->dir.count, 1);
	cr_expect_str_eq(settings->dir.item[0], "/k3");
	cr_expect_str_eq(said_of("MIMO_DIRS"), "ignored: K3_DIRS comes first");
}

Test(manager_colibri_env, what_no_engine_would_take_is_refused_by_name)
{
	char *much = malloc(10000);

	set("COLI_MODEL_MIRROR", "/1;/2;/3;/4;/5");
	cr_assert_eq(OPEN("--colibri-env"), -EINVAL);
	cr_expect_str_eq(message, "COLI_MODEL_MIRROR: names more than 4: give the others with --mirror");
	cr_assert_eq(OPEN(), 0, "without the flag it is nobody's business");
	memset(much, 'x', 9999);
	much[9999] = '\0';
	set("COLI_MODEL_MIRROR", much);
	cr_assert_eq(OPEN("--colibri-env"), -EINVAL);
	cr_expect_str_eq(message, "COLI_MODEL_MIRROR: the value is too long");
	free(much);
}

Test(manager_colibri_env, empty_variables_and_lists_of_nothing_are_none)
{
	set("COLI_MODEL_MIRROR", "");
	set("COLI_MODEL_DIRS", ";,;");
	cr_assert_eq(OPEN("--colibri-env"), 0, "%s", message);
	cr_expect_eq(settings->mirror.count, 0);
	cr_expect_eq(settings->dir.count, 0);
	cr_expect_str_eq(said_of("COLI_MODEL_MIRROR"), "");
	cr_expect_str_eq(said_of("COLI_MODEL_DIRS"), "ignored: it names nothing");
}

Test(manager_colibri_env, weights_of_drives_are_honoured)
{
	set("COLI_DISK_WEIGHTS", "9, 1");
	cr_assert_eq(OPEN("--colibri-env"), 0, "%s", message);
	cr_expect_str_eq(said_of("COLI_DISK_WEIGHTS"), "is --drive-weights");
	cr_expect_str_eq(settings->drive_weights, "9:1");
}
