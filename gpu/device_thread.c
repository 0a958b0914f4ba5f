/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of a device: opens it, takes its jobs in order, and ends with it. See device_state.h. */
#include "gpu/device_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/message.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

void device_list_init(struct job_list *list)
{
	list->first = NULL;
	list->last = &list->first;
}

void device_list_push(struct job_list *list, struct gpu_job *job)
{
	job->next = NULL;
	*list->last = job;
	list->last = &job->next;
}

struct gpu_job *device_list_pop(struct job_list *list)
{
	struct gpu_job *job = list->first;

	if (job == NULL)
		return NULL;
	list->first = job->next;
	if (list->first == NULL)
		list->last = &list->first;
	return job;
}

static void give_up_all(struct device *device, struct job_list *list)
{
	struct gpu_job *job;

	while ((job = device_list_pop(list)) != NULL) {
		job->status = -ENODEV;
		device_list_push(&device->gpu->finished, job);
	}
}

void device_lose_locked(struct device *device, int error, const char *reason)
{
	if (device->status.state == GPU_LOST)
		return;
	device->status.state = GPU_LOST;
	device->open_error = error;
	(void)cnre_message(device->status.reason, sizeof device->status.reason, 0, "%s", reason);
	device->status.arena_bytes = 0;
	device->status.free_bytes = 0;
	give_up_all(device, &device->running);
	give_up_all(device, &device->waiting);
	(void)pthread_cond_signal(&device->work);
	(void)pthread_cond_broadcast(&device->gpu->changed);
	(void)eventfd_write(device->gpu->event_fd, 1);
}

void device_lose(struct device *device, const char *reason)
{
	(void)pthread_mutex_lock(&device->gpu->lock);
	device_lose_locked(device, -ENODEV, reason);
	(void)pthread_mutex_unlock(&device->gpu->lock);
}

int device_enter(struct device *device, const char *call)
{
	int r = 0;

	(void)pthread_mutex_lock(&device->gpu->lock);
	if (device->status.state == GPU_LOST) {
		r = -ENODEV;
	} else {
		device->call = call;
		device->call_begun_ns = cnre_clock_now_ns();
	}
	(void)pthread_mutex_unlock(&device->gpu->lock);
	return r;
}

int device_leave(struct device *device, const char *call, CUresult result)
{
	char reason[GPU_MESSAGE_BYTES];
	int r = gpu_cuda_error(result);

	if (gpu_cuda_is_loss(result))
		gpu_cuda_describe(device->gpu->cuda, call, result, reason);
	(void)pthread_mutex_lock(&device->gpu->lock);
	device->call = NULL;
	if (gpu_cuda_is_loss(result))
		device_lose_locked(device, -ENODEV, reason);
	if (device->status.state == GPU_LOST)
		r = -ENODEV;
	(void)pthread_mutex_unlock(&device->gpu->lock);
	return r;
}

void device_end_job(struct device *device, struct gpu_job *job, const struct gpu_job *result)
{
	(void)pthread_mutex_lock(&device->gpu->lock);
	if (device->status.state != GPU_LOST) {
		CNRE_CHECK(device->running.first == job);
		(void)device_list_pop(&device->running);
		job->address = result->address;
		job->charged_bytes = result->charged_bytes;
		memcpy(job->handle, result->handle, sizeof job->handle);
		job->status = result->status;
		job->begun_ns = result->begun_ns;
		job->ended_ns = result->ended_ns;
		device_list_push(&device->gpu->finished, job);
		(void)eventfd_write(device->gpu->event_fd, 1); /* cannot fill up: 2^64 - 2 events */
	}
	(void)pthread_mutex_unlock(&device->gpu->lock);
}

static int open_device(struct device *device, char message[GPU_MESSAGE_BYTES])
{
	int r = DEVICE_CALL(device, cuDevicePrimaryCtxRetain, &device->context, device->handle);

	if (r < 0)
		return cnre_message(message, GPU_MESSAGE_BYTES, r,
				    "no context on it; in an exclusive compute mode only one process has one (nvidia-smi -c DEFAULT)");
	r = DEVICE_CALL(device, cuCtxSetCurrent, device->context);
	if (r == 0)
		r = DEVICE_CALL(device, cuStreamCreate, &device->stream, CU_STREAM_NON_BLOCKING);
	if (r == 0)
		r = device_staging_open(device, message);
	if (r == 0)
		r = device_measure(device);
	if (r == 0)
		r = device_probe(device, message);
	return r;
}

/* What works is given back. Of a LOST device only our own memory: calls may not return, and nothing of it can be used again. */
static void close_device(struct device *device)
{
	device_free_all(device);
	device_staging_close(device);
	if (device->stream != NULL)
		(void)DEVICE_CALL(device, cuStreamDestroy_v2, device->stream);
	if (device->context != NULL)
		(void)DEVICE_CALL(device, cuDevicePrimaryCtxRelease_v2, device->handle);
}

/* It counts as LOST from here on. If a code of the driver made it so, that is said too. */
static void refuse_device(struct device *device, int error, const char *message)
{
	char reason[GPU_MESSAGE_BYTES];

	(void)pthread_mutex_lock(&device->gpu->lock);
	(void)cnre_message(reason, sizeof reason, 0, "%s%s%.100s", message,
			   message[0] != '\0' && device->status.reason[0] != '\0' ? ": " : "", device->status.reason);
	if (device->status.state == GPU_LOST)
		(void)cnre_message(device->status.reason, sizeof device->status.reason, 0, "%s", reason);
	else
		device_lose_locked(device, error, reason[0] != '\0' ? reason : "the driver refuses what is needed of it");
	(void)pthread_mutex_unlock(&device->gpu->lock);
}

/* The next job, moved to the running ones, with a copy of what it asks for; NULL: none, and a part is copying, or it is over. */
static struct gpu_job *take_job(struct device *device, struct gpu_job *ret_copy, int *ret_is_over)
{
	struct gpu *gpu = device->gpu;
	struct gpu_job *job = NULL;

	(void)pthread_mutex_lock(&gpu->lock);
	while (device->status.state != GPU_LOST && !gpu->is_stopping && device->waiting.first == NULL &&
	       device->part_copying == 0)
		(void)pthread_cond_wait(&device->work, &gpu->lock);
	if (device->status.state != GPU_LOST && !gpu->is_stopping)
		job = device_list_pop(&device->waiting);
	if (job != NULL) {
		device_list_push(&device->running, job);
		*ret_copy = *job;
	}
	*ret_is_over = job == NULL && (device->part_copying == 0 || device->status.state == GPU_LOST);
	(void)pthread_mutex_unlock(&gpu->lock);
	return job;
}

/* Uploads stay on their way while the next one is staged; anything else begins when they have ended, so that jobs end in order. */
static void run_job(struct device *device, struct gpu_job *job, struct gpu_job *copy)
{
	if (copy->kind == GPU_JOB_UPLOAD) {
		copy->status = device_upload(device, job, copy);
		if (copy->status == 0)
			return;
	}
	if (device_upload_drain(device) < 0)
		return;
	copy->begun_ns = cnre_clock_now_ns();
	switch (copy->kind) {
	case GPU_JOB_ALLOCATE:
		copy->status = device_allocate(device, copy->bytes, copy);
		break;
	case GPU_JOB_FREE:
		copy->status = device_free(device, copy->address);
		break;
	case GPU_JOB_MEASURE:
		copy->status = device_measure(device);
		break;
	case GPU_JOB_UPLOAD:
		break;
	}
	copy->ended_ns = cnre_clock_now_ns();
	device_end_job(device, job, copy);
}

static void set_phase(struct device *device, enum device_phase phase)
{
	struct gpu *gpu = device->gpu;
	int is_last;

	(void)pthread_mutex_lock(&gpu->lock);
	device->phase = phase;
	is_last = phase == DEVICE_ENDED && gpu->threads_left > 0 && --gpu->threads_left == 0;
	(void)pthread_cond_broadcast(&gpu->changed);
	(void)pthread_mutex_unlock(&gpu->lock);
	if (is_last)
		device_free_gpu(gpu);
}

void *device_run(void *argument)
{
	struct device *device = argument;
	char message[GPU_MESSAGE_BYTES] = "";
	struct gpu_job *job, copy;
	int r, is_over = 0;

	r = open_device(device, message);
	if (r < 0) {
		close_device(device); /* before it counts as LOST, since that forbids calls */
		refuse_device(device, r, message);
	} else {
		set_phase(device, DEVICE_OPEN);
	}
	while (r == 0 && !is_over) {
		job = take_job(device, &copy, &is_over);
		if (job != NULL)
			run_job(device, job, &copy);
		else if (!is_over)
			(void)device_upload_wait(device);
	}
	if (r == 0)
		close_device(device);
	set_phase(device, DEVICE_ENDED);
	return NULL;
}
