/* SPDX-License-Identifier: Apache-2.0 */
/* VRAM as an engine uses it: libcnre, a real manager, and the stand-in driver, which tells of every rule that anybody breaks. */
#include "base/clock.h"
#include "cnre/cnre.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(system_vram_client, .timeout = 150);

enum { LAYERS = 4, EXPERTS = 16, OBJECTS = LAYERS * EXPERTS };
static const char *const options[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", "--socket-mode", "0600", NULL};

static void begin(struct world *world, const char *const *manager_options)
{
	(void)setenv("FAKECUDA_MEMORY", "256M", 1);
	fake_gpu_start();
	world_open(world);
	world_generate(world, NULL);
	cr_assert_gt(world_start(world, manager_options), 0);
}

static void end(struct world *world)
{
	char last[256] = "";

	world_close(world);
	fake_gpu.fakecuda_last(last, sizeof last);
	cr_expect_eq(fake_gpu.fakecuda_count(NULL), 0, "%s", last);
}

static int attach(struct cnre **ret_client, const struct world *world, uint32_t flags)
{
	struct cnre_options how = {.size = sizeof how, .socket = world->socket, .timeout_ns = 20000000000, .flags = CNRE_WANT_VRAM | flags};

	return cnre_attach(ret_client, world->model, &how);
}

/* One expert: 1 in VRAM, 0 in memory, or what went wrong. Its bytes must be those of memory. */
static int use(struct cnre *client, uint32_t layer, uint32_t index)
{
	static unsigned char there[1 << 20];
	struct cnre_expert vram, ram;
	CUcontext context, popped;
	int r = cnre_acquire_vram(client, layer, index, 0, 0, &vram), in_vram;

	if (r < 0)
		return r;
	in_vram = (vram.flags & CNRE_IN_VRAM) != 0;
	if (in_vram) {
		r = cnre_acquire(client, layer, index, 20000000000, &ram);
		if (r < 0)
			return r;
		if (fake_gpu.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS || fake_gpu.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
			return -EIO;
		for (int role = 0; role < CNRE_ROLES && r == 0; role++)
			if (vram.part[role].bytes > 0 &&
			    (fake_gpu.cuMemcpyDtoH_v2(there, (CUdeviceptr)vram.part[role].data, vram.part[role].bytes) != CUDA_SUCCESS ||
			     memcmp(there, ram.part[role].data, ram.part[role].bytes) != 0))
				r = -EILSEQ;
		(void)fake_gpu.cuCtxPopCurrent_v2(&popped);
		(void)fake_gpu.cuDevicePrimaryCtxRelease_v2(0);
		(void)cnre_release(client, &ram);
	}
	(void)cnre_release(client, &vram);
	return r < 0 ? r : in_vram;
}

/* Uses everything until so many are in VRAM. 0, or what went wrong. */
static int use_all(struct cnre *client, int wanted)
{
	for (int64_t deadline_ns = cnre_clock_deadline_ns(30 * CNRE_NS_PER_S); cnre_clock_left_ns(deadline_ns) > 0;) {
		int found = 0;

		for (uint32_t i = 0; i < OBJECTS; i++) {
			int r = use(client, i / EXPERTS, i % EXPERTS);

			if (r == -ETIMEDOUT)
				continue; /* on its way to memory, or from there */
			if (r < 0)
				return r;
			found += r;
		}
		cnre_token_end(client, 1);
		if (found >= wanted)
			return 0;
	}
	return -ETIME;
}

static int run_client(const struct world *world)
{
	struct cnre *client;
	int r = attach(&client, world, CNRE_VRAM_OR_RAM);

	if (r == 0)
		r = use_all(client, OBJECTS);
	if (r == 0)
		r = use_all(client, OBJECTS);
	if (r == 0)
		cnre_detach(client);
	return r;
}

Test(system_vram_client, two_engines_read_the_same_experts_in_vram_as_in_memory)
{
	struct world world;
	pid_t child[2];
	int status;

	begin(&world, options);
	for (int i = 0; i < 2; i++) {
		child[i] = fork(); /* before anything of the driver */
		if (child[i] == 0)
			_exit(-run_client(&world));
	}
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(waitpid(child[i], &status, 0), child[i]);
		cr_expect_eq(status, 0, "%s", strerror(WEXITSTATUS(status)));
	}
	(void)usleep(100000);
	cr_expect_eq(world_stat(&world, "vram_uploads"), OBJECTS, "each is there once, whoever uses it");
	cr_expect_geq(world_stat(&world, "vram_hits"), 2u * 2 * OBJECTS);
	cr_expect_eq(world_stat(&world, "hits") + world_stat(&world, "misses"), world_stat(&world, "accesses"));
	cr_expect_leq(world_stat(&world, "vram_hits"), world_stat(&world, "hits"));
	end(&world);
}

/* Leases experts, lets a stream that does not run read them, says so, and waits to be killed. */
static int run_victim(const struct world *world, int ready)
{
	struct cnre_expert expert[4];
	CUcontext context;
	struct cnre *client;
	CUstream stream;
	void *to;
	int r = attach(&client, world, CNRE_VRAM_OR_RAM);

	if (r == 0)
		r = use_all(client, OBJECTS);
	if (r < 0 || fake_gpu.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS || fake_gpu.cuCtxSetCurrent(context) != CUDA_SUCCESS ||
	    fake_gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS || fake_gpu.cuMemHostAlloc(&to, 1 << 20, 0) != CUDA_SUCCESS)
		return r < 0 ? r : -EIO;
	fake_gpu.fakecuda_hold(0, getpid(), 0);
	for (uint32_t i = 0; i < 4; i++) {
		r = cnre_acquire_vram(client, 0, i, 0, 0, &expert[i]);
		if (r < 0 || (expert[i].flags & CNRE_IN_VRAM) == 0)
			return r < 0 ? r : -ENOENT;
		if (fake_gpu.cuMemcpyDtoHAsync_v2(to, (CUdeviceptr)expert[i].part[CNRE_GATE].data, 512, stream) != CUDA_SUCCESS)
			return -EIO;
		r = cnre_release_on_stream(client, &expert[i], stream);
		if (r < 0)
			return r;
	}
	(void)!write(ready, "!", 1);
	(void)pause();
	return 0;
}

static int is_empty(void *context)
{
	struct fakecuda_usage usage;

	(void)context;
	fake_gpu.fakecuda_usage(0, &usage);
	return usage.used_bytes == 0;
}

Test(system_vram_client, an_engine_killed_while_its_stream_runs_leaves_no_memory_that_is_used_twice)
{
	struct world world;
	int ends[2], status;
	pid_t child;
	char byte;

	begin(&world, options);
	cr_assert_eq(pipe(ends), 0);
	child = fork();
	if (child == 0)
		_exit(-run_victim(&world, ends[1]));
	(void)close(ends[1]);
	cr_assert_eq(read(ends[0], &byte, 1), 1, "the engine ended");
	cr_assert_eq(kill(child, SIGKILL), 0);
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "set", "vram", "0", NULL}, NULL, 0), 0);
	cr_expect(world_wait_until(is_empty, NULL, 30), "its arenas go back in the end");
	end(&world);
}

Test(system_vram_client, after_a_restart_a_lease_of_the_dead_manager_is_told_of_and_vram_fills_again)
{
	static const char *const kept[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", "--keeper", "auto", NULL};
	struct cnre_expert held;
	struct cnre *client;
	struct world world;

	begin(&world, kept);
	cr_assert_eq(attach(&client, &world, CNRE_VRAM_OR_RAM), 0);
	cr_assert_eq(use_all(client, OBJECTS), 0);
	cr_assert_eq(cnre_acquire_vram(client, 0, 0, 0, 0, &held), 0);
	cr_assert((held.flags & CNRE_IN_VRAM) != 0);
	world_kill_manager(&world);
	cr_expect_eq(cnre_release(client, &held), -EPIPE, "what was computed from it may be wrong");
	cr_expect_eq(use_all(client, OBJECTS), 0);
	cr_expect_eq(world_stat(&world, "hits") + world_stat(&world, "misses"), world_stat(&world, "accesses"));
	cnre_detach(client);
	world_close(&world);
}

static int is_refused(void *context)
{
	struct cnre_expert expert;
	int r = cnre_acquire_vram(context, 0, 0, 0, 0, &expert);

	if (r == 0)
		(void)cnre_release(context, &expert);
	return r == -ENODEV;
}

Test(system_vram_client, of_a_lost_device_an_engine_hears_and_memory_serves_on)
{
	struct cnre_expert expert;
	struct cnre *client;
	struct world world;

	begin(&world, options);
	cr_assert_eq(attach(&client, &world, 0), 0);
	cr_assert_eq(use_all(client, OBJECTS), 0);
	fake_gpu.fakecuda_lose_device(0, 719);
	cr_expect(world_wait_until(is_refused, client, 20));
	for (uint32_t i = 0; i < OBJECTS; i++) {
		cr_assert_eq(cnre_acquire(client, i / EXPERTS, i % EXPERTS, 20000000000, &expert), 0);
		cr_assert_eq(cnre_release(client, &expert), 0);
	}
	cnre_detach(client);
	world_close(&world);
}
