/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another process with the stand-in driver: it allocates, fills and exports memory, and then does what it is told. Started
 * before this process calls cuInit(), since no driver works in the child of a process that has used it.
 */
#ifndef CNRE_TESTS_SUPPORT_GPU_PEER_H
#define CNRE_TESTS_SUPPORT_GPU_PEER_H

#include "tests/support/fake_gpu.h"

#include <sys/types.h>

enum { GPU_PEER_BYTES = 1 << 20 };
#define GPU_PEER_FILL 0x5a

enum gpu_peer_order {
	GPU_PEER_FREE = 'f',   /* cuMemFree */
	GPU_PEER_RENEW = 'r',  /* cuMemFree, and as much anew */
	GPU_PEER_WRITE = 'w',  /* queues a write of all of it on a stream */
	GPU_PEER_SYNC = 's',   /* waits for that stream */
	GPU_PEER_OPEN = 'o',   /* opens its own handle */
	GPU_PEER_INFO = 'i',   /* cuMemGetInfo */
	GPU_PEER_LIMIT = 'l',  /* allocates all that is free, to the byte */
	GPU_PEER_DIE = 'k',    /* by SIGKILL; gpu_peer_do() answers 0 */
	GPU_PEER_QUIT = 'q',   /* ends without having freed anything */
};

struct gpu_peer {
	pid_t pid;
	int to, from;
	CUipcMemHandle handle; /* of GPU_PEER_BYTES, each GPU_PEER_FILL */
};

/* device: as the peer sees it; visible: its CUDA_VISIBLE_DEVICES, or NULL. exits(99) if that fails. */
void gpu_peer_start(struct gpu_peer *peer, int device, const char *visible);
int gpu_peer_do(struct gpu_peer *peer, enum gpu_peer_order order); /* the CUresult; DIE and QUIT wait for its end */

#endif
