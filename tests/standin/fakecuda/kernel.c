/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One kernel, so that tests have work of a device that reads: cnre_checksum(data, bytes, out) adds all bytes up into the
 * 64-bit word at out. A module has it if its image names it; the image may as well be PTX that a real driver takes.
 */
#include "tests/standin/fakecuda/process.h"

#include <string.h>

static const char kernel_name[] = "cnre_checksum";

CUresult CUDAAPI cuModuleLoadData(CUmodule *ret_module, const void *image)
{
	CUresult result = enter("cuModuleLoadData", NEED_CONTEXT, NULL);
	if (result)
		return result;
	if (!ret_module || !image)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (!strstr(image, kernel_name))
		return leave(CUDA_ERROR_INVALID_IMAGE);
	for (int i = 0; i < MODULES_MAX; i++)
		if (!process.module_is_used[i]) {
			process.module_is_used[i] = 1;
			*ret_module = (CUmodule)handle_make(KIND_MODULE, ++process.module_generation[i], i);
			return leave(CUDA_SUCCESS);
		}
	rule_broken(RULE_TABLE_FULL, "%d modules", MODULES_MAX);
	return leave(CUDA_ERROR_OUT_OF_MEMORY);
}

/* A function has the number of its module. */
static int find(const void *handle, enum kind kind)
{
	uint32_t generation;
	int index = handle_index(handle, kind, &generation, MODULES_MAX);
	if (index >= 0 && process.module_is_used[index] && process.module_generation[index] == generation)
		return index;
	rule_broken(RULE_DEAD_HANDLE, "module %p is gone, or never was", handle);
	return -1;
}

CUresult CUDAAPI cuModuleUnload(CUmodule module)
{
	CUresult result = enter("cuModuleUnload", NEED_CONTEXT, NULL);
	if (result)
		return result;
	int index = find(module, KIND_MODULE);
	if (index >= 0)
		process.module_is_used[index] = 0;
	return leave(index < 0 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS);
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *ret_function, CUmodule module, const char *name)
{
	CUresult result = enter("cuModuleGetFunction", NEED_CONTEXT, NULL);
	if (result)
		return result;
	int index = find(module, KIND_MODULE);
	if (index < 0)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (!ret_function || !name || strcmp(name, kernel_name) != 0)
		return leave(CUDA_ERROR_NOT_FOUND);
	*ret_function = (CUfunction)handle_make(KIND_FUNCTION, process.module_generation[index], index);
	return leave(CUDA_SUCCESS);
}

static CUresult launch(struct context *context, int stream, void **parameters)
{
	struct piece data, out;
	CUdeviceptr address = *(CUdeviceptr *)parameters[0], out_address = *(CUdeviceptr *)parameters[2];
	CUresult result = memory_find(address, *(uint64_t *)parameters[1], &data);
	if (!result)
		result = memory_find(out_address, sizeof(uint64_t), &out);
	if (result) { /* a kernel has no return value: it kills its context */
		context_fail(context, CUDA_ERROR_ILLEGAL_ADDRESS);
		return CUDA_SUCCESS;
	}
	struct op *op = op_new(OP_CHECKSUM);
	op->from = data;
	op->to = out;
	stream_queue(stream, op, NULL);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
				unsigned int block_x, unsigned int block_y, unsigned int block_z,
				unsigned int shared_bytes, CUstream stream, void **parameters, void **extra)
{
	struct context *context;
	int index;
	CUresult result = enter("cuLaunchKernel", NEED_CONTEXT, &context);
	if (result)
		return result;
	(void)shared_bytes;
	if (!grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z || !parameters || extra)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (find(function, KIND_FUNCTION) < 0)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	result = stream_find(stream, context, &index);
	return leave(result ? result : launch(context, index, parameters));
}
