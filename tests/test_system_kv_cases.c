/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways in which stores of prefixes have failed their users elsewhere, each asked of a real manager: the state of another
 * model, tokenizer, adapter, picture or user; a block that was not stored, or only half; what a dead client left. Names of
 * cases (E1, F2) stand above each test.
 */
#include "tests/support/child.h"
#include "tests/support/kv.h"
#include "tests/support/kv_attacker.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(system_kv_cases, .timeout = 240);

enum { TOKENS = 8 * (int)KV_TEST_BLOCK, BLOCKS = 8 };

#define NO_EXPERTS 1u /* as little reservation as there is */

static const char *const in_memory[] = {"--kv-ram", "16M", NULL};

static void open_world(struct world *world)
{
	world_open(world);
	world_generate(world, NULL);
}

static struct cnre *attach_to(const struct world *world, const char *model)
{
	struct cnre_options options = {.size = sizeof options,
				       .socket = world->socket,
				       .reserve_bytes = NO_EXPERTS,
				       .timeout_ns = 20000000000LL};
	struct cnre *client = NULL;
	int r = cnre_attach(&client, model, &options);

	cr_assert_eq(r, 0, "cnre_attach %s: %s", model, strerror(-r));
	return client;
}

static struct cnre_kv *open_as(struct cnre *client, const char *space, const struct cnre_kv_identity *identity)
{
	struct cnre_kv *kv = NULL;
	int r = cnre_kv_open(client, space, identity, &kv);

	cr_assert_eq(r, 0, "cnre_kv_open: %s", strerror(-r));
	return kv;
}

static struct cnre_kv *open_kv(struct cnre *client, const char *space)
{
	struct cnre_kv_identity identity = kv_test_identity();

	return open_as(client, space, &identity);
}

/* Everything that is said, as `cnrectl kv` has it. */
static const char *kv_text(const struct world *world)
{
	static char output[1 << 16];
	const char *arguments[] = {"--socket", world->socket, "kv", "--json", NULL};

	output[0] = '\0';
	cr_assert_eq(world_run("cnrectl", arguments, output, sizeof output), 0);
	return output;
}

static uint64_t kv_number(const struct world *world, const char *field)
{
	const char *text = kv_text(world), *at = strstr(text, field);

	cr_assert_not_null(at, "%s in %s", field, text);
	at += strlen(field);
	return strtoull(at + strcspn(at, "0123456789"), NULL, 10);
}

static int nothing_to_save(void *context)
{
	const struct world *world = context;

	return kv_number(world, "\"disk_blocks\"") == kv_number(world, "\"blocks\"");
}

static int nothing_is_pinned(void *context)
{
	return kv_number(context, "\"pinned_blocks\"") == 0;
}

static void close_both(struct cnre_kv *kv, struct cnre *client)
{
	cnre_kv_close(kv);
	cnre_detach(client);
}

/* ---- reuse: only where everything is equal ---- */

struct variant {
	const char *what;
	struct cnre_kv_identity identity;
	const char *model; /* NULL: the world's own */
};

#define ADAPTER_BYTES 32u

static unsigned char adapter_of[4][ADAPTER_BYTES]; /* four digests that differ in their last byte */

#define VARIANTS 13u

/* The first is what is stored; each other one differs from it in one thing. */
static void fill_variants(struct variant variant[VARIANTS], const char *other_model)
{
	for (unsigned i = 0; i < 4; i++)
		adapter_of[i][ADAPTER_BYTES - 1] = (unsigned char)i;
	for (unsigned i = 0; i < VARIANTS; i++) {
		variant[i] = (struct variant){.identity = kv_test_identity()};
		variant[i].identity.salt = "s";
		variant[i].identity.adapter_digest = adapter_of[0];
		variant[i].identity.adapter_digest_bytes = ADAPTER_BYTES;
	}
	variant[0].what = "nothing";
	variant[1].what = "tokenizer", variant[1].identity.tokenizer = "t2";
	variant[2].what = "template", variant[2].identity.chat_template = "c2";
	variant[3].what = "position", variant[3].identity.position = "rope theta 1e6";
	variant[4].what = "representation", variant[4].identity.representation = "fp8 g64";
	variant[5].what = "version", variant[5].identity.version = 2;
	variant[6].what = "adapter", variant[6].identity.adapter_digest = adapter_of[1];
	variant[7].what = "no adapter", variant[7].identity.adapter_digest = NULL,
	variant[7].identity.adapter_digest_bytes = 0;
	variant[8].what = "salt", variant[8].identity.salt = "S";
	variant[9].what = "no salt", variant[9].identity.salt = NULL;
	variant[10].what = "tokens of a block", variant[10].identity.block_tokens = 2 * KV_TEST_BLOCK;
	variant[11].what = "how it is resumed", variant[11].identity.flags = CNRE_KV_CHECKPOINTS;
	variant[12].what = "model", variant[12].model = other_model;
}

static void expect_only_the_first(const struct world *world, const struct variant *variant, const int32_t *tokens)
{
	for (unsigned i = 0; i < VARIANTS; i++) {
		struct cnre *client = attach_to(world, variant[i].model != NULL ? variant[i].model : world->model);
		struct cnre_kv *kv = open_as(client, "matrix", &variant[i].identity);
		int covered = i == 0 ? kv_test_await(kv, tokens, TOKENS, TOKENS)
				     : cnre_kv_route(kv, tokens, TOKENS, NULL, 0, NULL, 0);

		cr_expect_eq(covered, i == 0 ? TOKENS : 0, "another %s: %d tokens known", variant[i].what, covered);
		covered = kv_test_read(kv, tokens, TOKENS);
		cr_expect_eq(covered, i == 0 ? TOKENS : 0, "another %s: %d tokens read", variant[i].what, covered);
		close_both(kv, client);
	}
}

/* The same checkpoint but for one byte of config.json, or with a shard of another header. */
static void generate_other(struct world *world, char *path, size_t size)
{
	struct world other = *world;
	char config[256];
	FILE *file;

	(void)snprintf(path, size, "%s/other", world->directory);
	(void)snprintf(other.model, sizeof other.model, "%s", path);
	world_generate(&other, NULL);
	(void)snprintf(config, sizeof config, "%.200s/config.json", path);
	file = fopen(config, "a");
	cr_assert_not_null(file);
	cr_assert_eq(fputc('\n', file), '\n');
	cr_assert_eq(fclose(file), 0);
}

/*
 * E1, E3, E6. Goal: one thing changed in what a state depends on is no hit, none changed is one. Method: one is stored, all
 * are asked, from memory and after a cold start from files.
 */
Test(system_kv_cases, one_changed_thing_of_an_identity_is_no_hit_from_memory_and_from_files)
{
	char folder[160], other[160];
	struct world world;
	const char *options[] = {"--model", world.model, "--model", other, "--kv-ram", "16M", "--kv-dir", folder, NULL};
	struct variant variant[VARIANTS];
	int32_t tokens[TOKENS];
	struct cnre *client;
	struct cnre_kv *kv;

	open_world(&world);
	generate_other(&world, other, sizeof other);
	(void)snprintf(folder, sizeof folder, "%s/kv", world.directory);
	fill_variants(variant, other);
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_gt(world_start(&world, options), 0);
	client = attach_to(&world, world.model);
	kv = open_as(client, "matrix", &variant[0].identity);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), BLOCKS);
	close_both(kv, client);
	expect_only_the_first(&world, variant, tokens);
	cr_assert(world_wait_until(nothing_to_save, &world, 20));
	(void)world_stop(&world, SIGKILL);
	cr_assert_gt(world_start(&world, options), 0);
	expect_only_the_first(&world, variant, tokens);
	world_close(&world);
}

/* E1: two names of two weights; an adapter is no salt; "ab", "c" is not "a", "bc". */
Test(system_kv_cases, fields_of_an_identity_are_told_apart_whatever_their_bytes)
{
	const unsigned char *x = (const unsigned char *)"X";
	struct cnre_kv_identity identity[6];
	struct world world;
	struct cnre *client;
	int32_t tokens[TOKENS];

	for (int i = 0; i < 6; i++)
		identity[i] = kv_test_identity();
	identity[0].adapter_digest = x, identity[0].adapter_digest_bytes = 1;
	identity[1].salt = "X";
	identity[2].tokenizer = "ab", identity[2].chat_template = "c";
	identity[3].tokenizer = "a", identity[3].chat_template = "bc";
	identity[4].tokenizer = NULL, identity[4].chat_template = "abc";
	identity[5].tokenizer = "", identity[5].chat_template = "abc";
	open_world(&world);
	cr_assert_gt(world_start(&world, in_memory), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv_test_tokens(1, 0, tokens, TOKENS);
	for (int i = 0; i < 6; i++) {
		struct cnre_kv *kv = open_as(client, NULL, &identity[i]);

		cr_expect_eq(kv_test_publish(kv, tokens, TOKENS), BLOCKS, "identity %d has nothing of those before", i);
		cnre_kv_close(kv);
	}
	cnre_detach(client);
	world_close(&world);
}

/* ---- pictures ---- */

#define IMAGE_BYTES 32u

/* Stores a conversation block by block; blocks stored, or -errno. */
static int publish_with(struct cnre_kv *kv, const int32_t *tokens, const struct cnre_kv_media *media)
{
	struct cnre_kv_chain *chain;
	void *buffer;
	int r = cnre_kv_match(kv, tokens, 0, NULL, 0, &chain), stored = 0;

	for (int at = 0; r >= 0 && at < TOKENS; at += (int)KV_TEST_BLOCK) {
		r = cnre_kv_stage(chain, tokens + at, KV_TEST_BLOCK, media, 1, KV_TEST_BYTES, &buffer);
		if (r != 0)
			continue;
		kv_test_fill(buffer, KV_TEST_BYTES, tokens, (size_t)at + KV_TEST_BLOCK);
		r = cnre_kv_commit(chain, 1000000, 0);
		stored += r == 0;
	}
	cnre_kv_release(chain);
	return r < 0 && r != -ENODATA ? r : stored;
}

static int covered_with(struct cnre_kv *kv, const int32_t *tokens, const struct cnre_kv_media *media)
{
	return cnre_kv_route(kv, tokens, TOKENS, media, media != NULL, NULL, 0);
}

struct seeing {
	struct cnre_kv *kv;
	const int32_t *tokens;
	const struct cnre_kv_media *media;
	int wanted;
};

static int is_covered(void *context)
{
	const struct seeing *seeing = context;

	return covered_with(seeing->kv, seeing->tokens, seeing->media) == seeing->wanted;
}

/* E2: placeholders have equal tokens. The picture begins in the third block. */
Test(system_kv_cases, the_same_text_with_another_picture_or_place_of_it_ends_before_it)
{
	enum { AT = 2 * (int)KV_TEST_BLOCK + 4, LONG = 20 };
	unsigned char image[IMAGE_BYTES] = "first", same_16_bits[IMAGE_BYTES] = "first";
	struct cnre_kv_media media = {
		.token_offset = AT, .token_count = LONG, .digest = image, .digest_bytes = sizeof image};
	struct cnre_kv_media changed;
	struct seeing seeing = {.media = &media};
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];

	open_world(&world);
	cr_assert_gt(world_start(&world, in_memory), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_eq(publish_with(kv, tokens, &media), BLOCKS);
	seeing = (struct seeing){.kv = kv, .tokens = tokens, .media = &media, .wanted = TOKENS};
	cr_assert(world_wait_until(is_covered, &seeing, 20));
	same_16_bits[IMAGE_BYTES - 1] = 1;
	changed = media, changed.digest = same_16_bits;
	cr_expect_eq(covered_with(kv, tokens, &changed), AT, "another picture: %d", covered_with(kv, tokens, &changed));
	changed = media, changed.digest_bytes = 2;
	cr_expect_eq(covered_with(kv, tokens, &changed), AT, "two bytes of its digest");
	changed = media, changed.token_offset = AT + 1;
	cr_expect_eq(covered_with(kv, tokens, &changed), AT, "one token later");
	changed = media, changed.token_count = LONG + 1;
	cr_expect_eq(covered_with(kv, tokens, &changed), AT, "one token longer");
	cr_expect_eq(covered_with(kv, tokens, NULL), AT, "none");
	changed = media, changed.digest = NULL, changed.digest_bytes = 0;
	cr_expect_eq(covered_with(kv, tokens, &changed), AT, "a picture nobody digested");
	close_both(kv, client);
	world_close(&world);
}

/* E2: no digest, no name: what comes from there on is not stored, and the engine is told. */
Test(system_kv_cases, what_follows_a_picture_without_digest_is_never_stored)
{
	struct cnre_kv_media media = {.token_offset = 2 * KV_TEST_BLOCK, .token_count = 8};
	struct seeing seeing;
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];

	open_world(&world);
	cr_assert_gt(world_start(&world, in_memory), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_eq(publish_with(kv, tokens, &media), 2);
	seeing = (struct seeing){.kv = kv, .tokens = tokens, .media = NULL, .wanted = 2 * (int)KV_TEST_BLOCK};
	cr_assert(world_wait_until(is_covered, &seeing, 20));
	cr_expect_eq(world_stat(&world, "kv_published"), 2);
	close_both(kv, client);
	world_close(&world);
}

/* ---- the model was replaced ---- */

/* E3: a shard with another header, at the same path; its old blocks are unreachable, and the others still found. */
Test(system_kv_cases, a_replaced_model_under_the_same_path_and_folder_has_none_of_the_old_blocks)
{
	char folder[160], kept[200];
	struct world world;
	const char *options[] = {"--kv-ram", "16M", "--kv-dir", folder, NULL};
	int32_t tokens[TOKENS];
	struct cnre *client;
	struct cnre_kv *kv;

	open_world(&world);
	(void)snprintf(folder, sizeof folder, "%s/kv", world.directory);
	(void)snprintf(kept, sizeof kept, "%s/kept", world.directory);
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_gt(world_start(&world, options), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), BLOCKS);
	cr_assert(world_wait_until(nothing_to_save, &world, 20));
	close_both(kv, client);
	(void)world_stop(&world, SIGTERM);
	cr_assert_eq(rename(world.model, kept), 0);
	world_generate(&world, (const char *const[]){"--experts", "8", NULL});
	cr_assert_gt(world_start(&world, options), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	cr_expect_eq(kv_test_read(kv, tokens, TOKENS), 0, "of another model");
	cr_expect_eq(cnre_kv_invalidate(kv), 0);
	cr_expect_eq(kv_test_publish(kv, tokens, TOKENS), BLOCKS);
	cr_expect_eq(cnre_kv_invalidate(kv), BLOCKS, "says how many, and drops no other model's");
	close_both(kv, client);
	(void)world_stop(&world, SIGTERM);
	cr_assert_eq(world_run("/bin/rm", (const char *const[]){"-rf", world.model, NULL}, NULL, 0), 0);
	cr_assert_eq(rename(kept, world.model), 0);
	cr_assert_gt(world_start(&world, options), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	cr_expect_eq(kv_test_await(kv, tokens, TOKENS, TOKENS), TOKENS);
	close_both(kv, client);
	world_close(&world);
}

/* ---- failed, half written ---- */

/* Every file below a folder: one byte of its second half is another. How many. */
static int spoil(const char *folder)
{
	char path[512];
	DIR *dir = opendir(folder);
	struct dirent *entry;
	int count = 0;

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		struct stat status;

		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof path, "%.250s/%.250s", folder, entry->d_name);
		if (stat(path, &status) < 0)
			continue;
		if (S_ISDIR(status.st_mode)) {
			count += spoil(path);
		} else if (status.st_size > (off_t)KV_TEST_BYTES) {
			int fd = open(path, O_RDWR | O_CLOEXEC);
			unsigned char byte;

			cr_assert_eq(pread(fd, &byte, 1, status.st_size - 4096), 1);
			byte ^= 1;
			cr_assert_eq(pwrite(fd, &byte, 1, status.st_size - 4096), 1);
			(void)close(fd);
			count++;
		}
	}
	if (dir != NULL)
		(void)closedir(dir);
	return count;
}

/*
 * E7. Goal: a failed read is nobody's hit, who waits for it hears so, and the block can be stored anew. Method: every file
 * is spoiled behind its good head.
 */
Test(system_kv_cases, blocks_whose_files_are_bad_fail_are_forgotten_and_can_be_stored_again)
{
	char folder[160];
	const char *options[] = {"--kv-ram", "16M", "--kv-dir", folder, NULL};
	struct cnre_kv_chain *chain;
	struct world world;
	int32_t tokens[TOKENS];
	struct cnre *client;
	struct cnre_kv *kv;
	const void *data;
	uint64_t bytes;
	int covered;

	open_world(&world);
	(void)snprintf(folder, sizeof folder, "%s/kv", world.directory);
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_gt(world_start(&world, options), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), BLOCKS);
	cr_assert(world_wait_until(nothing_to_save, &world, 20));
	close_both(kv, client);
	(void)world_stop(&world, SIGKILL);
	cr_assert_eq(spoil(folder), BLOCKS);
	cr_assert_gt(world_start(&world, options), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	cr_assert_eq(kv_test_await(kv, tokens, TOKENS, TOKENS), TOKENS, "their heads are good");
	covered = cnre_kv_match(kv, tokens, TOKENS, NULL, 0, &chain);
	cr_assert_eq(covered, TOKENS);
	for (size_t i = 0; i < BLOCKS; i++) {
		int r = cnre_kv_block(chain, i, 20000000000LL, &data, &bytes);

		cr_expect(r < 0 && r != -ETIMEDOUT, "block %zu: %d", i, r);
	}
	cnre_kv_release(chain);
	cr_assert_eq(kv_test_await(kv, tokens, TOKENS, 0), 0);
	cr_expect_eq(kv_test_publish(kv, tokens, TOKENS), BLOCKS);
	cr_expect_eq(kv_test_read(kv, tokens, TOKENS), TOKENS);
	close_both(kv, client);
	world_close(&world);
}

static int has_failed(void *context)
{
	return world_stat(context, "kv_publish_failed") > 0;
}

/* E7: no room, since all is leased: what was committed and not stored is no hit, and what is there stays. */
Test(system_kv_cases, what_finds_no_room_is_not_there)
{
	enum { CONVERSATIONS = 12, HOLDERS = 3 }; /* as many as 4 MiB hold, and more */
	int present[CONVERSATIONS + 1];
	struct kv_attacker holder[HOLDERS];
	struct attacker attacker[HOLDERS];
	struct world world;
	int32_t tokens[TOKENS];
	struct cnre *client;
	struct cnre_kv *kv;
	int covered, committed, some = 0;

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "4M", NULL}), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	for (unsigned seed = 1; seed <= CONVERSATIONS; seed++) {
		kv_test_tokens(seed, 0, tokens, TOKENS);
		cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), BLOCKS);
	}
	for (uint32_t i = 0; i < HOLDERS; i++) {
		cr_assert_eq(attacker_attach(&attacker[i], world.socket, world.model), 0);
		cr_assert_eq(kv_attacker_open(&holder[i], &attacker[i], NULL, 4096), 0);
		kv_attacker_pin(&holder[i], i, HOLDERS);
	}
	for (unsigned seed = 1; seed <= CONVERSATIONS; seed++) {
		kv_test_tokens(seed, 0, tokens, TOKENS);
		present[seed] = kv_test_read(kv, tokens, TOKENS);
		some += present[seed] == TOKENS;
	}
	cr_assert_gt(some, 2);
	for (unsigned seed = 97; seed <= 99; seed++) {
		kv_test_tokens(seed, 0, tokens, TOKENS);
		committed = kv_test_commit(kv, tokens, TOKENS);
		cr_assert(committed >= 0 || committed == -ESTALE, "%d", committed);
	}
	cr_assert(world_wait_until(has_failed, &world, 20));
	covered = kv_test_read(kv, tokens, TOKENS);
	cr_expect(covered >= 0 && covered < TOKENS && covered % (int)KV_TEST_BLOCK == 0, "%d", covered);
	for (unsigned seed = 1; seed <= CONVERSATIONS; seed++) {
		int32_t before[TOKENS];

		kv_test_tokens(seed, 0, before, TOKENS);
		cr_expect_eq(kv_test_read(kv, before, TOKENS), present[seed], "leased: conversation %u", seed);
	}
	for (uint32_t i = 0; i < HOLDERS; i++)
		kv_attacker_unpin(&holder[i]);
	cr_expect_gt(kv_test_publish(kv, tokens, TOKENS), 0, "and there is room again");
	cr_expect_eq(kv_test_read(kv, tokens, TOKENS), TOKENS);
	close_both(kv, client);
	world_close(&world);
}

/* Publishes without end, in a process that is killed. */
static int publish_for_ever(void *context)
{
	const struct world *world = context;
	struct cnre_options options = {.size = sizeof options,
				       .socket = world->socket,
				       .reserve_bytes = NO_EXPERTS,
				       .timeout_ns = 20000000000LL};
	struct cnre_kv_identity identity = kv_test_identity();
	int32_t tokens[TOKENS];
	struct cnre_kv *kv;
	struct cnre *client;

	if (cnre_attach(&client, world->model, &options) < 0 || cnre_kv_open(client, NULL, &identity, &kv) < 0)
		return 1;
	for (unsigned seed = 1; seed < 1000000; seed++) {
		kv_test_tokens(seed % 20, 0, tokens, TOKENS);
		if (kv_test_commit(kv, tokens, TOKENS) == -EPIPE)
			return 0;
	}
	return 2;
}

/*
 * E8. Goal: whatever is found after a death is what was stored. Method: the manager is killed while it stores and saves,
 * again and again, and everything that can be matched is read.
 */
Test(system_kv_cases, a_manager_killed_while_it_stores_leaves_whole_blocks_or_none)
{
	enum { DEATHS = 6, CONVERSATIONS = 20 };
	char folder[160];
	const char *options[] = {"--kv-ram", "16M", "--kv-dir", folder, NULL};
	struct world world;
	int found = 0;

	open_world(&world);
	(void)snprintf(folder, sizeof folder, "%s/kv", world.directory);
	for (int death = 0; death < DEATHS; death++) {
		struct cnre *client;
		struct cnre_kv *kv;
		int32_t tokens[TOKENS];
		pid_t writer;

		cr_assert_gt(world_start(&world, options), 0, "start %d", death);
		client = world_attach(&world, NO_EXPERTS);
		kv = open_kv(client, NULL);
		for (unsigned seed = 0; seed < CONVERSATIONS; seed++) {
			int covered;

			kv_test_tokens(seed, 0, tokens, TOKENS);
			covered = kv_test_read(kv, tokens, TOKENS);
			cr_expect_geq(covered, 0, "after %d deaths, conversation %u: %d", death, seed, covered);
			found += covered > 0;
		}
		close_both(kv, client);
		writer = child_start(publish_for_ever, &world);
		(void)usleep(20000 + 30000 * (unsigned)death);
		(void)world_stop(&world, SIGKILL);
		(void)kill(writer, SIGKILL);
		(void)child_wait(writer);
	}
	cr_expect_gt(found, 0);
	world_close(&world);
}

/* ---- states that cannot be cut ---- */

/* The last block as a point, the others not. */
static void publish_point(struct cnre_kv *kv, const int32_t *tokens)
{
	struct cnre_kv_chain *chain;
	void *buffer;

	cr_assert_eq(cnre_kv_match(kv, tokens, 0, NULL, 0, &chain), 0);
	for (int at = 0; at < TOKENS; at += (int)KV_TEST_BLOCK) {
		cr_assert_eq(cnre_kv_stage(chain, tokens + at, KV_TEST_BLOCK, NULL, 0, KV_TEST_BYTES, &buffer), 0);
		kv_test_fill(buffer, KV_TEST_BYTES, tokens, (size_t)at + KV_TEST_BLOCK);
		cr_assert_eq(cnre_kv_commit(chain, 1000000, at + (int)KV_TEST_BLOCK == TOKENS ? CNRE_KV_POINT : 0), 0);
	}
	cnre_kv_release(chain);
}

static int has_all(void *context)
{
	return world_stat(context, "kv_published") == 2 * BLOCKS;
}

/* E10: 8 blocks are stored, 100 tokens are shared. */
Test(system_kv_cases, a_state_that_only_continues_is_not_cut_and_another_is)
{
	enum { SHARED = 100 };
	struct cnre_kv_identity exact = kv_test_identity();
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv, *points;
	int32_t tokens[TOKENS], other[TOKENS];
	int covered;

	exact.flags = CNRE_KV_CHECKPOINTS;
	open_world(&world);
	cr_assert_gt(world_start(&world, in_memory), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	points = open_as(client, NULL, &exact);
	kv_test_tokens(1, 0, tokens, TOKENS);
	memcpy(other, tokens, sizeof other);
	for (int i = SHARED; i < TOKENS; i++)
		other[i] = tokens[i] + 1;
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), BLOCKS);
	publish_point(points, tokens);
	cr_expect_eq(cnre_kv_route(kv, other, TOKENS, NULL, 0, NULL, 0), SHARED);
	cr_assert(world_wait_until(has_all, &world, 20));
	covered = cnre_kv_route(points, tokens, TOKENS, NULL, 0, NULL, 0);
	cr_expect_eq(covered, TOKENS, "all of it, up to the point at its end: %d", covered);
	covered = cnre_kv_route(points, tokens, TOKENS - 1, NULL, 0, NULL, 0);
	cr_expect_eq(covered, 0, "one token less: %d", covered);
	covered = cnre_kv_route(points, other, TOKENS, NULL, 0, NULL, 0);
	cr_expect_eq(covered, 0, "parts before the point: %d", covered);
	cnre_kv_close(points);
	close_both(kv, client);
	world_close(&world);
}

/* ---- leases ---- */

/* E12: looked up and dropped, ten thousand times; given back twice. */
Test(system_kv_cases, matches_that_are_dropped_leave_no_lease_and_a_second_release_takes_none)
{
	struct cnre_kv_chain *chain, *held;
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];

	open_world(&world);
	cr_assert_gt(world_start(&world, in_memory), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), BLOCKS);
	cr_assert_eq(cnre_kv_match(kv, tokens, TOKENS, NULL, 0, &held), TOKENS);
	for (int i = 0; i < 10000; i++) {
		cr_assert_eq(cnre_kv_match(kv, tokens, TOKENS, NULL, 0, &chain), TOKENS);
		if (i % 2 == 0)
			cr_assert_eq(cnre_kv_unpin(chain), 0);
		if (i % 4 == 0)
			cr_assert_eq(cnre_kv_unpin(chain), 0, "a second time is nothing");
		cnre_kv_release(chain);
	}
	cr_expect_eq(kv_number(&world, "\"pinned_blocks\""), BLOCKS, "the chain that is held");
	cnre_kv_release(held);
	cr_expect_eq(kv_number(&world, "\"pinned_blocks\""), 0);
	cr_expect_eq(cnre_kv_invalidate(kv), BLOCKS);
	cr_expect_eq(world_stat(&world, "kv_resident_blocks"), 0, "all can go");
	close_both(kv, client);
	world_close(&world);
}

/* ---- users ---- */

struct stranger {
	const struct world *world;
	const int32_t *tokens;
	char key[80]; /* a block of somebody else */
};

enum { STRANGER = 1001 };

/* What another user finds out about a prompt of ours: 0 nothing; a bit for each way. */
static int look_as_stranger(void *context)
{
	const struct stranger *stranger = context;
	struct cnre_options options = {.size = sizeof options,
				       .socket = stranger->world->socket,
				       .reserve_bytes = NO_EXPERTS,
				       .timeout_ns = 20000000000LL};
	const char *show[] = {"--socket", stranger->world->socket, "kv", "--json", NULL};
	const char *take[] = {"--socket",    stranger->world->socket,   "kv", "export",
			      stranger->key, "/tmp/cnre-never-written", NULL};
	struct cnre_kv_identity identity = kv_test_identity();
	char output[1 << 14] = "", name[40] = "";
	struct cnre_kv *kv;
	struct cnre *client;
	int found = 0;

	if (setresgid(STRANGER, STRANGER, STRANGER) < 0 || setresuid(STRANGER, STRANGER, STRANGER) < 0 ||
	    cnre_attach(&client, stranger->world->model, &options) < 0 ||
	    cnre_kv_open(client, "chat", &identity, &kv) < 0)
		return 128;
	found |= cnre_kv_route(kv, stranger->tokens, TOKENS, NULL, 0, name, sizeof name) != 0 || name[0] != '\0' ? 1
														 : 0;
	found |= kv_test_read(kv, stranger->tokens, TOKENS) != 0 ? 2 : 0;
	found |= cnre_kv_invalidate(kv) != 0 ? 4 : 0;
	found |= world_run("cnrectl", show, output, sizeof output) != 0 || strstr(output, "u0.chat") != NULL ||
				 strstr(output, stranger->key) != NULL
			 ? 8
			 : 0;
	found |= world_run("cnrectl", take, NULL, 0) == 0 ? 16 : 0;
	return found;
}

/* E14: the same name, the same prompt, another user. */
Test(system_kv_cases, another_user_learns_nothing_of_a_prompt)
{
	struct stranger stranger;
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];
	const char *at;

	if (geteuid() != 0)
		cr_skip_test("other users need root");
	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "16M", "--socket-mode", "0666", NULL}), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, "chat");
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), BLOCKS);
	cr_assert_eq(kv_test_read(kv, tokens, TOKENS), TOKENS);
	stranger = (struct stranger){.world = &world, .tokens = tokens};
	at = strstr(kv_text(&world), "\"key\"");
	cr_assert_not_null(at, "root sees it");
	(void)snprintf(stranger.key, sizeof stranger.key, "%.64s", at + 5 + strcspn(at + 5, "0123456789abcdef"));
	cr_expect_eq(child_run(look_as_stranger, &stranger), 0);
	cr_expect_eq(kv_test_read(kv, tokens, TOKENS), TOKENS, "and it is still there");
	close_both(kv, client);
	world_close(&world);
}

/* ---- processes that die, stop, or go on alone ---- */

static uint64_t resident_kib(pid_t pid)
{
	char path[64], line[256];
	uint64_t kib = 0;
	FILE *file;

	(void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	file = fopen(path, "r");
	while (file != NULL && fgets(line, sizeof line, file) != NULL)
		if (strncmp(line, "VmRSS:", 6) == 0)
			kib = strtoull(line + 6, NULL, 10);
	if (file != NULL)
		(void)fclose(file);
	return kib;
}

static uint64_t count_descriptors(pid_t pid)
{
	char path[64];
	uint64_t count = 0;
	DIR *dir;

	(void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	while (dir != NULL && readdir(dir) != NULL)
		count++;
	if (dir != NULL)
		(void)closedir(dir);
	return count;
}

/* Attaches, pins a chain, stages a block, and is killed in the middle of it. */
static int pin_and_stay(void *context)
{
	const struct world *world = context;
	struct cnre_options options = {.size = sizeof options,
				       .socket = world->socket,
				       .reserve_bytes = NO_EXPERTS,
				       .timeout_ns = 20000000000LL};
	struct cnre_kv_identity identity = kv_test_identity();
	struct cnre_kv_chain *chain;
	int32_t tokens[TOKENS];
	struct cnre_kv *kv;
	struct cnre *client;
	void *buffer;

	kv_test_tokens(1, 0, tokens, TOKENS);
	if (cnre_attach(&client, world->model, &options) < 0 || cnre_kv_open(client, NULL, &identity, &kv) < 0 ||
	    cnre_kv_match(kv, tokens, TOKENS, NULL, 0, &chain) != TOKENS)
		return 1;
	if (cnre_kv_stage(chain, tokens, KV_TEST_BLOCK, NULL, 0, KV_TEST_BYTES, &buffer) < 0)
		return 2;
	return raise(SIGKILL);
}

struct baseline {
	const struct world *world;
	uint64_t descriptors;
};

static int is_at_baseline(void *context)
{
	const struct baseline *before = context;

	return world_status((struct world *)(uintptr_t)before->world, "clients") == 0 &&
	       count_descriptors(before->world->manager) <= before->descriptors &&
	       kv_number(before->world, "\"pinned_blocks\"") == 0;
}

/* F2 */
Test(system_kv_cases, a_hundred_clients_that_die_with_a_pinned_chain_leave_nothing)
{
	struct baseline before;
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];
	uint64_t kib, kib_max = 16384; /* what a hundred leaked channels would be is 10 times as much */

	open_world(&world);
	cr_assert_gt(world_start(&world, in_memory), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), BLOCKS);
	close_both(kv, client);
	cr_assert_eq(child_run(pin_and_stay, &world), -SIGKILL);
	before = (struct baseline){.world = &world, .descriptors = UINT64_MAX};
	cr_assert(world_wait_until(is_at_baseline, &before, 10));
	(void)usleep(200000); /* workers unmap what is over */
	before.descriptors = count_descriptors(world.manager);
	kib = resident_kib(world.manager);
	for (int i = 0; i < 100; i++)
		cr_assert_eq(child_run(pin_and_stay, &world), -SIGKILL, "client %d", i);
	cr_expect(world_wait_until(is_at_baseline, &before, 10), "%llu descriptors, %llu before",
		  (unsigned long long)count_descriptors(world.manager), (unsigned long long)before.descriptors);
	cr_expect_leq(resident_kib(world.manager), kib + kib_max);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	cr_expect_eq(kv_test_read(kv, tokens, TOKENS), TOKENS);
	close_both(kv, client);
	world_close(&world);
}

static int pin_stop_and_read(void *context)
{
	const struct world *world = context;
	struct cnre_options options = {.size = sizeof options,
				       .socket = world->socket,
				       .reserve_bytes = NO_EXPERTS,
				       .timeout_ns = 20000000000LL};
	struct cnre_kv_identity identity = kv_test_identity();
	struct cnre_kv_chain *chain;
	int32_t tokens[TOKENS];
	struct cnre_kv *kv;
	struct cnre *client;
	const void *data;
	uint64_t bytes;

	kv_test_tokens(1, 0, tokens, TOKENS);
	if (cnre_attach(&client, world->model, &options) < 0 || cnre_kv_open(client, NULL, &identity, &kv) < 0 ||
	    cnre_kv_match(kv, tokens, TOKENS, NULL, 0, &chain) != TOKENS)
		return 1;
	(void)raise(SIGSTOP);
	for (size_t i = 0; i < BLOCKS; i++)
		if (cnre_kv_block(chain, i, 1000000000, &data, &bytes) != (int)KV_TEST_BLOCK ||
		    kv_test_check(data, bytes, tokens, (i + 1) * KV_TEST_BLOCK) != 0)
			return 2;
	cnre_kv_release(chain);
	kv_test_tokens(500, 0, tokens, TOKENS);
	if (kv_test_publish(kv, tokens, TOKENS) != BLOCKS)
		return 3;
	close_both(kv, client);
	return 0;
}

/* F4, F5: stopped with a chain, under pressure for memory many times over, it goes on with its bytes. */
Test(system_kv_cases, a_stopped_client_keeps_its_chain_under_pressure_and_goes_on)
{
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];
	pid_t child;
	int status;

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "4M", NULL}), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), BLOCKS);
	child = child_start(pin_stop_and_read, &world);
	cr_assert_eq(waitpid(child, &status, WUNTRACED), child);
	cr_assert(WIFSTOPPED(status));
	for (unsigned seed = 2; seed < 80; seed++) {
		kv_test_tokens(seed, 0, tokens, TOKENS);
		cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), BLOCKS);
	}
	cr_assert_gt(world_stat(&world, "kv_evictions"), 400);
	cr_assert_eq(cnre_kv_invalidate(kv) > 0, 1, "not even that takes it away");
	cr_assert_eq(kill(child, SIGCONT), 0);
	cr_expect_eq(child_wait(child), 0);
	cr_expect(world_wait_until(nothing_is_pinned, &world, 10));
	close_both(kv, client);
	world_close(&world);
}

/* F1: the manager ends, nobody follows; a chain that is pinned is read to its end. */
Test(system_kv_cases, a_pinned_chain_outlives_a_manager_that_ends)
{
	struct cnre_kv_chain *chain;
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];
	const void *data;
	uint64_t bytes;

	open_world(&world);
	cr_assert_gt(world_start(&world, in_memory), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), BLOCKS);
	cr_assert_eq(cnre_kv_match(kv, tokens, TOKENS, NULL, 0, &chain), TOKENS);
	for (size_t i = 0; i < BLOCKS; i++)
		cr_assert_eq(cnre_kv_block(chain, i, 0, &data, &bytes), (int)KV_TEST_BLOCK);
	(void)world_stop(&world, SIGTERM);
	for (size_t i = 0; i < BLOCKS; i++) {
		cr_expect_eq(cnre_kv_block(chain, i, 1000000000, &data, &bytes), (int)KV_TEST_BLOCK, "block %zu", i);
		cr_expect_eq(kv_test_check(data, bytes, tokens, (i + 1) * KV_TEST_BLOCK), 0, "block %zu", i);
	}
	cnre_kv_release(chain);
	cr_expect_lt(kv_test_publish(kv, tokens, TOKENS), 1, "nothing is stored any more, and nothing waits");
	close_both(kv, client);
	world_close(&world);
}
