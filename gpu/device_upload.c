/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads: from staging memory, piece by piece in a ring of parts, or from registered memory at once. An event after each copy
 * says when its part is free again; that of a job's last copy says that the job is done. So one piece is filled while others
 * are on their way, over the ends of jobs too, and the pinned memory is what was taken at open, whatever is uploaded (case A6).
 */
#include "gpu/device_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/message.h"

#include <errno.h>
#include <string.h>

int device_staging_open(struct device *device, char message[GPU_MESSAGE_BYTES])
{
	int r = 0;

	for (uint32_t i = 0; i < GPU_STAGING_PARTS && r == 0; i++) {
		struct device_part *part = &device->part[i];

		r = DEVICE_CALL(device, cuMemHostAlloc, &part->memory, device->part_bytes, CU_MEMHOSTALLOC_PORTABLE);
		if (r == 0)
			r = DEVICE_CALL(device, cuEventCreate, &part->event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
	}
	if (r == -ENOMEM)
		return cnre_message(message, GPU_MESSAGE_BYTES, r, "no %llu bytes of pinned host memory to stage uploads in",
				    (unsigned long long)device->part_bytes * GPU_STAGING_PARTS);
	return r;
}

void device_staging_close(struct device *device)
{
	for (uint32_t i = 0; i < GPU_STAGING_PARTS; i++) {
		struct device_part *part = &device->part[i];

		if (part->event != NULL)
			(void)DEVICE_CALL(device, cuEventDestroy_v2, part->event);
		if (part->memory != NULL)
			(void)DEVICE_CALL(device, cuMemFreeHost, part->memory);
		part->event = NULL;
		part->memory = NULL;
	}
}

/* Speed is bytes over the time in which something was on its way: where uploads overlap, that is counted once. */
static void end_upload(struct device *device, struct gpu_job *job)
{
	struct gpu_job result;
	int64_t now_ns = cnre_clock_now_ns(), since_ns;

	(void)pthread_mutex_lock(&device->gpu->lock);
	if (device->status.state == GPU_LOST) {
		(void)pthread_mutex_unlock(&device->gpu->lock);
		return;
	}
	result = *job;
	since_ns = job->begun_ns > device->upload_ended_ns ? job->begun_ns : device->upload_ended_ns;
	device->upload_ended_ns = now_ns;
	device->status.uploaded_bytes += job->bytes;
	device->status.upload_ns += (uint64_t)(now_ns - since_ns);
	(void)pthread_mutex_unlock(&device->gpu->lock);
	result.status = 0;
	result.ended_ns = now_ns;
	device_end_job(device, job, &result);
}

int device_upload_wait(struct device *device)
{
	struct device_part *part = &device->part[(device->part_next - device->part_copying) % GPU_STAGING_PARTS];
	int r;

	CNRE_CHECK(device->part_copying > 0 && part->is_copying);
	r = DEVICE_CALL(device, cuEventSynchronize, part->event);
	if (r < 0) { /* whatever it said: which of the copies failed is not known */
		device_lose(device, "an upload failed on its way (cuEventSynchronize)");
		return -ENODEV;
	}
	part->is_copying = 0;
	device->part_copying--;
	if (part->ends != NULL)
		end_upload(device, part->ends);
	part->ends = NULL;
	return 0;
}

int device_upload_drain(struct device *device)
{
	int r = 0;

	while (device->part_copying > 0 && r == 0)
		r = device_upload_wait(device);
	return r;
}

static int begin_copy(struct device *device, const struct gpu_job *copy, uint64_t at, uint64_t bytes, struct gpu_job *ends)
{
	struct device_part *part = &device->part[device->part_next % GPU_STAGING_PARTS];
	const char *from = (const char *)copy->source + at;
	int r;

	if (!copy->is_registered)
		from = memcpy(part->memory, from, bytes);
	r = DEVICE_CALL(device, cuMemcpyHtoDAsync_v2, copy->address + at, from, bytes, device->stream);
	if (r < 0)
		return r;
	r = DEVICE_CALL(device, cuEventRecord, part->event, device->stream);
	if (r < 0) {
		device_lose(device, "no event after an upload (cuEventRecord): its end cannot be known");
		return -ENODEV;
	}
	part->is_copying = 1;
	part->ends = ends;
	device->part_next++;
	device->part_copying++;
	return 0;
}

static void begin_job(struct device *device, struct gpu_job *job)
{
	(void)pthread_mutex_lock(&device->gpu->lock);
	if (device->status.state != GPU_LOST)
		job->begun_ns = cnre_clock_now_ns();
	(void)pthread_mutex_unlock(&device->gpu->lock);
}

int device_upload(struct device *device, struct gpu_job *job, const struct gpu_job *copy)
{
	int r;

	if (copy->bytes == 0 || copy->source == NULL || !device_holds(device, copy->address, copy->bytes))
		return -EINVAL;
	begin_job(device, job);
	for (uint64_t at = 0, bytes; at < copy->bytes; at += bytes) {
		bytes = copy->bytes - at;
		if (!copy->is_registered && bytes > device->part_bytes)
			bytes = device->part_bytes;
		r = device->part_copying == GPU_STAGING_PARTS ? device_upload_wait(device) : 0;
		if (r == 0)
			r = begin_copy(device, copy, at, bytes, at + bytes == copy->bytes ? job : NULL);
		if (r < 0 && device_upload_drain(device) < 0)
			return -ENODEV;
		if (r < 0)
			return r == -ENODEV ? r : -EIO;
	}
	return 0;
}
