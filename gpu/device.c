/* SPDX-License-Identifier: Apache-2.0 */
/* The asker's side of device.h: opening and ending the threads, jobs to and from them, and the watch over calls that hang. */
#include "gpu/device.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/message.h"
#include "gpu/device_select.h"
#include "gpu/device_state.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define WATCH_NS (50 * CNRE_NS_PER_MS)    /* how often the watch looks while a device is opened */
#define STAGING_ALIGNMENT 4096u

/* Waits for a change of a device, at most until then. The caller holds the lock. */
static void wait_changed(struct gpu *gpu, int64_t until_ns)
{
	struct timespec until = {.tv_sec = until_ns / CNRE_NS_PER_S, .tv_nsec = until_ns % CNRE_NS_PER_S};

	(void)pthread_cond_timedwait(&gpu->changed, &gpu->lock, &until);
}

/* Says of a thread that is in a call for too long that its device is LOST. The caller holds the lock. */
static void watch(struct device *device, int64_t longest_ns)
{
	char reason[GPU_MESSAGE_BYTES];
	int64_t now_ns = cnre_clock_now_ns();

	if (device->call == NULL || now_ns - device->call_begun_ns < longest_ns)
		return;
	(void)cnre_message(reason, sizeof reason, 0, "it does not answer: %s began %.1f s ago and has not returned", device->call,
			   (double)(now_ns - device->call_begun_ns) / CNRE_NS_PER_S);
	device_lose_locked(device, -ENODEV, reason);
}

/* An asker that could not run for so long was stopped, or its machine was, and its threads with it: a call's time begins anew. */
static void watch_all(struct gpu *gpu)
{
	int64_t now_ns = cnre_clock_now_ns();
	int was_stopped = now_ns - gpu->watched_ns > gpu->hang_ns / 2;

	gpu->watched_ns = now_ns;
	for (uint32_t i = 0; i < gpu->device_count; i++) {
		if (was_stopped)
			gpu->device[i].call_begun_ns = now_ns;
		watch(&gpu->device[i], gpu->hang_ns);
	}
}

static void init_locks(struct gpu *gpu)
{
	pthread_condattr_t monotonic;

	(void)pthread_condattr_init(&monotonic);
	(void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	(void)pthread_mutex_init(&gpu->lock, NULL);
	(void)pthread_cond_init(&gpu->changed, &monotonic);
	(void)pthread_condattr_destroy(&monotonic);
	for (uint32_t i = 0; i < GPU_DEVICES_MAX; i++)
		(void)pthread_cond_init(&gpu->device[i].work, NULL);
}

void device_free_gpu(struct gpu *gpu)
{
	if (gpu->event_fd >= 0)
		(void)close(gpu->event_fd);
	for (uint32_t i = 0; i < GPU_DEVICES_MAX; i++)
		(void)pthread_cond_destroy(&gpu->device[i].work);
	(void)pthread_cond_destroy(&gpu->changed);
	(void)pthread_mutex_destroy(&gpu->lock);
	free(gpu);
}

static int divide_staging(struct gpu *gpu, uint64_t staging_bytes, char message[GPU_MESSAGE_BYTES])
{
	uint64_t bytes = staging_bytes == 0 ? GPU_STAGING_DEFAULT : staging_bytes;
	uint64_t part_bytes = bytes / gpu->device_count / GPU_STAGING_PARTS;

	if (part_bytes < GPU_STAGING_PART_MIN)
		return cnre_message(message, GPU_MESSAGE_BYTES, -EINVAL,
				    "%llu bytes of staging memory are too few for %u GPUs: %llu are needed", (unsigned long long)bytes,
				    gpu->device_count,
				    (unsigned long long)(GPU_STAGING_PART_MIN * GPU_STAGING_PARTS * gpu->device_count));
	if (part_bytes > GPU_STAGING_PART_MAX)
		part_bytes = GPU_STAGING_PART_MAX;
	for (uint32_t i = 0; i < gpu->device_count; i++)
		gpu->device[i].part_bytes = part_bytes / STAGING_ALIGNMENT * STAGING_ALIGNMENT;
	return 0;
}

/* Signals are the core thread's business: the threads start with all of them blocked, and so do the driver's own. */
static int start_threads(struct gpu *gpu)
{
	sigset_t all, before;
	int r = 0;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	for (uint32_t i = 0; i < gpu->device_count && r == 0; i++) {
		struct device *device = &gpu->device[i];

		device->gpu = gpu;
		device_list_init(&device->waiting);
		device_list_init(&device->running);
		r = pthread_create(&device->thread, NULL, device_run, device);
		device->has_thread = r == 0;
	}
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -r;
}

/* Until each has opened or is LOST. */
static void wait_opened(struct gpu *gpu)
{
	(void)pthread_mutex_lock(&gpu->lock);
	for (uint32_t i = 0; i < gpu->device_count; i++) {
		struct device *device = &gpu->device[i];

		while (device->phase == DEVICE_OPENING && device->status.state != GPU_LOST) {
			wait_changed(gpu, cnre_clock_deadline_ns(WATCH_NS));
			watch(device, gpu->hang_ns);
		}
	}
	(void)pthread_mutex_unlock(&gpu->lock);
}

/* A device that was named must work; of the others one is enough. */
static int check_opened(struct gpu *gpu, int are_named, char message[GPU_MESSAGE_BYTES])
{
	uint32_t lost = 0;
	int r = 0;

	(void)pthread_mutex_lock(&gpu->lock);
	for (uint32_t i = gpu->device_count; i-- > 0;) {
		struct device *device = &gpu->device[i];

		if (device->status.state != GPU_LOST)
			continue;
		lost++;
		r = cnre_message(message, GPU_MESSAGE_BYTES, device->open_error, "%s: %.200s", device->status.uuid_text,
				 device->status.reason);
	}
	if (!are_named && lost < gpu->device_count)
		r = 0;
	(void)pthread_mutex_unlock(&gpu->lock);
	return r;
}

int gpu_open(struct gpu **ret_gpu, const struct gpu_setup *setup, char message[GPU_MESSAGE_BYTES])
{
	const struct gpu_cuda *cuda;
	struct gpu *gpu;
	int r = gpu_cuda_load(&cuda, message);

	if (r < 0)
		return r;
	gpu = calloc(1, sizeof *gpu);
	if (gpu == NULL)
		return cnre_message(message, GPU_MESSAGE_BYTES, -ENOMEM, "no memory");
	gpu->cuda = cuda;
	gpu->hang_ns = setup->hang_ns > 0 ? setup->hang_ns : GPU_HANG_NS;
	init_locks(gpu);
	device_list_init(&gpu->finished);
	gpu->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (gpu->event_fd < 0)
		r = cnre_message(message, GPU_MESSAGE_BYTES, -errno, "eventfd failed");
	if (r == 0)
		r = device_select(gpu, setup, message);
	if (r == 0)
		r = divide_staging(gpu, setup->staging_bytes, message);
	if (r < 0) {
		device_free_gpu(gpu);
		return r;
	}
	r = start_threads(gpu);
	if (r == 0) {
		wait_opened(gpu);
		r = check_opened(gpu, setup->uuids != NULL, message);
	} else {
		(void)cnre_message(message, GPU_MESSAGE_BYTES, r, "a thread for a GPU cannot be started");
	}
	if (r < 0)
		(void)gpu_close(gpu);
	else
		*ret_gpu = gpu;
	return r;
}

int gpu_stop(struct gpu *gpu, int64_t timeout_ns)
{
	int64_t until_ns = cnre_clock_deadline_ns(timeout_ns);
	int r = 0;

	(void)pthread_mutex_lock(&gpu->lock);
	gpu->is_stopping = 1;
	for (uint32_t i = 0; i < gpu->device_count; i++)
		(void)pthread_cond_signal(&gpu->device[i].work);
	for (uint32_t i = 0; i < gpu->device_count; i++) {
		struct device *device = &gpu->device[i];

		/* A LOST one is waited for only where it is in no call, and so will look at its state soon. */
		while (device->has_thread && device->phase != DEVICE_ENDED && cnre_clock_left_ns(until_ns) > 0 &&
		       (device->status.state != GPU_LOST || device->call == NULL))
			wait_changed(gpu, until_ns);
		if (device->has_thread && device->phase != DEVICE_ENDED) {
			watch(device, 0);
			device_lose_locked(device, -ENODEV, "it was not done in the time that was left to end");
			r = -ETIMEDOUT;
		}
	}
	gpu->was_stopped = 1;
	(void)pthread_mutex_unlock(&gpu->lock);
	return r;
}

/* Threads that do not end are left alone, and with them what they will look at if they come back: the last one frees it. */
struct gpu *gpu_close(struct gpu *gpu)
{
	pthread_t ended[GPU_DEVICES_MAX], left[GPU_DEVICES_MAX];
	uint32_t ended_count = 0, left_count = 0;

	if (gpu == NULL)
		return NULL;
	if (!gpu->was_stopped)
		(void)gpu_stop(gpu, GPU_STOP_NS);
	(void)pthread_mutex_lock(&gpu->lock);
	for (uint32_t i = 0; i < gpu->device_count; i++) {
		if (!gpu->device[i].has_thread)
			continue;
		if (gpu->device[i].phase == DEVICE_ENDED)
			ended[ended_count++] = gpu->device[i].thread;
		else
			left[left_count++] = gpu->device[i].thread;
	}
	gpu->threads_left = left_count; /* from here on it is theirs, if there are any */
	(void)pthread_mutex_unlock(&gpu->lock);
	for (uint32_t i = 0; i < ended_count; i++)
		(void)pthread_join(ended[i], NULL);
	if (left_count == 0)
		device_free_gpu(gpu);
	for (uint32_t i = 0; i < left_count; i++)
		(void)pthread_detach(left[i]);
	return NULL;
}

uint32_t gpu_count(const struct gpu *gpu)
{
	return gpu->device_count;
}

void gpu_get_status(struct gpu *gpu, uint32_t device, struct gpu_device_status *ret_status)
{
	CNRE_CHECK(device < gpu->device_count);
	(void)pthread_mutex_lock(&gpu->lock);
	*ret_status = gpu->device[device].status;
	(void)pthread_mutex_unlock(&gpu->lock);
}

void gpu_submit(struct gpu *gpu, struct gpu_job *job)
{
	struct device *device = &gpu->device[job->device];

	CNRE_CHECK(job->device < gpu->device_count && job->done != NULL && job->kind <= GPU_JOB_MEASURE);
	(void)pthread_mutex_lock(&gpu->lock);
	job->begun_ns = job->ended_ns = 0;
	if (device->status.state == GPU_LOST) {
		job->status = -ENODEV;
		device_list_push(&gpu->finished, job);
		(void)eventfd_write(gpu->event_fd, 1);
	} else {
		device_list_push(&device->waiting, job);
		(void)pthread_cond_signal(&device->work);
	}
	(void)pthread_mutex_unlock(&gpu->lock);
}

int gpu_event_fd(const struct gpu *gpu)
{
	return gpu->event_fd;
}

int gpu_reap(struct gpu *gpu)
{
	struct job_list finished;
	struct gpu_job *job;
	eventfd_t ignored;
	int count = 0;

	(void)eventfd_read(gpu->event_fd, &ignored);
	device_list_init(&finished);
	(void)pthread_mutex_lock(&gpu->lock);
	watch_all(gpu);
	while ((job = device_list_pop(&gpu->finished)) != NULL)
		device_list_push(&finished, job);
	(void)pthread_mutex_unlock(&gpu->lock);
	while ((job = device_list_pop(&finished)) != NULL) {
		job->done(job);
		count++;
	}
	return count;
}

/* A context of any device that works: memory registered as portable is so for all. NULL: none does. */
static CUcontext working_context(struct gpu *gpu)
{
	CUcontext context = NULL;

	(void)pthread_mutex_lock(&gpu->lock);
	for (uint32_t i = 0; i < gpu->device_count && context == NULL; i++)
		if (gpu->device[i].phase == DEVICE_OPEN && gpu->device[i].status.state == GPU_SERVING)
			context = gpu->device[i].context;
	(void)pthread_mutex_unlock(&gpu->lock);
	return context;
}

int gpu_register(struct gpu *gpu, void *base, uint64_t bytes)
{
	CUcontext context = working_context(gpu), popped;
	CUresult result;

	if (context == NULL || gpu->cuda->cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
		return -ENOTSUP;
	result = gpu->cuda->cuMemHostRegister_v2(base, bytes, CU_MEMHOSTREGISTER_PORTABLE);
	(void)gpu->cuda->cuCtxPopCurrent_v2(&popped);
	if (result == CUDA_SUCCESS)
		return 0;
	return result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -ENOTSUP;
}

void gpu_unregister(struct gpu *gpu, void *base)
{
	CUcontext context = working_context(gpu), popped;

	if (context == NULL || gpu->cuda->cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
		return; /* its pages stay pinned until the process ends */
	(void)gpu->cuda->cuMemHostUnregister(base);
	(void)gpu->cuda->cuCtxPopCurrent_v2(&popped);
}
