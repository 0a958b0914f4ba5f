/* SPDX-License-Identifier: Apache-2.0 */
/* A client's side: arenas of another process, of this one, of a dead one; contexts; points in streams. With the stand-in driver. */
#include "gpu/import.h"

#include "tests/support/fake_gpu.h"
#include "tests/support/gpu_exporter.h"
#include "tests/support/gpu_jobs.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define BYTES (3 * MIB)

TestSuite(gpu_import, .timeout = 60);

static struct gpu_exporter exporter;
static struct gpu_import *import;
static char message[GPU_MESSAGE_BYTES];

static void start(void)
{
	fake_gpu_start();
	cr_assert_eq(gpu_exporter_start(&exporter, BYTES), 0, "%s", exporter.message);
	cr_assert_eq(gpu_import_load(message), 0, "%s", message);
	cr_assert_eq(gpu_import_open(&import, 0, message), 0, "%s", message);
}

static void expect_no_rule_broken(void)
{
	char last[256];

	fake_gpu.fakecuda_last(last, sizeof last);
	cr_expect_eq(fake_gpu.fakecuda_count(NULL), 0, "%s", last);
}

static int open_arena(const struct gpu_export *export, uint64_t *ret_address)
{
	return gpu_import_arena(import, export->handle, export->token, export->address, ret_address);
}

static void expect_content(uint64_t address, uint32_t seed)
{
	static unsigned char expected[BYTES], found[BYTES];

	gpu_fill(expected, BYTES, seed);
	cr_assert_eq(fake_gpu.fakecuda_peek(address, found, BYTES), (long)BYTES);
	cr_expect_eq(memcmp(found, expected, BYTES), 0);
}

Test(gpu_import, the_bytes_of_another_process)
{
	struct fakecuda_usage usage;
	uint64_t address = 0;

	start();
	cr_expect_arr_eq(gpu_import_uuid(import), exporter.device[0].uuid, GPU_UUID_BYTES);
	cr_assert_eq(open_arena(&exporter.device[0], &address), 0);
	cr_expect_neq(address, exporter.device[0].address, "another process's addresses are its own");
	expect_content(address, exporter.device[0].seed);
	cr_assert_eq(gpu_exporter_upload(&exporter, 0, 777), 0);
	expect_content(address, 777);
	fake_gpu.fakecuda_usage(0, &usage);
	cr_expect_eq(usage.opened, 1);
	cr_expect_eq(gpu_import_close_arena(import, exporter.device[0].token, address), 0);
	cr_expect_eq(gpu_import_close_arena(import, exporter.device[0].token, address), -EINVAL, "once");
	fake_gpu.fakecuda_usage(0, &usage);
	cr_expect_eq(usage.opened, 0);
	import = gpu_import_close(import);
	cr_expect_eq(gpu_exporter_stop(&exporter), 0);
	expect_no_rule_broken();
}

Test(gpu_import, closing_a_device_closes_its_arenas)
{
	struct fakecuda_usage usage;
	struct fakecuda_process process;
	CUcontext engines;
	uint64_t address;

	start();
	/* An engine has the context too, so it outlives the import, and would keep what is open in it. */
	cr_assert_eq(fake_gpu.cuDevicePrimaryCtxRetain(&engines, 0), CUDA_SUCCESS);
	cr_assert_eq(open_arena(&exporter.device[0], &address), 0);
	import = gpu_import_close(import);
	fake_gpu.fakecuda_usage(0, &usage);
	cr_expect_eq(usage.opened, 0);
	cr_assert_eq(fake_gpu.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	cr_assert_eq(fake_gpu.fakecuda_process(getpid(), &process), 0);
	cr_expect_eq(process.contexts, 0);
	cr_expect_eq(gpu_exporter_stop(&exporter), 0);
	expect_no_rule_broken();
}

/* Case G1 */
Test(gpu_import, nothing_is_opened_in_the_process_that_exported)
{
	struct gpu *gpu = NULL;
	struct gpu_job job;
	uint64_t address = 0;

	fake_gpu_start();
	cr_assert_eq(gpu_open(&gpu, &(struct gpu_setup){0}, message), 0, "%s", message);
	cr_assert_eq(gpu_try_allocate(gpu, 0, MIB, &job), 0);
	cr_assert_eq(gpu_import_open(&import, 0, message), 0, "%s", message);
	cr_assert_eq(gpu_import_arena(import, job.handle, gpu_token(), job.address, &address), 0);
	cr_expect_eq(address, job.address);
	cr_expect_eq(gpu_import_close_arena(import, gpu_token(), address), 0);
	import = gpu_import_close(import);
	cr_expect_eq(gpu_try_free(gpu, 0, job.address), 0, "it is the manager's side that frees");
	gpu = gpu_close(gpu);
	expect_no_rule_broken();
}

Test(gpu_import, a_handle_after_its_exporter_died)
{
	uint64_t address = 7, open_before = 0;

	start();
	cr_assert_eq(open_arena(&exporter.device[0], &open_before), 0);
	gpu_exporter_kill(&exporter);
	cr_assert_eq(gpu_import_close_arena(import, exporter.device[0].token, open_before), 0, "what was open can be closed");
	cr_expect_eq(open_arena(&exporter.device[0], &address), -EPIPE);
	cr_expect_eq(address, 7, "output is untouched on failure");
	import = gpu_import_close(import);
	expect_no_rule_broken();
}

Test(gpu_import, a_handle_after_its_arena_was_freed)
{
	uint64_t address = 7;

	start();
	cr_assert_eq(gpu_exporter_free(&exporter, 0), 0);
	cr_expect_eq(open_arena(&exporter.device[0], &address), -EPIPE);
	import = gpu_import_close(import);
	cr_expect_eq(gpu_exporter_stop(&exporter), 0);
	expect_no_rule_broken();
}

Test(gpu_import, handles_that_are_none)
{
	struct gpu_export invented;
	uint64_t address = 7;

	start();
	invented = exporter.device[0];
	memset(invented.handle, 0x5a, sizeof invented.handle);
	cr_expect_eq(open_arena(&invented, &address), -EPIPE);
	cr_expect_eq(address, 7);
	import = gpu_import_close(import);
	cr_expect_eq(gpu_exporter_stop(&exporter), 0);
}

/* Case G3: the numbers of both processes differ, the UUIDs say which is which. */
Test(gpu_import, devices_are_matched_by_uuid)
{
	uint64_t address;

	(void)setenv("FAKECUDA_DEVICES", "2", 1);
	fake_gpu_start();
	cr_assert_eq(gpu_exporter_start(&exporter, BYTES), 0, "%s", exporter.message);
	cr_assert_eq(exporter.device_count, 2);
	(void)setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
	cr_assert_eq(gpu_import_open(&import, 0, message), 0, "%s", message);
	cr_expect_arr_eq(gpu_import_uuid(import), exporter.device[1].uuid, GPU_UUID_BYTES);
	cr_assert_eq(open_arena(&exporter.device[1], &address), 0);
	expect_content(address, exporter.device[1].seed);
	cr_expect_lt(open_arena(&exporter.device[0], &address), 0, "memory of the other device");
	import = gpu_import_close(import);
	cr_expect_eq(gpu_exporter_stop(&exporter), 0);
	expect_no_rule_broken();
}

Test(gpu_import, devices_that_are_not_there)
{
	struct gpu_import *none = NULL;

	start();
	cr_expect_eq(gpu_import_open(&none, 1, message), -ENXIO);
	cr_expect(strstr(message, "no GPU 1: it sees 1") != NULL, "%s", message);
	cr_expect_eq(gpu_import_open(&none, -1, message), -ENXIO);
	cr_assert_eq(fake_gpu.fakecuda_fail(0, "cuDevicePrimaryCtxRetain", 1, CUDA_ERROR_OUT_OF_MEMORY, 0), 0);
	cr_expect_eq(gpu_import_open(&none, 0, message), -ENOMEM);
	cr_assert_eq(fake_gpu.fakecuda_fail(0, "cuDevicePrimaryCtxRetain", 1, CUDA_ERROR_DEVICE_UNAVAILABLE, 0), 0);
	cr_expect_eq(gpu_import_open(&none, 0, message), -ENODEV);
	cr_expect(strstr(message, "CUDA_ERROR_DEVICE_UNAVAILABLE") != NULL, "%s", message);
	cr_expect_null(none);
	import = gpu_import_close(import);
	cr_expect_eq(gpu_exporter_stop(&exporter), 0);
}

Test(gpu_import, errors_of_opening)
{
	static const int codes[][2] = {{CUDA_ERROR_OUT_OF_MEMORY, -ENOMEM}, {CUDA_ERROR_ILLEGAL_ADDRESS, -ENODEV},
				       {CUDA_ERROR_INVALID_CONTEXT, -EIO},  {CUDA_ERROR_MAP_FAILED, -EPIPE},
				       {CUDA_ERROR_TOO_MANY_PEERS, -EIO},   {CUDA_ERROR_INVALID_VALUE, -EPIPE}};
	uint64_t address = 7;

	start();
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
		cr_assert_eq(fake_gpu.fakecuda_fail(0, "cuIpcOpenMemHandle_v2", 1, codes[i][0], 0), 0);
		cr_expect_eq(open_arena(&exporter.device[0], &address), codes[i][1], "%d", codes[i][0]);
		cr_expect_eq(address, 7);
	}
	cr_assert_eq(open_arena(&exporter.device[0], &address), 0);
	fake_gpu.fakecuda_lose_device(0, CUDA_ERROR_ECC_UNCORRECTABLE);
	cr_expect_eq(gpu_import_close_arena(import, exporter.device[0].token, address), -ENODEV);
	cr_expect_eq(open_arena(&exporter.device[0], &address), -ENODEV);
	import = gpu_import_close(import);
	gpu_exporter_kill(&exporter);
}

/* Its result, or 0 after 2 s. */
static int await(struct gpu_point *point)
{
	for (int i = 0; i < 2000 && gpu_point_query(point) == 0; i++)
		(void)usleep(1000);
	return gpu_point_query(point);
}

/* The caller's context, or that it has none, is the same after every call. */
Test(gpu_import, contexts_of_the_caller_stay_current)
{
	CUcontext other, found;
	CUstream stream;
	struct gpu_point *point;
	uint64_t address;

	(void)setenv("FAKECUDA_DEVICES", "2", 1);
	start();
	cr_assert_eq(fake_gpu.cuCtxGetCurrent(&found), CUDA_SUCCESS);
	cr_expect_null(found);
	cr_assert_eq(fake_gpu.cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
	cr_assert_eq(fake_gpu.cuCtxSetCurrent(other), CUDA_SUCCESS);
	cr_assert_eq(fake_gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	cr_assert_eq(open_arena(&exporter.device[0], &address), 0);
	cr_expect_eq(gpu_point_record(import, stream, &point), -EINVAL, "a stream of another device");
	cr_assert_eq(gpu_point_record(import, NULL, &point), 0, "the default one is of this device");
	cr_expect_eq(await(point), 1);
	point = gpu_point_free(point);
	cr_expect_eq(gpu_import_close_arena(import, exporter.device[0].token, address), 0);
	cr_assert_eq(fake_gpu.cuCtxGetCurrent(&found), CUDA_SUCCESS);
	cr_expect_eq(found, other);
	import = gpu_import_close(import);
	cr_assert_eq(fake_gpu.cuCtxGetCurrent(&found), CUDA_SUCCESS);
	cr_expect_eq(found, other);
	cr_expect_eq(gpu_exporter_stop(&exporter), 0);
}

static CUstream own_stream(void)
{
	CUcontext context;
	CUstream stream;

	cr_assert_eq(fake_gpu.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	cr_assert_eq(fake_gpu.cuCtxSetCurrent(context), CUDA_SUCCESS);
	cr_assert_eq(fake_gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	return stream;
}

Test(gpu_import, a_point_is_passed_when_the_stream_has_come_there)
{
	static char into[BYTES];
	struct gpu_point *early = NULL, *late = NULL;
	uint64_t address;
	CUstream stream;

	start();
	stream = own_stream();
	cr_assert_eq(open_arena(&exporter.device[0], &address), 0);
	cr_assert_eq(fake_gpu.cuMemHostRegister_v2(into, sizeof into, 0), CUDA_SUCCESS);
	fake_gpu.fakecuda_hold(0, getpid(), 2);
	cr_assert_eq(fake_gpu.cuMemcpyDtoHAsync_v2(into, address, BYTES, stream), CUDA_SUCCESS);
	cr_assert_eq(gpu_point_record(import, stream, &early), 0);
	cr_assert_eq(fake_gpu.cuMemcpyDtoHAsync_v2(into, address, BYTES, stream), CUDA_SUCCESS);
	cr_assert_eq(gpu_point_record(import, stream, &late), 0);
	cr_expect_eq(await(early), 1);
	cr_expect_eq(gpu_point_query(late), 0, "and this call did not wait");
	fake_gpu.fakecuda_release(0, getpid());
	cr_expect_eq(await(late), 1);
	early = gpu_point_free(early);
	late = gpu_point_free(late);
	cr_assert_eq(gpu_import_close_arena(import, exporter.device[0].token, address), 0, "what was passed is over");
	expect_no_rule_broken();
	cr_assert_eq(fake_gpu.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
	import = gpu_import_close(import);
	cr_expect_eq(gpu_exporter_stop(&exporter), 0);
}

Test(gpu_import, a_point_in_a_stream_that_fails)
{
	static char into[BYTES];
	struct gpu_point *point = NULL, *none = NULL;
	uint64_t address;
	CUstream stream;

	start();
	stream = own_stream();
	cr_assert_eq(open_arena(&exporter.device[0], &address), 0);
	cr_assert_eq(fake_gpu.cuMemHostRegister_v2(into, sizeof into, 0), CUDA_SUCCESS);
	fake_gpu.fakecuda_hold(0, getpid(), 0);
	cr_assert_eq(fake_gpu.cuMemcpyDtoHAsync_v2(into, address, BYTES, stream), CUDA_SUCCESS);
	cr_assert_eq(gpu_point_record(import, stream, &point), 0);
	cr_expect_eq(gpu_point_query(point), 0);
	fake_gpu.fakecuda_fail_context(getpid(), 0, CUDA_ERROR_LAUNCH_FAILED);
	cr_expect_eq(gpu_point_query(point), -ENODEV);
	cr_expect_eq(gpu_point_query(point), -ENODEV, "it says the same again");
	cr_expect_eq(gpu_point_record(import, stream, &none), -ENODEV);
	cr_expect_null(none);
	point = gpu_point_free(point);
	cr_expect_null(gpu_point_free(NULL));
	import = gpu_import_close(import);
	cr_expect_eq(gpu_exporter_stop(&exporter), 0);
}

/* Another thread of the program, the usual one of engines. */
static void *query(void *context)
{
	struct gpu_point *point = context;

	return (void *)(intptr_t)gpu_point_query(point);
}

static int query_from_a_thread(struct gpu_point *point)
{
	pthread_t thread;
	void *result;

	cr_assert_eq(pthread_create(&thread, NULL, query, point), 0);
	cr_assert_eq(pthread_join(thread, &result), 0);
	return (int)(intptr_t)result;
}

/* A driver forbids cuEventQuery and others to every thread meanwhile; who calls them all the same destroys the graph. */
Test(gpu_import, a_graph_is_captured_meanwhile)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	struct gpu_point *point = NULL, *none = NULL;
	CUstream stream, captured;
	uint64_t address;
	CUgraph graph;

	start();
	stream = own_stream();
	cr_assert_eq(fake_gpu.cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	fake_gpu.fakecuda_hold(0, getpid(), 0);
	cr_assert_eq(gpu_point_record(import, stream, &point), 0);
	cr_assert_eq(fake_gpu.cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
	cr_expect_eq(query_from_a_thread(point), 0);
	cr_expect_eq(gpu_point_query(point), 0, "from the thread that captures, too");
	cr_assert_eq(open_arena(&exporter.device[0], &address), 0);
	cr_assert_eq(gpu_import_close_arena(import, exporter.device[0].token, address), 0);
	cr_expect_eq(gpu_point_record(import, captured, &none), -EINVAL, "what a graph holds runs later");
	cr_expect_null(none);
	cr_expect_eq(fake_gpu.cuStreamEndCapture(captured, &graph), CUDA_SUCCESS, "and nobody has destroyed it");
	cr_expect_eq(fake_gpu.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
	cr_expect_eq(mode, CU_STREAM_CAPTURE_MODE_GLOBAL, "the caller's own again");
	fake_gpu.fakecuda_release(0, getpid());
	cr_expect_eq(await(point), 1);
	point = gpu_point_free(point);
	expect_no_rule_broken();
	import = gpu_import_close(import);
	cr_expect_eq(gpu_exporter_stop(&exporter), 0);
}

/* An error of the query itself is no end of the stream. */
Test(gpu_import, a_query_that_is_forbidden_says_nothing)
{
	struct gpu_point *point = NULL;
	CUstream stream;

	start();
	stream = own_stream();
	cr_assert_eq(gpu_point_record(import, stream, &point), 0);
	cr_assert_eq(fake_gpu.fakecuda_fail(0, "cuEventQuery", 1, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 0), 0);
	cr_expect_eq(gpu_point_query(point), 0);
	cr_expect_eq(await(point), 1);
	point = gpu_point_free(point);
	import = gpu_import_close(import);
	cr_expect_eq(gpu_exporter_stop(&exporter), 0);
}
