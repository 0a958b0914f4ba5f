/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's table, and what its codes mean; see cuda.h. */
#include "gpu/cuda.h"

#include "base/check.h"
#include "base/message.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"

#define SYMBOL(name) {#name, offsetof(struct gpu_cuda, name)},
static const struct {
	const char *name;
	size_t at;
} symbols[] = {GPU_CUDA_CALLS(SYMBOL)};

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpu_cuda driver;              /* under load_lock until it is loaded, constant afterwards */
static int was_loaded, load_result;
static char load_message[GPU_MESSAGE_BYTES];

int gpu_cuda_is_loss(CUresult result)
{
	switch ((int)result) {
	case CUDA_ERROR_DEINITIALIZED: /* the process is ending, and the driver before us */
	case CUDA_ERROR_DEVICE_UNAVAILABLE:
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_INVALID_DEVICE:
	case CUDA_ERROR_INVALID_CONTEXT: /* somebody in this process reset the device */
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case 226: /* CUDA_ERROR_CONTAINED, of CUDA 12.9 */
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
	case 710: /* CUDA_ERROR_ASSERT, and to 718: exceptions of kernels */
	case 714:
	case 715:
	case 716:
	case 717:
	case 718:
	case CUDA_ERROR_LAUNCH_FAILED:
	case CUDA_ERROR_SYSTEM_NOT_READY:
	case 805: /* CUDA_ERROR_MPS_CONNECTION_FAILED, and to 810: the MPS server went */
	case 806:
	case 807:
	case 810:
	case 911: /* CUDA_ERROR_EXTERNAL_DEVICE */
	case CUDA_ERROR_UNKNOWN: /* what a device that fell off its bus says */
		return 1;
	default:
		return 0;
	}
}

int gpu_cuda_error(CUresult result)
{
	if (gpu_cuda_is_loss(result))
		return -ENODEV;
	switch (result) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_NOT_READY:
		return -EAGAIN;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return -ENOMEM;
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_HANDLE:
		return -EINVAL;
	case CUDA_ERROR_NOT_SUPPORTED:
		return -ENOTSUP;
	case CUDA_ERROR_NOT_PERMITTED:
		return -EPERM;
	case CUDA_ERROR_NOT_INITIALIZED:
	case CUDA_ERROR_STUB_LIBRARY:
	case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
		return -ENODEV;
	default:
		return -EIO;
	}
}

void gpu_cuda_describe(const struct gpu_cuda *cuda, const char *call, CUresult result, char text[GPU_MESSAGE_BYTES])
{
	const char *name = NULL, *words = NULL;

	if (cuda->cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL)
		name = "an error that the driver does not name";
	if (cuda->cuGetErrorString(result, &words) != CUDA_SUCCESS || words == NULL)
		words = "no text";
	(void)cnre_message(text, GPU_MESSAGE_BYTES, 0, "%s: %s (%d): %s", call, name, (int)result, words);
}

static int look_up(void *library)
{
	for (size_t i = 0; i < CNRE_COUNT_OF(symbols); i++) {
		void *function = dlsym(library, symbols[i].name);
		int version = 0;

		if (function == NULL) {
			if (driver.cuDriverGetVersion != NULL)
				(void)driver.cuDriverGetVersion(&version);
			return cnre_message(load_message, sizeof load_message, -ENODEV,
					    "the CUDA driver has no %s: it is for CUDA %d.%d, too old for this: 11.4 or newer is needed",
					    symbols[i].name, version / 1000, version % 1000 / 10);
		}
		memcpy((char *)&driver + symbols[i].at, &function, sizeof function);
	}
	return 0;
}

/* What stands between a machine and its GPUs most often, in words; the rest in the driver's own. */
static int say_initialisation(CUresult result)
{
	char text[GPU_MESSAGE_BYTES];
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");

	if (result == CUDA_ERROR_STUB_LIBRARY)
		return cnre_message(load_message, sizeof load_message, -ENODEV,
				    LIBRARY " is the stub of the CUDA Toolkit and no driver: take its folder out of LD_LIBRARY_PATH");
	if (result == CUDA_ERROR_NO_DEVICE)
		return cnre_message(load_message, sizeof load_message, -ENODEV, "the CUDA driver shows no GPU%s%s%s",
				    visible != NULL ? " (CUDA_VISIBLE_DEVICES is \"" : "", visible != NULL ? visible : "",
				    visible != NULL ? "\")" : ": is one given to this machine or container?");
	gpu_cuda_describe(&driver, "cuInit", result, text);
	return cnre_message(load_message, sizeof load_message, -ENODEV, "the CUDA driver does not start: %.180s", text);
}

static int load(void)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	CUresult result;
	int r, count = 0;

	if (library == NULL)
		return cnre_message(load_message, sizeof load_message, -ENODEV, "no CUDA driver: %.120s: install NVIDIA's, or give the container its libcuda.so.1 and devices", dlerror());
	r = look_up(library);
	if (r < 0)
		return r;
	result = driver.cuInit(0);
	if (result == CUDA_SUCCESS)
		result = driver.cuDeviceGetCount(&count);
	if (result == CUDA_SUCCESS && count <= 0)
		result = CUDA_ERROR_NO_DEVICE;
	if (result != CUDA_SUCCESS)
		return say_initialisation(result);
	(void)driver.cuDriverGetVersion(&driver.version);
	return 0;
}

int gpu_cuda_load(const struct gpu_cuda **ret_cuda, char message[GPU_MESSAGE_BYTES])
{
	int r;

	(void)pthread_mutex_lock(&load_lock);
	if (!was_loaded)
		load_result = load();
	was_loaded = 1;
	r = load_result;
	if (r == 0)
		*ret_cuda = &driver;
	else if (message != NULL)
		memcpy(message, load_message, sizeof load_message);
	(void)pthread_mutex_unlock(&load_lock);
	return r;
}
