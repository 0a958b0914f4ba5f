/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events: in which order and when things happen, and handles that are none. */
#include "tests/support/gpu_peer.h"
#include "tests/support/gpu_self.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define gpu fake_gpu

static _Atomic int calls, code_in_call;

static void start(void)
{
	(void)setenv("FAKECUDA_REPORT", "/dev/null", 1);
	fake_gpu_start();
	gpu_self_start(0);
}

static void start_held(void)
{
	start();
	gpu.fakecuda_hold(0, FAKECUDA_EVERY_PROCESS, 0);
}

static void count_call(void *user)
{
	(void)user;
	atomic_fetch_add(&calls, 1);
}

static void count_callback(CUstream stream, CUresult status, void *user)
{
	(void)stream;
	(void)user;
	atomic_store(&code_in_call, (int)status);
	atomic_fetch_add(&calls, 1);
}

static void call_the_driver(void *user)
{
	(void)user;
	atomic_store(&code_in_call, (int)gpu.cuStreamQuery(self.stream));
}

/* Until the stand-in has executed all that was queued: nothing that the host is told of. */
static void drain(void)
{
	struct fakecuda_process is;
	do {
		cr_assert_eq(gpu.fakecuda_process(getpid(), &is), 0);
	} while (is.executed < is.queued);
}

Test(fakecuda_stream, held_but_for_so_many, .init = start_held)
{
	struct fakecuda_process is;
	for (int i = 0; i < 3; i++)
		cr_assert_eq(gpu.cuLaunchHostFunc(self.stream, count_call, NULL), CUDA_SUCCESS);
	gpu.fakecuda_hold(0, FAKECUDA_EVERY_PROCESS, 2);
	do {
		cr_assert_eq(gpu.fakecuda_process(getpid(), &is), 0);
	} while (is.queued - is.executed > 1);
	cr_expect_eq(atomic_load(&calls), 2);
	cr_expect_eq(gpu.cuStreamQuery(self.stream), CUDA_ERROR_NOT_READY);
	gpu.fakecuda_release(0, FAKECUDA_EVERY_PROCESS);
	cr_expect_eq(gpu.cuStreamSynchronize(self.stream), CUDA_SUCCESS);
	cr_expect_eq(atomic_load(&calls), 3);
}

Test(fakecuda_stream, held_in_one_process_alone)
{
	struct gpu_peer peer;
	struct fakecuda_process is;
	fake_gpu_start();
	gpu_peer_start(&peer, 0, NULL);
	gpu_self_start(0);
	gpu.fakecuda_hold(0, peer.pid, 0);
	cr_assert_eq(gpu_peer_do(&peer, GPU_PEER_WRITE), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuLaunchHostFunc(self.stream, count_call, NULL), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuStreamSynchronize(self.stream), CUDA_SUCCESS);
	cr_assert_eq(gpu.fakecuda_process(peer.pid, &is), 0);
	cr_expect_eq(is.queued - is.executed, 1);
	gpu.fakecuda_release(0, peer.pid);
	cr_expect_eq(gpu_peer_do(&peer, GPU_PEER_SYNC), CUDA_SUCCESS);
	(void)gpu_peer_do(&peer, GPU_PEER_QUIT);
}

static void wait_for_call(void *user)
{
	(void)user;
	while (!atomic_load(&calls))
		(void)usleep(100);
}

/* And not for those that said at their creation that they do not. */
Test(fakecuda_stream, stream_0_waits_for_streams_that_block, .init = start)
{
	CUstream blocking;
	cr_assert_eq(gpu.cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuLaunchHostFunc(self.stream, wait_for_call, NULL), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuStreamQuery(NULL), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuStreamSynchronize(NULL), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuStreamQuery(self.stream), CUDA_ERROR_NOT_READY);
	cr_assert_eq(gpu.cuLaunchHostFunc(blocking, wait_for_call, NULL), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	cr_assert_eq(gpu.cuLaunchHostFunc(self.other, count_call, NULL), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuStreamSynchronize(NULL), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuStreamQuery(blocking), CUDA_SUCCESS);
}

Test(fakecuda_stream, takes_its_time, .init = start)
{
	struct timespec before, after;
	gpu.fakecuda_delay(0, 30 * 1000000);
	(void)clock_gettime(CLOCK_MONOTONIC, &before);
	cr_assert_eq(gpu.cuMemcpyHtoDAsync_v2(self.memory, self.pinned, GPU_SELF_BYTES, self.stream), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuStreamSynchronize(self.stream), CUDA_SUCCESS);
	(void)clock_gettime(CLOCK_MONOTONIC, &after);
	cr_expect_geq((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000, 29);
}

Test(fakecuda_stream, a_stream_that_waits_for_an_event_runs_after_it, .init = start)
{
	CUevent event;
	cr_assert_eq(gpu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuEventQuery(event), CUDA_SUCCESS, "it was never recorded");
	gpu.fakecuda_hold(0, FAKECUDA_EVERY_PROCESS, 0);
	cr_assert_eq(gpu.cuMemcpyHtoDAsync_v2(self.memory, self.pinned, 4096, self.stream), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuEventRecord(event, self.stream), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuStreamWaitEvent(self.other, event, 0), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuLaunchHostFunc(self.other, count_call, NULL), CUDA_SUCCESS);
	/* One may pass, and it is the copy, whichever thread comes first. */
	gpu.fakecuda_hold(0, FAKECUDA_EVERY_PROCESS, 1);
	struct fakecuda_process is;
	do {
		cr_assert_eq(gpu.fakecuda_process(getpid(), &is), 0);
	} while (is.queued - is.executed > 2);
	cr_expect_eq(atomic_load(&calls), 0);
	gpu.fakecuda_release(0, FAKECUDA_EVERY_PROCESS);
	cr_expect_eq(gpu.cuStreamSynchronize(self.other), CUDA_SUCCESS);
	cr_expect_eq(atomic_load(&calls), 1);
	gpu_self_expect_none();
}

Test(fakecuda_stream, a_host_function_calls_the_driver, .init = start)
{
	cr_assert_eq(gpu.cuLaunchHostFunc(self.stream, call_the_driver, NULL), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuStreamSynchronize(self.stream), CUDA_SUCCESS);
	cr_expect_eq(atomic_load(&code_in_call), CUDA_ERROR_NOT_PERMITTED);
	gpu_self_expect("call-in-host-function");
}

/* A lease that waits for its stream must learn of the failure some other way than by a host function. */
Test(fakecuda_stream, after_a_failure_callbacks_are_called_and_host_functions_are_not, .init = start_held)
{
	cr_assert_eq(gpu.cuLaunchHostFunc(self.stream, count_call, NULL), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuStreamAddCallback(self.stream, count_callback, NULL, 0), CUDA_SUCCESS);
	gpu.fakecuda_fail_context(getpid(), 0, CUDA_ERROR_LAUNCH_FAILED);
	drain();
	cr_expect_eq(atomic_load(&calls), 1);
	cr_expect_eq(atomic_load(&code_in_call), CUDA_ERROR_LAUNCH_FAILED);
	cr_expect_eq(gpu.cuStreamQuery(self.stream), CUDA_ERROR_LAUNCH_FAILED);
}

Test(fakecuda_stream, the_nth_operation_fails, .init = start)
{
	cr_assert_eq(gpu.fakecuda_fail(getpid(), "stream", 2, CUDA_ERROR_ECC_UNCORRECTABLE, 0), 0);
	cr_assert_eq(gpu.cuLaunchHostFunc(self.stream, count_call, NULL), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuStreamSynchronize(self.stream), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuLaunchHostFunc(self.stream, count_call, NULL), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuStreamSynchronize(self.stream), CUDA_ERROR_ECC_UNCORRECTABLE);
	cr_expect_eq(atomic_load(&calls), 1);
}

Test(fakecuda_stream, a_destroyed_stream_finishes_its_work, .init = start_held)
{
	cr_assert_eq(gpu.cuLaunchHostFunc(self.stream, count_call, NULL), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuStreamDestroy_v2(self.stream), CUDA_SUCCESS);
	gpu.fakecuda_release(0, FAKECUDA_EVERY_PROCESS);
	cr_expect_eq(gpu.cuCtxSynchronize(), CUDA_SUCCESS);
	cr_expect_eq(atomic_load(&calls), 1);
	gpu_self_expect_none();
}

Test(fakecuda_stream, a_stream_that_is_gone, .init = start)
{
	cr_assert_eq(gpu.cuStreamDestroy_v2(self.stream), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuStreamSynchronize(self.stream), CUDA_ERROR_INVALID_HANDLE);
	gpu_self_expect("dead-handle");
	cr_expect_eq(gpu.cuStreamDestroy_v2((CUstream)&calls), CUDA_ERROR_INVALID_HANDLE);
	gpu_self_expect("dead-handle");
}

Test(fakecuda_stream, an_event_that_is_gone, .init = start)
{
	CUevent event;
	cr_assert_eq(gpu.cuEventCreate(&event, 0), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuEventDestroy_v2(event), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuEventRecord(event, self.stream), CUDA_ERROR_INVALID_HANDLE);
	gpu_self_expect("dead-handle");
}

Test(fakecuda_stream, a_module_that_is_gone, .init = start)
{
	CUmodule module;
	CUfunction function;
	cr_expect_eq(gpu.cuModuleLoadData(&module, "nothing of ours"), CUDA_ERROR_INVALID_IMAGE);
	cr_assert_eq(gpu.cuModuleLoadData(&module, "cnre_checksum"), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuModuleGetFunction(&function, module, "other"), CUDA_ERROR_NOT_FOUND);
	cr_assert_eq(gpu.cuModuleUnload(module), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuModuleGetFunction(&function, module, "cnre_checksum"), CUDA_ERROR_INVALID_HANDLE);
	gpu_self_expect("dead-handle");
}

Test(fakecuda_stream, more_streams_than_it_follows, .init = start)
{
	CUstream stream;
	CUresult result;
	int count = 0;
	while (!(result = gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) && count < 1000)
		count++;
	cr_expect_eq(result, CUDA_ERROR_OUT_OF_MEMORY);
	cr_expect_gt(count, 50);
	gpu_self_expect("table-full");
}

Test(fakecuda_stream, nobody_waits_for_ever)
{
	(void)setenv("FAKECUDA_WAIT_MS", "50", 1);
	start_held();
	cr_assert_eq(gpu.cuLaunchHostFunc(self.stream, count_call, NULL), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuStreamSynchronize(self.stream), CUDA_ERROR_LAUNCH_TIMEOUT);
	gpu_self_expect("waited-too-long");
}
