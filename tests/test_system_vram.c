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
	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "set", "vram", "128M", NULL}, NULL, 0), 0);
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

static void set_vram(const struct world *world, const char *size, int expected)
{
	char output[512] = "";

	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world->socket, "set", "vram", size, NULL}, output, sizeof output),
		     expected, "%s", output);
}

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

static int is_full(void *context)
{
	struct waiting *waiting = context;

	use_all(waiting->client);
	cr_expect_leq(used_bytes(), 800u << 20, "case A7: never over, on the way either");
	return vram_raw_ready(waiting->raw) >= waiting->count;
}
