/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders of prefixes on drives that are full, read-only, gone, broken, hung or damaged, and one that two managers share:
 * what is lost is what lay there and nothing else, no wrong byte is read, and `cnrectl kv` says what is wrong.
 */
#include "kvstore/block.h"
#include "tests/support/child.h"
#include "tests/support/hung_drive.h"
#include "tests/support/kv.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

TestSuite(system_kv_faults, .timeout = 120);

enum { BLOCKS = 21, TOKENS = 20 * (int)KV_TEST_BLOCK + 5 };

#define NO_EXPERTS 1u
#define SOON_S 20
#define WAIT_NS 20000000000LL
#define BRIEFLY_NS 200000000LL
#define PATH_BYTES 384u

struct scene { /* a manager, its folder, and a client */
	struct world world;
	char folder[160];
	struct cnre *client;
	struct cnre_kv *kv;
};

static void attach(struct scene *scene)
{
	struct cnre_kv_identity identity = kv_test_identity();

	scene->client = world_attach(&scene->world, NO_EXPERTS);
	cr_assert_eq(cnre_kv_open(scene->client, NULL, &identity, &scene->kv), 0);
}

static void detach(struct scene *scene)
{
	cnre_kv_close(scene->kv);
	cnre_detach(scene->client);
}

static void start_with(struct scene *scene, const char *kv_ram)
{
	const char *options[] = {"--kv-ram", kv_ram, "--kv-dir", scene->folder, "--io", "auto", NULL};

	cr_assert_gt(world_start(&scene->world, options), 0);
	attach(scene);
}

static void make(struct scene *scene)
{
	*scene = (struct scene){0};
	world_open(&scene->world);
	world_generate(&scene->world, NULL);
	(void)snprintf(scene->folder, sizeof scene->folder, "%s/kv", scene->world.directory);
}

static void start(struct scene *scene)
{
	start_with(scene, "16M");
}

static void stop(struct scene *scene)
{
	detach(scene);
	cr_assert_eq(world_stop(&scene->world, SIGTERM), 0);
}

/* A new manager that has nothing in memory. */
static void start_cold(struct scene *scene)
{
	stop(scene);
	start(scene);
}

static void end(struct scene *scene)
{
	detach(scene);
	world_close(&scene->world);
}

/* ---- what `cnrectl kv` says ---- */

static json_t *report(const struct scene *scene)
{
	static char output[1 << 17];
	const char *arguments[] = {"--socket", scene->world.socket, "kv", "--json", NULL};
	json_t *report;

	cr_assert_eq(world_run("cnrectl", arguments, output, sizeof output), 0, "%s", output);
	report = json_loads(output, 0, NULL);
	cr_assert_not_null(report, "%.200s", output);
	return report;
}

static long long number(const struct scene *scene, const char *field)
{
	json_t *whole = report(scene), *space = json_array_get(json_object_get(whole, "namespaces"), 0);
	long long value = json_integer_value(json_object_get(space, field));

	json_decref(whole);
	return value;
}

static long long disk_number(const struct scene *scene, const char *field)
{
	json_t *whole = report(scene);
	long long value = json_integer_value(json_object_get(json_object_get(whole, "disk"), field));

	json_decref(whole);
	return value;
}

static int disk_says(const struct scene *scene, const char *text)
{
	json_t *whole = report(scene);
	const char *said = json_string_value(json_object_get(json_object_get(whole, "disk"), "last_error"));
	int found = said != NULL && strstr(said, text) != NULL;

	if (!found)
		(void)fprintf(stderr, "last_error: %s\n", said != NULL ? said : "(none)");
	json_decref(whole);
	return found;
}

struct wanted {
	const struct scene *scene;
	const char *field;
	long long value;
};

static int is_at_least(void *context)
{
	const struct wanted *wanted = context;

	return number(wanted->scene, wanted->field) >= wanted->value;
}

static int is_at_most(void *context)
{
	const struct wanted *wanted = context;

	return number(wanted->scene, wanted->field) <= wanted->value;
}

static void await_at_least(const struct scene *scene, const char *field, long long value)
{
	struct wanted wanted = {.scene = scene, .field = field, .value = value};

	cr_assert(world_wait_until(is_at_least, &wanted, SOON_S), "%s is %lld, not %lld", field, number(scene, field),
		  value);
}

static void await_at_most(const struct scene *scene, const char *field, long long value)
{
	struct wanted wanted = {.scene = scene, .field = field, .value = value};

	cr_assert(world_wait_until(is_at_most, &wanted, SOON_S), "%s is %lld, not %lld", field, number(scene, field),
		  value);
}

static int is_scanned(void *context)
{
	json_t *whole = report(context), *space = json_array_get(json_object_get(whole, "namespaces"), 0);
	int scanned = json_is_true(json_object_get(space, "scanned"));

	json_decref(whole);
	return scanned;
}

static void await_scanned(struct scene *scene)
{
	cr_assert(world_wait_until(is_scanned, scene, SOON_S));
}

/* ---- what clients see ---- */

static void publish(struct scene *scene, unsigned seed)
{
	int32_t tokens[TOKENS];
	int r;

	kv_test_tokens(seed, 0, tokens, TOKENS);
	r = kv_test_publish(scene->kv, tokens, TOKENS);
	cr_assert_geq(r, 0, "conversation %u: %s", seed, strerror(-r));
}

static void publish_and_save(struct scene *scene, unsigned first, unsigned last)
{
	for (unsigned seed = first; seed <= last; seed++)
		publish(scene, seed);
	await_at_least(scene, "disk_blocks", BLOCKS * (long long)last);
}

static int covered(struct scene *scene, unsigned seed)
{
	int32_t tokens[TOKENS];

	kv_test_tokens(seed, 0, tokens, TOKENS);
	return cnre_kv_route(scene->kv, tokens, TOKENS, NULL, 0, NULL, 0);
}

/* How many blocks of a conversation are read, every byte right; those that are not must say so. */
static int read_blocks(struct scene *scene, unsigned seed)
{
	struct cnre_kv_chain *chain;
	int32_t tokens[TOKENS];
	const void *data;
	uint64_t bytes;
	int read = 0, r;

	kv_test_tokens(seed, 0, tokens, TOKENS);
	cr_assert_geq(cnre_kv_match(scene->kv, tokens, TOKENS, NULL, 0, &chain), 0);
	for (size_t i = 0; (r = cnre_kv_block(chain, i, WAIT_NS, &data, &bytes)) != 0; i++) {
		size_t end_of = (i + 1) * KV_TEST_BLOCK < (size_t)TOKENS ? (i + 1) * KV_TEST_BLOCK : (size_t)TOKENS;

		if (r < 0)
			continue;
		cr_assert_eq(kv_test_check(data, bytes, tokens, end_of), 0, "wrong bytes in block %zu of %u", i, seed);
		read++;
	}
	cnre_kv_release(chain);
	return read;
}

/*
 * A file that is gone is noticed when it is read, and then its block is forgotten and computed again; what lay behind it is
 * not looked at before that, so it may take several turns of a conversation.
 */
static void compute_again(struct scene *scene, unsigned seed)
{
	struct timespec pause = {.tv_nsec = 20000000};
	int32_t tokens[TOKENS];

	kv_test_tokens(seed, 0, tokens, TOKENS);
	for (unsigned i = 0; i < 10 * BLOCKS && read_blocks(scene, seed) != BLOCKS; i++) {
		int r = kv_test_commit(scene->kv, tokens, TOKENS);

		cr_assert(r >= 0 || r == -ESTALE, "conversation %u: %s", seed, strerror(-r));
		(void)nanosleep(&pause, NULL);
	}
	cr_expect_eq(read_blocks(scene, seed), BLOCKS, "conversation %u", seed);
}

static void experts_go_on(struct scene *scene)
{
	struct cnre_expert expert;

	for (uint32_t i = 0; i < 16; i++) {
		cr_assert_eq(cnre_acquire(scene->client, i % 4, i, WAIT_NS, &expert), 0);
		cr_assert_eq(cnre_release(scene->client, &expert), 0);
	}
}

static void set_kv_ram(struct scene *scene, const char *bytes)
{
	const char *const arguments[] = {"--socket", scene->world.socket, "set", "kv-ram", bytes, NULL};

	(void)world_run("cnrectl", arguments, NULL, 0);
}

/* Most of what has a file leaves memory. */
static void squeeze(struct scene *scene)
{
	set_kv_ram(scene, "4M");
	await_at_most(scene, "resident_bytes", 4 << 20);
}

/* ---- drives ---- */

static void mount_small(struct scene *scene, const char *size)
{
	char options[32];

	if (geteuid() != 0)
		cr_skip("mounting needs root");
	cr_assert_eq(mkdir(scene->folder, 0700), 0);
	(void)snprintf(options, sizeof options, "size=%s", size);
	if (mount("tmpfs", scene->folder, "tmpfs", 0, options) < 0)
		cr_skip("cannot mount here");
}

static void mount_again(const struct scene *scene, unsigned long flags, const char *options)
{
	cr_assert_eq(mount(NULL, scene->folder, NULL, MS_REMOUNT | flags, options), 0, "%s", strerror(errno));
}

static void end_mounted(struct scene *scene)
{
	detach(scene);
	(void)world_stop(&scene->world, SIGTERM);
	(void)umount2(scene->folder, MNT_DETACH);
	world_close(&scene->world);
}

Test(system_kv_faults, full_folder_keeps_nobody_from_prefixes_in_memory)
{
	struct scene scene;
	long long saved;

	make(&scene);
	mount_small(&scene, "512k");
	start(&scene);
	publish(&scene, 1);
	await_at_least(&scene, "save_errors", 1);
	cr_expect_lt(number(&scene, "disk_blocks"), BLOCKS);
	cr_expect(disk_says(&scene, "No space left"));
	cr_expect(world_log_has(&scene.world, "cannot be saved"));
	cr_expect_eq(read_blocks(&scene, 1), BLOCKS);
	experts_go_on(&scene);
	mount_again(&scene, 0, "size=16m");
	saved = number(&scene, "disk_blocks");
	publish(&scene, 2);
	await_at_least(&scene, "disk_blocks", saved + BLOCKS);
	start_cold(&scene);
	await_scanned(&scene);
	cr_expect_eq(read_blocks(&scene, 2), BLOCKS, "and there is room again");
	cr_expect_eq(disk_number(&scene, "quarantined"), 0, "no file was left half-written");
	end_mounted(&scene);
}

Test(system_kv_faults, read_only_folder_is_read)
{
	struct scene scene;

	make(&scene);
	mount_small(&scene, "32m");
	start(&scene);
	publish_and_save(&scene, 1, 5);
	mount_again(&scene, MS_RDONLY, NULL);
	publish(&scene, 6);
	await_at_least(&scene, "save_errors", 1);
	cr_expect(disk_says(&scene, "Read-only"));
	cr_expect_eq(read_blocks(&scene, 6), BLOCKS);
	squeeze(&scene);
	for (unsigned seed = 1; seed <= 5; seed++)
		cr_expect_eq(read_blocks(&scene, seed), BLOCKS, "conversation %u", seed);
	cr_expect_gt(number(&scene, "loads"), 0);
	cr_expect_eq(number(&scene, "load_errors"), 0);
	experts_go_on(&scene);
	mount_again(&scene, 0, NULL);
	set_kv_ram(&scene, "16M");
	publish(&scene, 7);
	await_at_least(&scene, "disk_blocks", 6 * BLOCKS);
	end_mounted(&scene);
}

static void remove_folder(const struct scene *scene)
{
	const char *const arguments[] = {"-rf", scene->folder, NULL};

	cr_assert_eq(world_run("/bin/rm", arguments, NULL, 0), 0);
}

Test(system_kv_faults, folder_that_is_deleted_is_made_again_and_what_was_in_it_computed_again)
{
	struct scene scene;
	int read = 0;

	make(&scene);
	start(&scene);
	publish_and_save(&scene, 1, 5);
	remove_folder(&scene);
	cr_expect_eq(read_blocks(&scene, 1), BLOCKS, "in memory");
	publish(&scene, 6);
	squeeze(&scene);
	for (unsigned seed = 1; seed <= 5; seed++)
		read += read_blocks(&scene, seed);
	cr_expect_lt(read, 5 * BLOCKS, "some were evicted, and had no file");
	cr_expect_gt(number(&scene, "load_errors"), 0);
	set_kv_ram(&scene, "16M");
	for (unsigned seed = 1; seed <= 6; seed++)
		compute_again(&scene, seed);
	experts_go_on(&scene);
	await_at_least(&scene, "saves", 5 * BLOCKS + 1);
	start_cold(&scene);
	await_at_least(&scene, "blocks", 1);
	end(&scene);
}

static struct hung_drives drives;

/* The folder on a drive that can break or hang, all else elsewhere. */
static void start_on_drive(struct scene *scene)
{
	const char *reason;

	make(scene);
	reason = hung_drives_open(&drives, scene->world.directory, 1, 64);
	if (reason != NULL) {
		world_close(&scene->world);
		cr_skip("%s", reason);
	}
	(void)snprintf(scene->folder, sizeof scene->folder, "%s/kv", drives.drive[0].mount);
	start(scene);
	publish_and_save(scene, 1, 3);
	start_cold(scene);
	await_at_least(scene, "blocks", 3 * BLOCKS);
}

static void end_on_drive(struct scene *scene)
{
	detach(scene);
	(void)world_stop(&scene->world, SIGTERM);
	hung_drives_close(&drives);
	world_close(&scene->world);
}

Test(system_kv_faults, broken_drive_loses_what_is_read_from_it_and_nothing_else)
{
	struct scene scene;

	start_on_drive(&scene);
	cr_assert_eq(read_blocks(&scene, 1), BLOCKS, "in memory from here on");
	faulty_drive_break(&drives.drive[0]);
	cr_expect_eq(read_blocks(&scene, 2), 0);
	cr_expect(disk_says(&scene, "Input/output error"));
	cr_expect_gt(disk_number(&scene, "errors"), 0);
	cr_expect_eq(read_blocks(&scene, 1), BLOCKS);
	publish(&scene, 2);
	cr_expect_eq(read_blocks(&scene, 2), BLOCKS, "computed again");
	experts_go_on(&scene);
	faulty_drive_heal(&drives.drive[0]);
	cr_expect_eq(read_blocks(&scene, 3), BLOCKS, "what nobody asked for meanwhile is there");
	end_on_drive(&scene);
}

Test(system_kv_faults, hung_drive_delays_who_reads_from_it_and_nobody_else)
{
	struct cnre_kv_chain *late;
	int32_t tokens[TOKENS];
	struct scene scene;
	const void *data;
	uint64_t bytes;

	start_on_drive(&scene);
	cr_assert_eq(read_blocks(&scene, 1), BLOCKS);
	hung_drives_enter(&drives, scene.world.manager);
	hung_drives_stop(&drives, 0);
	kv_test_tokens(2, 0, tokens, TOKENS);
	cr_assert_eq(cnre_kv_match(scene.kv, tokens, TOKENS, NULL, 0, &late), TOKENS, "a match waits for no drive");
	cr_expect_eq(cnre_kv_block(late, 0, BRIEFLY_NS, &data, &bytes), -ETIMEDOUT);
	cr_expect_gt(disk_number(&scene, "running"), 0);
	cr_expect_eq(read_blocks(&scene, 1), BLOCKS);
	publish(&scene, 4);
	cr_expect_eq(read_blocks(&scene, 4), BLOCKS);
	experts_go_on(&scene);
	hung_drives_go(&drives, 0);
	cr_expect_eq(cnre_kv_block(late, 0, WAIT_NS, &data, &bytes), (int)KV_TEST_BLOCK);
	cr_expect_eq(kv_test_check(data, bytes, tokens, KV_TEST_BLOCK), 0);
	cnre_kv_release(late);
	cr_expect_eq(read_blocks(&scene, 2), BLOCKS);
	end_on_drive(&scene);
}

/* More blocks than are read at once: the last ones have not begun when they are forgotten, and never will. */
Test(system_kv_faults, who_waits_for_a_block_that_is_forgotten_is_told)
{
	struct cnre_kv_chain *late;
	int32_t tokens[TOKENS];
	struct scene scene;
	const void *data;
	uint64_t bytes;

	start_on_drive(&scene);
	hung_drives_enter(&drives, scene.world.manager);
	hung_drives_stop(&drives, 0);
	kv_test_tokens(2, 0, tokens, TOKENS);
	cr_assert_eq(cnre_kv_match(scene.kv, tokens, TOKENS, NULL, 0, &late), TOKENS);
	cr_expect_eq(cnre_kv_block(late, BLOCKS - 1, BRIEFLY_NS, &data, &bytes), -ETIMEDOUT);
	cr_assert_eq(cnre_kv_invalidate(scene.kv), 3 * BLOCKS);
	cr_expect_eq(cnre_kv_block(late, BLOCKS - 1, WAIT_NS, &data, &bytes), -EIO);
	hung_drives_go(&drives, 0);
	cnre_kv_release(late);
	await_at_most(&scene, "forgotten_blocks", 0);
	end_on_drive(&scene);
}

/* ---- damage between two lives ---- */

/* The file number `which` of a folder tree, in no order that matters. */
static int find_file(const char *folder, unsigned *which, char path[PATH_BYTES])
{
	DIR *listing = opendir(folder);
	struct dirent *entry;
	int found = 0;

	while (listing != NULL && !found && (entry = readdir(listing)) != NULL) {
		char below[PATH_BYTES];

		if (entry->d_name[0] == '.' || strcmp(entry->d_name, "quarantine") == 0)
			continue;
		(void)snprintf(below, sizeof below, "%.180s/%.180s", folder, entry->d_name);
		if (entry->d_type == DT_DIR)
			found = find_file(below, which, path);
		else if ((*which)-- == 0)
			found = snprintf(path, PATH_BYTES, "%s", below) > 0;
	}
	if (listing != NULL)
		(void)closedir(listing);
	return found;
}

static unsigned count_files(const char *folder)
{
	char path[PATH_BYTES];
	unsigned which = UINT32_MAX;

	(void)find_file(folder, &which, path);
	return UINT32_MAX - which;
}

enum { KINDS = 7 };
static char damaged_path[KINDS][PATH_BYTES];

static void flip(int fd, off_t at)
{
	char byte;

	cr_assert_eq(pread(fd, &byte, 1, at), 1);
	byte ^= 0x10;
	cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
}

static uint64_t position_of(const char *path)
{
	unsigned char header[KV_BLOCK_HEADER_BYTES];
	char message[KV_BLOCK_MESSAGE_BYTES];
	struct kv_block block;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(pread(fd, header, sizeof header, 0), (ssize_t)sizeof header);
	(void)close(fd);
	return kv_block_decode(header, &block, message) < 0 ? UINT64_MAX : block.position;
}

/* The first undamaged file of a block at this position; behind a last one there are no others that would not be read. */
static void find_at(const struct scene *scene, uint64_t position, char path[PATH_BYTES])
{
	for (unsigned i = 0;; i++) {
		unsigned which = i;

		cr_assert(find_file(scene->folder, &which, path));
		if (position_of(path) == position)
			return;
	}
}

static void write_over(int fd, const char *other)
{
	char bytes[KV_BLOCK_HEADER_BYTES + KV_TEST_BYTES];
	int from = open(other, O_RDONLY | O_CLOEXEC);

	cr_assert_eq(pread(from, bytes, sizeof bytes, 0), (ssize_t)sizeof bytes);
	cr_assert_eq(pwrite(fd, bytes, sizeof bytes, 0), (ssize_t)sizeof bytes);
	(void)close(from);
}

/* The last block of a conversation; of another one at every call. */
static void damage(const struct scene *scene, unsigned how)
{
	char path[PATH_BYTES], other[PATH_BYTES], moved[PATH_BYTES + 8];
	int fd;

	find_at(scene, (BLOCKS - 1) * KV_TEST_BLOCK, path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	switch (how) {
	case 0:
		flip(fd, 100);
		break;
	case 1:
		flip(fd, 4096 + KV_TEST_BYTES / 2);
		break;
	case 2:
		flip(fd, 4096 + KV_TEST_BYTES - 1);
		break;
	case 3:
		cr_assert_eq(ftruncate(fd, 4096 + 1000), 0);
		break;
	case 4:
		cr_assert_eq(ftruncate(fd, 4096 + KV_TEST_BYTES + 1), 0);
		break;
	case 5:
		cr_assert_eq(ftruncate(fd, 0), 0);
		break;
	default: /* another block's file under its name */
		find_at(scene, 0, other);
		write_over(fd, other);
	}
	(void)close(fd);
	/* Out of sight of the next call, until all are damaged. */
	(void)snprintf(moved, sizeof moved, "%.190s/.%u", scene->world.directory, how);
	cr_assert_eq(rename(path, moved), 0);
	(void)snprintf(damaged_path[how], sizeof damaged_path[how], "%s", path);
}

static void put_back(const struct scene *scene, unsigned how)
{
	char moved[PATH_BYTES + 8];

	(void)snprintf(moved, sizeof moved, "%.190s/.%u", scene->world.directory, how);
	cr_assert_eq(rename(moved, damaged_path[how]), 0);
}

Test(system_kv_faults, damaged_files_lose_their_blocks_and_give_no_wrong_byte)
{
	enum { CONVERSATIONS = KINDS };
	struct scene scene;
	int read = 0;

	make(&scene);
	start_with(&scene, "32M");
	publish_and_save(&scene, 1, CONVERSATIONS);
	stop(&scene);
	cr_assert_eq(count_files(scene.folder), CONVERSATIONS * BLOCKS);
	for (unsigned how = 0; how < KINDS; how++)
		damage(&scene, how);
	for (unsigned how = 0; how < KINDS; how++)
		put_back(&scene, how);
	start_with(&scene, "32M");
	await_scanned(&scene);
	for (unsigned seed = 1; seed <= CONVERSATIONS; seed++)
		read += read_blocks(&scene, seed);
	cr_expect_eq(read, CONVERSATIONS * BLOCKS - KINDS, "all the others are there");
	cr_expect_eq(disk_number(&scene, "quarantined"), KINDS);
	cr_expect(disk_says(&scene, "quarantined"));
	experts_go_on(&scene);
	for (unsigned seed = 1; seed <= CONVERSATIONS; seed++)
		compute_again(&scene, seed);
	await_at_least(&scene, "disk_blocks", CONVERSATIONS * BLOCKS);
	end(&scene);
}

/* ---- forgotten is forgotten ---- */

/* A scan that comes by while files are being removed must not find them again; nor the next life. */
Test(system_kv_faults, invalidated_blocks_do_not_come_back_from_their_files)
{
	enum { CONVERSATIONS = 40 };
	struct scene scene;

	make(&scene);
	start_with(&scene, "64M");
	publish_and_save(&scene, 1, CONVERSATIONS);
	cr_assert_eq(cnre_kv_invalidate(scene.kv), CONVERSATIONS * BLOCKS);
	publish(&scene, 1);
	await_at_most(&scene, "forgotten_blocks", 0);
	cr_expect_eq(number(&scene, "blocks"), BLOCKS);
	await_at_least(&scene, "disk_blocks", BLOCKS);
	cr_expect_eq(count_files(scene.folder), BLOCKS);
	publish_and_save(&scene, 1, 10);
	cr_assert_eq(cnre_kv_invalidate(scene.kv), 10 * BLOCKS);
	stop(&scene);
	cr_expect_eq(count_files(scene.folder), 0, "also where the manager ends at once");
	start(&scene);
	await_scanned(&scene);
	for (unsigned seed = 1; seed <= CONVERSATIONS; seed++)
		cr_expect_eq(covered(&scene, seed), 0, "conversation %u", seed);
	end(&scene);
}

/* ---- two managers ---- */

struct pair {
	struct scene *scene;
	unsigned seed;
};

static int publish_in_child(void *context)
{
	const struct pair *pair = context;
	struct cnre_options options = {.size = sizeof options,
				       .socket = pair->scene->world.socket,
				       .reserve_bytes = NO_EXPERTS,
				       .timeout_ns = WAIT_NS};
	struct cnre_kv_identity identity = kv_test_identity();
	int32_t tokens[TOKENS];
	struct cnre *client;
	struct cnre_kv *kv;

	if (cnre_attach(&client, pair->scene->world.model, &options) < 0 ||
	    cnre_kv_open(client, NULL, &identity, &kv) < 0)
		return 1;
	for (unsigned seed = pair->seed; seed < pair->seed + 3; seed++) {
		kv_test_tokens(seed, 0, tokens, TOKENS);
		if (kv_test_publish(kv, tokens, TOKENS) < 0)
			return 2;
	}
	cnre_kv_close(kv);
	cnre_detach(client);
	return 0;
}

static int finds(struct scene *scene, unsigned seed)
{
	int32_t tokens[TOKENS];

	kv_test_tokens(seed, 0, tokens, TOKENS);
	return kv_test_await(scene->kv, tokens, TOKENS, TOKENS);
}

Test(system_kv_faults, two_managers_share_a_folder)
{
	struct scene a, b;
	struct pair both[2] = {{.scene = &a, .seed = 3}, {.scene = &b, .seed = 3}};
	struct cnre_kv_chain *held;
	int32_t tokens[TOKENS];
	const void *data;
	uint64_t bytes;
	pid_t child[2];

	make(&a);
	make(&b);
	(void)snprintf(b.folder, sizeof b.folder, "%s", a.folder);
	/* Of one checkpoint: a copy that loses its times would have other names. */
	(void)snprintf(b.world.model, sizeof b.world.model, "%s", a.world.model);
	start(&a);
	start(&b);
	publish_and_save(&a, 1, 1);
	cr_expect_eq(finds(&b, 1), TOKENS);
	cr_expect_eq(read_blocks(&b, 1), BLOCKS);
	publish_and_save(&b, 2, 2);
	cr_expect_eq(finds(&a, 2), TOKENS);
	for (int i = 0; i < 2; i++) /* the same ones at the same time */
		child[i] = child_start(publish_in_child, &both[i]);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(child_wait(child[i]), 0);
	await_at_least(&a, "disk_blocks", 5 * BLOCKS);
	await_at_least(&b, "disk_blocks", 5 * BLOCKS);
	cr_expect_eq(count_files(a.folder), 5 * BLOCKS);

	/* B reads on while A removes everything. */
	kv_test_tokens(1, 0, tokens, TOKENS);
	cr_assert_eq(cnre_kv_match(b.kv, tokens, TOKENS, NULL, 0, &held), TOKENS);
	cr_assert_eq(cnre_kv_invalidate(a.kv), 5 * BLOCKS);
	await_at_most(&a, "forgotten_blocks", 0);
	cr_expect_eq(count_files(a.folder), 0);
	for (size_t i = 0; i < BLOCKS - 1; i++) {
		cr_expect_eq(cnre_kv_block(held, i, WAIT_NS, &data, &bytes), (int)KV_TEST_BLOCK);
		cr_expect_eq(kv_test_check(data, bytes, tokens, (i + 1) * KV_TEST_BLOCK), 0);
	}
	cnre_kv_release(held);
	squeeze(&b); /* what leaves memory now has no file any more: it is computed again */
	for (unsigned seed = 1; seed <= 5; seed++)
		(void)read_blocks(&b, seed);
	set_kv_ram(&b, "16M");
	for (unsigned seed = 1; seed <= 5; seed++)
		compute_again(&b, seed);
	end(&b);
	end(&a);
}
