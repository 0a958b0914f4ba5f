/* SPDX-License-Identifier: Apache-2.0 */
#include "manager/settings.h"

#include "base/log.h"
#include "shm/numa.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct settings *settings;
static char message[512];

static void clear_environment(void)
{
	static const char *const names[] = {"CNRE_RAM",    "CNRE_DIRS",   "CNRE_MIRRORS", "CNRE_DRIVE_WEIGHTS",
					    "CNRE_POLICY", "CNRE_KV_RAM", "CNRE_KV_DIR",  "CNRE_WARM"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		(void)unsetenv(names[i]);
}

static void finish(void)
{
	settings = settings_close(settings);
}

TestSuite(manager_settings, .timeout = 10, .init = clear_environment, .fini = finish);

static int open_with(const char *const words[])
{
	char *argv[64] = {(char *)"cnre-managerd"};
	int argc = 1;

	for (; words[argc - 1] != NULL; argc++)
		argv[argc] = (char *)words[argc - 1];
	settings = settings_close(settings);
	message[0] = '\0';
	return settings_open(&settings, argc, argv, message, sizeof message);
}

#define OPEN(...) open_with((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static int read_file_text(const char *text)
{
	settings = settings_close(settings);
	cr_assert_eq(settings_open_defaults(&settings), 0);
	return settings_read_text(settings, "cnre.conf", text, strlen(text), message, sizeof message);
}

/* A manager on demand has no command line of its user's. */
Test(manager_settings, warm_list_may_come_from_the_environment)
{
	cr_assert_eq(setenv("CNRE_WARM", "/var/list", 1), 0);
	cr_assert_eq(OPEN("--model", "/m"), 0, "%s", message);
	cr_expect_str_eq(settings->warm, "/var/list");
	cr_expect_eq(settings->warm_bytes, 0);
	cr_expect_eq(settings->warm_time_ns, 0);
}

/* ---- defaults and the command line ---- */

Test(manager_settings, defaults_are_what_the_table_says)
{
	cr_assert_eq(OPEN("--model", "/m"), 0, "%s", message);
	cr_expect_eq(settings->model.count, 1);
	cr_expect_str_eq(settings->model.item[0], "/m");
	cr_expect_eq(settings->ram_bytes, 0);
	cr_expect_null(settings->socket);
	cr_expect_eq(settings->socket_mode, 0660);
	cr_expect_str_eq(settings->policy, "cost");
	cr_expect_eq(settings->client_policy, SETTINGS_CLIENT_POLICY_REFUSE);
	cr_expect_eq(settings->idle_exit_ns, 0);
	cr_expect_eq(settings->log_level, CNRE_LOG_INFO);
	cr_expect_eq(settings->hugepages, SETTINGS_HUGEPAGES_AUTO);
	cr_expect_eq(settings->numa, CNRE_NUMA_INTERLEAVE);
	cr_expect_eq(settings->verify, SETTINGS_VERIFY_NO);
	cr_expect_null(settings->digests);
	cr_expect_eq(settings->scrub_ns, 0);
	cr_expect_eq(settings->read_timeout_ns, 30 * 1000000000ull);
	cr_expect_eq(settings->check, 0);
}

Test(manager_settings, every_option_arrives_in_its_field)
{
	cr_assert_eq(OPEN("--model", "/m", "--model=/n", "--ram", "120G", "--mirror", "/a", "--mirror", "/b", "--dir",
			  "/d", "--socket", "/run/s", "--socket-mode", "0600", "--socket-group=cnre", "--policy", "lfu",
			  "--check", "--idle-exit", "5m", "--private-bytes", "8G", "--hugepages", "2M", "--io", "pool",
			  "--direct", "no", "--reads-in-flight", "12", "--clients-max", "7", "--log-level", "debug",
			  "--verify", "load", "--digests", "/var/digests", "--scrub", "30s", "--read-timeout", "2s",
			  "--numa", "1", "--warm", "/var/list", "--warm-bytes", "2G", "--warm-time", "90s",
			  "--colibri-env", "--client-policy", "own", "--view", "rows16", "--view=n=rows16", "--try-view", "other"),
		     0, "%s", message);
	cr_expect_eq(settings->view.count, 2);
	cr_expect_str_eq(settings->view.item[1], "n=rows16", "its first equals sign ends the option's name");
	cr_expect_str_eq(settings->try_view.item[0], "other");
	cr_expect_eq(settings->model.count, 2);
	cr_expect_str_eq(settings->model.item[1], "/n");
	cr_expect_eq(settings->ram_bytes, 120ull << 30);
	cr_expect_eq(settings->mirror.count, 2);
	cr_expect_str_eq(settings->dir.item[0], "/d");
	cr_expect_str_eq(settings->socket, "/run/s");
	cr_expect_eq(settings->socket_mode, 0600);
	cr_expect_str_eq(settings->socket_group, "cnre");
	cr_expect_str_eq(settings->policy, "lfu");
	cr_expect_eq(settings->client_policy, SETTINGS_CLIENT_POLICY_OWN);
	cr_expect_eq(settings->check, 1);
	cr_expect_eq(settings->idle_exit_ns, 300 * 1000000000ull);
	cr_expect_eq(settings->private_bytes, 8ull << 30);
	cr_expect_eq(settings->hugepages, SETTINGS_HUGEPAGES_2M);
	cr_expect_eq(settings->numa, 1);
	cr_expect_eq(settings->io, SETTINGS_IO_POOL);
	cr_expect_eq(settings->direct, SETTINGS_DIRECT_NO);
	cr_expect_eq(settings->reads_in_flight, 12);
	cr_expect_eq(settings->clients_max, 7);
	cr_expect_eq(settings->log_level, CNRE_LOG_DEBUG);
	cr_expect_eq(settings->verify, SETTINGS_VERIFY_LOAD);
	cr_expect_str_eq(settings->digests, "/var/digests");
	cr_expect_eq(settings->scrub_ns, 30 * 1000000000ull);
	cr_expect_eq(settings->read_timeout_ns, 2 * 1000000000ull);
	cr_expect_str_eq(settings->warm, "/var/list");
	cr_expect_eq(settings->warm_bytes, 2ull << 30);
	cr_expect_eq(settings->warm_time_ns, 90 * 1000000000ull);
	cr_expect_eq(settings->colibri_env, 1);
}

Test(manager_settings, numa_is_one_of_two_words_or_a_node)
{
	cr_assert_eq(OPEN("--model", "/m", "--numa", "local"), 0, "%s", message);
	cr_expect_eq(settings->numa, CNRE_NUMA_DEFAULT);
	cr_assert_eq(OPEN("--model", "/m", "--numa=interleave"), 0, "%s", message);
	cr_expect_eq(settings->numa, CNRE_NUMA_INTERLEAVE);
	cr_assert_eq(OPEN("--model", "/m", "--numa", "0"), 0, "%s", message);
	cr_expect_eq(settings->numa, 0);
}

struct refusal {
	const char *words[4];
	const char *expected; /* part of the one line */
};

/* A8: nothing that was asked for is ignored. */
Test(manager_settings, what_cannot_be_honoured_is_refused_by_one_line_that_names_it)
{
	static const struct refusal cases[] = {
		{{"--rma", "1G"}, "--rma: no such setting; did you mean --ram?"},
		{{"--hugepage=2M"}, "did you mean --hugepages?"},
		{{"--frobnicate"}, "--frobnicate: no such setting; see --help"},
		{{"--ram", "lots"}, "--ram: \"lots\" is not a size"},
		{{"--ram", ""}, "--ram: needs a value"},
		{{"--ram"}, "--ram: needs a value"},
		{{"--ram", "0"}, "--ram: must be more than 0; leave it out for the default"},
		{{"--ram", "1G", "--ram=2G"}, "--ram: given twice"},
		{{"--ram", "99999999999T"}, "is not a size"},
		{{"--socket-mode", "999"}, "--socket-mode: \"999\" is not an octal mode"},
		{{"--hugepages", "3M"}, "is not one of auto|1G|2M|thp|4k"},
		{{"--numa", "all"}, "--numa: \"all\" is not interleave, local or the number of a node"},
		{{"--numa", "-2"}, "is not interleave, local or the number of a node"},
		{{"--numa", "1024"}, "is not interleave, local or the number of a node"},
		{{"--clients-max", "0"}, "is not a number from 1 to"},
		{{"--clients-max", "-1"}, "is not a number"},
		{{"--idle-exit", "soon"}, "is not a duration"},
		{{"--check=yes"}, "--check: takes no value"},
		{{"model"}, "model: not an option"},
		{{"--"}, "--: not an option"},
		{{"--kv-ram", "0"}, "--kv-ram: must be more than 0"},
		{{"--vram", "most"}, "--vram: \"most\" is not a size such as 40G, nor auto"},
		{{"--vram-staging", "0"}, "--vram-staging: must be more than 0"},
		{{"--vram-trust", "everybody"}, "is not one of owner|group|all"},
		{{"--config", "/nonexistent/cnre.conf"},
		 "--config /nonexistent/cnre.conf: No such file or directory; name a file"},
		{{"--config", "/tmp"}, "--config /tmp: Is a directory; name a file"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		int r = open_with(cases[i].words);

		cr_expect_lt(r, 0, "case %zu", i);
		cr_expect_null(settings, "output is untouched");
		cr_expect_not_null(strstr(message, cases[i].expected), "case %zu: %s", i, message);
		cr_expect_null(strchr(message, '\n'));
	}
}

Test(manager_settings, model_is_required_unless_only_help_is_asked_for)
{
	cr_expect_eq(OPEN("--ram", "1G"), -EINVAL);
	cr_expect_not_null(strstr(message, "--model"));
	cr_expect_eq(OPEN("--help"), 0);
	cr_expect_eq(OPEN("-h"), 0);
	cr_expect_eq(settings->help, 1);
	cr_expect_eq(OPEN("--version"), 0);
}

Test(manager_settings, more_models_than_the_bound_are_refused)
{
	const char *words[2 * SETTINGS_LIST_MAX + 3];
	size_t n = 0;

	for (size_t i = 0; i <= SETTINGS_LIST_MAX; i++) {
		words[n++] = "--model";
		words[n++] = "/m";
	}
	words[n] = NULL;
	cr_expect_eq(open_with(words), -EINVAL);
	cr_expect_not_null(strstr(message, "--model: given too often"), "%s", message);
}

/* A place of an expert has room for the number of one of five replicas. */
Test(manager_settings, a_fifth_mirror_is_refused_wherever_it_comes_from)
{
	cr_assert_eq(OPEN("--model", "/m", "--mirror", "/a", "--mirror", "/b", "--mirror", "/c", "--mirror", "/d"), 0, "%s",
		     message);
	cr_expect_eq(settings->mirror.count, 4);
	settings = settings_close(settings);
	cr_assert_eq(OPEN("--model", "/m", "--mirror", "/a", "--mirror", "/b", "--mirror", "/c", "--mirror", "/d", "--mirror",
			  "/e"),
		     -EINVAL);
	cr_expect_str_eq(message, "--mirror: given too often: at most 4");
	(void)setenv("CNRE_MIRRORS", "/a:/b:/c:/d:/e", 1);
	cr_assert_eq(OPEN("--model", "/m"), -EINVAL);
	cr_expect_str_eq(message, "CNRE_MIRRORS: given too often: at most 4");
}

/* ---- precedence ---- */

static void with_config(const char *text, char path[32])
{
	int fd;

	(void)strcpy(path, "/tmp/cnre-conf-XXXXXX");
	fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	(void)close(fd);
}

Test(manager_settings, command_line_wins_over_file_over_environment_over_default)
{
	char path[32];

	with_config("ram = 2G\npolicy = lfu\nmirror = /f1\nmirror = /f2\n", path);
	(void)setenv("CNRE_RAM", "1G", 1);
	(void)setenv("CNRE_POLICY", "slru", 1);
	(void)setenv("CNRE_MIRRORS", "/e1:/e2:/e3", 1);
	(void)setenv("CNRE_DIRS", "/e4:/e5", 1);
	(void)setenv("CNRE_DRIVE_WEIGHTS", "4:1", 1);
	cr_assert_eq(OPEN("--model", "/m", "--config", path, "--ram", "3G"), 0, "%s", message);
	cr_expect_eq(settings->ram_bytes, 3ull << 30);
	cr_expect_str_eq(settings->policy, "lfu");
	cr_expect_eq(settings->mirror.count, 2, "the file's list replaces the variable's");
	cr_expect_str_eq(settings->mirror.item[0], "/f1");
	cr_expect_eq(settings->dir.count, 2);
	cr_expect_str_eq(settings->dir.item[1], "/e5");
	cr_expect_str_eq(settings->drive_weights, "4:1");
	cr_expect_str_eq(settings_source_name(settings, "ram"), "command line");
	cr_expect_str_eq(settings_source_name(settings, "policy"), "config file");
	cr_expect_str_eq(settings_source_name(settings, "dir"), "environment");
	cr_expect_str_eq(settings_source_name(settings, "io"), "default");
	(void)unlink(path);
}

Test(manager_settings, bad_value_of_a_lower_source_is_refused_even_if_it_is_overridden)
{
	(void)setenv("CNRE_RAM", "plenty", 1);
	cr_expect_eq(OPEN("--model", "/m", "--ram", "1G"), -EINVAL);
	cr_expect_not_null(strstr(message, "CNRE_RAM: \"plenty\""), "%s", message);
	(void)setenv("CNRE_RAM", "", 1);
	cr_expect_eq(OPEN("--model", "/m"), 0, "an empty variable is an unset one");
	(void)setenv("CNRE_KV_RAM", "much", 1);
	cr_expect_eq(OPEN("--model", "/m"), -EINVAL);
	cr_expect_not_null(strstr(message, "CNRE_KV_RAM: \"much\""), "%s", message);
}

/* ---- config file ---- */

Test(manager_settings, file_knows_sections_comments_and_lists)
{
	cr_assert_eq(
		read_file_text(
			"# a comment\n; another\nram = 4G ; and one here\n[manager]\nmodel = /a\nmodel=/b\nidle-exit = 90s\n"),
		0, "%s", message);
	cr_expect_eq(settings->ram_bytes, 4ull << 30);
	cr_expect_eq(settings->model.count, 2);
	cr_expect_eq(settings->idle_exit_ns, 90 * 1000000000ull);
}

Test(manager_settings, mistakes_in_the_file_are_named_with_their_line)
{
	static const struct {
		const char *text, *expected;
	} cases[] = {
		{"ram = 1G\n\nrma = 1G\n", "cnre.conf:3: rma: no such setting; did you mean ram?"},
		{"ram = 1G\nram = 2G\n", "cnre.conf:2: ram: given twice"},
		{"ram = 1G\nbare words\n", "cnre.conf:2: neither"},
		{"[other]\nram = 1G\n", "cnre.conf:2: unknown section"},
		{"\n\nsocket-mode = 9\n", "cnre.conf:3: socket-mode: \"9\" is not an octal mode"},
		{"check = yes\n", "cnre.conf:1: check: only on the command line"},
		{"config = other\n", "cnre.conf:1: config: only on the command line"},
		{"vram = much\n", "cnre.conf:1: vram: \"much\" is not a size such as 40G, nor auto"},
		{"vram-reserve = much\n", "cnre.conf:1: vram-reserve: \"much\" is not a size"},
		{"ram =\n", "cnre.conf:1: ram: needs a value"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		cr_expect_eq(read_file_text(cases[i].text), -EINVAL, "case %zu", i);
		cr_expect_not_null(strstr(message, cases[i].expected), "case %zu: %s", i, message);
	}
}

/* The INI parser would cut a long line in two and call the rest a line of its own. */
Test(manager_settings, line_that_is_too_long_is_refused_and_never_cut)
{
	char text[600] = "ram = 1G\nsocket = /";

	memset(text + strlen(text), 'x', 500);
	cr_expect_eq(read_file_text(text), -EINVAL);
	cr_expect_not_null(strstr(message, "cnre.conf:2: the line is too long"), "%s", message);
}

Test(manager_settings, file_with_a_zero_byte_is_no_text)
{
	cr_assert_eq(settings_open_defaults(&settings), 0);
	cr_expect_eq(settings_read_text(settings, "f", "ram = 1G\0\n", 10, message, sizeof message), -EINVAL);
}

Test(manager_settings, what_is_no_regular_file_is_refused_without_waiting)
{
	cr_expect_lt(OPEN("--model", "/m", "--config", "/dev/zero"), 0);
	cr_expect_lt(OPEN("--model", "/m", "--config", "/tmp"), 0);
}

/* ---- description ---- */

Test(manager_settings, every_value_in_effect_is_described_with_its_source)
{
	struct settings_line line;
	int ram = 0, policy = 0, mirror = 0;

	(void)setenv("CNRE_POLICY", "lfu", 1);
	cr_assert_eq(OPEN("--model", "/m", "--ram", "120G", "--mirror", "/a", "--mirror", "/b"), 0);
	for (uint32_t i = 0; settings_describe(settings, i, &line); i++) {
		cr_assert_gt(strlen(line.value), 0, "%s", line.name);
		cr_assert_gt(strlen(line.source), 0, "%s", line.name);
		ram += strcmp(line.name, "ram") == 0 && strcmp(line.value, "120G") == 0 &&
		       strcmp(line.source, "command line") == 0;
		policy += strcmp(line.name, "policy") == 0 && strcmp(line.value, "lfu") == 0 &&
			  strcmp(line.source, "environment CNRE_POLICY") == 0;
		mirror += strcmp(line.name, "mirror") == 0 && strcmp(line.value, "/a, /b") == 0;
	}
	cr_expect(ram == 1 && policy == 1 && mirror == 1, "%d %d %d", ram, policy, mirror);
}

Test(manager_settings, help_lists_every_setting_of_this_build_with_a_sentence)
{
	struct settings_help help;
	uint32_t count = 0;

	for (; settings_help_at(count, &help); count++)
		cr_expect_gt(strlen(help.sentence), 10);
	cr_expect_gt(count, 15);
}

Test(manager_settings, durations_have_units_and_bounds)
{
	uint64_t ns = 7;

	cr_expect_eq(settings_parse_duration("250ms", &ns), 0);
	cr_expect_eq(ns, 250000000);
	cr_expect_eq(settings_parse_duration("2h", &ns), 0);
	cr_expect_eq(ns, 7200ull * 1000000000);
	ns = 7;
	cr_expect_eq(settings_parse_duration("", &ns), -EINVAL);
	cr_expect_eq(settings_parse_duration("5 m", &ns), -EINVAL);
	cr_expect_eq(settings_parse_duration("-5", &ns), -EINVAL);
	cr_expect_eq(settings_parse_duration("999999999999999999999", &ns), -EINVAL);
	cr_expect_eq(settings_parse_duration("200000d", &ns), -EINVAL);
	cr_expect_eq(settings_parse_duration("36501d", &ns), -EINVAL, "added to the time of day it may be past all time");
	cr_expect_eq(settings_parse_duration("9223372036s", &ns), -EINVAL);
	cr_expect_eq(ns, 7, "output is untouched");
	cr_expect_eq(settings_parse_duration("36500d", &ns), 0);
	cr_expect_leq(ns, (uint64_t)INT64_MAX / 2, "twice it and a clock's time are a time");
}
