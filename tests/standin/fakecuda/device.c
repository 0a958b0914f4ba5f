/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, as this process sees them: the numbers are those of CUDA_VISIBLE_DEVICES, the identity is the UUID. */
#include "tests/standin/fakecuda/process.h"

#include <stdio.h>
#include <string.h>

static CUresult enter_device(const char *function, CUdevice device, const struct world_device **ret_device)
{
	CUresult result = enter(function, NEED_INIT, NULL);
	if (result)
		return result;
	if (device < 0 || device >= process.visible_count)
		return leave(CUDA_ERROR_INVALID_DEVICE);
	*ret_device = &world->device[process.visible[device]];
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int *ret_count)
{
	CUresult result = enter("cuDeviceGetCount", NEED_INIT, NULL);
	if (result)
		return result;
	if (!ret_count)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*ret_count = process.visible_count;
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGet(CUdevice *ret_device, int ordinal)
{
	const struct world_device *device = NULL;
	CUresult result = enter_device("cuDeviceGet", ordinal, &device);
	if (result)
		return result;
	if (!ret_device)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*ret_device = ordinal;
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetName(char *name, int bytes, CUdevice number)
{
	const struct world_device *device = NULL;
	CUresult result = enter_device("cuDeviceGetName", number, &device);
	if (result)
		return result;
	if (!name || bytes < 1)
		return leave(CUDA_ERROR_INVALID_VALUE);
	(void)snprintf(name, (size_t)bytes, "Stand-in GPU %d%s", process.visible[number], device->is_mig ? " MIG" : "");
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid *ret_uuid, CUdevice number)
{
	const struct world_device *device = NULL;
	CUresult result = enter_device("cuDeviceGetUuid_v2", number, &device);
	if (result)
		return result;
	if (!ret_uuid)
		return leave(CUDA_ERROR_INVALID_VALUE);
	memcpy(ret_uuid->bytes, device->uuid, sizeof ret_uuid->bytes);
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t *ret_bytes, CUdevice number)
{
	const struct world_device *device = NULL;
	CUresult result = enter_device("cuDeviceTotalMem_v2", number, &device);
	if (result)
		return result;
	if (!ret_bytes)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*ret_bytes = device->total_bytes;
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetAttribute(int *ret_value, CUdevice_attribute attribute, CUdevice number)
{
	const struct world_device *device = NULL;
	CUresult result = enter_device("cuDeviceGetAttribute", number, &device);
	if (result)
		return result;
	if (!ret_value)
		return leave(CUDA_ERROR_INVALID_VALUE);
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
		*ret_value = 1;
		break;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*ret_value = 8;
		break;
	case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
		*ret_value = 2;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*ret_value = 9;
		break;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		*ret_value = process.visible[number] + 1;
		break;
	case CU_DEVICE_ATTRIBUTE_INTEGRATED:
	case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
	case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
	case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
		*ret_value = 0;
		break;
	default:
		result = CUDA_ERROR_INVALID_VALUE;
	}
	return leave(result);
}
