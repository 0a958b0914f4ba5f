/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/gpu_peer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static CUdeviceptr memory;
static CUstream stream;
static char *source;

static void must(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	(void)fprintf(stderr, "peer with the stand-in driver: %s gives %d\n", what, (int)result);
	_exit(99);
}

static void make_memory(int device, CUipcMemHandle *ret_handle)
{
	CUcontext context;
	must(fake_gpu.cuInit(0), "cuInit");
	must(fake_gpu.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
	must(fake_gpu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
	must(fake_gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	must(fake_gpu.cuMemAlloc_v2(&memory, GPU_PEER_BYTES), "cuMemAlloc");
	must(fake_gpu.cuMemHostAlloc((void **)&source, GPU_PEER_BYTES, 0), "cuMemHostAlloc");
	memset(source, GPU_PEER_FILL, GPU_PEER_BYTES);
	must(fake_gpu.cuMemcpyHtoD_v2(memory, source, GPU_PEER_BYTES), "cuMemcpyHtoD");
	must(fake_gpu.cuIpcGetMemHandle(ret_handle, memory), "cuIpcGetMemHandle");
}

static CUresult open_own(void)
{
	CUipcMemHandle handle;
	CUdeviceptr opened;
	must(fake_gpu.cuIpcGetMemHandle(&handle, memory), "cuIpcGetMemHandle");
	return fake_gpu.cuIpcOpenMemHandle_v2(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

static CUresult take_all(void)
{
	size_t free_bytes, total;
	CUdeviceptr taken;
	must(fake_gpu.cuMemGetInfo_v2(&free_bytes, &total), "cuMemGetInfo");
	return free_bytes ? fake_gpu.cuMemAlloc_v2(&taken, free_bytes) : CUDA_SUCCESS;
}

static CUresult obey(char order)
{
	size_t free_bytes, total;
	switch (order) {
	case GPU_PEER_FREE:
		return fake_gpu.cuMemFree_v2(memory);
	case GPU_PEER_RENEW:
		must(fake_gpu.cuMemFree_v2(memory), "cuMemFree");
		return fake_gpu.cuMemAlloc_v2(&memory, GPU_PEER_BYTES);
	case GPU_PEER_WRITE:
		return fake_gpu.cuMemcpyHtoDAsync_v2(memory, source, GPU_PEER_BYTES, stream);
	case GPU_PEER_SYNC:
		return fake_gpu.cuStreamSynchronize(stream);
	case GPU_PEER_OPEN:
		return open_own();
	case GPU_PEER_INFO:
		return fake_gpu.cuMemGetInfo_v2(&free_bytes, &total);
	case GPU_PEER_LIMIT:
		return take_all();
	case GPU_PEER_DIE:
		(void)raise(SIGKILL);
	}
	_exit(0);
}

static void serve(int from, int to, int device)
{
	CUipcMemHandle handle;
	char order;
	make_memory(device, &handle);
	if (write(to, &handle, sizeof handle) != sizeof handle)
		_exit(99);
	while (read(from, &order, 1) == 1) {
		int result = (int)obey(order);
		if (write(to, &result, sizeof result) != sizeof result)
			break;
	}
	_exit(0);
}

void gpu_peer_start(struct gpu_peer *peer, int device, const char *visible)
{
	int there[2], back[2];
	if (pipe(there) || pipe(back) || (peer->pid = fork()) < 0) {
		perror("peer with the stand-in driver");
		exit(99);
	}
	if (!peer->pid) {
		(void)close(there[1]);
		(void)close(back[0]);
		if (visible)
			(void)setenv("CUDA_VISIBLE_DEVICES", visible, 1);
		serve(there[0], back[1], device);
	}
	(void)close(there[0]);
	(void)close(back[1]);
	peer->to = there[1];
	peer->from = back[0];
	if (read(peer->from, &peer->handle, sizeof peer->handle) != sizeof peer->handle) {
		(void)fprintf(stderr, "peer with the stand-in driver: it did not start\n");
		exit(99);
	}
}

int gpu_peer_do(struct gpu_peer *peer, enum gpu_peer_order order)
{
	char byte = (char)order;
	int result;
	if (write(peer->to, &byte, 1) != 1)
		return -1;
	if (read(peer->from, &result, sizeof result) == sizeof result)
		return result;
	(void)close(peer->to);
	(void)close(peer->from);
	return waitpid(peer->pid, NULL, 0) == peer->pid ? 0 : -1;
}
