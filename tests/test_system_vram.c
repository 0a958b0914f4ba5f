/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VRAM with a real manager and the stand-in driver: what goes there, what stays, and what is said when it cannot. Clients are
 * libcnre's for memory, and one that speaks the protocol by hand for VRAM, so that every step can be made to happen.
 */
#include "base/clock.h"
#include "cnre/cnre.h"
#include "shm/ledger.h"
#include "shm/word.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/vram_raw.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(system_vram, .timeout = 120);

enum { LAYERS = 4, EXPERTS = 16, OBJECTS = LAYERS * EXPERTS, NOBODY = 65534 };

/* A world with a GPU of so much memory; the manager starts with these options. */
static void begin(struct world *world, const char *memory, const char *granule, const char *const *options)
{
	(void)setenv("FAKECUDA_MEMORY", memory, 1);
	(void)setenv("FAKECUDA_GRANULE", granule, 1);
	fake_gpu_start();
	world_open(world);
	world_generate(world, NULL);
	cr_assert_gt(world_start(world, options), 0, "%s", world->log);
}

/* No rule of the driver was broken by anybody. */
static void end(struct world *world)
{
	char last[256] = "";

	world_close(world);
	fake_gpu.fakecuda_last(last, sizeof last);
	cr_expect_eq(fake_gpu.fakecuda_count(NULL), 0, "%s", last);
}

/* Every expert once, as one token. */
static void use_all(struct cnre *client)
{
	for (uint32_t layer = 0; layer < LAYERS; layer++)
		for (uint32_t i = 0; i < EXPERTS; i++) {
			struct cnre_expert expert;
			int r = cnre_acquire(client, layer, i, 20000000000, &expert);

			cr_assert_eq(r, 0, "%s", strerror(-r));
			cr_assert_eq(cnre_release(client, &expert), 0);
		}
	cnre_token_end(client, 1);
}

struct waiting {
	struct world *world;
	struct cnre *client;              /* uses everything at each look, or NULL */
	struct vram_raw *raw;
	uint32_t count;
};

static int are_ready(void *context)
{
	struct waiting *waiting = context;

	if (waiting->client != NULL)
		use_all(waiting->client);
	return vram_raw_ready(waiting->raw) >= waiting->count;
}

static void await_ready(struct world *world, struct cnre *client, struct vram_raw *raw, uint32_t count)
{
	struct waiting waiting = {.world = world, .client = client, .raw = raw, .count = count};

	cr_assert(world_wait_until(are_ready, &waiting, 30), "%u of %u in VRAM: %s", vram_raw_ready(raw), count, world_status_text(waiting.world));
}

static void attach_raw(struct vram_raw *raw, const struct world *world, uint64_t reserve_bytes)
{
	int r = vram_raw_attach(raw, world->socket, world->model, reserve_bytes);

	cr_assert_eq(r, 0, "%s", strerror(-r));
	r = vram_raw_open(raw, NULL);
	cr_assert_eq(r, 0, "%s: %s", strerror(-r), raw->message);
}

/* The bytes of an expert in VRAM are those in memory. */
static void compare(struct cnre *client, struct vram_raw *raw, uint32_t layer, uint32_t expert)
{
	static unsigned char bytes[1 << 20];
	struct cnre_expert held;
	int compared = 0;

	cr_assert_eq(cnre_acquire(client, layer, expert, 20000000000, &held), 0);
	for (uint32_t role = 0; role < CNRE_ROLES; role++) {
		if (held.part[role].bytes == 0)
			continue;
		cr_assert_leq(held.part[role].bytes, sizeof bytes);
		cr_assert_eq(vram_raw_read(raw, layer * EXPERTS + expert, role, bytes, held.part[role].bytes), 0);
		cr_expect_eq(memcmp(bytes, held.part[role].data, held.part[role].bytes), 0, "layer %u expert %u part %u", layer, expert, role);
		compared++;
	}
	cr_expect_gt(compared, 2);
	cr_assert_eq(cnre_release(client, &held), 0);
}

static void set_vram(const struct world *world, const char *size, int expected)
{
	char output[512] = "";

	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world->socket, "set", "vram", size, NULL}, output, sizeof output),
		     expected, "%s", output);
}

Test(system_vram, a_warm_pool_fills_vram_without_one_read_of_a_drive)
{
	static const char *const options[] = {"--ram", "64M", "--vram", "0", "--vram-reserve", "32M", NULL};
	struct world world;
	struct vram_raw raw;
	struct cnre *client;
	uint64_t reads;

	begin(&world, "256M", "2M", options);
	client = world_attach(&world, 0);
	attach_raw(&raw, &world, 0);
	use_all(client);
	use_all(client);
	cr_assert_eq(world_stat(&world, "resident_objects"), OBJECTS);
	cr_assert_eq(world_stat(&world, "vram_uploads"), 0, "a budget of 0 holds nothing");
	reads = world_stat(&world, "bytes_read");
	set_vram(&world, "128M", 0);
	await_ready(&world, client, &raw, OBJECTS);
	cr_expect_eq(world_stat(&world, "bytes_read"), reads, "case A10: RAM hits are what is promoted");
	cr_expect_eq(world_stat(&world, "vram_uploads"), OBJECTS);
	cr_expect_leq(world_stat(&world, "vram_bytes"), 128u << 20);
	for (uint32_t i = 0; i < OBJECTS; i++)
		compare(client, &raw, i / EXPERTS, i % EXPERTS);
	vram_raw_close(&raw);
	cnre_detach(client);
	end(&world);
}

/* ---- bounds ---- */

/* What the device says that this process's manager has of it. */
static uint64_t used_bytes(void)
{
	struct fakecuda_usage usage;

	fake_gpu.fakecuda_usage(0, &usage);
	return usage.used_bytes;
}

/* A level of /proc/PID/status in bytes. */
static uint64_t memory_of(pid_t pid, const char *name)
{
	char path[64], line[256];
	unsigned long long kib = 0;
	FILE *file;

	(void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	file = fopen(path, "re");
	cr_assert_not_null(file);
	while (fgets(line, sizeof line, file) != NULL)
		if (strncmp(line, name, strlen(name)) == 0)
			(void)sscanf(line + strlen(name), ": %llu", &kib);
	(void)fclose(file);
	return kib << 10;
}

/* Experts of 768 KiB, so many in one layer. */
static void begin_large(struct world *world, const char *experts, const char *memory, const char *granule, const char *const *options)
{
	const char *const large[] = {"--hidden", "512", "--intermediate", "256", "--layers", "1", "--experts", experts, "--expert-format", "bf16", NULL};

	(void)setenv("FAKECUDA_MEMORY", memory, 1);
	(void)setenv("FAKECUDA_GRANULE", granule, 1);
	fake_gpu_start();
	world_open(world);
	world_generate(world, large);
	cr_assert_gt(world_start(world, options), 0, "%s", world->log);
}

struct filling {
	struct world *world;
	struct cnre *client;
	struct vram_raw *raw;
	uint32_t experts, count;
	uint64_t used_most, rss_most, shmem_most;
};

static int is_filled(void *context)
{
	struct filling *filling = context;
	uint64_t rss = memory_of(filling->world->manager, "RssAnon"), shmem = memory_of(filling->world->manager, "RssShmem");

	for (uint32_t i = 0; i < filling->experts; i++) {
		struct cnre_expert expert;

		cr_assert_eq(cnre_acquire(filling->client, 0, i, 60000000000, &expert), 0);
		cr_assert_eq(cnre_release(filling->client, &expert), 0);
		if (i % 16 == 0 && used_bytes() > filling->used_most)
			filling->used_most = used_bytes();
	}
	cnre_token_end(filling->client, 1);
	filling->rss_most = rss > filling->rss_most ? rss : filling->rss_most;
	filling->shmem_most = shmem > filling->shmem_most ? shmem : filling->shmem_most;
	return vram_raw_ready(filling->raw) >= filling->count;
}

Test(system_vram, what_the_driver_charges_is_counted_and_never_more_than_the_budget, .timeout = 240)
{
	static const char *const options[] = {"--ram", "1G", "--vram", "800M", "--vram-reserve", "64M", NULL};
	struct filling filling = {.experts = 1100, .count = 1040}; /* case A7 has 1,000: these are more than fit */
	struct world world;
	struct vram_raw raw;

	begin_large(&world, "1100", "4G", "1M", options);
	filling.world = &world;
	filling.raw = &raw;
	filling.client = world_attach(&world, 0);
	attach_raw(&raw, &world, 0);
	cr_expect(world_wait_until(is_filled, &filling, 120), "%u of 1040: places need no rounding of their own", vram_raw_ready(&raw));
	for (int i = 0; i < 3; i++)
		(void)is_filled(&filling); /* what has no room is asked for, and asked for */
	cr_expect_leq(filling.used_most, (800u + 16) << 20, "case A7, with the staging memory's context: %llu", (unsigned long long)filling.used_most);
	cr_expect_leq(world_stat(&world, "vram_bytes"), 800u << 20);
	cr_expect_geq(world_stat(&world, "vram_bytes"), 750u << 20);
	cr_expect_eq(world_stat(&world, "vram_bytes"), used_bytes(), "what is told is what the device says");
	vram_raw_close(&raw);
	cnre_detach(filling.client);
	end(&world);
}

Test(system_vram, filling_a_gibibyte_takes_no_more_of_the_host_than_pool_and_staging, .timeout = 240)
{
	static const char *const options[] = {"--ram", "64M", "--vram", "1G", "--vram-reserve", "64M", "--vram-staging", "64M", "--hugepages", "4k", NULL};
	struct filling filling = {.experts = 1344, .count = 1280}; /* 1,008 MiB; of those 960 MiB */
	struct fakecuda_process process;
	struct world world;
	struct vram_raw raw;
	uint64_t before_rss, before_shmem;

	begin_large(&world, "1344", "4G", "2M", options);
	filling.world = &world;
	filling.raw = &raw;
	filling.client = world_attach(&world, 16 << 20);
	attach_raw(&raw, &world, 8 << 20);
	before_rss = memory_of(world.manager, "RssAnon");
	before_shmem = memory_of(world.manager, "RssShmem");
	cr_expect(world_wait_until(is_filled, &filling, 200), "%u of 1280: case A6", vram_raw_ready(&raw));
	cr_assert_eq(fake_gpu.fakecuda_process(world.manager, &process), 0);
	cr_expect_leq(process.pinned_peak_bytes, 64u << 20);
	cr_expect_leq(filling.rss_most, before_rss + (24u << 20), "tables, not copies");
	cr_expect_leq(filling.shmem_most, before_shmem + (8u << 20), "the pool is as large as it was");
	cr_expect_leq(memory_of(world.manager, "VmHWM"), (64u + 64 + 64) << 20, "pool, staging and a constant");
	(void)fprintf(stderr, "case A6: %llu MiB in VRAM; anonymous %llu -> %llu KiB, shared %llu -> %llu KiB, pinned at most %llu KiB\n",
		      (unsigned long long)(world_stat(&world, "vram_bytes") >> 20), (unsigned long long)before_rss >> 10,
		      (unsigned long long)filling.rss_most >> 10, (unsigned long long)before_shmem >> 10,
		      (unsigned long long)filling.shmem_most >> 10, (unsigned long long)process.pinned_peak_bytes >> 10);
	vram_raw_close(&raw);
	cnre_detach(filling.client);
	end(&world);
}

/* ---- leases ---- */

static void fill(struct world *world, struct cnre *client, struct vram_raw *raw, uint32_t count)
{
	await_ready(world, client, raw, count);
}

static int are_at_most(void *context)
{
	const struct waiting *waiting = context;

	return vram_raw_ready(waiting->raw) <= waiting->count;
}

static void await_at_most(struct vram_raw *raw, uint32_t count)
{
	struct waiting waiting = {.raw = raw, .count = count};

	cr_assert(world_wait_until(are_at_most, &waiting, 30), "%u are there, not %u", vram_raw_ready(raw), count);
}

static int is_freed(void *context)
{
	(void)context;
	return used_bytes() == 0;
}

Test(system_vram, what_a_client_leases_stays_when_the_budget_shrinks_and_its_memory_as_long_as_it_is_open)
{
	static const char *const options[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", NULL};
	struct world world;
	struct vram_raw raw;
	struct cnre *client;
	uint32_t closing;

	begin(&world, "256M", "2M", options);
	client = world_attach(&world, 0);
	attach_raw(&raw, &world, 0);
	fill(&world, client, &raw, OBJECTS);
	cr_assert(vram_raw_try(&raw, 5));
	cnre_vram_mark_open(raw.ledger, 0);
	set_vram(&world, "0", 0);
	await_at_most(&raw, 1);
	cr_expect_eq(vram_raw_state(&raw, 5), CNRE_STATE_READY, "eviction under a lease is refused");
	cr_expect_gt(used_bytes(), 0);
	closing = vram_raw_arenas(&raw, CNRE_ARENA_CLOSING);
	cr_expect_eq(closing, 1);
	cr_expect_not_null(strstr(world_status_text(&world), "still in use beyond the budget"));
	vram_raw_release(&raw, 5);
	await_at_most(&raw, 0);
	(void)usleep(100000);
	cr_expect_gt(used_bytes(), 0, "an arena that an importer has open is not freed");
	cnre_vram_unmark_open(raw.ledger, 0);
	cr_expect(world_wait_until(is_freed, NULL, 30));
	cr_expect_eq(world_stat(&world, "vram_bytes"), 0);
	cr_expect_eq(vram_raw_arenas(&raw, CNRE_ARENA_CLOSING), 0);
	set_vram(&world, "128M", 0);
	fill(&world, client, &raw, OBJECTS);
	compare(client, &raw, 1, 3);
	vram_raw_close(&raw);
	cnre_detach(client);
	end(&world);
}

static int has_died(void *context)
{
	return world_stat(context, "client_deaths") == 1;
}

/* A client that leases an object, says so, and waits to be killed. */
static pid_t start_holder(const struct world *world, uint32_t object, int *ret_ready)
{
	int ends[2];
	pid_t child;

	cr_assert_eq(pipe(ends), 0);
	child = fork();
	if (child == 0) {
		struct vram_raw raw;
		int r = vram_raw_attach(&raw, world->socket, world->model, 0);

		if (r == 0)
			r = vram_raw_open(&raw, NULL);
		for (int i = 0; r == 0 && i < 20000 && !vram_raw_try(&raw, object); i++)
			(void)usleep(1000);
		cnre_vram_mark_open(raw.ledger, 0);
		(void)!write(ends[1], "!", 1);
		(void)pause();
		_exit(0);
	}
	(void)close(ends[1]);
	*ret_ready = ends[0];
	return child;
}

Test(system_vram, what_a_killed_client_leased_is_nobody_elses_until_its_kernels_are_over)
{
	static const char *const options[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", NULL};
	struct world world;
	struct vram_raw raw;
	struct cnre *client;
	int64_t died_ns;
	int ready;
	pid_t holder;
	char byte;

	begin(&world, "256M", "2M", options);
	holder = start_holder(&world, 7, &ready);
	client = world_attach(&world, 0);
	attach_raw(&raw, &world, 0);
	fill(&world, client, &raw, OBJECTS);
	cr_assert_eq(read(ready, &byte, 1), 1);
	cr_assert_eq(kill(holder, SIGKILL), 0);
	died_ns = cnre_clock_now_ns();
	cr_assert_eq(waitpid(holder, NULL, 0), holder);
	cr_assert(world_wait_until(has_died, &world, 20));
	set_vram(&world, "0", 0);
	await_at_most(&raw, 1);
	if (cnre_clock_now_ns() - died_ns < 800000000) {
		cr_expect_eq(vram_raw_state(&raw, 7), CNRE_STATE_READY, "its kernels may read there still");
		cr_expect_gt(used_bytes(), 0);
	}
	await_at_most(&raw, 0);
	cr_expect_geq(cnre_clock_now_ns() - died_ns, 1000000000, "VRAM_SETTLE_NS after its end");
	cr_expect(world_wait_until(is_freed, NULL, 30));
	vram_raw_close(&raw);
	cnre_detach(client);
	end(&world);
}

Test(system_vram, who_leases_more_than_its_reservation_loses_it_when_it_is_in_the_way)
{
	static const char *const options[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", NULL};
	struct world world;
	struct vram_raw raw, greedy;
	struct cnre *client;

	begin(&world, "256M", "2M", options);
	client = world_attach(&world, 0);
	attach_raw(&raw, &world, 0);
	attach_raw(&greedy, &world, 1);
	cr_assert_lt(greedy.reserve_slabs, 8);
	fill(&world, client, &raw, OBJECTS);
	for (uint32_t i = 0; i < 20; i++)
		cr_assert(vram_raw_try(&greedy, i));
	set_vram(&world, "0", 0);
	await_at_most(&raw, 0);
	cr_expect(world_log_has(&world, "experts in VRAM, more than its reservation"));
	vram_raw_close(&greedy);
	vram_raw_close(&raw);
	cnre_detach(client);
	end(&world);
}

Test(system_vram, hits_in_vram_are_hits_and_lookups_add_up)
{
	static const char *const options[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", NULL};
	struct world world;
	struct vram_raw raw;
	struct cnre *client;
	uint64_t before;

	begin(&world, "256M", "2M", options);
	client = world_attach(&world, 0);
	attach_raw(&raw, &world, 0);
	fill(&world, client, &raw, OBJECTS);
	before = world_stat(&world, "accesses");
	for (uint32_t i = 0; i < OBJECTS; i++) {
		cr_assert(vram_raw_try(&raw, i));
		vram_raw_release(&raw, i);
	}
	cr_expect_eq(world_stat(&world, "vram_hits"), OBJECTS);
	cr_expect_eq(world_stat(&world, "accesses"), before + OBJECTS);
	cr_expect_eq(world_stat(&world, "hits") + world_stat(&world, "misses"), world_stat(&world, "accesses"));
	cr_expect_eq(world_stat(&world, "migration_bytes"), world_stat(&world, "vram_upload_bytes"));
	vram_raw_close(&raw);
	(void)usleep(100000);
	cr_expect_eq(world_stat(&world, "vram_hits"), OBJECTS, "also of clients that ended");
	cnre_detach(client);
	end(&world);
}

/* ---- what goes wrong ---- */

static int is_lost(void *context)
{
	struct vram_raw *raw = context;

	/* [T1] relaxed: a test's look. */
	return atomic_load_explicit(&raw->directory->state, memory_order_relaxed) == CNRE_VRAM_LOST && vram_raw_ready(raw) == 0;
}

Test(system_vram, a_lost_device_is_told_of_and_ram_serves_on)
{
	static const char *const options[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", NULL};
	struct world world;
	struct vram_raw raw, late;
	struct cnre *client;

	begin(&world, "256M", "2M", options);
	client = world_attach(&world, 0);
	attach_raw(&raw, &world, 0);
	fill(&world, client, &raw, OBJECTS);
	fake_gpu.fakecuda_lose_device(0, 719); /* CUDA_ERROR_LAUNCH_FAILED: an uncorrectable error */
	cr_assert(world_wait_until(is_lost, &raw, 30), "%s", world_status_text(&world));
	/* [T2] relaxed: a test's look. */
	cr_expect_eq(atomic_load_explicit(&raw.page->vram_devices, memory_order_relaxed), 0);
	cr_expect_not_null(strstr(world_status_text(&world), "is lost, its experts are served from RAM"));
	use_all(client);
	cr_assert_eq(vram_raw_attach(&late, world.socket, world.model, 0), 0);
	cr_expect_eq(vram_raw_open(&late, NULL), -ENODEV, "%s", late.message);
	vram_raw_close(&late);
	vram_raw_close(&raw);
	cnre_detach(client);
	world_close(&world);
}

static int says_why(void *context)
{
	struct filling *filling = context;

	(void)is_filled(filling);
	return strstr(world_status_text(filling->world), "others have its memory, but for the reserve") != NULL;
}

Test(system_vram, a_device_without_memory_is_filled_as_far_as_it_goes_and_says_so)
{
	static const char *const options[] = {"--ram", "256M", "--vram", "256M", "--vram-reserve", "16M", NULL};
	struct filling filling = {.experts = 200, .count = 60};
	struct world world;
	struct vram_raw raw;

	begin_large(&world, "200", "96M", "2M", options);
	filling.world = &world;
	filling.raw = &raw;
	filling.client = world_attach(&world, 0);
	attach_raw(&raw, &world, 0);
	cr_expect(world_wait_until(is_filled, &filling, 60), "%u of 60: %s", vram_raw_ready(&raw), world_status_text(&world));
	cr_expect(world_wait_until(says_why, &filling, 30), "%s", world_status_text(&world));
	cr_expect_leq(used_bytes(), 80u << 20, "the reserve is others'");
	cr_expect(world_log_has(&world, "has less free than that and the reserve"));
	vram_raw_close(&raw);
	cnre_detach(filling.client);
	end(&world);
}

Test(system_vram, who_is_not_trusted_gets_no_memory_that_it_could_write_to)
{
	static const char *const options[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", "--socket-mode", "0666", NULL};
	struct world world;
	int status;
	pid_t child;

	if (geteuid() != 0)
		cr_skip("needs root to become another user");
	begin(&world, "256M", "2M", options);
	child = fork();
	if (child == 0) {
		unsigned char uuid[16] = {0};
		struct vram_raw raw;
		int r = setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0;

		if (r == 0)
			r = vram_raw_attach(&raw, world.socket, world.model, 0);
		_exit(r != 0 ? 1 : vram_raw_open(&raw, uuid) != -EACCES ? 2 : strstr(raw.message, "--vram-trust") == NULL ? 3 : 0);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_expect_eq(WEXITSTATUS(status), 0, "%d", WEXITSTATUS(status));
	world_close(&world);
}

Test(system_vram, a_device_that_the_manager_does_not_have_is_refused_by_its_uuid)
{
	static const char *const options[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", NULL};
	static const unsigned char other[16] = {1, 2, 3};
	struct world world;
	struct vram_raw raw;

	begin(&world, "256M", "2M", options);
	cr_assert_eq(vram_raw_attach(&raw, world.socket, world.model, 0), 0);
	cr_expect_eq(vram_raw_open(&raw, other), -ENODEV);
	cr_expect_not_null(strstr(raw.message, "does not use that GPU"), "%s", raw.message);
	cr_expect_eq(vram_raw_open(&raw, NULL), 0, "case G3: the right one is found by what it is");
	vram_raw_close(&raw);
	end(&world);
}

Test(system_vram, a_ledger_full_of_garbage_hurts_nobody_else)
{
	static const char *const options[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", NULL};
	struct world world;
	struct vram_raw raw, hostile;
	struct cnre *client;

	begin(&world, "256M", "2M", options);
	client = world_attach(&world, 0);
	attach_raw(&raw, &world, 0);
	attach_raw(&hostile, &world, 1);
	memset((char *)hostile.ledger, 0xff, sizeof *hostile.ledger + OBJECTS * sizeof(uint64_t));
	for (uint32_t i = 0; i < 1000; i++)
		vram_raw_log(&hostile, CNRE_LOG_ACCESS, 0xfff, i % OBJECTS);
	await_ready(&world, client, &raw, OBJECTS);
	compare(client, &raw, 2, 2);
	cr_expect_eq(world_stat(&world, "hits") + world_stat(&world, "misses"), world_stat(&world, "accesses"));
	set_vram(&world, "0", 0);
	await_at_most(&raw, 0);
	cr_expect_gt(used_bytes(), 0, "it says that it has everything open");
	vram_raw_close(&hostile);
	vram_raw_close(&raw);
	use_all(client);
	cnre_detach(client);
	end(&world);
}

/* Uses everything, and never says that a token ended. */
static int is_filled_silently(void *context)
{
	struct filling *filling = context;

	for (uint32_t i = 0; i < filling->experts; i++) {
		struct cnre_expert expert;

		cr_assert_eq(cnre_acquire(filling->client, 0, i, 60000000000, &expert), 0);
		cr_assert_eq(cnre_release(filling->client, &expert), 0);
	}
	return vram_raw_ready(filling->raw) >= filling->count;
}

Test(system_vram, one_clients_token_is_not_the_last_of_all, .timeout = 240)
{
	static const char *const options[] = {"--ram", "1G", "--vram", "512M", "--vram-reserve", "64M", NULL};
	struct filling filling = {.experts = 460, .count = 460}; /* 345 MiB: more than one token may move */
	struct world world;
	struct vram_raw raw, teller;

	begin_large(&world, "460", "1G", "2M", options);
	cr_assert_eq(vram_raw_attach(&teller, world.socket, world.model, 0), 0);
	vram_raw_log(&teller, CNRE_LOG_TOKEN_END, 0, 1);
	filling.world = &world;
	filling.raw = &raw;
	filling.client = world_attach(&world, 0);
	attach_raw(&raw, &world, 0);
	(void)usleep(200000);
	vram_raw_close(&teller);
	cr_expect(world_wait_until(is_filled_silently, &filling, 60), "%u of 460: who says no tokens has them guessed", vram_raw_ready(&raw));
	vram_raw_close(&raw);
	cnre_detach(filling.client);
	end(&world);
}

/* In a process of its own: 0, or what was answered. */
static int open_elsewhere(const struct world *world, const unsigned char *uuid)
{
	pid_t child = fork();
	int status = -1;

	if (child == 0) {
		struct vram_raw raw;
		int r = vram_raw_attach(&raw, world->socket, world->model, 0);

		_exit(r < 0 ? -r : -vram_raw_open(&raw, uuid));
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	return -WEXITSTATUS(status);
}

Test(system_vram, sessions_that_leave_memory_open_take_no_room_of_others)
{
	static const char *const options[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", NULL};
	struct world world;
	unsigned char uuid[CNRE_VRAM_UUID_BYTES];
	struct vram_raw raw;
	int r = 0;

	begin(&world, "256M", "2M", options);
	for (uint32_t i = 0; i < 300 && r == 0; i++) {
		r = vram_raw_attach(&raw, world.socket, world.model, 0);
		cr_assert_eq(r, 0, "%u: %s", i, strerror(-r));
		r = vram_raw_open(&raw, NULL);
		if (r == 0)
			memcpy(uuid, raw.directory->uuid, sizeof uuid);
		if (r == 0)
			memset((void *)raw.ledger->open, 0xff, sizeof raw.ledger->open);
		cr_assert_eq(vram_raw_detach(&raw), 0);
	}
	cr_expect_eq(r, -EAGAIN, "a live process alone says how long they stay");
	cr_expect_not_null(strstr(raw.message, "has VRAM of theirs open still"), "%s", raw.message);
	r = open_elsewhere(&world, uuid);
	cr_expect_eq(r, 0, "%s", strerror(-r));
	world_close(&world);
}

Test(system_vram, a_budget_that_no_gpu_has_is_refused)
{
	static const char *const options[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", NULL};
	static const char *const absurd[] = {"18446744073709551615", "1125899906842625", "-1", "auto", "1e9", ""};
	struct world world;

	begin(&world, "256M", "2M", options);
	for (size_t i = 0; i < sizeof absurd / sizeof absurd[0]; i++)
		set_vram(&world, absurd[i], i < 2 ? 1 : 2);
	cr_expect_eq(world_stat(&world, "vram_budget_bytes"), 128u << 20);
	set_vram(&world, "1024T", 0);
	cr_expect_eq(world_stat(&world, "vram_budget_bytes"), 1024ull << 40);
	world_close(&world);
}

Test(system_vram, killed_during_uploads_the_manager_leaves_memory_sound_and_vram_begins_anew, .timeout = 180)
{
	static const char *const options[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", "--keeper", "auto", NULL};
	struct cnre_expert expert;
	struct pollfd exporter;
	static uint64_t sums[OBJECTS];
	struct world world;
	struct vram_raw raw;
	struct cnre *client;

	(void)setenv("FAKECUDA_OP_NS", "20000000", 1); /* so that uploads are under way when it is killed */
	begin(&world, "256M", "2M", options);
	client = world_attach(&world, 0);
	attach_raw(&raw, &world, 0);
	for (uint32_t i = 0; i < OBJECTS; i++) {
		cr_assert_eq(cnre_acquire(client, i / EXPERTS, i % EXPERTS, 20000000000, &expert), 0);
		sums[i] = world_sum(&expert);
		cr_assert_eq(cnre_release(client, &expert), 0);
	}
	await_ready(&world, client, &raw, 3);
	exporter = (struct pollfd){.fd = raw.exporter, .events = POLLIN};
	cr_assert_eq(poll(&exporter, 1, 0), 0);
	world_kill_manager(&world);
	cr_expect_eq(poll(&exporter, 1, 10000), 1, "who has its memory knows that it is dead");
	for (uint32_t i = 0; i < OBJECTS; i++) {
		cr_assert_eq(cnre_acquire(client, i / EXPERTS, i % EXPERTS, 20000000000, &expert), 0);
		cr_expect_eq(world_sum(&expert), sums[i]);
		cr_assert_eq(cnre_release(client, &expert), 0);
	}
	cr_expect_eq(world_stat(&world, "resident_objects"), OBJECTS);
	cr_assert_eq(vram_raw_open(&raw, NULL), 0, "the session lives on and opens anew: %s", raw.message);
	cr_expect_lt(vram_raw_ready(&raw), OBJECTS);
	await_ready(&world, client, &raw, OBJECTS);
	compare(client, &raw, 3, 3);
	vram_raw_close(&raw);
	cnre_detach(client);
	world_close(&world);
}

Test(system_vram, a_budget_smaller_than_an_expert_is_told_of_and_none_at_all_is_not)
{
	static const char *const tiny[] = {"--ram", "64M", "--vram", "1", "--vram-reserve", "18446744073709551615", NULL};
	static const char *const none[] = {"--ram", "64M", "--vram", "0", "--vram-reserve", "1G", NULL};
	static const char *const reserved[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "18446744073709551615", NULL};
	struct world world;

	begin(&world, "256M", "2M", tiny);
	cr_expect(world_log_has(&world, "will hold nothing: its budget is smaller than one expert"));
	(void)world_stop(&world, SIGTERM);
	cr_assert_gt(world_start(&world, none), 0);
	cr_expect(!world_log_has(&world, "has less free than that"), "a budget of 0 is no mistake: set vram raises it");
	(void)world_stop(&world, SIGTERM);
	cr_assert_gt(world_start(&world, reserved), 0);
	cr_expect(world_log_has(&world, "has less free than that and the reserve"));
	world_close(&world);
}

Test(system_vram, without_a_gpu_auto_serves_from_ram_and_a_size_stops_the_start)
{
	static const char *const automatic[] = {"--ram", "64M", "--vram", "auto", NULL}, *const asked[] = {"--ram", "64M", "--vram", "1G", NULL};
	struct world world;

	(void)setenv("FAKECUDA_DEVICES", "0", 1);
	begin(&world, "256M", "2M", automatic);
	cr_expect_not_null(strstr(world_status_text(&world), "\"state\":\"none\""), "%s", world_status_text(&world));
	(void)world_stop(&world, SIGTERM);
	cr_expect_eq(world_start(&world, asked), -1, "exit status 1");
	cr_expect(world_log_has(&world, "cnre-managerd: --vram: "));
	world_close(&world);
}
