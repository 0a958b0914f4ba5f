/* SPDX-License-Identifier: Apache-2.0 */
/* KV prefixes through a real manager: shared between processes, over restarts and through files, within the budget. */
#include "client/kv.h"
#include "tests/support/child.h"
#include "tests/support/kv.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(system_kv, .timeout = 120);

enum { TOKENS = 20 * (int)KV_TEST_BLOCK + 5 };

#define NO_EXPERTS 1u /* as little reservation as there is */

struct person {
	const struct world *world;
	const char *space;
	unsigned seed;
	uid_t uid;
};

static struct cnre_kv *open_kv(struct cnre *client, const char *space)
{
	struct cnre_kv_identity identity = kv_test_identity();
	struct cnre_kv *kv = NULL;
	int r = cnre_kv_open(client, space, &identity, &kv);

	cr_assert_eq(r, 0, "cnre_kv_open: %s", strerror(-r));
	return kv;
}

/* In a child: what a conversation's match covers, every byte compared; 0 where nothing does. */
static int read_in_child(void *context)
{
	const struct person *person = context;
	struct cnre_options options = {.size = sizeof options, .socket = person->world->socket, .reserve_bytes = NO_EXPERTS, .timeout_ns = 10000000000LL};
	struct cnre_kv_identity identity = kv_test_identity();
	int32_t tokens[TOKENS];
	struct cnre_kv *kv;
	struct cnre *client;
	int covered;

	if (person->uid != 0 && setresuid(person->uid, person->uid, person->uid) < 0)
		return 250;
	if (cnre_attach(&client, person->world->model, &options) < 0)
		return 251;
	if (cnre_kv_open(client, person->space, &identity, &kv) < 0)
		return 252;
	kv_test_tokens(person->seed, 0, tokens, TOKENS);
	covered = kv_test_read(kv, tokens, TOKENS);
	cnre_kv_close(kv);
	cnre_detach(client);
	return covered < 0 ? 253 : covered == TOKENS ? 1 : covered == 0 ? 0 : 2;
}

static int read_by(const struct world *world, const char *space, unsigned seed, uid_t uid)
{
	struct person person = {.world = world, .space = space, .seed = seed, .uid = uid};

	return child_wait(child_start(read_in_child, &person));
}

static void open_world(struct world *world)
{
	world_open(world);
	world_generate(world, NULL);
}

static uint64_t kv_number(const struct world *world, const char *field)
{
	char output[1 << 16] = "", *at;
	const char *arguments[] = {"--socket", world->socket, "kv", "--json", NULL};

	cr_assert_eq(world_run("cnrectl", arguments, output, sizeof output), 0);
	at = strstr(output, field);
	cr_assert_not_null(at, "%s in %s", field, output);
	at += strlen(field);
	return strtoull(at + strcspn(at, "0123456789"), NULL, 10);
}

static int nothing_to_save(void *context)
{
	const struct world *world = context;

	return kv_number(world, "\"disk_blocks\"") == kv_number(world, "\"blocks\"");
}

Test(system_kv, what_one_process_publishes_another_reads_byte_for_byte)
{
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "16M", NULL}), 0);
	cr_assert_eq(read_by(&world, NULL, 1, 0), 0, "nothing is there yet");
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), 21);
	cr_assert_eq(read_by(&world, NULL, 1, 0), 1);
	cr_assert_eq(read_by(&world, NULL, 2, 0), 0, "other tokens");
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), 0, "it is all there");
	cr_assert_eq(world_stat(&world, "kv_published"), 21);
	cr_assert_eq(world_stat(&world, "kv_resident_blocks"), 21);
	cr_assert_gt(world_stat(&world, "kv_hit_tokens"), 0);
	cnre_kv_close(kv);
	cnre_detach(client);
	world_close(&world);
}

Test(system_kv, blocks_and_clients_outlive_the_manager)
{
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	struct cnre_kv_chain *held;
	int32_t tokens[TOKENS], more[TOKENS];
	const void *data;
	uint64_t bytes;

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "16M", "--keeper", "auto", NULL}), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), 21);
	cr_assert_eq(cnre_kv_match(kv, tokens, TOKENS, NULL, 0, &held), TOKENS);
	world_kill_manager(&world);
	world_await_epoch(&world, 2);
	cr_assert_eq(cnre_kv_block(held, 3, 0, &data, &bytes), (int)KV_TEST_BLOCK);
	cr_assert_eq(kv_test_check(data, bytes, tokens, 4 * (size_t)KV_TEST_BLOCK), 0);
	cnre_kv_release(held);
	cr_assert_eq(read_by(&world, NULL, 1, 0), 1, "a new client finds them in the new manager");
	kv_test_tokens(2, 0, more, TOKENS);
	cr_assert_eq(kv_test_publish(kv, more, TOKENS), 21, "the old client goes on in the new manager");
	cr_assert_eq(read_by(&world, NULL, 2, 0), 1);
	cr_assert_eq(world_stat(&world, "kv_resident_blocks"), 42);
	cnre_kv_close(kv);
	cnre_detach(client);
	world_close(&world);
}

Test(system_kv, a_cold_start_finds_what_was_saved)
{
	char folder[160];
	const char *options[] = {"--kv-ram", "16M", "--kv-dir", folder, NULL};
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];

	open_world(&world);
	(void)snprintf(folder, sizeof folder, "%s/kv", world.directory);
	cr_assert_gt(world_start(&world, options), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, "chat");
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), 21);
	cr_assert(world_wait_until(nothing_to_save, &world, 20));
	cnre_kv_close(kv);
	cnre_detach(client);
	(void)world_stop(&world, SIGKILL);
	cr_assert_gt(world_start(&world, options), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, "chat");
	cr_assert_eq(kv_test_await(kv, tokens, TOKENS, TOKENS), TOKENS);
	cr_assert_eq(world_stat(&world, "kv_resident_blocks"), 0, "known, and not read yet");
	cr_assert_eq(kv_test_read(kv, tokens, TOKENS), TOKENS);
	cr_assert_eq(world_stat(&world, "kv_resident_blocks"), 21);
	cr_assert_eq(read_by(&world, "other", 1, 0), 0, "of another namespace");
	cnre_kv_close(kv);
	cnre_detach(client);
	world_close(&world);
}

Test(system_kv, the_budget_holds_and_what_is_leased_stays)
{
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	struct cnre_kv_chain *held;
	int32_t tokens[TOKENS];
	const void *data;
	uint64_t bytes;

	open_world(&world);
	/* 4 MiB are 102 blocks of 40 KiB; ten conversations are 210. */
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "4M", NULL}), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), 21);
	cr_assert_eq(cnre_kv_match(kv, tokens, TOKENS, NULL, 0, &held), TOKENS);
	for (unsigned seed = 2; seed <= 11; seed++) {
		int32_t other[TOKENS];

		kv_test_tokens(seed, 0, other, TOKENS);
		cr_assert_eq(kv_test_publish(kv, other, TOKENS), 21, "conversation %u", seed);
		cr_assert_leq(world_stat(&world, "kv_resident_bytes"), 4u << 20);
	}
	cr_assert_gt(world_stat(&world, "kv_evictions"), 100);
	for (size_t i = 0; i < 20; i++) {
		cr_assert_eq(cnre_kv_block(held, i, 0, &data, &bytes), (int)KV_TEST_BLOCK);
		cr_assert_eq(kv_test_check(data, bytes, tokens, (i + 1) * (size_t)KV_TEST_BLOCK), 0, "block %zu", i);
	}
	cnre_kv_release(held);
	cnre_kv_close(kv);
	cnre_detach(client);
	world_close(&world);
}

Test(system_kv, a_budget_that_shrinks_gives_memory_back)
{
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "32M", NULL}), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	for (unsigned seed = 1; seed <= 10; seed++) {
		kv_test_tokens(seed, 0, tokens, TOKENS);
		cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), 21);
	}
	cr_assert_gt(kv_number(&world, "\"pool_bytes\""), 8u << 20);
	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "set", "kv-ram", "4M", NULL}, NULL, 0), 0);
	cr_assert_leq(kv_number(&world, "\"pool_bytes\""), 4u << 20);
	cr_assert_eq(kv_test_read(kv, tokens, TOKENS) >= 0, 1);
	kv_test_tokens(99, 0, tokens, TOKENS);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), 21, "and it goes on within less");
	cnre_kv_close(kv);
	cnre_detach(client);
	world_close(&world);
}

Test(system_kv, invalidate_drops_one_identity_and_no_other)
{
	struct cnre_kv_identity identity = kv_test_identity();
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv, *salted;
	int32_t tokens[TOKENS];

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "16M", NULL}), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	identity.salt = "tenant";
	cr_assert_eq(cnre_kv_open(client, NULL, &identity, &salted), 0);
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), 21);
	cr_assert_eq(kv_test_read(salted, tokens, TOKENS), 0);
	cr_assert_eq(kv_test_publish(salted, tokens, TOKENS), 21);
	cr_assert_eq(cnre_kv_invalidate(kv), 21);
	cr_assert_eq(kv_test_read(kv, tokens, TOKENS), 0);
	cr_assert_eq(kv_test_read(salted, tokens, TOKENS), TOKENS);
	cr_assert_eq(cnre_kv_invalidate(kv), 0);
	cnre_kv_close(kv);
	cnre_kv_close(salted);
	cnre_detach(client);
	world_close(&world);
}

Test(system_kv, users_share_what_is_configured_and_nothing_else)
{
	struct world world;
	struct cnre *client;
	struct cnre_kv *own, *team;
	int32_t tokens[TOKENS];

	if (geteuid() != 0)
		cr_skip_test("other users need root");
	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "16M", "--socket-mode", "0666", "--kv-allow",
							       "team=user:1001,user:1002", NULL}),
		     0);
	client = world_attach(&world, NO_EXPERTS);
	own = open_kv(client, "private");
	team = open_kv(client, "team");
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_eq(kv_test_publish(own, tokens, TOKENS), 21);
	cr_assert_eq(kv_test_publish(team, tokens, TOKENS), 21);
	cr_expect_eq(read_by(&world, "private", 1, 1001), 0, "the same name is another namespace");
	cr_expect_eq(read_by(&world, NULL, 1, 1001), 0);
	cr_expect_eq(read_by(&world, "team", 1, 1001), 1);
	cr_expect_eq(read_by(&world, "team", 1, 1002), 1);
	cr_expect_eq(read_by(&world, "team", 1, 1003), 252, "not a member: refused at open");
	cnre_kv_close(own);
	cnre_kv_close(team);
	cnre_detach(client);
	world_close(&world);
}

static int publish_in_child(void *context)
{
	const struct person *person = context;
	struct cnre_options options = {.size = sizeof options, .socket = person->world->socket, .reserve_bytes = NO_EXPERTS, .timeout_ns = 10000000000LL};
	struct cnre_kv_identity identity = kv_test_identity();
	int32_t tokens[TOKENS];
	struct cnre_kv *kv;
	struct cnre *client;
	int r = cnre_attach(&client, person->world->model, &options);

	if (r == 0)
		r = cnre_kv_open(client, NULL, &identity, &kv);
	if (r < 0)
		return 250;
	for (unsigned seed = 1; seed <= 5; seed++) {
		kv_test_tokens(seed, 32, tokens, TOKENS);
		if (kv_test_publish(kv, tokens, TOKENS) < 0)
			return 251;
	}
	cnre_kv_close(kv);
	cnre_detach(client);
	return 0;
}

/* Two engines get the same prompts at once: one of them may compute for nothing, but there is one set of blocks. */
Test(system_kv, the_same_prefix_from_two_processes_is_stored_once)
{
	struct world world;
	struct person person = {.world = &world};
	pid_t child[3];

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "32M", NULL}), 0);
	for (int i = 0; i < 3; i++)
		child[i] = child_start(publish_in_child, &person);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(child_wait(child[i]), 0);
	/* Five conversations of 21 blocks, of which the first two are common. */
	cr_assert_eq(world_stat(&world, "kv_resident_blocks"), 5 * 21 - 4 * 2);
	cr_assert_eq(world_stat(&world, "kv_published"), 5 * 21 - 4 * 2);
	cr_assert_eq(kv_number(&world, "\"pinned_blocks\""), 0);
	world_close(&world);
}

/* Nothing that an engine calls while it decodes asks the manager for anything. */
Test(system_kv, a_stopped_manager_delays_neither_match_nor_publish)
{
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS], more[TOKENS];
	int r;

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "16M", NULL}), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	kv_test_tokens(0, 0, tokens, TOKENS);
	kv_test_tokens(2, 64, more, TOKENS);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), 21);
	cr_assert_eq(kv_test_read(kv, tokens, TOKENS), TOKENS);
	cr_assert_eq(kill(world.manager, SIGSTOP), 0);
	(void)alarm(20); /* a call that waits for the manager ends the test */
	for (int i = 0; i < 100; i++)
		cr_assert_eq(kv_test_read(kv, tokens, TOKENS), TOKENS);
	r = kv_test_commit(kv, more, TOKENS);
	cr_assert_eq(r, 17, "staged and handed over: %d", r);
	cr_assert_eq(kv_test_read(kv, more, TOKENS), 64, "and not there yet");
	(void)alarm(0);
	cr_assert_eq(kill(world.manager, SIGCONT), 0);
	cr_assert_eq(kv_test_await(kv, more, TOKENS, TOKENS), TOKENS);
	cr_assert_eq(kv_test_read(kv, more, TOKENS), TOKENS);
	cnre_kv_close(kv);
	cnre_detach(client);
	world_close(&world);
}

/* An engine that ends with its last token has published it all the same. */
Test(system_kv, what_was_handed_over_is_stored_although_its_client_detached_at_once)
{
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "16M", NULL}), 0);
	for (unsigned seed = 1; seed <= 5; seed++) {
		client = world_attach(&world, NO_EXPERTS);
		kv = open_kv(client, NULL);
		kv_test_tokens(seed, 0, tokens, TOKENS);
		cr_assert_eq(kv_test_commit(kv, tokens, TOKENS), 21);
		cnre_kv_close(kv);
		cnre_detach(client);
		client = world_attach(&world, NO_EXPERTS);
		kv = open_kv(client, NULL);
		cr_assert_eq(kv_test_await(kv, tokens, TOKENS, TOKENS), TOKENS, "conversation %u", seed);
		cr_assert_eq(kv_test_read(kv, tokens, TOKENS), TOKENS);
		cnre_kv_close(kv);
		cnre_detach(client);
	}
	world_close(&world);
}

/* ---- more namespaces than segments ---- */

/* With 4M there are two segments. Who has none gets one of a namespace that nobody has open. */
Test(system_kv, memory_goes_round_among_more_namespaces_than_segments)
{
	static const char *const names[] = {"one", "two", "three", "four"};
	struct world world;
	int32_t tokens[TOKENS];

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "4M", NULL}), 0);
	kv_test_tokens(1, 0, tokens, TOKENS);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		struct cnre *client = world_attach(&world, NO_EXPERTS);
		struct cnre_kv *kv = open_kv(client, names[i]);

		cr_expect_eq(kv_test_publish(kv, tokens, TOKENS), 21, "%s", names[i]);
		cnre_kv_close(kv);
		cnre_detach(client);
	}
	cr_expect_eq(read_by(&world, "four", 1, 0), 1);
	cr_expect_eq(read_by(&world, "one", 1, 0), 0, "it gave its memory away");
	cr_expect_leq(kv_number(&world, "\"pool_bytes\""), (uint64_t)4 << 20);
	world_close(&world);
}

/* ---- what people see and say ---- */

static void first_key(const struct world *world, char key[65])
{
	char output[1 << 16] = "", *at;
	const char *arguments[] = {"--socket", world->socket, "kv", "--json", NULL};

	cr_assert_eq(world_run("cnrectl", arguments, output, sizeof output), 0);
	at = strstr(output, "\"key\":\"");
	at = at == NULL ? strstr(output, "\"key\": \"") : at;
	cr_assert_not_null(at, "%s", output);
	at += strcspn(at, ":");
	at += strcspn(at, "0123456789abcdef");
	(void)snprintf(key, 65, "%.64s", at);
}

static int import_into(const struct world *world, const char *file, const char *space)
{
	const char *arguments[] = {"--socket", world->socket, "kv", "import", file, "--namespace", space, NULL};

	return world_run("cnrectl", arguments, NULL, 0);
}

Test(system_kv, an_import_begins_a_namespace_that_nobody_has_opened)
{
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];
	char file[128], key[65];

	open_world(&world);
	(void)snprintf(file, sizeof file, "%s/prefix.kv", world.directory);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "32M", "--kv-allow", "team=user:65534", NULL}), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), 21);
	first_key(&world, key);
	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "kv", "export", key, file, NULL}, NULL, 0),
		     0);
	cr_expect_eq(import_into(&world, file, "fresh"), 0, "as a client would name it");
	cr_expect_eq(read_by(&world, "fresh", 1, 0), 1);
	cr_expect_eq(import_into(&world, file, "team"), 0);
	cr_expect_eq(read_by(&world, "team", 1, 0), 1);
	cr_expect_eq(import_into(&world, file, "u65534"), 0, "of another user");
	if (geteuid() == 0)
		cr_expect_eq(read_by(&world, NULL, 1, 65534), 1);
	cr_expect_neq(import_into(&world, file, "a/b"), 0);
	cnre_kv_close(kv);
	cnre_detach(client);
	world_close(&world);
}

Test(system_kv, a_directory_whose_name_is_no_utf8_is_shown)
{
	struct world world;
	char directory[128];

	open_world(&world);
	(void)snprintf(directory, sizeof directory, "%s/kv\xff", world.directory);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "4M", "--kv-dir", directory, NULL}), 0);
	cr_expect_eq(kv_number(&world, "\"budget_bytes\""), (uint64_t)4 << 20);
	world_close(&world);
}

static int check_says(const struct world *world, const char *ram, const char *directory, const char *text)
{
	const char *arguments[] = {"--check", "--model", world->model, "--socket", world->socket, "--kv-ram", ram, "--kv-dir", directory, NULL};
	char output[1 << 14] = "";
	int r = world_run("cnre-managerd", arguments, output, sizeof output);

	cr_expect_not_null(strstr(output, text), "%s in %s", text, output);
	return r;
}

Test(system_kv, check_and_status_say_what_is_kept_where)
{
	struct world world;
	char directory[128];

	open_world(&world);
	(void)snprintf(directory, sizeof directory, "%s/kv", world.directory);
	cr_expect_eq(check_says(&world, "16M", directory, "kv       16.0 MiB of memory; files in "), 0);
	cr_expect_eq(access(directory, F_OK), -1, "a check makes nothing");
	cr_expect_eq(check_says(&world, "1M", directory, "kv       1.0 MiB"), 1);
	cr_expect_eq(check_says(&world, "16M", "/dev/null", "/dev/null"), 1);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "16M", "--kv-dir", directory, NULL}), 0);
	cr_expect_eq(world_status(&world, "kv.budget_bytes"), (uint64_t)16 << 20);
	cr_expect_not_null(strstr(world_status_text(&world), directory));
	world_close(&world);
}

static int is_saving_refused(void *context)
{
	return strstr(world_status_text(context), "KV blocks cannot be saved") != NULL;
}

/* Nobody waits for it. */
Test(system_kv, a_folder_that_refuses_blocks_is_a_degraded_one)
{
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];
	char directory[128];

	open_world(&world);
	(void)snprintf(directory, sizeof directory, "%s/kv", world.directory);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "16M", "--kv-dir", directory, NULL}), 0);
	cr_expect_null(strstr(world_status_text(&world), "cannot be saved"));
	cr_assert_eq(rmdir(directory), 0);
	cr_assert_eq(symlink("/proc/self", directory), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), 21, "memory serves all the same");
	cr_expect(world_wait_until(is_saving_refused, &world, 20));
	cr_expect_eq(read_by(&world, NULL, 1, 0), 1);
	cnre_kv_close(kv);
	cnre_detach(client);
	world_close(&world);
}

Test(system_kv, the_ninth_namespace_of_a_client_is_enospc_and_begins_nothing)
{
	struct world world;
	struct cnre *client;
	struct cnre_kv_identity identity = kv_test_identity();
	struct cnre_kv *kv[9];
	char name[] = "space0";

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "16M", NULL}), 0);
	client = world_attach(&world, NO_EXPERTS);
	for (int i = 0; i < 8; i++) {
		name[5] = (char)('0' + i);
		kv[i] = open_kv(client, name);
	}
	name[5] = '8';
	for (int i = 0; i < 2; i++)
		cr_expect_eq(cnre_kv_open(client, name, &identity, &kv[8]), -ENOSPC);
	cr_expect_eq(world_status(&world, "kv.namespaces"), 8);
	cr_expect(world_log_has(&world, "by salt"));
	for (int i = 0; i < 8; i++)
		cnre_kv_close(kv[i]);
	cnre_detach(client);
	world_close(&world);
}

/* ---- staging ---- */

static uint64_t staged_pages(const struct cnre_kv *kv)
{
	const struct cnre_segment *staging = &kv->space->fixed[CNRE_KV_FD_STAGING];
	unsigned char *there = calloc(1, staging->bytes / CNRE_PAGE_BYTES);
	uint64_t count = 0;

	cr_assert_eq(mincore(staging->base, staging->bytes, there), 0);
	for (uint64_t i = 0; i < staging->bytes / CNRE_PAGE_BYTES; i++)
		count += there[i] & 1;
	free(there);
	return count;
}

/* One block of a new conversation, of which only some bytes in the middle are filled; what is stored of it must be just that. */
static void publish_with_holes(struct cnre_kv *kv, unsigned seed, size_t from, size_t bytes)
{
	static const char zeros[KV_TEST_BYTES];
	int32_t tokens[KV_TEST_BLOCK];
	struct cnre_kv_chain *chain;
	const void *data;
	uint64_t size;
	void *buffer;

	kv_test_tokens(seed, 0, tokens, KV_TEST_BLOCK);
	cr_assert_eq(cnre_kv_match(kv, tokens, KV_TEST_BLOCK, NULL, 0, &chain), 0);
	cr_assert_eq(cnre_kv_stage(chain, tokens, KV_TEST_BLOCK, NULL, 0, KV_TEST_BYTES, &buffer), 0);
	cr_assert_eq(madvise(buffer, KV_TEST_BYTES, MADV_REMOVE), 0, "what the block before left");
	memset((char *)buffer + from, 'x', bytes);
	cr_assert_eq(cnre_kv_commit(chain, 1, 0), 0);
	cnre_kv_release(chain);
	cr_assert_eq(kv_test_await(kv, tokens, KV_TEST_BLOCK, (int)KV_TEST_BLOCK), (int)KV_TEST_BLOCK);
	cr_assert_eq(cnre_kv_match(kv, tokens, KV_TEST_BLOCK, NULL, 0, &chain), (int)KV_TEST_BLOCK);
	cr_assert_eq(cnre_kv_block(chain, 0, 0, &data, &size), (int)KV_TEST_BLOCK);
	cr_expect_eq(memcmp(data, zeros, from), 0, "from %zu", from);
	cr_expect(bytes == 0 || (((const char *)data)[from] == 'x' && ((const char *)data)[from + bytes - 1] == 'x'));
	cr_expect_eq(memcmp((const char *)data + from + bytes, zeros, KV_TEST_BYTES - from - bytes), 0, "from %zu", from);
	cnre_kv_release(chain);
}

/* Pages of staging are made by who fills them: the manager, which would be charged, makes none. */
Test(system_kv, the_manager_makes_no_staging_pages)
{
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "16M", NULL}), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	publish_with_holes(kv, 1, 0, 0);
	cr_expect_eq(staged_pages(kv), 0);
	publish_with_holes(kv, 2, 2 * CNRE_PAGE_BYTES, CNRE_PAGE_BYTES);
	cr_expect_eq(staged_pages(kv), 1);
	publish_with_holes(kv, 3, 0, KV_TEST_BYTES - CNRE_PAGE_BYTES);
	cr_expect_eq(staged_pages(kv), KV_TEST_BYTES / CNRE_PAGE_BYTES - 1);
	publish_with_holes(kv, 4, 0, KV_TEST_BYTES);
	cr_expect_eq(staged_pages(kv), KV_TEST_BYTES / CNRE_PAGE_BYTES);
	cnre_kv_close(kv);
	cnre_detach(client);
	world_close(&world);
}

struct counted {
	struct world *world;
	uint64_t tokens;
};

/* The manager follows what clients say that they used some times a second. */
static int are_counted(void *context)
{
	struct counted *counted = context;

	return world_stat(counted->world, "kv_hit_tokens") >= counted->tokens;
}

/* Memory full of prefixes that are used often still takes a new one in, whole. */
Test(system_kv, a_new_prefix_gets_in_beside_old_ones_that_are_used_often)
{
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	struct counted counted = {.world = &world};
	int32_t tokens[TOKENS];

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "4M", NULL}), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	for (unsigned seed = 1; seed <= 4; seed++) { /* 84 blocks; the first new one is more than what is left */
		kv_test_tokens(seed, 0, tokens, TOKENS);
		cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), 21);
		for (int i = 0; i < 20; i++) {
			cr_assert_eq(kv_test_read(kv, tokens, TOKENS), TOKENS);
			counted.tokens += TOKENS;
		}
		cr_assert(world_wait_until(are_counted, &counted, 20));
	}
	for (unsigned seed = 90; seed < 93; seed++) {
		kv_test_tokens(seed, 0, tokens, TOKENS);
		cr_assert_geq(kv_test_publish(kv, tokens, TOKENS), 0, "conversation %u", seed);
		cr_assert_eq(kv_test_read(kv, tokens, TOKENS), TOKENS);
	}
	cnre_kv_close(kv);
	cnre_detach(client);
	world_close(&world);
}

static void write_into_a_shard(const struct world *world)
{
	char command[512];

	/* The last byte of the first shard: its size, its header and so the model's identity stay. */
	(void)snprintf(command, sizeof command,
		       "f=$(ls '%s'/*.safetensors | head -n 1) && printf X | dd of=\"$f\" bs=1 seek=$(($(stat -c %%s \"$f\") - 1)) conv=notrunc 2>/dev/null",
		       world->model);
	cr_assert_eq(system(command), 0);
}

/* E3: weights that were replaced in place, while a manager serves them, find nothing that was computed from the old ones. */
Test(system_kv, weights_of_the_same_shapes_are_other_weights)
{
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "16M", NULL}), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), 21);
	cr_assert_eq(read_by(&world, NULL, 1, 0), 1);
	write_into_a_shard(&world);
	cr_assert_eq(read_by(&world, NULL, 1, 0), 0, "it attaches, since headers agree, and finds nothing");
	cr_assert_eq(kv_test_read(kv, tokens, TOKENS), TOKENS, "who read the old weights still has its own");
	cnre_kv_close(kv);
	cnre_detach(client);
	world_close(&world);
}
