/* SPDX-License-Identifier: Apache-2.0 */
/* Right size, right header, wrong bytes: with --verify, --digests and --scrub it is an error, and never an answer. */
#include "tests/support/fake_gpu.h"
#include "tests/support/vram_raw.h"
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
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(system_digest, .timeout = 120);

enum { LAYERS = 4, EXPERTS = 16, FLIPPED = 16 };
#define TIMEOUT_NS 20000000000

static char digests[128]; /* the manifest, in the world's directory */

static int try(struct cnre *client, uint32_t layer, uint32_t expert)
{
	struct cnre_expert taken;
	int r = cnre_acquire(client, layer, expert, TIMEOUT_NS, &taken);

	if (r >= 0)
		cr_assert_eq(cnre_release(client, &taken), 0);
	return r;
}

static void touch_all(struct cnre *client)
{
	for (uint32_t i = 0; i < LAYERS * EXPERTS; i++)
		cr_assert_eq(try(client, i / EXPERTS, i % EXPERTS), 0);
}

static void evict_all(const struct world *world)
{
	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world->socket, "reset", NULL}, NULL, 0), 0);
}

/* A copy of the down projection of one expert, as a client sees it. */
static unsigned char *copy_part(struct cnre *client, uint32_t layer, uint32_t expert, size_t *ret_bytes)
{
	struct cnre_expert taken;
	unsigned char *copy;

	cr_assert_eq(cnre_acquire(client, layer, expert, TIMEOUT_NS, &taken), 0);
	*ret_bytes = taken.part[CNRE_DOWN].bytes;
	copy = malloc(*ret_bytes);
	cr_assert_not_null(copy);
	memcpy(copy, taken.part[CNRE_DOWN].data, *ret_bytes);
	cr_assert_eq(cnre_release(client, &taken), 0);
	return copy;
}

static int part_equals(struct cnre *client, uint32_t layer, uint32_t expert, const unsigned char *part, size_t bytes)
{
	size_t now_bytes;
	unsigned char *now = copy_part(client, layer, expert, &now_bytes);
	int equal = now_bytes == bytes && memcmp(now, part, bytes) == 0;

	free(now);
	return equal;
}

/* Flips bytes in the middle of what equals `part` in a file; twice is back again. 1 done, 0 not found. */
static int flip(int fd, const unsigned char *part, size_t bytes, off_t *ret_off)
{
	struct stat status;
	unsigned char *map, *found;

	cr_assert_eq(fstat(fd, &status), 0);
	map = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert_neq(map, MAP_FAILED, "%s", strerror(errno));
	found = memmem(map, (size_t)status.st_size, part, bytes);
	if (found != NULL) {
		*ret_off = found - map + (off_t)(bytes / 2);
		for (int i = 0; i < FLIPPED; i++)
			map[*ret_off + i] ^= 0xff;
	}
	cr_assert_eq(munmap(map, (size_t)status.st_size), 0);
	return found != NULL;
}

static void shard_path(const struct world *world, char *path, size_t bytes)
{
	(void)snprintf(path, bytes, "%s/model-00001-of-00001.safetensors", world->model);
	if (access(path, F_OK) < 0)
		(void)snprintf(path, bytes, "%s/model.safetensors", world->model);
}

static off_t damage_shard(const struct world *world, const unsigned char *part, size_t bytes)
{
	char path[256];
	off_t off = 0;
	int fd;

	shard_path(world, path, sizeof path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	cr_assert_geq(fd, 0, "%s", path);
	cr_assert(flip(fd, part, bytes, &off), "the expert is in %s", path);
	cr_assert_eq(fsync(fd), 0);
	(void)close(fd);
	return off;
}

static void repair_shard(const struct world *world, const unsigned char *part, size_t bytes, off_t off)
{
	char path[256];
	int fd;

	shard_path(world, path, sizeof path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	cr_assert_eq(pwrite(fd, part + bytes / 2, FLIPPED, off), FLIPPED);
	cr_assert_eq(fsync(fd), 0);
	(void)close(fd);
}

static void open_world(struct world *world)
{
	world_open(world);
	world_generate(world, NULL);
	(void)snprintf(digests, sizeof digests, "%s/digests", world->directory);
}

/* ---- at a load ---- */

Test(system_digest, an_expert_that_changes_between_two_loads_is_ebadmsg_and_heals)
{
	static const char *const options[] = {"--verify", "load", NULL};
	struct world world;
	struct cnre *client;
	unsigned char *part;
	size_t bytes;
	off_t off;

	open_world(&world);
	cr_assert_gt(world_start(&world, options), 0);
	client = world_attach(&world, 0);
	part = copy_part(client, 1, 2, &bytes);
	evict_all(&world);
	off = damage_shard(&world, part, bytes);
	cr_expect_eq(try(client, 1, 2), -EBADMSG);
	cr_expect_eq(try(client, 1, 2), -EBADMSG, "nothing was cached: it is read again");
	cr_expect_eq(try(client, 1, 3), 0, "the others are as they were");
	cr_expect_eq(world_stat(&world, "digest_errors"), 2);
	cr_expect_eq(world_stat(&world, "load_errors"), 2);
	cr_expect_eq(world_stat(&world, "resident_objects"), 1);
	cr_expect(world_log_has(&world, "layer 1 expert 2"));
	cr_expect(world_log_has(&world, ".safetensors"));
	cr_expect(world_log_has(&world, "known is"));
	repair_shard(&world, part, bytes, off);
	cr_expect(part_equals(client, 1, 2, part, bytes));
	cr_expect_eq(world_stat(&world, "digest_errors"), 2);
	free(part);
	cnre_detach(client);
	world_close(&world);
}

Test(system_digest, the_next_manager_finds_it_at_the_very_first_load_by_the_manifest)
{
	static const char *const options[] = {"--verify", "load", "--digests", digests, NULL};
	struct world world;
	struct cnre *client;
	unsigned char *part;
	size_t bytes;

	open_world(&world);
	cr_assert_gt(world_start(&world, options), 0);
	client = world_attach(&world, 0);
	touch_all(client);
	part = copy_part(client, 3, 7, &bytes);
	cnre_detach(client);
	cr_expect_neq(access(digests, F_OK), 0, "it is written at the end");
	cr_assert_eq(world_stop(&world, SIGTERM), 0);
	cr_expect_eq(access(digests, F_OK), 0);
	(void)damage_shard(&world, part, bytes);
	cr_assert_gt(world_start(&world, options), 0);
	client = world_attach(&world, 0);
	cr_expect_eq(try(client, 3, 7), -EBADMSG);
	cr_expect_eq(try(client, 3, 6), 0);
	cr_expect_eq(world_stat(&world, "digest_errors"), 1);
	cr_expect(world_log_has(&world, digests), "the message names the manifest");
	free(part);
	cnre_detach(client);
	world_close(&world);
}

Test(system_digest, without_verification_a_damaged_expert_is_served)
{
	static const char *const recording[] = {"--verify", "load", "--digests", digests, NULL};
	static const char *const trusting[] = {"--digests", digests, NULL};
	struct world world;
	struct cnre *client;
	unsigned char *part;
	size_t bytes;

	open_world(&world);
	cr_assert_gt(world_start(&world, recording), 0);
	client = world_attach(&world, 0);
	part = copy_part(client, 0, 0, &bytes);
	cnre_detach(client);
	cr_assert_eq(world_stop(&world, SIGTERM), 0);
	(void)damage_shard(&world, part, bytes);
	cr_assert_gt(world_start(&world, trusting), 0);
	cr_expect(world_log_has(&world, "is not used"), "a manifest without effect is said");
	client = world_attach(&world, 0);
	cr_expect_not(part_equals(client, 0, 0, part, bytes), "identity covers headers, not payload");
	cr_expect_eq(world_stat(&world, "digest_errors"), 0);
	free(part);
	cnre_detach(client);
	world_close(&world);
}

Test(system_digest, a_manifest_of_another_checkpoint_is_refused_at_start)
{
	static const char *const options[] = {"--verify", "load", "--digests", digests, NULL};
	struct world world;
	struct cnre *client;

	open_world(&world);
	cr_assert_gt(world_start(&world, options), 0);
	client = world_attach(&world, 0);
	cr_assert_eq(try(client, 0, 0), 0);
	cnre_detach(client);
	cr_assert_eq(world_stop(&world, SIGTERM), 0);
	world_generate(&world, (const char *const[]){"--intermediate", "128", "--force", NULL});
	cr_expect_eq(world_start(&world, options), -1, "exit status 1");
	cr_expect(world_log_has(&world, "not served"));
	world_close(&world);
}

Test(system_digest, a_scrub_without_anything_to_compare_with_is_refused)
{
	struct world world;

	open_world(&world);
	cr_expect_eq(world_start(&world, (const char *const[]){"--scrub", "10", NULL}), -1);
	cr_expect(world_log_has(&world, "--scrub has nothing to compare with"));
	world_close(&world);
}

/* ---- in memory ---- */

/* Flips bytes of a resident part through the manager's own descriptor: 1, 0 not found, or -errno of opening one. */
static int damage_memory(pid_t manager, const unsigned char *part, size_t bytes)
{
	char folder[64], name[320], target[256];
	struct dirent *entry;
	off_t off;
	int r = 0;
	DIR *fds;

	(void)snprintf(folder, sizeof folder, "/proc/%d/fd", (int)manager);
	fds = opendir(folder);
	if (fds == NULL)
		return -errno;
	while (r == 0 && (entry = readdir(fds)) != NULL) {
		ssize_t n;
		int fd;

		(void)snprintf(name, sizeof name, "%s/%s", folder, entry->d_name);
		n = readlink(name, target, sizeof target - 1);
		target[n > 0 ? n : 0] = '\0';
		if (strncmp(target, "/memfd:cnre-pool", 16) != 0)
			continue;
		fd = open(name, O_RDWR | O_CLOEXEC);
		r = fd < 0 ? -errno : flip(fd, part, bytes, &off);
		if (fd >= 0)
			(void)close(fd);
	}
	(void)closedir(fds);
	return r;
}

struct expected {
	struct world *world;
	const char *counter;
	uint64_t value;
};

static int has_value(void *context)
{
	const struct expected *expected = context;

	return world_stat(expected->world, expected->counter) == expected->value;
}

static void wait_for(struct world *world, const char *counter, uint64_t value)
{
	struct expected expected = {world, counter, value};

	cr_assert(world_wait_until(has_value, &expected, 5), "%s is %llu", counter,
		  (unsigned long long)world_stat(world, counter));
}

Test(system_digest, memory_that_changes_is_evicted_as_soon_as_nobody_holds_it)
{
	static const char *const options[] = {"--verify", "load", "--scrub", "5ms", "--hugepages", "4k", NULL};
	struct cnre_expert held;
	struct world world;
	struct cnre *client;
	unsigned char *part;
	size_t bytes;
	int r;

	open_world(&world);
	cr_assert_gt(world_start(&world, options), 0);
	client = world_attach(&world, 0);
	part = copy_part(client, 2, 5, &bytes);
	cr_assert_eq(cnre_acquire(client, 2, 5, TIMEOUT_NS, &held), 0);
	cr_assert_eq(try(client, 0, 0), 0);
	r = damage_memory(world.manager, part, bytes);
	if (r == -EACCES || r == -EPERM) {
		cnre_detach(client);
		world_close(&world);
		cr_skip("needs root to write into the manager's memory");
	}
	cr_assert_eq(r, 1, "the expert is in the pool: %d", r);
	wait_for(&world, "digest_errors", 1);
	cr_expect_eq(world_stat(&world, "resident_objects"), 2, "it is held, so it stays");
	cr_expect(world_log_has(&world, "layer 2 expert 5: memory corruption"));
	cr_assert_eq(cnre_release(client, &held), 0);
	wait_for(&world, "resident_objects", 1);
	cr_expect(part_equals(client, 2, 5, part, bytes), "the next request reads it again");
	cr_assert_eq(damage_memory(world.manager, part, bytes), 1);
	wait_for(&world, "digest_errors", 2);
	wait_for(&world, "resident_objects", 1);
	free(part);
	cnre_detach(client);
	world_close(&world);
}

/* ---- on its way to a GPU ---- */

struct upload {
	struct cnre *client;
	struct vram_raw *raw;
	uint32_t layer, expert;
};

/* Uses it, and looks whether that has brought it there. */
static int is_uploaded(void *context)
{
	struct upload *upload = context;

	cr_assert_eq(try(upload->client, upload->layer, upload->expert), 0);
	cnre_token_end(upload->client, 1);
	return vram_raw_state(upload->raw, upload->layer * EXPERTS + upload->expert) == CNRE_STATE_READY;
}

/* A copy of it would outlive the damage: the scrub evicts the slab, reads it again, and finds nothing wrong any more. */
Test(system_digest, what_is_known_to_be_damaged_goes_to_no_gpu)
{
	static const char *const options[] = {"--verify", "load", "--scrub", "5ms", "--hugepages", "4k", "--vram", "0", "--vram-reserve", "32M", NULL};
	struct cnre_expert held;
	struct vram_raw raw;
	struct world world;
	struct upload damaged, other;
	unsigned char *part, *there;
	size_t bytes;
	int r;

	(void)setenv("FAKECUDA_MEMORY", "256M", 1);
	fake_gpu_start();
	open_world(&world);
	cr_assert_gt(world_start(&world, options), 0, "%s", world.log);
	damaged = (struct upload){.client = world_attach(&world, 0), .raw = &raw, .layer = 2, .expert = 5};
	other = (struct upload){.client = damaged.client, .raw = &raw, .layer = 0, .expert = 0};
	cr_assert_eq(vram_raw_attach(&raw, world.socket, world.model, 0), 0);
	cr_assert_eq(vram_raw_open(&raw, NULL), 0, "%s", raw.message);
	part = copy_part(damaged.client, 2, 5, &bytes);
	cr_assert_eq(cnre_acquire(damaged.client, 2, 5, TIMEOUT_NS, &held), 0);
	r = damage_memory(world.manager, part, bytes);
	if (r == -EACCES || r == -EPERM) {
		cnre_detach(damaged.client);
		world_close(&world);
		cr_skip("needs root to write into the manager's memory");
	}
	cr_assert_eq(r, 1, "the expert is in the pool: %d", r);
	wait_for(&world, "digest_errors", 1);
	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "set", "vram", "64M", NULL}, NULL, 0), 0);
	cr_assert(world_wait_until(is_uploaded, &other, 30), "%s", world_status_text(&world));
	cr_expect_not(world_wait_until(is_uploaded, &damaged, 1), "a client holds it in memory, damaged");
	cr_assert_eq(cnre_release(damaged.client, &held), 0);
	cr_assert(world_wait_until(is_uploaded, &damaged, 30), "it was read again: %s", world_status_text(&world));
	there = malloc(bytes);
	cr_assert_not_null(there);
	cr_assert_eq(vram_raw_read(&raw, 2 * EXPERTS + 5, CNRE_DOWN, there, bytes), 0);
	cr_expect_eq(memcmp(there, part, bytes), 0);
	free(there);
	free(part);
	vram_raw_close(&raw);
	cnre_detach(damaged.client);
	world_close(&world);
}

/*
 * Goal: nothing is written to a slab while the scrub reads it. Method: large experts in a pool for half of them, read from the
 * page cache, so that a slab that was given away too early is overwritten within the hash of its former owner.
 */
Test(system_digest, verification_and_scrub_find_nothing_in_a_healthy_miss_storm)
{
	/* A sweep over more than fits misses always under LRU; cost would keep some of it. */
	static const char *const options[] = {"--verify", "load", "--scrub",  "1ms", "--ram", "100M",
					      "--direct", "no",   "--policy", "lru", NULL};
	struct world world;
	struct cnre *client;

	world_open(&world);
	world_generate(&world, (const char *const[]){"--layers", "1", "--experts", "16", "--top-k", "2", "--hidden",
						     "2048", "--intermediate", "2048", NULL});
	cr_assert_gt(world_start(&world, options), 0);
	client = world_attach(&world, 0);
	for (uint32_t i = 0; i < 200; i++)
		cr_assert_eq(try(client, 0, i % 16), 0); /* each a miss */
	cr_expect_eq(world_stat(&world, "digest_errors"), 0);
	cr_expect_gt(world_stat(&world, "evictions"), 150);
	cnre_detach(client);
	world_close(&world);
}
