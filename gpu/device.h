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

#define GPU_STAGING_DEFAULT (64ull << 20)
#define GPU_STAGING_PARTS 4u               /* of each device: one is filled while others are on their way */
#define GPU_STAGING_PART_MIN (64ull << 10)
#define GPU_STAGING_PART_MAX (4ull << 20)  /* larger ones begin later and are no faster; what is above 16 MiB a device is not taken */
#define GPU_HANG_NS (60 * 1000000000ll)    /* a call of the driver that takes longer will not return: the device is LOST */
#define GPU_STOP_NS (5 * 1000000000ll)     /* how long gpu_close waits for the threads */

struct gpu_setup {
	uint64_t staging_bytes;            /* pinned host memory for uploads, of all devices together; 0: the default */
	const char *const *uuids;          /* only these, as text, in this order; NULL: all that the driver shows */
	uint32_t uuid_count;
	int64_t hang_ns;                   /* 0: GPU_HANG_NS */
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
 * Exports a small allocation of each device as a test: memory that cannot be exported is known here (case G5). Devices are
 * opened at once, each by its thread. One that does not open is an error if it was named, or if none opens; else it is there
 * as LOST, with its reason in the status and the event readable.
 * Returns: 0; -ENODEV no driver or no device, and `message` says which and what to do; -ENOENT a UUID that is not there; -ENOTSUP
 *          memory of a device cannot be exported; -ENOMEM; -EINVAL: no such text is a UUID, one is named twice, or the staging
 *          memory is less than GPU_STAGING_PARTS of GPU_STAGING_PART_MIN a device
 * Blocks:  seconds, where no other process has the devices open; at most hang_ns for each call of the driver
 */
int gpu_open(struct gpu **ret_gpu, const struct gpu_setup *setup, char message[GPU_MESSAGE_BYTES]);
/*
 * Ends the threads: jobs that run are finished, those that wait are not begun, done is called for none, what works is freed.
 * 0, or -ETIMEDOUT: a device does not answer; it is LOST then, and its status says in which call. Its thread is left alone, to
 * the end of the process if need be, which should end by _exit: the driver's own exit handlers wait for such a device, too.
 */
int gpu_stop(struct gpu *gpu, int64_t timeout_ns);
struct gpu *gpu_close(struct gpu *gpu);    /* stops within GPU_STOP_NS, if that was not done; NULL */

uint32_t gpu_count(const struct gpu *gpu);
void gpu_get_status(struct gpu *gpu, uint32_t device, struct gpu_device_status *ret_status);
/* Of this process, random: the same in an importer means that it is this process (case G1). */
const unsigned char *gpu_token(void);

enum gpu_job_kind {
	GPU_JOB_ALLOCATE,                  /* bytes -> address, charged_bytes, handle */
	GPU_JOB_FREE,                      /* address, as ALLOCATE gave it */
	GPU_JOB_UPLOAD,                    /* source, bytes -> address; done when the copy has completed on the device */
	GPU_JOB_MEASURE,                   /* asks the driver for free and total bytes: they are in the status then */
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
	/*
	 * 0, -ENOMEM (no room on the device), -ENODEV (lost), -EINVAL (no such address, or beyond its arena), -EIO. After -ENODEV a
	 * device may still be reading the source, if what it reads is registered: what it makes of it is lost anyway.
	 */
	int status;
	int64_t begun_ns, ended_ns;        /* CLOCK_MONOTONIC; of an upload: its first and last copy */
	struct gpu_job *next;
};
/* Jobs of a device end in the order in which they were submitted. */
void gpu_submit(struct gpu *gpu, struct gpu_job *job);
int gpu_event_fd(const struct gpu *gpu);   /* readable when something is done, or a device was lost */
/*
 * Calls done; how many. To be called every second or so even without an event: it is what finds out that a device hangs. Who comes
 * later than half of hang_ns was stopped, and so was the device's thread: then no call counts as one that hangs yet.
 */
int gpu_reap(struct gpu *gpu);

/*
 * Host memory that devices read by themselves, so that no staging is needed. Blocks (pinning takes time): before serving, or not
 * at all. 0, or -ENOTSUP / -ENOMEM: it goes by staging then. Unregister before its pages go.
 */
int gpu_register(struct gpu *gpu, void *base, uint64_t bytes);
void gpu_unregister(struct gpu *gpu, void *base);

#endif
