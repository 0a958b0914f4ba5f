/* SPDX-License-Identifier: Apache-2.0 */
/* What people see of VRAM with a real manager and the stand-in driver: cnre-top, cnrectl experts and explain, also of a lost GPU. */
#include "cnre/cnre.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(system_vram_seen, .timeout = 180);

enum { LAYERS = 4, EXPERTS = 16, OBJECTS = LAYERS * EXPERTS };
#define LONG_NS 30000000000

static char screen[1 << 16];

static const char *see(const char *program, const char *const *arguments)
{
	cr_assert_eq(world_run(program, arguments, screen, sizeof screen), 0, "%s: %s", program, screen);
	return screen;
}

static void expect(const char *part)
{
	cr_expect_not_null(strstr(screen, part), "no \"%s\" in:\n%s", part, screen);
}

/* One token; 1: each expert came from VRAM. */
static int run_token(void *context)
{
	struct cnre *client = context;
	uint32_t hits = 0;

	for (uint32_t i = 0; i < OBJECTS; i++) {
		struct cnre_expert view;

		cr_assert_eq(cnre_acquire_vram(client, i / EXPERTS, i % EXPERTS, 0, LONG_NS, &view), 0);
		hits += (view.flags & CNRE_IN_VRAM) != 0;
		(void)cnre_release(client, &view);
	}
	cnre_token_end(client, 1);
	return hits == OBJECTS;
}

static int says_lost(void *context)
{
	return strstr(world_status_text(context), "is lost") != NULL;
}

static void look_at_a_manager_with_vram(const struct world *world, const char *recording)
{
	const char *const live[] = {"--socket", world->socket, "--once", "--interval", "0.2", "--record", recording, NULL};
	const char *const played[] = {"--once", "--play", recording, NULL};
	const char *const map[] = {"--socket", world->socket, "experts", NULL};
	const char *const layer[] = {"--socket", world->socket, "experts", "2", NULL};

	for (int i = 0; i < 2; i++) {
		see("cnre-top", i == 0 ? live : played);
		expect("\nvram     ");
		expect(", 64 experts; hits ");
		expect("LAYER  RAM+VRAM  OF 16 EXPERTS\n");
		expect("+16   "); /* of each layer */
	}
	see("cnrectl", map);
	expect("in VRAM, whether or not resident");
	see("cnrectl", layer);
	expect("LEASED  VRAM\n");
	expect("     GPU 0\n");
}

Test(system_vram_seen, experts_in_vram_are_shown_live_and_recorded_and_a_lost_gpu_in_words)
{
	static const char *const options[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", NULL};
	struct cnre_options attach = {.size = sizeof attach, .timeout_ns = LONG_NS, .flags = CNRE_WANT_VRAM | CNRE_VRAM_OR_RAM};
	struct world world;
	char recording[512];
	struct cnre *client;

	(void)setenv("FAKECUDA_MEMORY", "256M", 1);
	fake_gpu_start();
	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, options), 0, "%s", world.log);
	attach.socket = world.socket;
	(void)snprintf(recording, sizeof recording, "%s.top", world.socket);
	cr_assert_eq(cnre_attach(&client, world.model, &attach), 0);
	cr_assert(world_wait_until(run_token, client, 60), "%s", world_status_text(&world));
	look_at_a_manager_with_vram(&world, recording);

	fake_gpu.fakecuda_lose_device(0, 719); /* CUDA_ERROR_LAUNCH_FAILED: an uncorrectable error */
	(void)run_token(client);
	cr_assert(world_wait_until(says_lost, &world, 30), "%s", world_status_text(&world));
	see("cnre-top", (const char *const[]){"--socket", world.socket, "--once", "--interval", "0.2", NULL});
	expect("\nvram     1 of 1 GPUs lost: GPU 0: ");
	see("cnrectl", (const char *const[]){"--socket", world.socket, "explain", "--seconds", "0.2", NULL});
	expect("\nvram       1 of 1 GPUs lost, RAM and drives serve what they had: GPU-");
	cnre_detach(client);
	(void)unlink(recording);
	world_close(&world);
}

Test(system_vram_seen, a_manager_that_found_no_gpu_says_why)
{
	static const char *const options[] = {"--ram", "64M", "--vram", "auto", NULL};
	struct world world;

	(void)setenv("FAKECUDA_DEVICES", "0", 1);
	fake_gpu_start();
	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, options), 0, "%s", world.log);
	see("cnre-top", (const char *const[]){"--socket", world.socket, "--once", "--interval", "0.2", NULL});
	expect("\nvram     none: ");
	expect("LAYER  RESIDENT EXPERTS\n");
	see("cnrectl", (const char *const[]){"--socket", world.socket, "explain", "--seconds", "0.2", NULL});
	expect("\nvram       --vram is given and no GPU is used: ");
	world_close(&world);
}
