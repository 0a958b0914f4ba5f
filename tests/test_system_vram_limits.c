/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VRAM where something is short or fails, with a real manager and the stand-in driver: a limit on the host's memory that the
 * kernel enforces, uploads and allocations that the driver refuses, and a client that sees other pids and other numbers of GPUs.
 */
#include "cnre/cnre.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/vram_raw.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(system_vram_limits, .timeout = 120);

enum { LAYERS = 4, EXPERTS = 16, OBJECTS = LAYERS * EXPERTS };
#define ACQUIRE_NS 60000000000

static void begin(struct world *world, const char *const *shape, const char *const *options, void (*prepare)(void))
{
	world_generate(world, shape);
	cr_assert_gt(world_start_with(world, options, prepare), 0, "%s", world->log);
}

static void expect_no_rule_broken(void)
{
	char last[256] = "";

	fake_gpu.fakecuda_last(last, sizeof last);
	cr_expect_eq(fake_gpu.fakecuda_count(NULL), 0, "%s", last);
}

struct filling {
	struct world *world;
	struct cnre *client;
	struct vram_raw raw;
	uint32_t layers, experts;         /* used once at each look */
	uint32_t wanted;                  /* ready, then */
	const char *said;                 /* in status, or NULL */
	int is_said;
};

static void use_all(const struct filling *filling)
{
	for (uint32_t i = 0; i < filling->layers * filling->experts; i++) {
		struct cnre_expert expert;
		int r = cnre_acquire(filling->client, i / filling->experts, i % filling->experts, ACQUIRE_NS, &expert);

		cr_assert_eq(r, 0, "%s", strerror(-r));
		cr_assert_eq(cnre_release(filling->client, &expert), 0);
	}
	cnre_token_end(filling->client, 1);
}

static int is_filled(void *context)
{
	struct filling *filling = context;

	use_all(filling);
	if (filling->said != NULL && !filling->is_said)
		filling->is_said = strstr(world_status_text(filling->world), filling->said) != NULL;
	return vram_raw_ready(&filling->raw) >= filling->wanted;
}

static int is_said(void *context)
{
	struct filling *filling = context;

	(void)is_filled(filling);
	return filling->is_said;
}

static void attach(struct filling *filling, struct world *world, uint64_t reserve_bytes)
{
	int r;

	filling->world = world;
	filling->client = world_attach(world, reserve_bytes);
	r = vram_raw_attach(&filling->raw, world->socket, world->model, reserve_bytes / 2);
	cr_assert_eq(r, 0, "%s", strerror(-r));
	r = vram_raw_open(&filling->raw, NULL);
	cr_assert_eq(r, 0, "%s: %s", strerror(-r), filling->raw.message);
}

static void end(struct filling *filling)
{
	vram_raw_close(&filling->raw);
	cnre_detach(filling->client);
}

/* ---- the host's memory (A6) ---- */

#define MEMORY_GROUPS "/sys/fs/cgroup/memory"
#define HOST_LIMIT "256M"

static char group[96];
static pid_t limited;                     /* the manager in it */

static int put(const char *name, const char *value)
{
	char path[160];
	int fd, ok;

	(void)snprintf(path, sizeof path, "%s/%s", group, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	ok = fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value);
	(void)close(fd);
	return ok;
}

static uint64_t group_number(const char *name)
{
	char path[160];
	unsigned long long value = 0;
	FILE *file;

	(void)snprintf(path, sizeof path, "%s/%s", group, name);
	file = fopen(path, "re");
	cr_assert_not_null(file);
	cr_assert_eq(fscanf(file, "%llu", &value), 1);
	(void)fclose(file);
	return value;
}

static void enter_group(void)
{
	char pid[16];

	(void)snprintf(pid, sizeof pid, "%d", (int)getpid());
	if (!put("cgroup.procs", pid))
		_exit(99);
}

/* Also after a test that failed in the middle. */
static void remove_group(void)
{
	if (limited > 0 && kill(limited, SIGKILL) == 0)
		(void)waitpid(limited, NULL, 0);
	if (group[0] != '\0')
		(void)rmdir(group);
}

/*
 * Goal: whoever has 256 MiB of memory fills 1 GiB of VRAM. Method: the kernel kills a manager that takes more; the stand-in's
 * device memory is a file on a disk, whose pages the kernel may write back and take.
 */
Test(system_vram_limits, with_a_limit_of_256_mib_a_gibibyte_of_vram_fills, .fini = remove_group, .timeout = 280)
{
	static const char *const shape[] = {"--hidden", "512", "--intermediate", "256", "--layers", "1", "--experts", "1344", "--expert-format", "bf16", NULL};
	static const char *const options[] = {"--ram", "64M", "--vram", "1G", "--vram-reserve", "64M", "--vram-staging", "64M", "--hugepages", "4k", NULL};
	struct filling filling = {.layers = 1, .experts = 1344, .wanted = 1280}; /* of 768 KiB: 960 MiB */
	struct world world;
	char path[96];
	int filled;

#ifdef __SANITIZE_ADDRESS__
	cr_skip_test("the sanitizer alone takes more memory than that");
#endif
	if (geteuid() != 0 || access(MEMORY_GROUPS "/memory.limit_in_bytes", W_OK) < 0)
		cr_skip("needs root and a version 1 memory controller");
	(void)snprintf(group, sizeof group, MEMORY_GROUPS "/cnre-test-vram-%d", (int)getpid());
	cr_assert_eq(mkdir(group, 0755), 0);
	if (!put("memory.limit_in_bytes", HOST_LIMIT)) {
		(void)rmdir(group);
		cr_skip("the memory controller takes no limit");
	}
	world_open(&world);
	(void)snprintf(path, sizeof path, "%s/gpu", world.directory);
	(void)setenv("FAKECUDA_WORLD", path, 1);
	(void)setenv("FAKECUDA_MEMORY", "4G", 1);
	fake_gpu_start();
	begin(&world, shape, options, enter_group);
	limited = world.manager;
	attach(&filling, &world, 16 << 20);
	filled = world_wait_until(is_filled, &filling, 200);
	cr_expect(filled, "%u of %u", vram_raw_ready(&filling.raw), filling.wanted);
	cr_expect_eq(waitpid(world.manager, NULL, WNOHANG), 0, "the kernel has killed it");
	cr_expect_geq(world_stat(&world, "vram_bytes"), 960u << 20);
	cr_expect_gt(group_number("memory.max_usage_in_bytes"), 64u << 20, "it was in the group");
	end(&filling);
	expect_no_rule_broken();
	limited = 0;
	world_close(&world);
	cr_expect_eq(rmdir(group), 0);
}

/* ---- what the driver refuses (A7) ---- */

static const char *const plenty[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", NULL};

static void begin_small(struct filling *filling, struct world *world)
{
	(void)setenv("FAKECUDA_MEMORY", "256M", 1);
	fake_gpu_start();
	world_open(world);
	begin(world, NULL, plenty, NULL);
	*filling = (struct filling){.layers = LAYERS, .experts = EXPERTS, .wanted = OBJECTS};
}

Test(system_vram_limits, an_upload_that_fails_is_told_of_and_tried_again)
{
	static unsigned char there[1 << 20];
	struct cnre_expert expert;
	struct filling filling;
	struct world world;

	begin_small(&filling, &world);
	cr_assert_eq(fake_gpu.fakecuda_fail(world.manager, "cuMemcpyHtoDAsync_v2", 1, CUDA_ERROR_INVALID_VALUE, 0), 0);
	attach(&filling, &world, 0);
	filling.said = "uploads fail, 1 so far: what they were for is served from RAM";
	cr_expect(world_wait_until(is_said, &filling, 20), "%s", world_status_text(&world));
	cr_expect(world_log_has(&world, "an upload failed"));
	cr_expect_lt(vram_raw_ready(&filling.raw), OBJECTS, "and nothing is shown that is not there");
	cr_expect(world_wait_until(is_filled, &filling, 30), "%u of %u", vram_raw_ready(&filling.raw), OBJECTS);
	cr_expect_eq(world_stat(&world, "vram_uploads"), OBJECTS);
	cr_expect_not_null(strstr(world_status_text(&world), "\"upload_errors\":1"), "%s", world_status_text(&world));
	for (uint32_t i = 0; i < OBJECTS; i++) {
		cr_assert_eq(cnre_acquire(filling.client, i / EXPERTS, i % EXPERTS, ACQUIRE_NS, &expert), 0);
		cr_assert_leq(expert.part[CNRE_GATE].bytes, sizeof there);
		cr_assert_eq(vram_raw_read(&filling.raw, i, CNRE_GATE, there, expert.part[CNRE_GATE].bytes), 0);
		cr_expect_eq(memcmp(there, expert.part[CNRE_GATE].data, expert.part[CNRE_GATE].bytes), 0, "object %u", i);
		cr_assert_eq(cnre_release(filling.client, &expert), 0);
	}
	end(&filling);
	world_close(&world);
	expect_no_rule_broken();
}

Test(system_vram_limits, an_arena_that_is_refused_is_asked_for_in_smaller_ones)
{
	struct filling filling;
	struct world world;

	begin_small(&filling, &world);
	cr_assert_eq(fake_gpu.fakecuda_fail(world.manager, "cuMemAlloc_v2", 1, CUDA_ERROR_OUT_OF_MEMORY, 0), 0);
	attach(&filling, &world, 0);
	cr_expect(world_wait_until(is_filled, &filling, 30), "%u of %u", vram_raw_ready(&filling.raw), OBJECTS);
	cr_expect_gt(vram_raw_arenas(&filling.raw, CNRE_ARENA_LIVE), 0);
	cr_expect_not(world_log_has(&world, "the driver has no memory left"));
	end(&filling);
	world_close(&world);
	expect_no_rule_broken();
}

Test(system_vram_limits, a_driver_without_memory_is_told_of_and_ram_serves)
{
	struct filling filling;
	struct world world;

	begin_small(&filling, &world);
	cr_assert_eq(fake_gpu.fakecuda_fail(world.manager, "cuMemAlloc_v2", 1, CUDA_ERROR_OUT_OF_MEMORY, 1), 0);
	attach(&filling, &world, 0);
	filling.said = "the driver has no memory left on it";
	cr_expect(world_wait_until(is_said, &filling, 20), "%s", world_status_text(&world));
	cr_expect(world_log_has(&world, filling.said));
	use_all(&filling);
	cr_expect_eq(vram_raw_ready(&filling.raw), 0);
	cr_expect_eq(world_stat(&world, "vram_bytes"), 0);
	cr_expect_eq(world_stat(&world, "vram_uploads"), 0);
	end(&filling);
	world_close(&world);
	expect_no_rule_broken();
}

/* ---- other pids, other numbers (G3) ---- */

#define FIRST "GPU-11111111-1111-1111-1111-111111111111"
#define SECOND "GPU-22222222-2222-2222-2222-222222222222"

/* 0: expert 0 came from VRAM by this device, with the bytes that it has in memory. */
static int read_one(const struct world *world, int device)
{
	struct cnre_options how = {.size = sizeof how, .socket = world->socket, .timeout_ns = 20000000000, .flags = CNRE_WANT_VRAM};
	static unsigned char there[1 << 20];
	struct cnre_expert vram, ram;
	CUcontext context;
	struct cnre *client;
	int r = cnre_attach(&client, world->model, &how);

	if (r < 0)
		return -r;
	r = cnre_acquire_vram(client, 0, 0, device, 20000000000, &vram);
	if (r < 0) {
		cnre_detach(client);
		return -r;
	}
	r = cnre_acquire(client, 0, 0, 20000000000, &ram);
	if (r < 0)
		return -r;
	if (vram.part[CNRE_GATE].bytes > sizeof there || fake_gpu.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS ||
	    fake_gpu.cuCtxSetCurrent(context) != CUDA_SUCCESS ||
	    fake_gpu.cuMemcpyDtoH_v2(there, (CUdeviceptr)(uintptr_t)vram.part[CNRE_GATE].data, vram.part[CNRE_GATE].bytes) != CUDA_SUCCESS)
		return EIO;
	if (memcmp(there, ram.part[CNRE_GATE].data, ram.part[CNRE_GATE].bytes) != 0)
		return EILSEQ;
	r = cnre_release(client, &ram);
	if (r == 0)
		r = cnre_release(client, &vram);
	cnre_detach(client);
	return -r;
}

/* Its pid is 1, it may look at no other process, and what is device 1 of the machine is its device 0. 200: no right to all that. */
static int run_elsewhere(const struct world *world)
{
	int status;
	pid_t child;

	(void)setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
	if (unshare(CLONE_NEWPID) < 0)
		return 200;
	child = fork();
	if (child == 0) {
		if (prctl(PR_CAPBSET_DROP, CAP_SYS_PTRACE, 0, 0, 0) < 0 || getpid() != 1)
			_exit(200);
		_exit(read_one(world, 1) != ENODEV ? 201 : read_one(world, 0));
	}
	return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 202;
}

Test(system_vram_limits, a_client_with_other_pids_and_numbers_reads_the_right_device)
{
	static const char *const options[] = {"--ram", "64M", "--vram", "128M", "--vram-reserve", "32M", "--vram-devices", SECOND, NULL};
	struct world world;
	int status;
	pid_t child;

	(void)setenv("FAKECUDA_DEVICES", "2", 1);
	(void)setenv("FAKECUDA_UUIDS", FIRST "," SECOND, 1);
	(void)setenv("FAKECUDA_MEMORY", "256M", 1);
	fake_gpu_start();
	world_open(&world);
	begin(&world, NULL, options, NULL);
	child = fork();
	if (child == 0)
		_exit(run_elsewhere(&world));
	cr_assert_eq(waitpid(child, &status, 0), child);
	world_close(&world);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 200)
		cr_skip("no right to make a namespace of pids");
	cr_expect_eq(status, 0, "%d: %s", WEXITSTATUS(status), strerror(WEXITSTATUS(status)));
	expect_no_rule_broken();
}
