/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that are trusted with VRAM and mean harm, and a manager that has not what it needs. None may stop the manager, keep an
 * honest client from its experts, or make memory of the GPU stay anybody's once they are gone.
 */
#include "cnre/cnre.h"
#include "shm/wire.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/vram_raw.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(system_vram_hostile, .timeout = 120);

enum { LAYERS = 4, EXPERTS = 16, OBJECTS = LAYERS * EXPERTS, FLOOD = 20000 };

static const char *const options[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", NULL};

static void begin(struct world *world, void (*prepare)(void))
{
	(void)setenv("FAKECUDA_MEMORY", "256M", 1);
	(void)setenv("FAKECUDA_GRANULE", "2M", 1);
	fake_gpu_start();
	world_open(world);
	world_generate(world, NULL);
	cr_assert_gt(world_start_with(world, options, prepare), 0, "%s", world->log);
}

static void use_all(struct cnre *client)
{
	for (uint32_t i = 0; i < OBJECTS; i++) {
		struct cnre_expert expert;
		int r = cnre_acquire(client, i / EXPERTS, i % EXPERTS, 20000000000, &expert);

		cr_assert_eq(r, 0, "%s", strerror(-r));
		cr_assert_eq(cnre_release(client, &expert), 0);
	}
	cnre_token_end(client, 1);
}

struct waiting {
	struct cnre *client;
	struct vram_raw *raw;
};

static int is_full(void *context)
{
	const struct waiting *waiting = context;

	use_all(waiting->client);
	return vram_raw_ready(waiting->raw) == OBJECTS;
}

/* An honest client has everything in memory and in VRAM, and the manager is the one that was started. */
static void all_is_well(struct world *world)
{
	struct cnre *client = world_attach(world, 0);
	struct vram_raw raw;
	struct waiting waiting = {.client = client, .raw = &raw};

	cr_assert_eq(vram_raw_attach(&raw, world->socket, world->model, 0), 0);
	cr_assert_eq(vram_raw_open(&raw, NULL), 0, "%s", raw.message);
	cr_expect(world_wait_until(is_full, &waiting, 30), "%u in VRAM: %s", vram_raw_ready(&raw), world_status_text(world));
	vram_raw_close(&raw);
	cnre_detach(client);
	cr_expect_eq(kill(world->manager, 0), 0);
}

Test(system_vram_hostile, questions_about_devices_that_are_not_there_cost_only_who_asks)
{
	struct cnre_wire_vram_open request = {0};
	unsigned char uuid[CNRE_VRAM_UUID_BYTES] = {0};
	struct world world;
	struct vram_raw raw;
	int sent = 0;

	begin(&world, NULL);
	cr_assert_eq(vram_raw_attach(&raw, world.socket, world.model, 0), 0);
	for (uint32_t i = 0; i < FLOOD; i++) {
		memcpy(uuid, &i, sizeof i);
		cr_assert_eq(vram_raw_open(&raw, uuid), -ENODEV);
	}
	/* And without reading one answer, until nobody takes more. */
	cnre_wire_fill(&request.header, CNRE_WIRE_VRAM_OPEN, 7, sizeof request);
	while (sent < FLOOD && send(raw.socket, &request, sizeof request, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		sent++;
	cr_expect_gt(sent, 1);
	all_is_well(&world);
	vram_raw_close(&raw);
	all_is_well(&world);
	world_close(&world);
}

Test(system_vram_hostile, the_same_device_again_and_again_is_one_ledger)
{
	struct world world;
	struct vram_raw raw;

	begin(&world, NULL);
	cr_assert_eq(vram_raw_attach(&raw, world.socket, world.model, 0), 0);
	for (uint64_t i = 0; i < 300; i++) {
		cr_assert_eq(vram_raw_open(&raw, NULL), 0, "%s", raw.message);
		cr_assert_eq(raw.ledger->word[1], i * CNRE_LEDGER_ACCESS, "what was written through the mapping before is there");
		raw.ledger->word[1] = (i + 1) * CNRE_LEDGER_ACCESS;
		(void)close(raw.exporter);
		(void)close(raw.directory_fd);
		raw.exporter = raw.directory_fd = -1;
	}
	all_is_well(&world);
	vram_raw_close(&raw);
	world_close(&world);
}

/* Of the answers that are there, how many have descriptors. */
static int with_descriptors(int socket, int *ret_answers)
{
	_Alignas(8) char buffer[CNRE_WIRE_MESSAGE_MAX];
	struct pollfd more = {.fd = socket, .events = POLLIN};
	int found = 0;

	for (*ret_answers = 0; poll(&more, 1, 0) > 0; ++*ret_answers) {
		int fds[CNRE_WIRE_FDS_MAX];
		size_t count = 0;

		if (cnre_wire_receive(socket, buffer, fds, &count) <= 0)
			break;
		found += count > 0;
		while (count > 0)
			(void)close(fds[--count]);
	}
	return found;
}

/* R27: descriptors in flight count against the manager's user, so nobody has two messages with some unread. */
Test(system_vram_hostile, who_does_not_read_gets_descriptors_once)
{
	enum { ASKED = 20 };
	struct cnre_wire_vram_open request = {0};
	struct world world;
	struct vram_raw raw;
	int answers;

	begin(&world, NULL);
	cr_assert_eq(vram_raw_attach(&raw, world.socket, world.model, 0), 0);
	cr_assert_eq(vram_raw_open(&raw, NULL), 0, "%s", raw.message);
	memcpy(request.uuid, raw.directory->uuid, sizeof request.uuid);
	cnre_wire_fill(&request.header, CNRE_WIRE_VRAM_OPEN, 7, sizeof request);
	for (int i = 0; i < ASKED; i++)
		cr_assert_eq(cnre_wire_send(raw.socket, &request, sizeof request, NULL, 0), 0);
	for (int i = 0; i < 3 * ASKED; i++) /* each takes a turn of the manager, in which it answers others too */
		(void)world_status_text(&world);
	cr_expect_eq(with_descriptors(raw.socket, &answers), 1);
	cr_expect_eq(answers, ASKED);
	all_is_well(&world);
	vram_raw_close(&raw);
	world_close(&world);
}

static int is_prefetched(void *context)
{
	static const uint32_t expert = 5;
	uint8_t tier = CNRE_ABSENT;

	return cnre_resident(context, 2, &expert, 1, &tier) == 0 && tier == CNRE_RAM;
}

static int is_used(void *context)
{
	return world_stat(context, "prefetches_used") == 1;
}

/* Else RAM's policy would not hear of what it uses there, and its own lookups would spoil the account of everybody's. */
Test(system_vram_hostile, who_has_no_device_open_has_no_hits_there)
{
	static const uint32_t expert = 5;
	struct world world;
	struct vram_raw raw;
	struct cnre *client;

	begin(&world, NULL);
	client = world_attach(&world, 0);
	cr_assert_eq(vram_raw_attach(&raw, world.socket, world.model, 0), 0);
	cr_assert_eq(cnre_prefetch(client, 2, &expert, 1), 1);
	cr_assert(world_wait_until(is_prefetched, client, 20));
	vram_raw_log(&raw, CNRE_LOG_ACCESS, CNRE_LOG_HIT | CNRE_LOG_VRAM_WANTED | CNRE_LOG_VRAM_HIT, 2 * EXPERTS + expert);
	cr_expect(world_wait_until(is_used, &world, 20), "%llu", (unsigned long long)world_stat(&world, "prefetches_used"));
	vram_raw_close(&raw);
	cnre_detach(client);
	world_close(&world);
}

static void few_descriptors(void)
{
	const struct rlimit limit = {.rlim_cur = 96, .rlim_max = 96};

	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

Test(system_vram_hostile, a_manager_without_descriptors_refuses_and_goes_on)
{
	enum { MANY = 40 };
	static struct vram_raw raw[MANY];
	uint32_t refused = 0;
	struct world world;

	begin(&world, few_descriptors);
	for (uint32_t i = 0; i < MANY; i++) {
		raw[i].socket = -1;
		int r = vram_raw_attach(&raw[i], world.socket, world.model, 1);

		if (r == 0)
			r = vram_raw_open(&raw[i], NULL);
		if (r < 0) {
			refused++;
			vram_raw_close(&raw[i]);
			continue;
		}
		/* It was told that it has it, so it has it. */
		cr_expect_not_null(raw[i].directory);
	}
	cr_expect_gt(refused, 0);
	cr_expect_eq(kill(world.manager, 0), 0);
	for (uint32_t i = 0; i < MANY; i++)
		if (raw[i].socket >= 0)
			(void)vram_raw_detach(&raw[i]);
	all_is_well(&world);
	world_close(&world);
}
