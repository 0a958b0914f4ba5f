/* SPDX-License-Identifier: Apache-2.0 */
/* See device_select.h. Devices are found by UUID: their numbers are the driver's in this process only (case G3). */
#include "gpu/device_select.h"

#include "base/message.h"
#include "gpu/uuid.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The driver does not say of a device that it is a MIG instance, but its name does: "NVIDIA A100-SXM4-40GB MIG 1g.5gb". */
static int is_mig(const char *name)
{
	const char *found = strstr(name, " MIG");

	return found != NULL && (found[4] == ' ' || found[4] == '\0');
}

static int identify(const struct gpu_cuda *cuda, int ordinal, struct device *device, char message[GPU_MESSAGE_BYTES])
{
	char text[GPU_MESSAGE_BYTES];
	CUuuid uuid;
	CUresult result = cuda->cuDeviceGet(&device->handle, ordinal);

	if (result == CUDA_SUCCESS)
		result = cuda->cuDeviceGetName(device->status.name, (int)sizeof device->status.name, device->handle);
	if (result == CUDA_SUCCESS)
		result = cuda->cuDeviceGetUuid_v2(&uuid, device->handle);
	if (result != CUDA_SUCCESS) {
		gpu_cuda_describe(cuda, "cuDeviceGetUuid_v2", result, text);
		return cnre_message(message, GPU_MESSAGE_BYTES, -ENODEV, "GPU %d does not say who it is: %.180s", ordinal, text);
	}
	device->status.name[sizeof device->status.name - 1] = '\0';
	memcpy(device->status.uuid, uuid.bytes, GPU_UUID_BYTES);
	gpu_uuid_format(device->status.uuid, is_mig(device->status.name), device->status.uuid_text);
	return 0;
}

static int say_unknown(const struct gpu_cuda *cuda, int count, const char *text, char message[GPU_MESSAGE_BYTES])
{
	char shown[GPU_MESSAGE_BYTES] = "";
	size_t at = 0;

	for (int i = 0; i < count && at < sizeof shown - GPU_UUID_TEXT_BYTES; i++) {
		struct device device = {0};

		if (identify(cuda, i, &device, NULL) == 0)
			at += (size_t)snprintf(shown + at, sizeof shown - at, " %s", device.status.uuid_text);
	}
	return cnre_message(message, GPU_MESSAGE_BYTES, -ENOENT, "no GPU %s; the driver shows:%.160s", text, shown);
}

static int find(const struct gpu_cuda *cuda, int count, const char *text, struct device *device, char message[GPU_MESSAGE_BYTES])
{
	unsigned char uuid[GPU_UUID_BYTES];

	if (gpu_uuid_parse(text, uuid) < 0)
		return cnre_message(message, GPU_MESSAGE_BYTES, -EINVAL,
				    "\"%.80s\" is no UUID of a GPU: they look like GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx, or MIG-… (nvidia-smi -L)",
				    text);
	for (int i = 0; i < count; i++) {
		int r = identify(cuda, i, device, message);

		if (r < 0)
			return r;
		if (memcmp(device->status.uuid, uuid, sizeof uuid) == 0)
			return 0;
	}
	return say_unknown(cuda, count, text, message);
}

static int is_named_twice(const struct gpu *gpu, const struct device *device)
{
	for (uint32_t i = 0; i < gpu->device_count; i++)
		if (memcmp(gpu->device[i].status.uuid, device->status.uuid, GPU_UUID_BYTES) == 0)
			return 1;
	return 0;
}

int device_select(struct gpu *gpu, const struct gpu_setup *setup, char message[GPU_MESSAGE_BYTES])
{
	int count = 0, r;
	uint32_t wanted;

	if (gpu->cuda->cuDeviceGetCount(&count) != CUDA_SUCCESS || count <= 0)
		return cnre_message(message, GPU_MESSAGE_BYTES, -ENODEV, "the CUDA driver shows no GPU");
	wanted = setup->uuids != NULL ? setup->uuid_count : (uint32_t)count;
	if (wanted == 0 || (setup->uuids != NULL && wanted > GPU_DEVICES_MAX))
		return cnre_message(message, GPU_MESSAGE_BYTES, -EINVAL, "%u GPUs are named; 1 to %u can be", wanted, GPU_DEVICES_MAX);
	if (wanted > GPU_DEVICES_MAX)
		wanted = GPU_DEVICES_MAX;
	for (uint32_t i = 0; i < wanted; i++) {
		struct device *device = &gpu->device[i];

		if (setup->uuids != NULL)
			r = find(gpu->cuda, count, setup->uuids[i], device, message);
		else
			r = identify(gpu->cuda, (int)i, device, message);
		if (r < 0)
			return r;
		if (is_named_twice(gpu, device))
			return cnre_message(message, GPU_MESSAGE_BYTES, -EINVAL, "%s is named twice", device->status.uuid_text);
		gpu->device_count++;
	}
	return 0;
}
