/* SPDX-License-Identifier: Apache-2.0 */
/* Accesses to the same bytes of which nothing says which comes first, and all that does say it. */
#include "tests/support/gpu_peer.h"
#include "tests/support/gpu_self.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define gpu fake_gpu
#define ALL GPU_SELF_BYTES

static struct gpu_peer peer;
static CUdeviceptr opened;

static void start(void)
{
	(void)setenv("FAKECUDA_REPORT", "/dev/null", 1);
	fake_gpu_start();
	gpu_self_start(0);
}

static void start_with_peer(void)
{
	(void)setenv("FAKECUDA_REPORT", "/dev/null", 1);
	fake_gpu_start();
	gpu_peer_start(&peer, 0, NULL);
	gpu_self_start(0);
	cr_assert_eq(gpu.cuIpcOpenMemHandle_v2(&opened, peer.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_SUCCESS);
}

static void stop_peer(void)
{
	(void)gpu_peer_do(&peer, GPU_PEER_QUIT);
}

static void upload(CUstream stream)
{
	cr_assert_eq(gpu.cuMemcpyHtoDAsync_v2(self.memory, self.pinned, ALL, stream), CUDA_SUCCESS);
}

static void read_on(CUstream stream)
{
	cr_assert_eq(gpu_self_checksum(self.memory, ALL, stream), CUDA_SUCCESS);
}

Test(fakecuda_order, read_on_another_stream_than_the_upload, .init = start)
{
	upload(self.stream);
	read_on(self.other);
	gpu_self_expect("unsynchronised");
}

/* Luck does not help: that the upload was through by then is not known to anybody. */
Test(fakecuda_order, the_same_when_the_upload_happens_to_be_done, .init = start)
{
	struct fakecuda_process is;
	upload(self.stream);
	do {
		cr_assert_eq(gpu.fakecuda_process(getpid(), &is), 0);
	} while (is.executed < is.queued);
	read_on(self.other);
	gpu_self_expect("unsynchronised");
}

Test(fakecuda_order, read_on_the_same_stream, .init = start)
{
	upload(self.stream);
	read_on(self.stream);
	gpu_self_expect_none();
}

Test(fakecuda_order, two_readers, .init = start)
{
	read_on(self.stream);
	cr_assert_eq(gpu.cuMemcpyDtoHAsync_v2(self.pinned, self.memory, ALL, self.other), CUDA_SUCCESS);
	gpu_self_expect_none();
}

Test(fakecuda_order, other_bytes_of_the_same_allocation, .init = start)
{
	cr_assert_eq(gpu.cuMemcpyHtoDAsync_v2(self.memory, self.pinned, 4096, self.stream), CUDA_SUCCESS);
	cr_assert_eq(gpu_self_checksum(self.memory + 4096, 4096, self.other), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuMemcpyHtoDAsync_v2(self.memory + 16384, self.pinned, 4096, self.stream), CUDA_SUCCESS);
	cr_assert_eq(gpu_self_checksum(self.memory + 12288, 4096, self.other), CUDA_SUCCESS);
	gpu_self_expect_none();
	cr_assert_eq(gpu_self_checksum(self.memory + 4095, 1, self.other), CUDA_SUCCESS);
	gpu_self_expect("unsynchronised");
}

Test(fakecuda_order, a_stream_that_waits_for_an_event, .init = start)
{
	CUevent event;
	cr_assert_eq(gpu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
	upload(self.stream);
	cr_assert_eq(gpu.cuEventRecord(event, self.stream), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuStreamWaitEvent(self.other, event, 0), CUDA_SUCCESS);
	read_on(self.other);
	gpu_self_expect_none();
}

Test(fakecuda_order, an_event_recorded_before_the_upload, .init = start)
{
	CUevent event;
	cr_assert_eq(gpu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuEventRecord(event, self.stream), CUDA_SUCCESS);
	upload(self.stream);
	cr_assert_eq(gpu.cuEventSynchronize(event), CUDA_SUCCESS);
	read_on(self.other);
	gpu_self_expect("unsynchronised");
}

Test(fakecuda_order, a_host_that_waited_for_the_event, .init = start)
{
	CUevent event;
	cr_assert_eq(gpu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
	upload(self.stream);
	cr_assert_eq(gpu.cuEventRecord(event, self.stream), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuEventSynchronize(event), CUDA_SUCCESS);
	read_on(self.other);
	gpu_self_expect_none();
}

Test(fakecuda_order, a_host_that_waited_for_the_stream, .init = start)
{
	upload(self.stream);
	cr_assert_eq(gpu.cuStreamSynchronize(self.stream), CUDA_SUCCESS);
	read_on(self.other);
	gpu_self_expect_none();
}

static void do_nothing(void *user)
{
	(void)user;
}

/* What a host function finds done, it may tell: the lease of an expert is given back like this. */
Test(fakecuda_order, a_host_function_behind_it, .init = start)
{
	struct fakecuda_process is;
	read_on(self.stream);
	cr_assert_eq(gpu.cuLaunchHostFunc(self.stream, do_nothing, NULL), CUDA_SUCCESS);
	do {
		cr_assert_eq(gpu.fakecuda_process(getpid(), &is), 0);
	} while (is.executed < is.queued);
	upload(self.other);
	gpu_self_expect_none();
}

Test(fakecuda_order, written_under_a_reader, .init = start)
{
	read_on(self.stream);
	upload(self.other);
	gpu_self_expect("unsynchronised");
}

/* As documented: what is pageable is staged, and the call returns before the device has it. */
Test(fakecuda_order, a_synchronous_copy_of_pageable_memory, .init = start)
{
	static unsigned char pageable[4096];
	cr_assert_eq(gpu.cuMemcpyHtoD_v2(self.memory, pageable, sizeof pageable), CUDA_SUCCESS);
	read_on(self.other);
	gpu_self_expect("unsynchronised");
	cr_assert_eq(gpu.cuCtxSynchronize(), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuMemcpyHtoD_v2(self.memory, self.pinned, 4096), CUDA_SUCCESS);
	read_on(self.other);
	gpu_self_expect_none();
}

/* Stream 0 waits for streams that block, and they for it; for the others it does not. */
Test(fakecuda_order, stream_0, .init = start)
{
	CUstream blocking;
	static unsigned char bytes[4096];
	cr_assert_eq(gpu.cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
	upload(blocking);
	cr_assert_eq(gpu.cuMemcpyDtoH_v2(bytes, self.memory, sizeof bytes), CUDA_SUCCESS);
	gpu_self_expect_none();
	upload(self.stream);
	cr_assert_eq(gpu.cuMemcpyDtoH_v2(bytes, self.memory, sizeof bytes), CUDA_SUCCESS);
	gpu_self_expect("unsynchronised");
}

Test(fakecuda_order, a_host_that_waited_for_stream_0, .init = start)
{
	CUstream blocking;
	cr_assert_eq(gpu.cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
	upload(blocking);
	cr_assert_eq(gpu.cuStreamSynchronize(NULL), CUDA_SUCCESS);
	read_on(self.other);
	gpu_self_expect_none();
}

Test(fakecuda_order, read_of_what_another_process_still_uploads, .init = start_with_peer, .fini = stop_peer)
{
	cr_assert_eq(gpu_peer_do(&peer, GPU_PEER_WRITE), CUDA_SUCCESS);
	cr_assert_eq(gpu_self_checksum(opened, GPU_PEER_BYTES, self.stream), CUDA_SUCCESS);
	gpu_self_expect("unsynchronised");
}

Test(fakecuda_order, read_of_what_another_process_has_synchronised_with, .init = start_with_peer, .fini = stop_peer)
{
	cr_assert_eq(gpu_peer_do(&peer, GPU_PEER_WRITE), CUDA_SUCCESS);
	cr_assert_eq(gpu_peer_do(&peer, GPU_PEER_SYNC), CUDA_SUCCESS);
	cr_assert_eq(gpu_self_checksum(opened, GPU_PEER_BYTES, self.stream), CUDA_SUCCESS);
	gpu_self_expect_none();
}

Test(fakecuda_order, written_by_its_owner_under_a_reader, .init = start_with_peer, .fini = stop_peer)
{
	cr_assert_eq(gpu_self_checksum(opened, GPU_PEER_BYTES, self.stream), CUDA_SUCCESS);
	cr_assert_eq(gpu_peer_do(&peer, GPU_PEER_WRITE), CUDA_SUCCESS);
	gpu_self_expect("unsynchronised");
}

/* A reader that has died reads no more. */
Test(fakecuda_order, accesses_end_with_their_process, .init = start_with_peer)
{
	cr_assert_eq(gpu_peer_do(&peer, GPU_PEER_WRITE), CUDA_SUCCESS);
	cr_assert_eq(gpu_peer_do(&peer, GPU_PEER_DIE), 0);
	cr_assert_eq(gpu_self_checksum(opened, GPU_PEER_BYTES, self.stream), CUDA_SUCCESS);
	cr_expect_eq(gpu.fakecuda_count("unsynchronised"), 0);
}
