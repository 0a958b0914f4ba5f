/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients of KV namespaces that mean harm. None may change or learn what is another's, stop the manager, keep its memory, or
 * make an honest client read wrong bytes or wait without end.
 */
#include "base/clock.h"
#include "kvstore/key.h"
#include "shm/access_log.h"
#include "tests/support/child.h"
#include "tests/support/kv.h"
#include "tests/support/kv_attacker.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(system_kv_hostile, .timeout = 240);

enum { TOKENS = 8 * (int)KV_TEST_BLOCK, BLOCKS = 8, NOBODY = 65534 };

#define NO_EXPERTS 1u /* as little reservation as there is */
#define ATTEMPTS 200  /* of a tenth of a second */

static void open_world(struct world *world)
{
	world_open(world);
	world_generate(world, NULL);
}

static struct cnre_kv *open_kv(struct cnre *client, const char *space)
{
	struct cnre_kv_identity identity = kv_test_identity();
	struct cnre_kv *kv = NULL;
	int r = cnre_kv_open(client, space, &identity, &kv);

	cr_assert_eq(r, 0, "cnre_kv_open: %s", strerror(-r));
	return kv;
}

/* The last one: keys are in order, so that the sum over all namespaces comes after each one's. */
static uint64_t kv_number(const struct world *world, const char *field)
{
	char output[1 << 16] = "", *at;
	const char *arguments[] = {"--socket", world->socket, "kv", "--json", NULL};

	cr_assert_eq(world_run("cnrectl", arguments, output, sizeof output), 0);
	at = strstr(output, field);
	for (char *next = at; next != NULL; next = strstr(next + 1, field))
		at = next;
	cr_assert_not_null(at, "%s in %s", field, output);
	at += strlen(field);
	return strtoull(at + strcspn(at, "0123456789"), NULL, 10);
}

static void attach_attacker(const struct world *world, struct attacker *attacker)
{
	int r = attacker_attach(attacker, world->socket, world->model);

	cr_assert_eq(r, 0, "attacker: %d", r);
}

static void open_attacker(struct attacker *attacker, const char *name, struct kv_attacker *kv)
{
	char text[CNRE_WIRE_KV_NAME_BYTES] = "";
	int r;

	if (name != NULL)
		(void)snprintf(text, sizeof text, "%s", name);
	r = kv_attacker_open(kv, attacker, name == NULL ? NULL : text, 4096);
	cr_assert_eq(r, 0, "KV_OPEN: %d %s", r, kv->message);
}

static int become_nobody(void)
{
	return setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
			       setresuid(NOBODY, NOBODY, NOBODY) == 0
		       ? 0
		       : -errno;
}

/* Publishes until it is there: what found no memory is handed over again, as an engine's next turn does. 0 or -errno. */
static int publish_stubbornly(struct cnre_kv *kv, const int32_t *tokens)
{
	for (int i = 0; i < ATTEMPTS; i++) {
		int r = kv_test_commit(kv, tokens, TOKENS);

		if (r < 0 && r != -ESTALE)
			return r;
		for (int k = 0; k < 100; k++) {
			if (cnre_kv_route(kv, tokens, TOKENS, NULL, 0, NULL, 0) == TOKENS)
				return 0;
			(void)usleep(1000);
		}
	}
	return -ETIMEDOUT;
}

/* ---- garbage ---- */

struct evil {
	const struct world *world;
	const char *space;
	unsigned seed;
	int ledger_too;
};

static int write_garbage(void *context)
{
	const struct evil *evil = context;
	char name[CNRE_WIRE_KV_NAME_BYTES] = "";
	struct attacker attacker;
	struct kv_attacker kv;

	if (evil->space != NULL)
		(void)snprintf(name, sizeof name, "%s", evil->space);
	if (attacker_attach(&attacker, evil->world->socket, evil->world->model) < 0 ||
	    kv_attacker_open(&kv, &attacker, evil->space == NULL ? NULL : name, 4096) < 0)
		return 100;
	kv_attacker_write_garbage(&kv, 600000, evil->seed, evil->ledger_too);
	return 0;
}

/* Seconds of garbage: a few here, sixty with CNRE_HOSTILE_SECONDS=60. */
static int seconds_of_garbage(void)
{
	const char *text = getenv("CNRE_HOSTILE_SECONDS");

	return text != NULL ? atoi(text) : 3;
}

/*
 * 0, or what went wrong: 1 attach, 2 a conversation was not stored, 3 a payload is another's, 4 an error. Without a
 * namespace of its own, what it stores may be evicted at once: it shares memory with who stores garbage.
 */
static int live_honestly(void *context)
{
	const struct evil *evil = context;
	struct cnre_options options = {.size = sizeof options,
				       .socket = evil->world->socket,
				       .reserve_bytes = NO_EXPERTS,
				       .timeout_ns = 20000000000LL};
	struct cnre_kv_identity identity = kv_test_identity();
	int64_t end_ns = cnre_clock_now_ns() + seconds_of_garbage() * CNRE_NS_PER_MS * 1000;
	int32_t tokens[TOKENS];
	struct cnre_kv *kv;
	struct cnre *client;

	if (cnre_attach(&client, evil->world->model, &options) < 0 ||
	    cnre_kv_open(client, evil->space, &identity, &kv) < 0)
		return 1;
	for (unsigned round = 0; cnre_clock_now_ns() < end_ns; round++) {
		int r;

		kv_test_tokens(1000 * evil->seed + round, 0, tokens, TOKENS);
		if (evil->space != NULL && publish_stubbornly(kv, tokens) < 0)
			return 2;
		r = evil->space != NULL ? 0 : kv_test_commit(kv, tokens, TOKENS);
		if (r < 0 && r != -ESTALE)
			return 4;
		r = kv_test_read(kv, tokens, TOKENS);
		if (r < 0)
			return r == -EBADMSG ? 3 : 4;
	}
	cnre_kv_close(kv);
	cnre_detach(client);
	return 0;
}

/* Two write over the slots of a namespace that an honest one uses, two over all of another, ledger included. */
Test(system_kv_hostile, garbage_in_channels_hurts_no_honest_client)
{
	struct world world;
	struct evil evil[4], honest[2];
	pid_t bad[4], good[2];
	int r;

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "16M", NULL}), 0);
	for (unsigned i = 0; i < 4; i++) {
		evil[i] =
			(struct evil){.world = &world, .space = i < 2 ? NULL : "evil", .seed = i, .ledger_too = i >= 2};
		bad[i] = child_start(write_garbage, &evil[i]);
	}
	for (unsigned i = 0; i < 2; i++) {
		honest[i] = (struct evil){.world = &world, .space = i == 0 ? NULL : "honest", .seed = i + 1};
		good[i] = child_start(live_honestly, &honest[i]);
	}
	for (unsigned i = 0; i < 2; i++)
		cr_expect((r = child_wait(good[i])) == 0, "client %u, see live_honestly: %d", i, r);
	for (unsigned i = 0; i < 4; i++) {
		(void)kill(bad[i], SIGKILL);
		cr_expect_eq(child_wait(bad[i]), -SIGKILL, "it was to be killed, not to end by itself");
	}
	cr_assert_eq(kill(world.manager, 0), 0, "the manager is gone");
	cr_expect_gt(world_stat(&world, "requests_invalid"), 0);
	world_close(&world);
}

/* ---- who holds everything ---- */

/*
 * Goal: who leases all of the memory loses its leases, although nobody wants a block of its own namespace. Method: one
 * namespace has the whole budget, all of it leased; a client of another one publishes.
 */
Test(system_kv_hostile, who_pins_everything_loses_its_channel_and_others_go_on)
{
	struct kv_attacker evil;
	struct attacker attacker;
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv, *full;
	int32_t tokens[TOKENS];

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "8M", NULL}), 0);
	client = world_attach(&world, NO_EXPERTS);
	full = open_kv(client, "evil");
	for (unsigned seed = 1; seed <= 30; seed++) {
		kv_test_tokens(seed, 0, tokens, TOKENS);
		cr_assert_eq(kv_test_publish(full, tokens, TOKENS), BLOCKS);
	}
	cr_assert_eq(kv_number(&world, "\"pool_bytes\""), 8u << 20, "it has the whole budget");
	attach_attacker(&world, &attacker);
	open_attacker(&attacker, "evil", &evil);
	kv_attacker_pin(&evil, 0, 1);
	kv = open_kv(client, "honest");
	kv_test_tokens(99, 0, tokens, TOKENS);
	cr_expect_eq(publish_stubbornly(kv, tokens), 0);
	cr_expect_eq(kv_test_read(kv, tokens, TOKENS), TOKENS);
	open_attacker(&attacker, "evil", &evil); /* a new channel, in which nothing is leased */
	cr_expect_eq(kv_number(&world, "\"pinned_blocks\""), 0);
	cnre_kv_close(kv);
	cnre_kv_close(full);
	cnre_detach(client);
	world_close(&world);
}

/* Opens as many namespaces as it may, stores a block in each, and stays. Or how many; 100 and more: what went wrong. */
static int take_segments(void *context)
{
	const struct world *world = context;
	static struct kv_attacker kv[16];
	struct attacker attacker[2];
	int stored = 0;

	if (become_nobody() < 0)
		return 100;
	for (int i = 0; i < 16; i++) {
		char name[CNRE_WIRE_KV_NAME_BYTES] = "";
		struct cnre_kv_request request = kv_attacker_request(1, i, 4096);

		(void)snprintf(name, sizeof name, "n%d", i);
		if (i % 8 == 0 && attacker_attach(&attacker[i / 8], world->socket, world->model) < 0)
			return 101;
		if (kv_attacker_open(&kv[i], &attacker[i / 8], name, 4096) < 0)
			return 102;
		stored += kv_attacker_publish(&kv[i], &request) == 0;
	}
	return stored < 8 ? stored : raise(SIGSTOP); /* for most of them there is memory, whoever else wants some */
}

/* A user's namespaces are one user's: sixteen of them with a block each are not the whole memory. */
Test(system_kv_hostile, many_namespaces_of_one_user_leave_room_for_another)
{
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];
	pid_t child;
	int status;

	if (geteuid() != 0)
		cr_skip_test("other users need root");
	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "32M", "--socket-mode", "0666", NULL}), 0);
	child = child_start(take_segments, &world);
	cr_assert_eq(waitpid(child, &status, WUNTRACED), child);
	cr_assert(WIFSTOPPED(status), "%d", status);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	for (unsigned seed = 1; seed <= 20; seed++) {
		kv_test_tokens(seed, 0, tokens, TOKENS);
		cr_expect_eq(publish_stubbornly(kv, tokens), 0, "conversation %u", seed);
	}
	cr_expect_eq(kv_test_read(kv, tokens, TOKENS), TOKENS);
	(void)kill(child, SIGKILL);
	cr_expect_eq(child_wait(child), -SIGKILL);
	cnre_kv_close(kv);
	cnre_detach(client);
	world_close(&world);
}

/* ---- messages ---- */

static int flood_with_opens(void *context)
{
	const struct world *world = context;
	char name[CNRE_WIRE_KV_NAME_BYTES];
	struct attacker attacker;
	struct kv_attacker kv;
	int r;

	if (become_nobody() < 0 || attacker_attach(&attacker, world->socket, world->model) < 0)
		return 100;
	memset(name, 'a', sizeof name);
	if (kv_attacker_open(&kv, &attacker, name, 4096) != -EINVAL)
		return 1; /* no end */
	memset(name, 0xff, sizeof name);
	if (kv_attacker_open(&kv, &attacker, name, 4096) != -EINVAL)
		return 2;
	for (unsigned i = 0; i < 4; i++) {
		static const char *const bad[] = {"", "..", "a/b", ".hidden"};

		memset(name, 0, sizeof name);
		(void)snprintf(name, sizeof name, "%s", bad[i]);
		if (kv_attacker_open(&kv, &attacker, name, 4096) != -EINVAL)
			return 10 + (int)i;
	}
	if (kv_attacker_open(&kv, &attacker, NULL, UINT64_MAX) != -E2BIG)
		return 3;
	for (unsigned i = 0; i < 200; i++) {
		memset(name, 0, sizeof name);
		(void)snprintf(name, sizeof name, "flood%u", i);
		r = kv_attacker_open(&kv, &attacker, name, i);
		if (r != (i < CNRE_KV_NAMESPACES_PER_CLIENT ? 0 : -ENOSPC))
			return 20 + (int)i % 64;
	}
	memset(name, 0, sizeof name);
	(void)snprintf(name, sizeof name, "flood1");
	return kv_attacker_open(&kv, &attacker, name, 4096) == 0 ? 0 : 4; /* what it has, it gets again */
}

Test(system_kv_hostile, floods_of_opens_are_refused_and_leave_namespaces_for_others)
{
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];

	if (geteuid() != 0)
		cr_skip_test("other users need root");
	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "16M", "--socket-mode", "0666", NULL}), 0);
	cr_expect_eq(child_run(flood_with_opens, &world), 0, "see flood_with_opens");
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, "mine");
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_expect_eq(publish_stubbornly(kv, tokens), 0);
	cnre_kv_close(kv);
	cnre_detach(client);
	world_close(&world);
}

/* Numbers that are another's: a segment of them is their prompts, an invalidation their work. */
static int ask_for_numbers(void *context)
{
	const struct world *world = context;
	unsigned char root[CNRE_KV_KEY_BYTES] = {0};
	struct attacker attacker;
	struct kv_attacker own;
	int fd;

	if (become_nobody() < 0 || attacker_attach(&attacker, world->socket, world->model) < 0 ||
	    kv_attacker_open(&own, &attacker, NULL, 4096) < 0)
		return 100;
	for (uint32_t number = 0; number < CNRE_KV_NAMESPACES_MAX + 4; number++) {
		if (number == own.number)
			continue;
		if (kv_attacker_segments(&attacker, number, 0, &fd) != -ENOENT || fd >= 0)
			return 1;
		if (kv_attacker_invalidate(&attacker, number, root) != -ENOENT)
			return 2;
	}
	if (kv_attacker_segments(&attacker, UINT32_MAX, UINT32_MAX, &fd) != -ENOENT || fd >= 0)
		return 3;
	if (kv_attacker_segments(&attacker, own.number, UINT32_MAX, &fd) != 0 || fd >= 0)
		return 4;
	return 0;
}

Test(system_kv_hostile, numbers_of_other_namespaces_give_neither_segments_nor_an_invalidation)
{
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];

	if (geteuid() != 0)
		cr_skip_test("other users need root");
	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "16M", "--socket-mode", "0666", NULL}), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), BLOCKS);
	cr_expect_eq(child_run(ask_for_numbers, &world), 0, "see ask_for_numbers");
	cr_expect_eq(kv_test_read(kv, tokens, TOKENS), TOKENS);
	cnre_kv_close(kv);
	cnre_detach(client);
	world_close(&world);
}

/* ---- segments ---- */

static int find_ways(void *context)
{
	const struct world *world = context;
	struct cnre_kv_request request = kv_attacker_request(1, 1, 4096);
	struct attacker attacker;
	struct kv_attacker kv;
	int ways, pool;

	if (become_nobody() < 0 || attacker_attach(&attacker, world->socket, world->model) < 0 ||
	    kv_attacker_open(&kv, &attacker, NULL, 4096) < 0 || kv_attacker_publish(&kv, &request) != 0 ||
	    kv_attacker_segments(&attacker, kv.number, 0, &pool) != 0 || pool < 0)
		return 100;
	ways = attacker_ways_to_write(kv.fd[CNRE_KV_FD_DIRECTORY]) + attacker_ways_to_write(pool);
	ways += attacker_ways_to_resize(kv.fd[CNRE_KV_FD_CHANNEL]) + attacker_ways_to_resize(kv.fd[CNRE_KV_FD_STAGING]);
	return ways;
}

Test(system_kv_hostile, nobody_can_write_directory_or_pool_nor_resize_its_own_segments)
{
	struct world world;

	if (geteuid() != 0)
		cr_skip_test("needs root to become another user");
	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "16M", "--socket-mode", "0666", NULL}), 0);
	cr_expect_eq(child_run(find_ways, &world), 0, "counts ways that worked; 100: it could not attach");
	world_close(&world);
}

static uint64_t staged_blocks(const struct kv_attacker *kv)
{
	struct stat status;

	cr_assert_eq(fstat(kv->fd[CNRE_KV_FD_STAGING], &status), 0);
	return (uint64_t)status.st_blocks;
}

/* Pages of a staging segment come from its client. A copy out of a hole makes none, and holes in the channel hurt nobody. */
Test(system_kv_hostile, holes_in_staging_and_channel_cost_the_manager_nothing)
{
	struct kv_attacker evil;
	struct attacker attacker;
	struct world world;

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "16M", NULL}), 0);
	attach_attacker(&world, &attacker);
	open_attacker(&attacker, NULL, &evil);
	cr_assert_eq(staged_blocks(&evil), 0);
	for (int32_t i = 0; i < 50; i++) {
		struct cnre_kv_request request = kv_attacker_request(1, i, 1u << 20);

		request.staging_off = (uint64_t)(i % 16) << 20;
		cr_assert_eq(kv_attacker_publish(&evil, &request), 0, "block %d", i);
	}
	cr_expect_eq(staged_blocks(&evil), 0, "pages that nobody made");
	for (int32_t i = 100; i < 200; i++) {
		struct cnre_kv_request request = kv_attacker_request(1, i, 1u << 20);

		memset(evil.staging, i, 1u << 20);
		kv_attacker_post(&evil, 0, &request);
		(void)fallocate(evil.fd[CNRE_KV_FD_STAGING], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1u << 20);
		(void)fallocate(evil.fd[CNRE_KV_FD_CHANNEL], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1u << 20);
	}
	cr_expect_eq(kill(world.manager, 0), 0, "the manager is gone");
	cr_expect_leq(kv_number(&world, "\"pool_bytes\""), 16u << 20);
	world_close(&world);
}

/* ---- requests ---- */

/* Every block that is found has the name of its own content, and lies within the pool. How many there are. */
static uint32_t check_names(const struct kv_attacker *kv)
{
	const struct cnre_kv_entry *entry = cnre_kv_entries(kv->directory);
	uint32_t count = 0;

	for (uint32_t i = 0; i < kv->directory->entry_count; i++) {
		struct kv_media_mark mark = {.first = entry[i].media_first};
		unsigned char key[KV_KEY_BYTES];

		if (atomic_load_explicit(&entry[i].is_indexed, memory_order_acquire) == 0)
			continue;
		memcpy(mark.digest, entry[i].media, sizeof mark.digest);
		cr_expect_eq(kv_key_block(entry[i].parent, entry[i].token, entry[i].token_count, &mark, key), 0);
		cr_expect_eq(memcmp(key, entry[i].key, sizeof key), 0, "entry %u", i);
		count++;
	}
	return count;
}

/* The slot says something else while its block is copied: what was asked first, or nothing. */
Test(system_kv_hostile, a_slot_changed_during_its_copy_is_stored_under_no_wrong_name)
{
	struct kv_attacker evil;
	struct attacker attacker;
	struct world world;
	uint32_t changed = 0;

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "64M", NULL}), 0);
	attach_attacker(&world, &attacker);
	open_attacker(&attacker, NULL, &evil);
	memset(evil.staging, 1, 8u << 20);
	for (int32_t i = 0; i < 60; i++) {
		struct cnre_kv_request request = kv_attacker_request(1, 100 * i, 8u << 20);
		int r;

		kv_attacker_post(&evil, 0, &request);
		(void)usleep(100u * (unsigned)(i % 20));
		for (int word = 0; word < 64; word++) /* tokens, in the last words */
			atomic_store_explicit(&evil.channel->slot[0].word[CNRE_KV_REQUEST_WORDS - 128 + word], 7,
					      memory_order_relaxed);
		r = kv_attacker_await(&evil, 0);
		cr_assert(r == 0 || r == 1 || r == -ECANCELED, "round %d: %d", i, r);
		changed += r == -ECANCELED;
	}
	cr_expect_gt(check_names(&evil), 0);
	cr_expect_gt(changed, 0, "no change hit a copy: the test shows nothing");
	world_close(&world);
}

struct lie {
	const char *what;
	struct cnre_kv_request request;
	int wanted;
};

#define LIES 24u

static uint32_t fill_lies(struct lie lie[LIES], const struct kv_attacker *kv)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < LIES; i++)
		lie[i] = (struct lie){.request = kv_attacker_request(2, 1000 + 100 * (int32_t)i, 4096),
				      .wanted = -EINVAL};
	lie[n].what = "no kind", lie[n++].request.kind = 0;
	lie[n].what = "a kind that is none", lie[n++].request.kind = 3;
	lie[n].what = "no tokens", lie[n++].request.count = 0;
	lie[n].what = "more tokens than a block has", lie[n++].request.count = 17;
	lie[n].what = "wild count", lie[n++].request.count = UINT32_MAX;
	lie[n].what = "no block", lie[n++].request.block_tokens = 0;
	lie[n].what = "too large a block", lie[n].request.block_tokens = 257, lie[n++].request.count = 257;
	lie[n].what = "no bytes", lie[n++].request.bytes = 0;
	lie[n].what = "more than is staged", lie[n++].request.bytes = kv->staging_bytes + 1;
	lie[n].what = "wild bytes", lie[n++].request.bytes = UINT64_MAX;
	lie[n].what = "beyond the end", lie[n++].request.staging_off = kv->staging_bytes - 4095;
	lie[n].what = "wild offset", lie[n++].request.staging_off = UINT64_MAX - 4095;
	lie[n].what = "more than may be pinned", lie[n].request.bytes = kv->directory->pin_bytes_max + 1,
	lie[n++].wanted = -E2BIG;
	lie[n].what = "media behind the block", lie[n++].request.media_first = 17;
	lie[n].what = "media without digest", lie[n++].request.media_first = 3;
	lie[n].what = "a digest without media", lie[n++].request.media[5] = 1;
	lie[n].what = "unknown flags", lie[n++].request.flags = 1u << 7;
	lie[n].what = "a root that is no parent", lie[n++].request.parent[0] ^= 1;
	lie[n].what = "no multiple of a block", lie[n++].request.position = 8;
	lie[n].what = "nothing before it", lie[n].request.position = 16, lie[n++].wanted = -ESTALE;
	lie[n].what = "the last position", lie[n].request.position = INT64_MAX & ~15ll, lie[n++].wanted = -ESTALE;
	lie[n].what = "beyond the last", lie[n++].request.position = UINT64_MAX & ~15ull;
	return n;
}

/* Parents of another root, another length or place; and one that is its own. */
static void tell_bad_parents(struct kv_attacker *kv)
{
	struct kv_media_mark mark = {.first = 16};
	struct cnre_kv_request first = kv_attacker_request(3, 1, 4096), part = first, next;
	unsigned char key[KV_KEY_BYTES];

	cr_assert_eq(kv_attacker_publish(kv, &first), 0);
	cr_assert_eq(kv_key_block(first.parent, first.token, first.count, &mark, key), 0);
	next = kv_attacker_request(4, 50, 4096);
	next.position = 16;
	memcpy(next.parent, key, sizeof key);
	cr_expect_eq(kv_attacker_publish(kv, &next), -EINVAL, "a parent of another root");
	memcpy(next.root, first.root, sizeof next.root);
	next.position = 32;
	cr_expect_eq(kv_attacker_publish(kv, &next), -EINVAL, "not where it ends");
	next.position = 8, next.block_tokens = 8, next.count = 8, next.media_first = 8;
	cr_expect_eq(kv_attacker_publish(kv, &next), -EINVAL, "blocks of another length");
	part.count = part.media_first = mark.first = 5;
	part.token[0] = 77;
	cr_assert_eq(kv_attacker_publish(kv, &part), 0);
	cr_assert_eq(kv_key_block(part.parent, part.token, part.count, &mark, key), 0);
	next = kv_attacker_request(3, 60, 4096);
	next.position = 16;
	memcpy(next.parent, key, sizeof key);
	cr_expect_eq(kv_attacker_publish(kv, &next), -EINVAL, "a part is nobody's parent");
	next = first;
	next.position = 16;
	memcpy(next.parent, key, sizeof key);
	mark.first = 16;
	cr_assert_eq(kv_key_block(next.parent, next.token, next.count, &mark, key), 0);
	memcpy(next.parent, key, sizeof key);
	cr_expect_eq(kv_attacker_publish(kv, &next), -ESTALE, "its own parent");
}

Test(system_kv_hostile, requests_that_lie_store_nothing)
{
	struct lie lie[LIES];
	struct kv_attacker evil;
	struct attacker attacker;
	struct world world;
	uint32_t count;

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "16M", NULL}), 0);
	attach_attacker(&world, &attacker);
	open_attacker(&attacker, NULL, &evil);
	count = fill_lies(lie, &evil);
	for (uint32_t i = 0; i < count; i++) {
		int r = kv_attacker_publish(&evil, &lie[i].request);

		cr_expect_eq(r, lie[i].wanted, "%s: %d", lie[i].what, r);
	}
	cr_expect_eq(check_names(&evil), 0);
	tell_bad_parents(&evil);
	cr_expect_eq(check_names(&evil), 2);
	world_close(&world);
}

/* Loads of what it does not lease, of nothing, of everything; uses of entries that are not there. */
Test(system_kv_hostile, loads_and_uses_of_wild_entries_are_ignored)
{
	struct cnre_kv_request load = {.kind = CNRE_KV_LOAD, .count = UINT32_MAX};
	struct kv_attacker evil;
	struct attacker attacker;
	struct world world;

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "16M", NULL}), 0);
	attach_attacker(&world, &attacker);
	open_attacker(&attacker, NULL, &evil);
	for (uint32_t i = 0; i < CNRE_KV_TOKENS_MAX; i++)
		load.token[i] = (int32_t)(i * 0x01010101u);
	cr_expect_eq(kv_attacker_publish(&evil, &load), 0);
	for (uint64_t i = 0; i < 100000; i++)
		cnre_access_log_put(cnre_kv_log(evil.channel), i, CNRE_LOG_KV_USE, 0xffff, (uint32_t)(i * 0x9e3779b9u));
	cr_expect_eq(kv_attacker_publish(&evil, &load), 0);
	cr_expect_eq(world_stat(&world, "kv_hit_tokens"), 0, "of entries that name nothing");
	world_close(&world);
}

/* ---- nobody waits for ever ---- */

static int nothing_to_save(void *context)
{
	const struct world *world = context;

	return kv_number(world, "\"disk_blocks\"") == kv_number(world, "\"blocks\"");
}

/*
 * Goal: who waits for a block's file when the block is forgotten hears so. Method: the manager sees the invalidation, which
 * comes over a socket, before the request in the slot, since it is stopped while both are sent.
 */
Test(system_kv_hostile, who_waits_for_a_block_that_is_forgotten_hears_so)
{
	char folder[160];
	const char *options[] = {"--kv-ram", "16M", "--kv-dir", folder, NULL};
	struct cnre_kv_chain *chain;
	struct kv_attacker evil;
	struct attacker attacker;
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];
	const void *data;
	uint64_t bytes;
	int r;

	open_world(&world);
	(void)snprintf(folder, sizeof folder, "%s/kv", world.directory);
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_gt(world_start(&world, options), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), BLOCKS);
	cr_assert(world_wait_until(nothing_to_save, &world, 20));
	cnre_kv_close(kv);
	cnre_detach(client);
	(void)world_stop(&world, SIGKILL);
	cr_assert_gt(world_start(&world, options), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	cr_assert_eq(kv_test_await(kv, tokens, TOKENS, TOKENS), TOKENS);
	attach_attacker(&world, &attacker);
	open_attacker(&attacker, NULL, &evil);
	(void)usleep(50000); /* it sleeps */
	cr_assert_eq(kill(world.manager, SIGSTOP), 0);
	cr_assert_eq(cnre_kv_match(kv, tokens, TOKENS, NULL, 0, &chain), TOKENS);
	for (uint32_t i = 0; i < evil.directory->entry_count; i++)
		if (atomic_load_explicit(&cnre_kv_entries(evil.directory)[i].is_indexed, memory_order_acquire) != 0) {
			cr_assert_eq(kv_attacker_send_invalidate(&attacker, evil.number,
								 cnre_kv_entries(evil.directory)[i].root),
				     0);
			break;
		}
	cr_assert_eq(kill(world.manager, SIGCONT), 0);
	r = cnre_kv_block(chain, BLOCKS - 1, 10000000000LL, &data, &bytes);
	cr_expect(r == -EIO || r == (int)KV_TEST_BLOCK, "an error, or the block where the read was first: %d", r);
	cnre_kv_release(chain);
	cr_expect_eq(kv_test_publish(kv, tokens, TOKENS), BLOCKS);
	cnre_kv_close(kv);
	cnre_detach(client);
	world_close(&world);
}

/* The machine has no memory for one more segment: blocks give way instead, and nobody is told "on its way" for ever. */
Test(system_kv_hostile, where_no_segment_can_be_made_blocks_are_evicted)
{
	struct rlimit none = {.rlim_cur = 1 << 20, .rlim_max = RLIM_INFINITY};
	uint64_t before;
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];

#ifdef __SANITIZE_ADDRESS__
	cr_skip_test("the sanitizer ends a manager that it can give no memory");
#endif
	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "32M", NULL}), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), BLOCKS);
	before = kv_number(&world, "\"pool_bytes\"");
	cr_assert_eq(prlimit(world.manager, RLIMIT_AS, &none, NULL), 0);
	for (unsigned seed = 2; seed < 20; seed++) {
		kv_test_tokens(seed, 0, tokens, TOKENS);
		cr_assert_eq(publish_stubbornly(kv, tokens), 0, "conversation %u", seed);
	}
	cr_expect_eq(kv_number(&world, "\"pool_bytes\""), before);
	cr_expect_gt(world_stat(&world, "kv_evictions"), 0);
	none.rlim_cur = RLIM_INFINITY;
	cr_assert_eq(prlimit(world.manager, RLIMIT_AS, &none, NULL), 0);
	cnre_kv_close(kv);
	cnre_detach(client);
	world_close(&world);
}

/* One leased block keeps its segment, not all others'. */
Test(system_kv_hostile, a_lease_in_one_segment_keeps_no_other_from_being_given_back)
{
	struct kv_attacker evil;
	struct attacker attacker;
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[TOKENS];
	const char *set[] = {"--socket", world.socket, "set", "kv-ram", "4M", NULL};

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--kv-ram", "32M", NULL}), 0);
	client = world_attach(&world, NO_EXPERTS);
	kv = open_kv(client, NULL);
	for (unsigned seed = 1; seed <= 60; seed++) {
		kv_test_tokens(seed, 0, tokens, TOKENS);
		cr_assert_eq(kv_test_publish(kv, tokens, TOKENS), BLOCKS);
	}
	cr_assert_geq(kv_number(&world, "\"pool_bytes\""), 16u << 20);
	attach_attacker(&world, &attacker);
	open_attacker(&attacker, NULL, &evil);
	for (uint32_t i = 0; i < evil.directory->entry_count; i++) {
		uint64_t place =
			atomic_load_explicit(&cnre_kv_entries(evil.directory)[i].load.place, memory_order_acquire);

		if (cnre_place_segment(place) ==
		    atomic_load_explicit(&evil.directory->segment_count, memory_order_acquire) - 1)
			(void)atomic_fetch_add_explicit(&cnre_kv_ledger(evil.channel)[i], 1, memory_order_seq_cst);
	}
	cr_assert_eq(world_run("cnrectl", set, NULL, 0), 0);
	cr_expect_leq(kv_number(&world, "\"pool_bytes\""), 4u << 20);
	kv_attacker_unpin(&evil);
	kv_test_tokens(99, 0, tokens, TOKENS);
	cr_expect_eq(publish_stubbornly(kv, tokens), 0, "and it goes on within less");
	cnre_kv_close(kv);
	cnre_detach(client);
	world_close(&world);
}
