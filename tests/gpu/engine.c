/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/engine.h"

#include "tests/gpu/matvec.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KERNELS_BYTES_MAX (1u << 20)

#define SYMBOL(name) {#name, offsetof(struct engine, name)},
static const struct {
	const char *name;
	size_t at;
} symbols[] = {ENGINE_CALLS(SYMBOL)};

static int say(const char *call, CUresult result)
{
	if (result == CUDA_SUCCESS)
		return 0;
	(void)printf("  %s: error %d\n", call, (int)result);
	return -1;
}
#define CALL(engine, name, ...) say(#name, (engine)->name(__VA_ARGS__))

int engine_open(struct engine *engine, int ordinal)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	CUdevice device;

	memset(engine, 0, sizeof *engine);
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *function = library != NULL ? dlsym(library, symbols[i].name) : NULL;

		if (function == NULL) {
			(void)printf("  the driver has no %s\n", symbols[i].name);
			return -1;
		}
		memcpy((char *)engine + symbols[i].at, &function, sizeof function);
	}
	if (CALL(engine, cuDeviceGet, &device, ordinal) < 0 || CALL(engine, cuDevicePrimaryCtxRetain, &engine->context, device) < 0 ||
	    CALL(engine, cuCtxSetCurrent, engine->context) < 0)
		return -1;
	return CALL(engine, cuStreamCreate, &engine->stream, CU_STREAM_NON_BLOCKING);
}

void engine_close(struct engine *engine)
{
	CUdevice device;

	if (engine->module != NULL)
		(void)engine->cuModuleUnload(engine->module);
	if (engine->stream != NULL)
		(void)engine->cuStreamDestroy_v2(engine->stream);
	if (engine->context != NULL && engine->cuDeviceGet(&device, 0) == CUDA_SUCCESS)
		(void)engine->cuDevicePrimaryCtxRelease_v2(device);
}

int engine_load_kernels(struct engine *engine)
{
	static char text[KERNELS_BYTES_MAX];
	const char *build = getenv("CNRE_BUILD");
	char path[4096];
	FILE *file;
	size_t bytes;

	(void)snprintf(path, sizeof path, "%s/tests/gpu/matvec.ptx", build != NULL ? build : "build");
	file = fopen(path, "re");
	if (file == NULL)
		return 77;
	bytes = fread(text, 1, sizeof text - 1, file);
	(void)fclose(file);
	text[bytes] = '\0';
	return CALL(engine, cuModuleLoadData, &engine->module, text);
}

int engine_compare(struct engine *engine, uint64_t address, uint64_t bytes, void (*fill)(void *, uint64_t, uint32_t), uint32_t seed)
{
	unsigned char *expected = malloc(bytes);
	void *found = NULL;
	int r = expected == NULL ? -1 : CALL(engine, cuMemHostAlloc, &found, bytes, 0);

	if (r == 0)
		r = CALL(engine, cuMemcpyDtoHAsync_v2, found, address, bytes, engine->stream);
	if (r == 0)
		r = CALL(engine, cuStreamSynchronize, engine->stream);
	if (r == 0) {
		fill(expected, bytes, seed);
		r = memcmp(expected, found, bytes) == 0 ? 0 : -1;
	}
	if (found != NULL)
		(void)engine->cuMemFreeHost(found);
	free(expected);
	return r;
}

int engine_matvec(struct engine *engine, const char *kernel, uint64_t weights, uint64_t scales, const int8_t *x, float *ret_y,
		  unsigned times)
{
	CUdeviceptr device_x = 0, device_y = 0, device_weights = weights, device_scales = scales;
	unsigned columns = MATVEC_COLUMNS;
	void *parameters[] = {&device_weights, &device_scales, &device_x, &device_y, &columns};
	CUfunction function;
	int r = CALL(engine, cuModuleGetFunction, &function, engine->module, kernel);

	if (r == 0)
		r = CALL(engine, cuMemAlloc_v2, &device_x, MATVEC_COLUMNS);
	if (r == 0)
		r = CALL(engine, cuMemAlloc_v2, &device_y, sizeof(float) * MATVEC_ROWS);
	if (r == 0)
		r = CALL(engine, cuMemcpyHtoD_v2, device_x, x, MATVEC_COLUMNS);
	for (unsigned i = 0; i < times && r == 0; i++)
		r = CALL(engine, cuLaunchKernel, function, MATVEC_ROWS, 1, 1, MATVEC_THREADS, 1, 1, 0, engine->stream, parameters, NULL);
	if (r == 0)
		r = CALL(engine, cuStreamSynchronize, engine->stream);
	if (r == 0)
		r = CALL(engine, cuMemcpyDtoH_v2, ret_y, device_y, sizeof(float) * MATVEC_ROWS);
	if (device_y != 0)
		(void)engine->cuMemFree_v2(device_y);
	if (device_x != 0)
		(void)engine->cuMemFree_v2(device_x);
	return r;
}

int engine_checksum(struct engine *engine, uint64_t address, uint64_t bytes, uint64_t *ret_sum)
{
	CUdeviceptr from = address, sum = 0;
	unsigned long long count = bytes;
	void *parameters[] = {&from, &count, &sum};
	CUfunction function;
	int r = CALL(engine, cuModuleGetFunction, &function, engine->module, "cnre_checksum");

	if (r == 0)
		r = CALL(engine, cuMemAlloc_v2, &sum, sizeof *ret_sum);
	if (r == 0)
		r = CALL(engine, cuLaunchKernel, function, 1, 1, 1, MATVEC_THREADS, 1, 1, 0, engine->stream, parameters, NULL);
	if (r == 0)
		r = CALL(engine, cuStreamSynchronize, engine->stream);
	if (r == 0)
		r = CALL(engine, cuMemcpyDtoH_v2, ret_sum, sum, sizeof *ret_sum);
	if (sum != 0)
		(void)engine->cuMemFree_v2(sum);
	return r;
}
