/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of device.h: a device, its thread, and what both sides hold under the lock. One mutex guards all of it; nobody holds it
 * over a call of the driver or a copy.
 *
 * A thread that is in a call may never return from it. So a call is announced before and struck off after (DEVICE_CALL), and the
 * asker may declare the device LOST in between: it takes the thread's jobs away and answers them itself. A thread that comes
 * back learns that it is LOST, and touches no job, no source and no driver any more.
 */
#ifndef CNRE_GPU_DEVICE_STATE_H
#define CNRE_GPU_DEVICE_STATE_H

#include "gpu/cuda.h"
#include "gpu/device.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>

enum device_phase {
	DEVICE_OPENING,
	DEVICE_OPEN,
	DEVICE_ENDED,                      /* the thread is at its end: joining it takes no time */
};

struct job_list {
	struct gpu_job *first, **last;
};

/* A block that this process allocated and exported. The thread's alone. */
struct device_arena {
	uint64_t address, bytes, charged_bytes;
	struct device_arena *next;
};

/* One step of uploads: a piece of staging memory, and the event after its copy. The thread's alone. */
struct device_part {
	void *memory;
	CUevent event;
	int is_copying;
	struct gpu_job *ends;              /* the job whose last copy this is, or NULL */
};

struct device {
	struct gpu *gpu;
	CUdevice handle;                   /* constant, as are the UUID and the name in status */
	pthread_t thread;
	int has_thread;

	/* under the lock */
	pthread_cond_t work;
	enum device_phase phase;
	struct job_list waiting, running;  /* running: in their order; the thread holds no pointer to a job of a LOST device */
	struct gpu_device_status status;
	int open_error;                    /* why it is LOST, if it never opened */
	const char *call;                  /* that the thread is in, or NULL */
	int64_t call_begun_ns;

	/* of the thread */
	CUcontext context;
	CUstream stream;
	struct device_part part[GPU_STAGING_PARTS];
	uint64_t part_bytes;
	uint32_t part_next;                /* taken next; what is copying lies before it */
	uint32_t part_copying;             /* how many */
	int64_t upload_ended_ns;
	struct device_arena *arenas;
};

struct gpu {
	const struct gpu_cuda *cuda;
	pthread_mutex_t lock;
	pthread_cond_t changed;            /* a phase or a state; by the monotonic clock */
	struct job_list finished;
	int event_fd;
	int is_stopping, was_stopped;
	uint32_t threads_left;             /* that gpu_close did not wait for; the last one frees all this */
	int64_t hang_ns, watched_ns;       /* watched: when the asker last looked */
	uint32_t device_count;
	struct device device[GPU_DEVICES_MAX];
};

void device_free_gpu(struct gpu *gpu);     /* device.c */

/* device_thread.c */
void device_list_init(struct job_list *list);
void device_list_push(struct job_list *list, struct gpu_job *job);
struct gpu_job *device_list_pop(struct job_list *list);
void *device_run(void *device);
/* The caller holds the lock. The first reason stays. */
void device_lose_locked(struct device *device, int error, const char *reason);
void device_lose(struct device *device, const char *reason);
/* Ends the oldest job that runs. Not if the device is LOST by now: then the job is no longer here. */
void device_end_job(struct device *device, struct gpu_job *job, const struct gpu_job *result);

/*
 * Makes a call of the driver in the device's thread: 0, or -errno as gpu_cuda_error has it. -ENODEV where the device is LOST, by
 * this call's answer or by the asker's patience, and without a call where it was LOST before.
 */
#define DEVICE_CALL(device, name, ...) \
	(device_enter(device, #name) < 0 ? -ENODEV : device_leave(device, #name, (device)->gpu->cuda->name(__VA_ARGS__)))
int device_enter(struct device *device, const char *call);
int device_leave(struct device *device, const char *call, CUresult result);

/* device_memory.c: the thread's jobs but for uploads; 0 or -errno */
int device_allocate(struct device *device, uint64_t bytes, struct gpu_job *result);
int device_free(struct device *device, uint64_t address);
int device_measure(struct device *device);
void device_free_all(struct device *device);
int device_holds(const struct device *device, uint64_t address, uint64_t bytes); /* whether one arena does */
/* Finds out the granularity, and whether memory can be exported. 0, or -errno with `message`. */
int device_probe(struct device *device, char message[GPU_MESSAGE_BYTES]);

/* device_upload.c */
int device_staging_open(struct device *device, char message[GPU_MESSAGE_BYTES]);
void device_staging_close(struct device *device);
/* Begins it; its end is that of a part. An error: nothing of this job is on its way, and it has not ended. */
int device_upload(struct device *device, struct gpu_job *job, const struct gpu_job *copy);
int device_upload_wait(struct device *device); /* for the oldest part; ends its job. 0, or -ENODEV */
int device_upload_drain(struct device *device);

#endif
