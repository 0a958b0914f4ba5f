/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of import.h: one device of a client's process. */
#ifndef CNRE_GPU_IMPORT_STATE_H
#define CNRE_GPU_IMPORT_STATE_H

#include "gpu/cuda.h"
#include "gpu/import.h"

#include <pthread.h>
#include <stdint.h>

struct import_arena {
	uint64_t address;
	struct import_arena *next;
};

struct gpu_import {
	const struct gpu_cuda *cuda;
	CUdevice device;
	CUcontext context;                 /* the primary one, retained */
	unsigned char uuid[GPU_UUID_BYTES];
	pthread_mutex_t lock;
	struct import_arena *arenas;       /* open now; under the lock */
};

/*
 * Makes the primary context current until gpu_import_leave, which makes current what was. 0, or -ENODEV.
 *
 * While any thread captures a graph in the driver's global mode, which is the usual one, calls such as cuEventQuery are forbidden
 * to all threads: they fail, and the capture is lost. What is called here has nothing to do with a capture of the program's, so
 * the thread is in the relaxed mode meanwhile; `mode` is its own one.
 */
int gpu_import_enter(const struct gpu_import *import, CUstreamCaptureMode *ret_mode);
void gpu_import_leave(const struct gpu_import *import, CUstreamCaptureMode mode);

#endif
