/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's side of GPUs: the devices of this process, arenas of another process's memory, and events on the caller's streams.
 * Each arena is opened once per process and device, in the device's primary context, and never in the process that exported it.
 * The caller keeps count of who uses an arena.
 *
 * Threads: any, unless a function says otherwise. The context that is current in the calling thread is the same afterwards.
 * After fork() a child calls nothing of this: a driver does not work there.
 */
#ifndef CNRE_GPU_IMPORT_H
#define CNRE_GPU_IMPORT_H

#include "gpu/device.h"

/* The driver in this process, loaded when first asked for. 0, or -ENODEV: none, or it does not work; `message` says why. */
int gpu_import_load(char message[GPU_MESSAGE_BYTES]);

struct gpu_import;                         /* one device of this process, by its number here (CUDA_VISIBLE_DEVICES and all) */

/* 0, or -ENXIO: this process has no such device, -ENODEV: it gives no context now, -ENOMEM. Retains its primary context. */
int gpu_import_open(struct gpu_import **ret_import, int ordinal, char message[GPU_MESSAGE_BYTES]);
struct gpu_import *gpu_import_close(struct gpu_import *import); /* every arena is closed; NULL */
const unsigned char *gpu_import_uuid(const struct gpu_import *import);

/*
 * One exported arena: its address in this process. Where the token is this process's own, that is `local`, and nothing is
 * opened. 0, or -ENODEV (the device does not work), -EPIPE (the exporter is gone, so the handle names nothing), -EIO, -ENOMEM
 */
int gpu_import_arena(struct gpu_import *import, const unsigned char handle[GPU_HANDLE_BYTES],
		     const unsigned char token[GPU_TOKEN_BYTES], uint64_t local, uint64_t *ret_address);
/* Closes it, once. 0, or -ENODEV. */
int gpu_import_close_arena(struct gpu_import *import, const unsigned char token[GPU_TOKEN_BYTES], uint64_t address);

/*
 * A point in a caller's stream (a CUstream of this device, NULL: the default one), after what the caller has put there so far. Not
 * in one that is being captured: what a graph holds runs later. 0, -ENODEV, -EINVAL no such stream, or a captured one, -ENOMEM.
 */
struct gpu_point;
int gpu_point_record(struct gpu_import *import, void *stream, struct gpu_point **ret_point);
/* 1: the stream has passed it; 0: not yet; -errno: it failed, and nothing after that point runs any more. Never waits. */
int gpu_point_query(struct gpu_point *point);
struct gpu_point *gpu_point_free(struct gpu_point *point); /* passed or failed; NULL */

#endif
