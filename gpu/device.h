/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manager's side of GPUs: devices by UUID, arenas of their memory with an IPC handle each, and uploads. Calls of the driver
 * may take from microseconds to seconds, so each device has a thread that makes them; whoever asks submits jobs and is told
 * when they are done, as with a worker pool. Nothing here knows experts, clients, or policy.
 *
 * Threads: all calls from one thread, the asker's; `done` runs there, in gpu_reap. A job is a struct inside the object it is
 * about, so queues need no memory and are bounded by those objects.
 *
 * Loss of a device: once a call says that the context or the device is gone, the device is LOST for the life of the process:
 * every job of it ends in -ENODEV, what it held counts as gone, and no memory of it is freed or used again.
 */
#ifndef CNRE_GPU_DEVICE_H
#define CNRE_GPU_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#define GPU_DEVICES_MAX 16u
#define GPU_UUID_BYTES 16u
#define GPU_TOKEN_BYTES 16u
#define GPU_HANDLE_BYTES 64u
#define GPU_NAME_BYTES 64u
#define GPU_MESSAGE_BYTES 256u
#define GPU_UUID_TEXT_BYTES 48u            /* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", or "MIG-…", and its end */

struct gpu;

enum gpu_state { GPU_SERVING, GPU_LOST };

struct gpu_setup {
	uint64_t staging_bytes;            /* pinned host memory for uploads, of all devices together; 0: the default */
	const char *const *uuids;          /* only these, as text; NULL: all that the driver shows */
	uint32_t uuid_count;
};

struct gpu_device_status {
	enum gpu_state state;
	unsigned char uuid[GPU_UUID_BYTES];
	char uuid_text[GPU_UUID_TEXT_BYTES], name[GPU_NAME_BYTES];
	uint64_t total_bytes, free_bytes;  /* as the driver last said */
	uint64_t granularity;              /* what the driver rounds an allocation up to, as probed */
	uint64_t arena_bytes;              /* charged for the arenas that are allocated now */
	uint64_t uploaded_bytes, upload_ns;
	char reason[GPU_MESSAGE_BYTES];    /* why it is LOST */
};

/*
 * gpu_open - load the driver, open the devices, allocate and register the staging memory, start the threads
 *
 * Exports a small allocation of each device as a test: memory that cannot be exported is known here (case G5).
 * Returns: 0; -ENODEV no driver or no device, and `message` says which and what to do; -ENOENT a UUID that is not there; -ENOTSUP
 *          memory of a device cannot be exported; -ENOMEM; -EINVAL
 */
int gpu_open(struct gpu **ret_gpu, const struct gpu_setup *setup, char message[GPU_MESSAGE_BYTES]);
struct gpu *gpu_close(struct gpu *gpu);    /* finishes jobs without calling done, frees what works; NULL */

uint32_t gpu_count(const struct gpu *gpu);
void gpu_get_status(struct gpu *gpu, uint32_t device, struct gpu_device_status *ret_status);
/* Of this process, random: the same in an importer means that it is this process (case G1). */
const unsigned char *gpu_token(void);

enum gpu_job_kind {
	GPU_JOB_ALLOCATE,                  /* bytes -> address, charged_bytes, handle */
	GPU_JOB_FREE,                      /* address */
	GPU_JOB_UPLOAD,                    /* source, bytes -> address; done when the copy has completed on the device */
	GPU_JOB_MEASURE,                   /* asks the driver for free and total bytes */
};

struct gpu_job {
	enum gpu_job_kind kind;
	uint32_t device;
	uint64_t address;                  /* in this process */
	uint64_t bytes, charged_bytes;     /* charged: what the driver took for it, at least bytes */
	unsigned char handle[GPU_HANDLE_BYTES];
	const void *source;                /* host memory that stays as it is until `done` */
	int is_registered;                 /* source lies in memory of gpu_register: copied from there, without staging */
	void (*done)(struct gpu_job *job);
	int status;                        /* 0, -ENOMEM (no room on the device), -ENODEV (lost), -EIO */
	int64_t begun_ns, ended_ns;        /* CLOCK_MONOTONIC; of an upload: its first and last copy */
	struct gpu_job *next;
};
void gpu_submit(struct gpu *gpu, struct gpu_job *job);
int gpu_event_fd(const struct gpu *gpu);   /* readable when something is done, or a device was lost */
int gpu_reap(struct gpu *gpu);             /* calls done; how many */

/*
 * Host memory that devices read by themselves, so that no staging is needed. Blocks (pinning takes time): before serving, or not
 * at all. 0, or -ENOTSUP / -ENOMEM: it goes by staging then. Unregister before its pages go.
 */
int gpu_register(struct gpu *gpu, void *base, uint64_t bytes);
void gpu_unregister(struct gpu *gpu, void *base);

#endif
