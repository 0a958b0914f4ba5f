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

/* Makes the primary context current until gpu_import_leave, which makes current what was. 0, or -ENODEV. */
int gpu_import_enter(const struct gpu_import *import);
void gpu_import_leave(const struct gpu_import *import);

#endif
