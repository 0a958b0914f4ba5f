/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu/ with whatever driver this machine has: nothing here needs to know which. make check-gpu runs it on a real GPU, make check
 * with the stand-in driver. Each check is a process of its own that has not called the driver before, since exporters are forked.
 *
 *   check-gpu   a line a check, "N passed, N failed, N skipped" at last; 0, 1, or 77 and why: no driver or no GPU here
 */
#include "gpu/device.h"
#include "gpu/import.h"
#include "gpu/uuid.h"
#include "tests/gpu/engine.h"
#include "tests/gpu/matvec.h"
#include "tests/support/child.h"
#include "tests/support/gpu_exporter.h"
#include "tests/support/gpu_jobs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define SKIPPED 77

/* In a check: says what is not so, and ends it as failed. */
#define MUST(e, ...)                                                                  \
	do {                                                                          \
		if (!(e)) {                                                           \
			(void)printf("  %s:%d: not so: %s: ", __FILE__, __LINE__, #e); \
			(void)printf(__VA_ARGS__);                                    \
			(void)printf("\n");                                           \
			return 1;                                                     \
		}                                                                     \
	} while (0)

static char message[GPU_MESSAGE_BYTES];

static int check_charges(void)
{
	struct gpu_device_status status, after;
	struct gpu *gpu = NULL;
	struct gpu_job job;
	uint64_t address[16];

	MUST(gpu_open(&gpu, &(struct gpu_setup){0}, message) == 0, "%s", message);
	gpu_get_status(gpu, 0, &status);
	(void)printf("  %s %s: %.1f GiB, %.1f free, allocations in multiples of %llu KiB\n", status.uuid_text, status.name,
		     (double)status.total_bytes / 0x1p30, (double)status.free_bytes / 0x1p30,
		     (unsigned long long)status.granularity >> 10);
	MUST((status.granularity & (status.granularity - 1)) == 0 && status.granularity >= 512, "%llu",
	     (unsigned long long)status.granularity);
	for (int i = 0; i < 16; i++) {
		MUST(gpu_try_allocate(gpu, 0, 16 * MIB - 4096, &job) == 0, "allocation %d", i);
		MUST(job.charged_bytes >= job.bytes && job.charged_bytes <= 64 * MIB, "%llu", (unsigned long long)job.charged_bytes);
		address[i] = job.address;
	}
	gpu_get_status(gpu, 0, &after);
	(void)printf("  16 of 16 MiB less 4 KiB: charged %.1f MiB, free memory went down by %.1f MiB\n", (double)after.arena_bytes / 0x1p20,
		     ((double)status.free_bytes - (double)after.free_bytes) / 0x1p20);
	MUST(gpu_try_allocate(gpu, 0, after.total_bytes + MIB, &job) == -ENOMEM, "%d", job.status);
	for (int i = 0; i < 16; i++)
		MUST(gpu_try_free(gpu, 0, address[i]) == 0, "%d", i);
	gpu_get_status(gpu, 0, &after);
	MUST(after.arena_bytes == 0 && after.state == GPU_SERVING, "%s", after.reason);
	gpu = gpu_close(gpu);
	return 0;
}

static int check_uploads(void)
{
	static const uint64_t sizes[] = {1, 4095, 1048577, 64 * MIB};
	struct engine engine;
	struct gpu *gpu = NULL;
	struct gpu_job job;
	unsigned char *source = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	MUST(gpu_open(&gpu, &(struct gpu_setup){.staging_bytes = 16 * MIB}, message) == 0, "%s", message);
	MUST(engine_open(&engine, 0) == 0, "the engine's side");
	MUST(gpu_try_allocate(gpu, 0, 64 * MIB, &job) == 0, "%d", job.status);
	gpu_fill(source, 64 * MIB, 1);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		MUST(gpu_try_upload(gpu, 0, job.address, source, sizes[i], 0) == 0, "%llu bytes", (unsigned long long)sizes[i]);
		MUST(engine_compare(&engine, job.address, sizes[i], gpu_fill, 1) == 0, "%llu bytes", (unsigned long long)sizes[i]);
	}
	gpu_fill(source, 64 * MIB, 2);
	MUST(gpu_register(gpu, source, 64 * MIB) == 0, "register");
	MUST(gpu_try_upload(gpu, 0, job.address, source, 64 * MIB, 1) == 0, "registered");
	MUST(engine_compare(&engine, job.address, 64 * MIB, gpu_fill, 2) == 0, "registered");
	gpu_unregister(gpu, source);
	engine_close(&engine);
	gpu = gpu_close(gpu);
	return 0;
}

static int open_arena(struct gpu_import *import, const struct gpu_exporter *exporter, uint32_t device, uint64_t *ret_address)
{
	const struct gpu_export *export = &exporter->device[device];

	return gpu_import_arena(import, export->handle, export->token, export->address, ret_address);
}

static int check_import(void)
{
	struct gpu_exporter exporter;
	struct gpu_import *import = NULL;
	struct gpu_point *point = NULL;
	struct engine engine;
	uint64_t address = 0;
	int passed = 0;

	MUST(gpu_exporter_start(&exporter, 8 * MIB) == 0, "%s", exporter.message);
	MUST(gpu_import_open(&import, 0, message) == 0, "%s", message);
	MUST(memcmp(gpu_import_uuid(import), exporter.device[0].uuid, GPU_UUID_BYTES) == 0, "another device");
	MUST(engine_open(&engine, 0) == 0, "the engine's side");
	MUST(open_arena(import, &exporter, 0, &address) == 0, "open");
	MUST(engine_compare(&engine, address, 8 * MIB, gpu_fill, exporter.device[0].seed) == 0, "other bytes");
	MUST(gpu_exporter_upload(&exporter, 0, 4711) == 0, "upload");
	MUST(engine_compare(&engine, address, 8 * MIB, gpu_fill, 4711) == 0, "other bytes after another upload");
	MUST(gpu_point_record(import, engine.stream, &point) == 0, "a point");
	for (int i = 0; i < 5000 && (passed = gpu_point_query(point)) == 0; i++)
		(void)usleep(1000);
	MUST(passed == 1, "%d", passed);
	point = gpu_point_free(point);
	MUST(gpu_import_close_arena(import, exporter.device[0].token, address) == 0, "close");
	MUST(gpu_exporter_free(&exporter, 0) == 0, "it frees what nobody has open");
	engine_close(&engine);
	import = gpu_import_close(import);
	MUST(gpu_exporter_stop(&exporter) == 0, "its end");
	return 0;
}

static int check_own_handle(void)
{
	struct gpu_import *import = NULL;
	struct gpu *gpu = NULL;
	struct gpu_job job;
	uint64_t address = 0;

	MUST(gpu_open(&gpu, &(struct gpu_setup){0}, message) == 0, "%s", message);
	MUST(gpu_try_allocate(gpu, 0, MIB, &job) == 0, "%d", job.status);
	MUST(gpu_import_open(&import, 0, message) == 0, "%s", message);
	MUST(gpu_import_arena(import, job.handle, gpu_token(), job.address, &address) == 0 && address == job.address, "not its own");
	import = gpu_import_close(import);
	gpu = gpu_close(gpu);
	return 0;
}

/* What the driver says of a handle that names nothing is in no document: it must be an error, and the device must not be lost. */
static int check_dead_exporter(void)
{
	struct gpu_exporter exporter, next;
	struct gpu_import *import = NULL;
	struct engine engine;
	uint64_t address = 0;
	int r;

	MUST(gpu_exporter_start(&exporter, 8 * MIB) == 0, "%s", exporter.message);
	MUST(gpu_exporter_start(&next, 8 * MIB) == 0, "%s", next.message);
	MUST(gpu_import_open(&import, 0, message) == 0, "%s", message);
	MUST(engine_open(&engine, 0) == 0, "the engine's side");
	gpu_exporter_kill(&exporter);
	r = open_arena(import, &exporter, 0, &address);
	(void)printf("  a handle of a dead process: %d\n", r);
	MUST(r == -EPIPE, "%d, and not that the exporter is gone", r);
	MUST(open_arena(import, &next, 0, &address) == 0, "the device works on");
	MUST(engine_compare(&engine, address, 8 * MIB, gpu_fill, next.device[0].seed) == 0, "other bytes");
	gpu_exporter_kill(&next);
	r = gpu_import_close_arena(import, next.device[0].token, address);
	(void)printf("  closing an arena of a dead process: %d\n", r);
	engine_close(&engine);
	import = gpu_import_close(import);
	return 0;
}

static int check_named(void)
{
	char text[GPU_UUID_TEXT_BYTES];
	const char *const uuids[] = {text};
	struct gpu_device_status status;
	struct gpu_exporter exporter;
	struct gpu *gpu = NULL;

	MUST(gpu_exporter_start(&exporter, MIB) == 0, "%s", exporter.message);
	gpu_uuid_format(exporter.device[exporter.device_count - 1].uuid, 0, text);
	(void)setenv("CUDA_VISIBLE_DEVICES", text, 1);
	MUST(gpu_open(&gpu, &(struct gpu_setup){.uuids = uuids, .uuid_count = 1}, message) == 0, "%s", message);
	gpu_get_status(gpu, 0, &status);
	MUST(strcmp(status.uuid_text, text) == 0, "%s", status.uuid_text);
	gpu = gpu_close(gpu);
	text[7] = text[7] == '0' ? '1' : '0';
	MUST(gpu_open(&gpu, &(struct gpu_setup){.uuids = uuids, .uuid_count = 1}, message) == -ENOENT, "%s", message);
	(void)printf("  %s\n", message);
	MUST(gpu_exporter_stop(&exporter) == 0, "its end");
	return 0;
}

static int compare_products(struct engine *engine, uint64_t expert_at, uint32_t seed)
{
	static unsigned char expert[MATVEC_BYTES];
	static float expected[MATVEC_ROWS], found[MATVEC_ROWS];
	int8_t x[MATVEC_COLUMNS];

	matvec_fill(expert, sizeof expert, seed);
	gpu_fill(x, sizeof x, seed + 1);
	matvec_int8(expert, x, expected);
	MUST(engine_matvec(engine, "matvec_int8", expert_at + MATVEC_INT8_AT, expert_at + MATVEC_INT8_SCALES_AT, x, found, 1) == 0, "int8");
	MUST(memcmp(expected, found, sizeof found) == 0, "int8: other bits than on the CPU");
	matvec_int4(expert, x, expected);
	MUST(engine_matvec(engine, "matvec_int4", expert_at + MATVEC_INT4_AT, expert_at + MATVEC_INT4_SCALES_AT, x, found, 1) == 0, "int4");
	MUST(memcmp(expected, found, sizeof found) == 0, "int4: other bits than on the CPU");
	return 0;
}

/* A process that computes with an expert of another one's. */
static int compute(void *argument)
{
	const struct gpu_exporter *exporter = argument;
	struct gpu_import *import = NULL;
	struct engine engine;
	uint64_t address = 0, sum = 0, expected = 0;
	static unsigned char expert[MATVEC_BYTES];
	int r;

	MUST(gpu_import_open(&import, 0, message) == 0, "%s", message);
	MUST(engine_open(&engine, 0) == 0, "the engine's side");
	MUST(open_arena(import, exporter, 0, &address) == 0, "open");
	r = engine_load_kernels(&engine);
	MUST(r >= 0, "the driver does not take the kernels");
	if (r == 0) {
		matvec_fill(expert, sizeof expert, exporter->device[0].seed);
		for (uint64_t i = 0; i < sizeof expert; i++)
			expected += expert[i];
		MUST(engine_checksum(&engine, address, sizeof expert, &sum) == 0 && sum == expected, "%llu, not %llu",
		     (unsigned long long)sum, (unsigned long long)expected);
		if (getenv("FAKECUDA_WORLD") == NULL)
			r = compare_products(&engine, address, exporter->device[0].seed);
	}
	MUST(gpu_import_close_arena(import, exporter->device[0].token, address) == 0, "close");
	engine_close(&engine);
	import = gpu_import_close(import);
	return r;
}

static int check_kernels(void)
{
	struct gpu_exporter exporter;
	pid_t first, second;
	int r, s;

	MUST(gpu_exporter_start_filled(&exporter, MATVEC_BYTES, matvec_fill) == 0, "%s", exporter.message);
	first = child_start(compute, &exporter);
	second = child_start(compute, &exporter);
	r = child_wait(first);
	s = child_wait(second);
	MUST(gpu_exporter_stop(&exporter) == 0, "its end");
	if (r == SKIPPED)
		(void)printf("  no kernels: nvcc was not there when this was built\n");
	else if (getenv("FAKECUDA_WORLD") != NULL)
		(void)printf("  with the stand-in driver the checksum only\n");
	return r != 0 ? r : s;
}

static const struct {
	const char *name;
	int (*run)(void);
} checks[] = {
	{"what allocations are charged", check_charges},
	{"uploads, staged and registered", check_uploads},
	{"an arena of another process", check_import},
	{"an arena of this process", check_own_handle},
	{"an exporter that died", check_dead_exporter},
	{"devices by UUID", check_named},
	{"kernels in two processes at once", check_kernels},
};

static int run_check(void *argument)
{
	int r = checks[*(int *)argument].run();

	(void)fflush(stdout);
	return r & 0xff;
}

/* Not in this process, which would have called the driver then. */
static int has_driver(void *unused)
{
	(void)unused;
	if (gpu_import_load(message) == 0)
		return 0;
	(void)printf("%s\n", message);
	(void)fflush(stdout);
	return SKIPPED;
}

int main(void)
{
	int passed = 0, failed = 0, skipped = 0;

	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	if (child_run(has_driver, NULL) != 0)
		return SKIPPED;
	for (int i = 0; i < (int)(sizeof checks / sizeof *checks); i++) {
		int r = child_run(run_check, &i);

		(void)printf("%s %s\n", r == 0 ? "ok" : r == SKIPPED ? "skipped" : "FAILED", checks[i].name);
		passed += r == 0;
		skipped += r == SKIPPED;
		failed += r != 0 && r != SKIPPED;
	}
	(void)printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
	return failed > 0;
}
