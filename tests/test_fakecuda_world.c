/* SPDX-License-Identifier: Apache-2.0 */
/* The world outlives its processes: killed at any moment, they leave nothing behind, and nobody waits for them. */
#include "tests/support/child.h"
#include "tests/support/gpu_peer.h"
#include "tests/support/gpu_self.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define gpu fake_gpu
enum { ROUNDS = 24, AT_ONCE = 3, ALIVE_MS_MAX = 25 };

static struct gpu_peer peer;

/* Allocates, exports, opens what the peer has, reads it, closes and frees, for ever. */
static int churn(void *argument)
{
	CUdeviceptr memory, opened;
	CUipcMemHandle handle;
	(void)argument;
	gpu_self_start(0);
	for (;;)
		if (gpu.cuMemAlloc_v2(&memory, GPU_SELF_BYTES) || gpu.cuIpcGetMemHandle(&handle, memory) ||
		    gpu.cuMemcpyHtoDAsync_v2(memory, self.pinned, GPU_SELF_BYTES, self.stream) ||
		    gpu.cuIpcOpenMemHandle_v2(&opened, peer.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ||
		    gpu_self_checksum(opened, GPU_PEER_BYTES, self.stream) || gpu.cuStreamSynchronize(self.stream) ||
		    gpu.cuIpcCloseMemHandle(opened) || gpu.cuMemFree_v2(memory))
			return 1;
}

Test(fakecuda_world, killed_at_any_moment)
{
	struct fakecuda_usage usage;
	pid_t children[AT_ONCE];
	unsigned seed = 1;
	(void)setenv("FAKECUDA_REPORT", "/dev/null", 1);
	fake_gpu_start();
	gpu_peer_start(&peer, 0, NULL);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < AT_ONCE; i++)
			children[i] = child_start(churn, NULL);
		struct timespec alive = {.tv_nsec = (rand_r(&seed) % ALIVE_MS_MAX + 1) * 1000000L};
		(void)nanosleep(&alive, NULL);
		for (int i = 0; i < AT_ONCE; i++)
			(void)kill(children[i], SIGKILL);
		for (int i = 0; i < AT_ONCE; i++)
			cr_expect_eq(child_wait(children[i]), -SIGKILL, "a child ended by itself");
	}
	cr_expect_eq(gpu_peer_do(&peer, GPU_PEER_FREE), CUDA_SUCCESS, "nobody has it open any more");
	gpu.fakecuda_usage(0, &usage);
	cr_expect_eq(usage.allocations, 0);
	cr_expect_eq(usage.used_bytes, 0);
	cr_expect_eq(usage.opened, 0);
	cr_expect_eq(usage.pending, 0);
	gpu_self_expect_none();
	(void)gpu_peer_do(&peer, GPU_PEER_QUIT);
}

/* Anybody can be stopped: the others go on. */
Test(fakecuda_world, a_stopped_process_holds_nobody_up)
{
	CUdeviceptr opened, memory;
	(void)setenv("FAKECUDA_REPORT", "/dev/null", 1);
	fake_gpu_start();
	gpu_peer_start(&peer, 0, NULL);
	gpu_self_start(0);
	cr_assert_eq(kill(peer.pid, SIGSTOP), 0);
	cr_expect_eq(gpu.cuIpcOpenMemHandle_v2(&opened, peer.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_SUCCESS);
	cr_expect_eq(gpu_self_checksum(opened, GPU_PEER_BYTES, self.stream), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuStreamSynchronize(self.stream), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuMemAlloc_v2(&memory, 1), CUDA_SUCCESS);
	gpu_self_expect_none();
	cr_assert_eq(kill(peer.pid, SIGCONT), 0);
	(void)gpu_peer_do(&peer, GPU_PEER_QUIT);
}

/* A zombie has ended: whoever asks the kernel for its pid still finds one. */
Test(fakecuda_world, a_zombie_is_dead)
{
	CUdeviceptr opened;
	char answer;
	(void)setenv("FAKECUDA_REPORT", "/dev/null", 1);
	fake_gpu_start();
	gpu_peer_start(&peer, 0, NULL);
	gpu_self_start(0);
	cr_assert_eq(kill(peer.pid, SIGKILL), 0);
	cr_assert_eq(read(peer.from, &answer, 1), 0, "its end of the pipe is closed");
	cr_assert_eq(kill(peer.pid, 0), 0);
	/* Descriptors are closed one after the other: the lock is gone a moment later at the latest. */
	CUresult result = CUDA_SUCCESS;
	for (int i = 0; i < 1000 && !result; i++) {
		result = gpu.cuIpcOpenMemHandle_v2(&opened, peer.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
		if (!result)
			(void)gpu.cuIpcCloseMemHandle(opened);
	}
	cr_expect_eq(result, CUDA_ERROR_INVALID_HANDLE);
	(void)child_wait(peer.pid);
}

Test(fakecuda_world, a_file_that_is_no_world)
{
	char path[] = "/tmp/fakecuda-world-XXXXXX";
	int fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	cr_assert_eq(pwrite(fd, "something", 9, 0), 9);
	cr_assert_eq(ftruncate(fd, 64 << 20), 0);
	fake_gpu_load();
	cr_expect_eq(gpu.fakecuda_world(path), -EINVAL);
	(void)close(fd);
	(void)unlink(path);
}

/* As programs in other namespaces of pids need it. */
Test(fakecuda_world, in_a_file)
{
	char path[] = "/dev/shm/fakecuda-world-XXXXXX";
	CUdeviceptr opened;
	int fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	(void)close(fd);
	(void)setenv("FAKECUDA_WORLD", path, 1);
	fake_gpu_start();
	gpu_peer_start(&peer, 0, NULL);
	gpu_self_start(0);
	cr_expect_eq(gpu.cuIpcOpenMemHandle_v2(&opened, peer.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_SUCCESS);
	gpu_self_expect_none();
	(void)gpu_peer_do(&peer, GPU_PEER_QUIT);
	(void)unlink(path);
}

/* Its pid there is that of somebody else here: liveness is not looked up by it. */
Test(fakecuda_world, in_another_namespace_of_pids)
{
	CUdeviceptr opened;
	struct fakecuda_usage usage;
	(void)setenv("FAKECUDA_REPORT", "/dev/null", 1);
	fake_gpu_start();
	int own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
	cr_assert_geq(own, 0);
	if (unshare(CLONE_NEWPID))
		cr_skip_test("no right to make a namespace of pids");
	gpu_peer_start(&peer, 0, NULL);
	cr_assert_eq(setns(own, CLONE_NEWPID), 0);
	gpu_self_start(0);
	cr_assert_eq(gpu.cuIpcOpenMemHandle_v2(&opened, peer.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_SUCCESS);
	cr_expect_eq(gpu_self_checksum(opened, GPU_PEER_BYTES, self.stream), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuStreamSynchronize(self.stream), CUDA_SUCCESS);
	cr_expect_eq(gpu.cuIpcCloseMemHandle(opened), CUDA_SUCCESS);
	cr_assert_eq(kill(peer.pid, SIGKILL), 0);
	cr_expect_eq(child_wait(peer.pid), -SIGKILL);
	gpu.fakecuda_usage(0, &usage);
	cr_expect_eq(usage.allocations, 2, "those of this process");
	gpu_self_expect_none();
	(void)close(own);
}
