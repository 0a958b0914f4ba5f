/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gpu/ costs on this machine's device, beside what the device can do: bandwidth of uploads through staging and from
 * registered memory against the driver's own copies from pinned memory in the same run; what a client's calls take; kernels that read
 * another process's memory against their own. Rounds in turn, medians.
 *
 *   bench-gpu   BENCH_MIB (256) of each round, BENCH_ROUNDS (5); the last line is JSON. 77 and why: no driver or no GPU here
 */
#include "base/clock.h"
#include "gpu/device.h"
#include "gpu/import.h"
#include "tests/gpu/engine.h"
#include "tests/gpu/matvec.h"
#include "tests/support/child.h"
#include "tests/support/gpu_exporter.h"
#include "tests/support/gpu_jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define SKIPPED 77
#define ROUNDS_MAX 100
#define CALLS 2000
#define OPENS 200
#define LAUNCHES 200u

#define MUST(e)                                                                \
	do {                                                                   \
		if (!(e)) {                                                    \
			(void)printf("bench-gpu: %s: %s\n", #e, message);      \
			return 1;                                              \
		}                                                              \
	} while (0)

static char message[GPU_MESSAGE_BYTES];

static long setting(const char *name, long otherwise)
{
	const char *text = getenv(name);
	long value = text != NULL ? strtol(text, NULL, 10) : otherwise;

	return value > 0 ? value : otherwise;
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double quantile(double *values, size_t count, double part)
{
	qsort(values, count, sizeof *values, by_value);
	return values[(size_t)((double)(count - 1) * part)];
}

/* All of the source in jobs of this size, as many at a time as a manager would have; GB/s. -1: a job failed. */
static double upload(struct gpu *gpu, uint64_t address, const unsigned char *source, uint64_t bytes, uint64_t job_bytes, int is_registered)
{
	static struct gpu_try jobs[4096];
	uint32_t count = 0;
	int64_t begun_ns = cnre_clock_now_ns();

	for (uint64_t at = 0; at + job_bytes <= bytes && count < 4096; at += job_bytes) {
		jobs[count].job = (struct gpu_job){.kind = GPU_JOB_UPLOAD,
						   .address = address + at,
						   .source = source + at,
						   .bytes = job_bytes,
						   .is_registered = is_registered};
		gpu_try_submit(gpu, &jobs[count++]);
	}
	for (uint32_t i = 0; i < count; i++)
		if (gpu_try_wait(gpu, &jobs[i]) < 0)
			return -1;
	return (double)(count * job_bytes) / (double)(cnre_clock_now_ns() - begun_ns);
}

/* The limit: one copy of the driver from memory that it has allocated itself. */
static double copy_pinned(struct engine *engine, uint64_t address, const void *pinned, uint64_t bytes)
{
	int64_t begun_ns = cnre_clock_now_ns();

	if (engine->cuMemcpyHtoDAsync_v2(address, pinned, bytes, engine->stream) != CUDA_SUCCESS ||
	    engine->cuStreamSynchronize(engine->stream) != CUDA_SUCCESS)
		return -1;
	return (double)bytes / (double)(cnre_clock_now_ns() - begun_ns);
}

static int bench_uploads(FILE *json)
{
	static const struct {
		const char *name;
		uint64_t job_bytes;
		int is_registered;
	} ways[] = {{"staged_2m", 2 * MIB, 0}, {"staged_16m", 16 * MIB, 0}, {"registered_2m", 2 * MIB, 1}, {"registered_16m", 16 * MIB, 1}};
	enum { WAYS = sizeof ways / sizeof *ways };
	static double speed[WAYS + 1][ROUNDS_MAX];
	const uint64_t bytes = (uint64_t)setting("BENCH_MIB", 256) * MIB;
	const int rounds = (int)setting("BENCH_ROUNDS", 5) < ROUNDS_MAX ? (int)setting("BENCH_ROUNDS", 5) : ROUNDS_MAX;
	struct gpu_device_status status;
	struct engine engine;
	struct gpu *gpu = NULL;
	struct gpu_job job;
	unsigned char *source = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *registered = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *pinned = NULL;
	double limit;

	MUST(source != MAP_FAILED && registered != MAP_FAILED);
	MUST(gpu_open(&gpu, &(struct gpu_setup){0}, message) == 0);
	MUST(engine_open(&engine, 0) == 0);
	MUST(gpu_try_allocate(gpu, 0, bytes, &job) == 0);
	MUST(engine.cuMemHostAlloc(&pinned, bytes, 0) == CUDA_SUCCESS);
	gpu_fill(source, bytes, 1);
	memcpy(registered, source, bytes);
	memcpy(pinned, source, bytes);
	MUST(gpu_register(gpu, registered, bytes) == 0);
	for (int round = -1; round < rounds; round++) /* the first is not counted */
		for (int way = 0; way <= WAYS; way++) {
			double found = way == WAYS ? copy_pinned(&engine, job.address, pinned, bytes)
						   : upload(gpu, job.address, ways[way].is_registered ? registered : source, bytes,
							    ways[way].job_bytes, ways[way].is_registered);

			MUST(found > 0);
			if (round >= 0)
				speed[way][round] = found;
		}
	gpu_get_status(gpu, 0, &status);
	limit = quantile(speed[WAYS], (size_t)rounds, 0.5);
	(void)printf("%s, %llu MiB, median of %d rounds\n", status.name, (unsigned long long)(bytes / MIB), rounds);
	(void)printf("%-16s %8.2f GB/s\n", "pinned copy", limit);
	(void)fprintf(json, "\"pinned_copy_gb_s\": %.3f", limit);
	for (int way = 0; way < WAYS; way++) {
		double median = quantile(speed[way], (size_t)rounds, 0.5);

		(void)printf("%-16s %8.2f GB/s  %.2f of it\n", ways[way].name, median, median / limit);
		(void)fprintf(json, ", \"%s_gb_s\": %.3f", ways[way].name, median);
	}
	gpu_unregister(gpu, registered);
	(void)engine.cuMemFreeHost(pinned);
	engine_close(&engine);
	gpu = gpu_close(gpu);
	return 0;
}

static void say_times(FILE *json, const char *name, double *us, size_t count)
{
	double half = quantile(us, count, 0.5), most = quantile(us, count, 0.99);

	(void)printf("%-28s p50 %8.2f us  p99 %8.2f us\n", name, half, most);
	(void)fprintf(json, ", \"%s_us\": [%.2f, %.2f]", name, half, most);
}

static double us_since(int64_t begun_ns)
{
	return (double)(cnre_clock_now_ns() - begun_ns) / 1000;
}

static int bench_kernels(FILE *json, struct engine *engine, uint64_t theirs)
{
	static unsigned char expert[MATVEC_BYTES];
	static float y[MATVEC_ROWS];
	int8_t x[MATVEC_COLUMNS];
	CUdeviceptr own = 0;

	if (getenv("FAKECUDA_WORLD") != NULL || engine_load_kernels(engine) != 0) {
		(void)printf("no kernels: nvcc was not there when this was built, or the driver is not a real one\n");
		return 0;
	}
	matvec_fill(expert, sizeof expert, 100);
	gpu_fill(x, sizeof x, 3);
	MUST(engine->cuMemAlloc_v2(&own, sizeof expert) == CUDA_SUCCESS);
	MUST(engine->cuMemcpyHtoD_v2(own, expert, sizeof expert) == CUDA_SUCCESS);
	for (int is_imported = 0; is_imported < 2; is_imported++)
		for (int is_warm = 0; is_warm < 2; is_warm++) {
			uint64_t at = is_imported ? theirs : own;
			int64_t begun_ns = cnre_clock_now_ns();
			double us;

			MUST(engine_matvec(engine, "matvec_int8", at + MATVEC_INT8_AT, at + MATVEC_INT8_SCALES_AT, x, y, LAUNCHES) == 0);
			us = us_since(begun_ns) / LAUNCHES;
			if (!is_warm)
				continue;
			(void)printf("%-28s %12.2f us a launch\n", is_imported ? "matvec_int8, imported" : "matvec_int8, own", us);
			(void)fprintf(json, ", \"matvec_%s_us\": %.2f", is_imported ? "imported" : "own", us);
		}
	return 0;
}

static int bench_import(FILE *json)
{
	static double open_us[OPENS], close_us[OPENS], record_us[CALLS], query_us[CALLS];
	struct gpu_exporter exporter;
	struct gpu_import *import = NULL;
	struct engine engine;
	uint64_t address = 0;

	MUST(gpu_exporter_start_filled(&exporter, 256 * MIB, matvec_fill) == 0);
	MUST(gpu_import_open(&import, 0, message) == 0);
	MUST(engine_open(&engine, 0) == 0);
	for (int i = 0; i < OPENS; i++) {
		const struct gpu_export *export = &exporter.device[0];
		int64_t begun_ns = cnre_clock_now_ns();

		MUST(gpu_import_arena(import, export->handle, export->token, export->address, &address) == 0);
		open_us[i] = us_since(begun_ns);
		begun_ns = cnre_clock_now_ns();
		MUST(i == OPENS - 1 || gpu_import_close_arena(import, export->token, address) == 0);
		close_us[i] = us_since(begun_ns);
	}
	for (int i = 0; i < CALLS; i++) {
		struct gpu_point *point = NULL;
		int64_t begun_ns = cnre_clock_now_ns();

		MUST(gpu_point_record(import, engine.stream, &point) == 0);
		record_us[i] = us_since(begun_ns);
		MUST(engine.cuStreamSynchronize(engine.stream) == CUDA_SUCCESS);
		begun_ns = cnre_clock_now_ns();
		MUST(gpu_point_query(point) == 1);
		query_us[i] = us_since(begun_ns);
		point = gpu_point_free(point);
	}
	say_times(json, "open_arena_256m", open_us, OPENS);
	say_times(json, "close_arena_256m", close_us, OPENS - 1);
	say_times(json, "point_record", record_us, CALLS);
	say_times(json, "point_query", query_us, CALLS);
	MUST(bench_kernels(json, &engine, address) == 0);
	MUST(gpu_import_close_arena(import, exporter.device[0].token, address) == 0);
	engine_close(&engine);
	import = gpu_import_close(import);
	return gpu_exporter_stop(&exporter);
}

struct part {
	int (*run)(FILE *json);
	FILE *json;
};

static int run_part(void *argument)
{
	struct part *part = argument;
	int r = part->run(part->json);

	(void)fflush(part->json);
	(void)fflush(stdout);
	return r;
}

static int has_driver(void *unused)
{
	(void)unused;
	if (gpu_import_load(message) == 0)
		return 0;
	(void)printf("%s\n", message);
	(void)fflush(stdout);
	return SKIPPED;
}

/* Parts are processes of their own, since an exporter is forked before its process calls the driver. */
int main(void)
{
	struct part part = {.json = tmpfile()};
	char line[4096] = "";

	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	if (child_run(has_driver, NULL) != 0)
		return SKIPPED;
	if (part.json == NULL)
		return 1;
	part.run = bench_uploads;
	if (child_run(run_part, &part) != 0)
		return 1;
	part.run = bench_import;
	if (child_run(run_part, &part) != 0)
		return 1;
	rewind(part.json);
	if (fgets(line, sizeof line, part.json) == NULL)
		return 1;
	(void)printf("{%s}\n", line);
	return 0;
}
