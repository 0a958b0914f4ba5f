/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of another process: what may be done with its handle, and every way to do it wrong. */
#include "tests/support/child.h"
#include "tests/support/gpu_peer.h"
#include "tests/support/gpu_self.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define gpu fake_gpu
#define LAZY CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

static struct gpu_peer peer;
static CUdeviceptr opened;
static unsigned char bytes[GPU_PEER_BYTES];

static void start(void)
{
	(void)setenv("FAKECUDA_DEVICES", "2", 1);
	(void)setenv("FAKECUDA_REPORT", "/dev/null", 1);
	fake_gpu_start();
	gpu_peer_start(&peer, 0, NULL);
	gpu_self_start(0);
}

static void start_opened(void)
{
	start();
	cr_assert_eq(gpu.cuIpcOpenMemHandle_v2(&opened, peer.handle, LAZY), CUDA_SUCCESS);
}

static void stop(void)
{
	if (peer.pid)
		(void)gpu_peer_do(&peer, GPU_PEER_QUIT);
}

Test(fakecuda_ipc, what_the_exporter_wrote_is_read, .init = start_opened, .fini = stop)
{
	struct fakecuda_usage usage;
	gpu.fakecuda_usage(0, &usage);
	cr_expect_eq(usage.exported, 1);
	cr_expect_eq(usage.opened, 1);
	cr_assert_eq(gpu.cuMemcpyDtoH_v2(bytes, opened, sizeof bytes), CUDA_SUCCESS);
	cr_expect_eq(bytes[0], GPU_PEER_FILL);
	cr_expect_eq(bytes[sizeof bytes - 1], GPU_PEER_FILL);
	cr_expect_eq(gpu.cuIpcCloseMemHandle(opened), CUDA_SUCCESS);
	gpu.fakecuda_usage(0, &usage);
	cr_expect_eq(usage.opened, 0);
	cr_expect_eq(gpu_peer_do(&peer, GPU_PEER_FREE), CUDA_SUCCESS);
	gpu_self_expect_none();
}

Test(fakecuda_ipc, open_in_the_exporting_process, .init = start, .fini = stop)
{
	cr_expect_eq(gpu_peer_do(&peer, GPU_PEER_OPEN), CUDA_ERROR_INVALID_CONTEXT);
	gpu_self_expect("own-handle");
}

Test(fakecuda_ipc, a_second_open_is_counted_and_gives_the_same_address, .init = start_opened, .fini = stop)
{
	CUdeviceptr again;
	cr_expect_eq(gpu.cuIpcOpenMemHandle_v2(&again, peer.handle, LAZY), CUDA_SUCCESS);
	cr_expect_eq(again, opened);
	gpu_self_expect("double-open");
	cr_expect_eq(gpu.cuIpcCloseMemHandle(opened), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuMemcpyDtoH_v2(bytes, opened, 1), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuIpcCloseMemHandle(opened), CUDA_SUCCESS);
	gpu_self_expect_none();
}

Test(fakecuda_ipc, closed_once_too_often, .init = start_opened, .fini = stop)
{
	cr_expect_eq(gpu.cuIpcCloseMemHandle(opened), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuIpcCloseMemHandle(opened), CUDA_ERROR_INVALID_VALUE);
	gpu_self_expect("not-open");
}

Test(fakecuda_ipc, read_after_close, .init = start_opened, .fini = stop)
{
	cr_expect_eq(gpu.cuIpcCloseMemHandle(opened), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuMemcpyDtoH_v2(bytes, opened, 1), CUDA_ERROR_INVALID_VALUE);
	gpu_self_expect("use-after-free");
}

Test(fakecuda_ipc, closed_under_its_own_stream, .init = start_opened, .fini = stop)
{
	cr_assert_eq(gpu_self_checksum(opened, GPU_PEER_BYTES, self.stream), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuIpcCloseMemHandle(opened), CUDA_SUCCESS);
	gpu_self_expect("close-in-use");
}

Test(fakecuda_ipc, freed_by_the_importer, .init = start_opened, .fini = stop)
{
	cr_expect_eq(gpu.cuMemFree_v2(opened), CUDA_ERROR_INVALID_VALUE);
	gpu_self_expect("free-imported");
}

Test(fakecuda_ipc, freed_while_others_have_it_open, .init = start_opened, .fini = stop)
{
	cr_expect_eq(gpu_peer_do(&peer, GPU_PEER_FREE), CUDA_SUCCESS);
	gpu_self_expect("free-while-open");
	cr_expect_eq(gpu.cuMemcpyDtoH_v2(bytes, opened, 1), CUDA_ERROR_INVALID_VALUE);
	gpu_self_expect("use-after-free");
	cr_expect_eq(gpu.cuIpcCloseMemHandle(opened), CUDA_SUCCESS);
	gpu_self_expect_none();
}

Test(fakecuda_ipc, freed_while_a_stream_of_another_process_reads_it, .init = start_opened, .fini = stop)
{
	cr_assert_eq(gpu_self_checksum(opened, GPU_PEER_BYTES, self.stream), CUDA_SUCCESS);
	cr_expect_eq(gpu_peer_do(&peer, GPU_PEER_FREE), CUDA_SUCCESS);
	cr_expect_eq(gpu.fakecuda_count("free-in-use"), 1);
	cr_expect_eq(gpu.fakecuda_count("free-while-open"), 1);
}

Test(fakecuda_ipc, a_handle_is_stale_after_free, .init = start, .fini = stop)
{
	cr_expect_eq(gpu_peer_do(&peer, GPU_PEER_FREE), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuIpcOpenMemHandle_v2(&opened, peer.handle, LAZY), CUDA_ERROR_INVALID_HANDLE);
	gpu_self_expect_none();
}

Test(fakecuda_ipc, a_handle_is_not_for_what_was_allocated_in_its_place, .init = start, .fini = stop)
{
	cr_expect_eq(gpu_peer_do(&peer, GPU_PEER_RENEW), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuIpcOpenMemHandle_v2(&opened, peer.handle, LAZY), CUDA_ERROR_INVALID_HANDLE);
	gpu_self_expect_none();
}

Test(fakecuda_ipc, a_handle_is_stale_after_the_death_of_its_exporter, .init = start)
{
	struct fakecuda_usage before, after;
	gpu.fakecuda_usage(0, &before);
	cr_expect_eq(gpu_peer_do(&peer, GPU_PEER_DIE), 0);
	cr_expect_eq(gpu.cuIpcOpenMemHandle_v2(&opened, peer.handle, LAZY), CUDA_ERROR_INVALID_HANDLE);
	gpu.fakecuda_usage(0, &after);
	cr_expect_eq(before.allocations - after.allocations, 1, "and its memory is given back");
	gpu_self_expect_none();
}

Test(fakecuda_ipc, memory_that_is_open_outlives_its_exporter, .init = start_opened)
{
	struct fakecuda_usage usage;
	CUdeviceptr again;
	cr_expect_eq(gpu_peer_do(&peer, GPU_PEER_DIE), 0);
	gpu.fakecuda_usage(0, &usage);
	cr_expect_eq(usage.orphans, 1);
	gpu_self_expect("exporter-gone");
	cr_assert_eq(gpu.cuMemcpyDtoH_v2(bytes, opened, sizeof bytes), CUDA_SUCCESS);
	cr_expect_eq(bytes[0], GPU_PEER_FILL);
	cr_expect_eq(gpu.cuIpcOpenMemHandle_v2(&again, peer.handle, LAZY), CUDA_ERROR_INVALID_HANDLE,
		     "but not for anybody new");
	cr_expect_eq(gpu.cuIpcCloseMemHandle(opened), CUDA_SUCCESS);
	gpu.fakecuda_usage(0, &usage);
	cr_expect_eq(usage.orphans, 0);
	cr_expect_eq(usage.allocations, 2, "only those of this process");
	gpu_self_expect_none();
}

static int open_and_end(void *argument)
{
	(void)argument;
	gpu_self_start(0);
	return gpu.cuIpcOpenMemHandle_v2(&opened, peer.handle, LAZY) != CUDA_SUCCESS;
}

Test(fakecuda_ipc, an_importer_that_ends_leaves_its_handles_open, .fini = stop)
{
	struct fakecuda_usage usage;
	(void)setenv("FAKECUDA_REPORT", "/dev/null", 1);
	fake_gpu_start();
	gpu_peer_start(&peer, 0, NULL);
	cr_assert_eq(child_run(open_and_end, NULL), 0);
	gpu.fakecuda_usage(0, &usage);
	cr_expect_eq(usage.opened, 0, "they are closed for it");
	gpu_self_expect("left-open");
}

Test(fakecuda_ipc, a_context_that_goes_closes_its_handles, .init = start_opened, .fini = stop)
{
	struct fakecuda_usage usage;
	cr_assert_eq(gpu.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	gpu.fakecuda_usage(0, &usage);
	cr_expect_eq(usage.opened, 0);
	cr_expect_eq(usage.allocations, 1, "the peer's");
	gpu_self_expect_none();
}

Test(fakecuda_ipc, a_handle_of_another_device, .init = start, .fini = stop)
{
	CUcontext second;
	cr_assert_eq(gpu.cuDevicePrimaryCtxRetain(&second, 1), CUDA_SUCCESS);
	cr_assert_eq(gpu.cuCtxSetCurrent(second), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuIpcOpenMemHandle_v2(&opened, peer.handle, LAZY), CUDA_ERROR_INVALID_VALUE);
}

Test(fakecuda_ipc, bytes_that_are_no_handle, .init = start, .fini = stop)
{
	CUipcMemHandle nonsense;
	memset(&nonsense, 0xee, sizeof nonsense);
	cr_expect_eq(gpu.cuIpcOpenMemHandle_v2(&opened, nonsense, LAZY), CUDA_ERROR_INVALID_VALUE);
	cr_expect_eq(gpu.cuIpcOpenMemHandle_v2(&opened, peer.handle, 0), CUDA_ERROR_INVALID_VALUE);
	cr_expect_eq(gpu.cuIpcGetMemHandle(&nonsense, self.memory + 4096), CUDA_ERROR_INVALID_VALUE);
}

Test(fakecuda_ipc, memory_of_a_pool_cannot_be_exported, .init = start, .fini = stop)
{
	CUdeviceptr pooled;
	CUipcMemHandle handle;
	int is_capable = -1;
	cr_assert_eq(gpu.cuMemAllocAsync(&pooled, 4096, self.stream), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuIpcGetMemHandle(&handle, pooled), CUDA_ERROR_INVALID_VALUE);
	cr_expect_eq(gpu.cuPointerGetAttribute(&is_capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pooled),
		     CUDA_SUCCESS);
	cr_expect_eq(is_capable, 0);
	cr_expect_eq(gpu.cuMemFree_v2(pooled), CUDA_SUCCESS);
}
