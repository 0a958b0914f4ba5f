/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VRAM from an engine's side: libcnre with a real manager and the stand-in driver. tests/test_system_vram.c has what the manager
 * does, by a client that speaks the protocol by hand.
 */
#include "cnre/cnre.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

TestSuite(system_vram_engine, .timeout = 180);

enum { LAYERS = 4, EXPERTS = 16, OBJECTS = LAYERS * EXPERTS };
#define LONG_NS 30000000000

static struct cnre *begin(struct world *world, const char *const *options, uint32_t flags)
{
	struct cnre_options attach = {.size = sizeof attach, .socket = world->socket, .timeout_ns = LONG_NS, .flags = flags};
	struct cnre *client;
	int r;

	(void)setenv("FAKECUDA_MEMORY", "256M", 1);
	fake_gpu_start();
	world_open(world);
	world_generate(world, NULL);
	cr_assert_gt(world_start(world, options), 0, "%s", world->log);
	attach.socket = world->socket;
	r = cnre_attach(&client, world->model, &attach);
	cr_assert_eq(r, 0, "%s", strerror(-r));
	return client;
}

static void expect_no_rule_broken(void)
{
	char last[256] = "";

	fake_gpu.fakecuda_last(last, sizeof last);
	cr_expect_eq(fake_gpu.fakecuda_count(NULL), 0, "%s", last);
}

static CUstream make_stream(void)
{
	CUcontext context;
	CUstream stream;

	cr_assert_eq(fake_gpu.cuInit(0), CUDA_SUCCESS);
	cr_assert_eq(fake_gpu.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	cr_assert_eq(fake_gpu.cuCtxSetCurrent(context), CUDA_SUCCESS);
	cr_assert_eq(fake_gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	return stream;
}

/* The bytes at device pointers are those in memory. */
static void compare(struct cnre *client, const struct cnre_expert *view)
{
	static unsigned char bytes[1 << 20];
	struct cnre_expert memory;

	cr_assert_eq(cnre_acquire(client, view->layer, view->expert, LONG_NS, &memory), 0);
	for (unsigned role = 0; role < CNRE_ROLES; role++) {
		if (memory.part[role].bytes == 0)
			continue;
		cr_assert_leq(memory.part[role].bytes, sizeof bytes);
		cr_assert_eq(fake_gpu.cuMemcpyDtoH_v2(bytes, (CUdeviceptr)(uintptr_t)view->part[role].data, memory.part[role].bytes), CUDA_SUCCESS);
		cr_expect_eq(memcmp(bytes, memory.part[role].data, memory.part[role].bytes), 0);
	}
	cr_expect_eq(cnre_release(client, &memory), 0);
}

struct engine {
	struct cnre *client;
	CUstream stream;
	uint32_t hits, wanted;
	int has_lost;                     /* a release said that the manager is dead */
};

/* One token: every expert is asked for in VRAM, and given back on the stream. 1: enough of them came from there. */
static int run_token(void *context)
{
	struct engine *engine = context;

	engine->hits = 0;
	for (uint32_t i = 0; i < OBJECTS; i++) {
		struct cnre_expert view;
		int r = cnre_acquire_vram(engine->client, i / EXPERTS, i % EXPERTS, 0, LONG_NS, &view);

		cr_assert_eq(r, 0, "%s", strerror(-r));
		engine->hits += (view.flags & CNRE_IN_VRAM) != 0;
		r = cnre_release_on_stream(engine->client, &view, engine->stream);
		cr_assert(r == 0 || r == -EPIPE, "%s", strerror(-r));
		engine->has_lost |= r == -EPIPE;
		cr_assert_eq(view.lease, 0);
	}
	cnre_token_end(engine->client, 1);
	return engine->hits >= engine->wanted;
}

Test(system_vram_engine, engine_finds_its_experts_in_vram_after_some_tokens)
{
	static const char *const options[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", NULL};
	struct cnre_model_info info = {.size = sizeof info};
	struct cnre_stats stats = {.size = sizeof stats};
	struct engine engine = {.wanted = OBJECTS};
	struct cnre_expert view;
	struct world world;

	engine.client = begin(&world, options, CNRE_WANT_VRAM | CNRE_VRAM_OR_RAM);
	engine.stream = make_stream();
	cr_assert_eq(cnre_model(engine.client, &info), 0);
	cr_expect_neq(info.capabilities & CNRE_CAP_VRAM, 0);
	cr_assert(world_wait_until(run_token, &engine, 60), "%u of %u: %s", engine.hits, engine.wanted, world_status_text(&world));
	for (uint32_t i = 0; i < OBJECTS; i++) {
		cr_assert_eq(cnre_acquire_vram(engine.client, i / EXPERTS, i % EXPERTS, 0, 0, &view), 0);
		cr_expect_eq(view.flags, CNRE_IN_VRAM | CNRE_WAS_RESIDENT);
		compare(engine.client, &view);
		cr_expect_eq(cnre_release(engine.client, &view), 0);
	}
	cr_assert_eq(cnre_stats(engine.client, &stats), 0);
	cr_expect_eq(stats.vram_hits, world_stat(&world, "vram_hits"));
	cr_expect_eq(stats.requests, world_stat(&world, "accesses"));
	cr_expect_eq(world_stat(&world, "hits") + world_stat(&world, "misses"), world_stat(&world, "accesses"));
	cnre_detach(engine.client);
	world_close(&world);
	expect_no_rule_broken();
}

Test(system_vram_engine, who_waits_for_vram_alone_gets_it)
{
	static const char *const options[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", NULL};
	struct cnre_expert view;
	struct world world;
	struct cnre *client = begin(&world, options, CNRE_WANT_VRAM);
	int r;

	(void)make_stream();
	r = cnre_acquire_vram(client, 2, 5, 0, LONG_NS, &view); /* it is not even in memory */
	cr_assert_eq(r, 0, "%s: %s", strerror(-r), world_status_text(&world));
	cr_expect_eq(view.flags, CNRE_IN_VRAM);
	compare(client, &view);
	cr_expect_eq(cnre_release(client, &view), 0);
	cnre_detach(client);
	world_close(&world);
	expect_no_rule_broken();
}

Test(system_vram_engine, death_of_the_manager_is_told_once_and_vram_fills_again)
{
	static const char *const options[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", "--keeper", "auto", NULL};
	struct engine engine = {.wanted = OBJECTS};
	struct cnre_expert view;
	struct world world;

	engine.client = begin(&world, options, CNRE_WANT_VRAM | CNRE_VRAM_OR_RAM);
	engine.stream = make_stream();
	cr_assert(world_wait_until(run_token, &engine, 60), "%u of %u", engine.hits, engine.wanted);
	cr_assert_eq(cnre_acquire_vram(engine.client, 1, 1, 0, LONG_NS, &view), 0);
	world_kill_manager(&world);
	cr_expect_eq(cnre_release(engine.client, &view), -EPIPE);
	engine.has_lost = 0;
	cr_assert(world_wait_until(run_token, &engine, 90), "%u of %u", engine.hits, engine.wanted);
	cr_expect_not(engine.has_lost, "what it leased since was the successor's");
	cr_assert_eq(cnre_acquire_vram(engine.client, 1, 1, 0, LONG_NS, &view), 0);
	compare(engine.client, &view);
	cr_expect_eq(cnre_release(engine.client, &view), 0);
	cnre_detach(engine.client);
	world_close(&world);
}
