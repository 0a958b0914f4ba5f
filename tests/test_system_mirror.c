/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint on several drives, from outside: shards in further directories, which the engine must know of too, and mirrors,
 * which no start waits for. Bytes are compared with a whole copy by a reader of the test's own.
 */
#include "cnre/cnre.h"
#include "tests/support/hung_drive.h"
#include "tests/support/truth.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(system_mirror, .timeout = 120);

enum { LAYERS = 4, EXPERTS = 16 };

static struct world world;
static char further[160], whole[160];

static void shell(const char *format, const char *a, const char *b)
{
	char command[1024];

	(void)snprintf(command, sizeof command, format, a, b);
	cr_assert_eq(system(command), 0, "%s", command);
}

/* Three shards in world.model, of which the first two have experts; the same in `whole`. */
static void begin(void)
{
	world_open(&world);
	world_generate(&world, (const char *const[]){"--shard-bytes", "500K", NULL});
	(void)snprintf(whole, sizeof whole, "%s/whole", world.directory);
	(void)snprintf(further, sizeof further, "%s/further", world.directory);
	shell("cp -rp '%s' '%s'", world.model, whole);
	cr_assert_eq(mkdir(further, 0755), 0);
}

static void spread(void)
{
	shell("mv '%s'/model-00002* '%s'", world.model, further);
}

static void expect_every_byte(struct cnre *client)
{
	struct truth *truth;

	cr_assert_eq(truth_open(&truth, whole), 0);
	for (uint32_t i = 0; i < LAYERS * EXPERTS; i++)
		cr_expect_eq(truth_check_one(truth, client, i / EXPERTS, i % EXPERTS), 0, "object %u", i);
	truth_close(truth);
}

/* In a process of its own, with this CNRE_DIRS. */
static int attach_error(const char *model, const char *dirs)
{
	struct cnre_options options = {.size = sizeof options, .socket = world.socket, .timeout_ns = 20000000000};
	int status = 0;
	pid_t child = fork();

	cr_assert_geq(child, 0);
	if (child == 0) {
		struct cnre *client = NULL;
		int r = dirs == NULL ? unsetenv("CNRE_DIRS") : setenv("CNRE_DIRS", dirs, 1);

		r = r < 0 ? -errno : cnre_attach(&client, model, &options);
		if (r == 0)
			cnre_detach(client);
		_exit(-r);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFEXITED(status), "status 0x%x", status);
	return -WEXITSTATUS(status);
}

/* ---- further directories ---- */

Test(system_mirror, an_engine_that_knows_the_further_directory_attaches_and_others_are_told_what_to_set)
{
	struct cnre *client;

	begin();
	spread();
	cr_assert_gt(world_start(&world, (const char *const[]){"--dir", further, NULL}), 0);
	cr_expect_eq(attach_error(world.model, NULL), -ESTALE);
	cr_expect(world_log_has(&world, "set CNRE_DIRS"));
	cr_expect_eq(attach_error(world.model, "/nonexistent"), -ENOENT);
	cr_expect_eq(attach_error(world.model, further), 0);
	cr_expect_eq(attach_error(whole, NULL), 0, "all shards in one directory are the same model");
	cr_assert_eq(setenv("CNRE_DIRS", further, 1), 0);
	client = world_attach(&world, 0);
	expect_every_byte(client);
	cnre_detach(client);
	world_close(&world);
}

/* The manager that an engine starts has the engine's environment. */
Test(system_mirror, an_engine_starts_a_manager_for_its_checkpoint_on_two_drives)
{
	struct cnre_options options = {.size = sizeof options, .timeout_ns = 30000000000};
	struct cnre *client = NULL;
	char program[512];
	int r;

	begin();
	spread();
	cr_assert_eq(setenv("XDG_RUNTIME_DIR", world.directory, 1), 0);
	cr_assert_eq(setenv("CNRE_MANAGERD", world_program("cnre-managerd", program, sizeof program), 1), 0);
	cr_assert_eq(setenv("CNRE_DIRS", further, 1), 0);
	cr_assert_eq(setenv("CNRE_RAM", "2M", 1), 0);
	r = cnre_attach(&client, world.model, &options);
	cr_assert_eq(r, 0, "attach: %s", strerror(-r));
	expect_every_byte(client);
	cnre_detach(client);
	world_close(&world);
}

/* Its first line: the tokens. */
static void run_engine(const char *model, const char *cache, char *output, size_t bytes)
{
	cr_assert_eq(world_run("cnre-olmoe",
			       (const char *const[]){"--model", model, "--tokens", "5 6 7 8", "--steps", "6", "--cache",
						     cache, NULL},
			       output, bytes),
		     0, "%s", output);
	output[strcspn(output, "\n")] = '\0';
}

Test(system_mirror, an_engine_computes_the_same_tokens_wherever_the_shards_lie)
{
	static const char *const caches[] = {"private:1M", "mmap", "cnre"};
	char expected[4096], found[4096];

	begin();
	spread();
	cr_assert_gt(world_start(&world, (const char *const[]){"--dir", further, NULL}), 0);
	cr_assert_eq(setenv("CNRE_SOCKET", world.socket, 1), 0);
	run_engine(whole, "private:1M", expected, sizeof expected);
	cr_assert_eq(setenv("CNRE_DIRS", further, 1), 0);
	for (size_t i = 0; i < 3; i++) {
		run_engine(world.model, caches[i], found, sizeof found);
		cr_expect_str_eq(found, expected, "--cache %s", caches[i]);
	}
	world_close(&world);
}

Test(system_mirror, what_a_further_directory_has_in_vain_is_said_once)
{
	begin();
	shell("cp -p '%s'/model-00002* '%s'", world.model, further);
	cr_assert_gt(world_start(&world, (const char *const[]){"--dir", further, NULL}), 0);
	cr_expect(world_log_has(&world, "further: 1 shards are not used"));
	cr_expect(world_log_has(&world, "model-00002-of-00003.safetensors, read from"));
	cr_expect_eq(attach_error(world.model, NULL), 0, "it is whole without it");
	world_close(&world);
}

Test(system_mirror, shards_of_nobody_knows_which_of_two_models_are_refused_with_what_to_do)
{
	char second[192];

	begin();
	spread();
	(void)snprintf(second, sizeof second, "%s/second", world.directory);
	shell("cp -rp '%s' '%s'", whole, second);
	cr_expect_eq(world_start(&world, (const char *const[]){"--model", second, "--model", world.model, "--dir",
							       further, NULL}),
		     -1);
	cr_expect(world_log_has(&world, "into a folder in it called second"));
	world_close(&world);
}

Test(system_mirror, two_models_have_a_folder_each_in_one_further_directory)
{
	char second[192];

	begin();
	(void)snprintf(second, sizeof second, "%s/second", world.directory);
	shell("cp -rp '%s' '%s'", whole, second);
	shell("mkdir '%s/tiny-olmoe' '%s/second'", further, further);
	shell("mv '%s'/model-00002* '%s/tiny-olmoe'", world.model, further);
	shell("mv '%s'/model-00001* '%s/second'", second, further);
	cr_assert_gt(world_start(&world, (const char *const[]){"--model", second, "--model", world.model, "--dir",
							       further, NULL}),
		     0);
	cr_expect_eq(attach_error(world.model, further), 0);
	cr_expect_eq(attach_error(second, further), 0);
	world_close(&world);
}

/* ---- mirrors ---- */

struct expected {
	unsigned used, refused, absent;
};

/* Of the only mirror. */
static int is_checked(void *context)
{
	const struct expected *expected = context;
	const char *text = world_status_text(&world);
	char used[32], refused[32], absent[32];

	(void)snprintf(used, sizeof used, "\"used\":%u,", expected->used);
	(void)snprintf(refused, sizeof refused, "\"refused\":%u,", expected->refused);
	(void)snprintf(absent, sizeof absent, "\"absent\":%u,", expected->absent);
	return strstr(text, "\"state\":\"checked\"") != NULL && strstr(text, used) != NULL &&
	       strstr(text, refused) != NULL && strstr(text, absent) != NULL;
}

static void await(struct expected expected)
{
	cr_assert(world_wait_until(is_checked, &expected, 3), "not %u, %u, %u: %s", expected.used, expected.refused,
		  expected.absent, world_status_text(&world));
}

Test(system_mirror, a_partial_mirror_is_proven_shown_and_proven_again_after_a_death)
{
	static char text[1 << 16];
	struct cnre *client;

	begin();
	shell("cp -p '%s'/model-00002* '%s'", world.model, further);
	cr_assert_gt(world_start(&world, (const char *const[]){"--mirror", further, "--keeper", "auto", NULL}), 0);
	await((struct expected){1, 0, 1});
	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "status", NULL}, text,
			       sizeof text),
		     0);
	cr_expect(strstr(text, "in 1 of 2 shards; 0 refused, 1 not there, 0 to be checked") != NULL, "%s", text);
	cr_expect(strstr(text, "lie on the checkpoint's own disk") != NULL, "%s", text);
	client = world_attach(&world, 0);
	expect_every_byte(client);
	world_kill_manager(&world);
	await((struct expected){1, 0, 1});
	expect_every_byte(client);
	cnre_detach(client);
	world_close(&world);
}

/* C9, C11 and D1: cut by a byte, and one expert of another fine-tune; every byte is still right. */
Test(system_mirror, bad_copies_are_refused_by_name_and_the_primary_serves)
{
	struct cnre *client;
	char path[256];
	struct stat status;
	int fd;

	begin();
	shell("cp -p '%s'/model-* '%s'", world.model, further);
	(void)snprintf(path, sizeof path, "%s/model-00001-of-00003.safetensors", further);
	cr_assert_eq(stat(path, &status), 0);
	cr_assert_eq(truncate(path, status.st_size - 1), 0);
	(void)snprintf(path, sizeof path, "%s/model-00002-of-00003.safetensors", further);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	cr_assert_eq(fstat(fd, &status), 0);
	for (int i = 1; i <= 13; i++) /* an expert's 13 KiB, whatever there was */
		cr_assert_eq(pwrite(fd, path, 64, status.st_size / 2 + i * 1024), 64);
	(void)close(fd);
	cr_assert_gt(world_start(&world, (const char *const[]){"--mirror", further, NULL}), 0);
	await((struct expected){0, 2, 0});
	cr_expect(world_log_has(&world, "model-00001-of-00003.safetensors: has "));
	cr_expect(world_log_has(&world, "in its payload: not used: copy the shard again"));
	client = world_attach(&world, 0);
	expect_every_byte(client);
	cnre_detach(client);
	world_close(&world);
}

Test(system_mirror, check_says_what_dirs_and_mirrors_would_give)
{
	static char text[1 << 16];

	begin();
	spread();
	cr_assert_eq(world_run("cnre-managerd",
			       (const char *const[]){"--model", world.model, "--dir", further, "--mirror", whole,
						     "--mirror", "/nonexistent", "--check", NULL},
			       text, sizeof text),
		     0, "%s", text);
	cr_expect(strstr(text, "2 shards from ") != NULL && strstr(text, "1 shards from ") != NULL, "%s", text);
	cr_expect(strstr(text, "copies of 2 of 2 shards") != NULL, "%s", text);
	cr_expect(strstr(text, "/nonexistent: left out: No such file or directory") != NULL, "%s", text);
	world_close(&world);
}

/* A mirror that does not answer delays neither a start nor a stop, and is used when it does. */
Test(system_mirror, nobody_waits_for_a_mirror_that_hangs)
{
	struct hung_drives drives;
	struct truth *copies;
	struct cnre *client;
	const char *reason;

	begin();
	reason = hung_drives_open(&drives, world.directory, 1, 32);
	if (reason != NULL) {
		world_close(&world);
		cr_skip("%s", reason);
	}
	shell("cp -rp '%s' '%s/mirror'", whole, drives.drive[0].mount);
	(void)snprintf(further, sizeof further, "%s/mirror", drives.drive[0].mount);
	sync();
	cr_assert_eq(truth_open(&copies, further), 0);
	truth_drop_cache(copies);
	truth_close(copies);
	hung_drives_enter(&drives, getpid());
	hung_drives_stop(&drives, 0);
	cr_assert_gt(world_start(&world, (const char *const[]){"--mirror", further, NULL}), 0);
	client = world_attach(&world, 0);
	expect_every_byte(client);
	cr_expect_not_null(strstr(world_status_text(&world), "\"state\":\"being checked\""));
	cr_expect_not_null(strstr(world_status_text(&world), "\"used\":0,"));
	hung_drives_go(&drives, 0);
	await((struct expected){2, 0, 0});
	cr_expect_not_null(strstr(world_status_text(&world), "\"on_same_disk\":0,"));
	expect_every_byte(client);
	cnre_detach(client);
	(void)world_stop(&world, SIGTERM);
	hung_drives_leave(getpid());
	hung_drives_close(&drives);
	world_close(&world);
}
