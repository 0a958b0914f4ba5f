/* SPDX-License-Identifier: Apache-2.0 */
/* Primary contexts, one a visible device, and the stack of current ones that each thread has. */
#include "tests/standin/fakecuda/process.h"

enum { STACK_MAX = 16 };
static _Thread_local CUcontext stack[STACK_MAX];
static _Thread_local int stack_count; /* stack[stack_count - 1] is current; NULL may be, too */

CUcontext context_handle(int index)
{
	return (CUcontext)handle_make(KIND_CONTEXT, process.context[index].generation, index);
}

int context_index(const struct context *context)
{
	return (int)(context - process.context);
}

static struct context *find(CUcontext handle)
{
	uint32_t generation = 0;
	int index = handle_index(handle, KIND_CONTEXT, &generation, process.visible_count);
	return index < 0 ? NULL : &process.context[index];
}

static int is_alive(CUcontext handle)
{
	uint32_t generation = 0;
	int index = handle_index(handle, KIND_CONTEXT, &generation, process.visible_count);
	return index >= 0 && process.context[index].references && process.context[index].generation == generation;
}

struct context *context_current(void)
{
	static struct context gone; /* of no reference: it was destroyed */
	CUcontext handle = stack_count ? stack[stack_count - 1] : NULL;
	if (!handle)
		return NULL;
	return is_alive(handle) ? find(handle) : &gone;
}

CUresult context_failed(struct context *context)
{
	const struct world_device *device = &world->device[context->device];
	int code = world->process[process.slot].fail_code[context->device];
	if (!context->failed && device->lost_code)
		context->failed = device->lost_code;
	else if (!context->failed && device->generation != context->device_generation)
		context->failed = CUDA_ERROR_DEVICE_UNAVAILABLE;
	else if (!context->failed && code)
		context->failed = code;
	return (CUresult)context->failed;
}

void context_fail(struct context *context, CUresult code)
{
	if (!context->failed)
		context->failed = code;
	(void)pthread_cond_broadcast(&process.changed);
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *ret_context, CUdevice device)
{
	CUresult result = enter("cuDevicePrimaryCtxRetain", NEED_INIT, NULL);
	if (result)
		return result;
	if (!ret_context)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (device < 0 || device >= process.visible_count)
		return leave(CUDA_ERROR_INVALID_DEVICE);
	struct context *context = &process.context[device];
	if (world->device[context->device].lost_code)
		return leave(CUDA_ERROR_DEVICE_UNAVAILABLE);
	if (!context->references) {
		world_lock();
		world_reap();
		int fits = world_used_bytes(context->device) + world->context_bytes <=
			   world->device[context->device].total_bytes;
		if (fits) {
			world->process[process.slot].contexts[context->device]++;
			world->process[process.slot].fail_code[context->device] = 0;
			context->device_generation = world->device[context->device].generation;
		}
		world_unlock();
		if (!fits)
			return leave(CUDA_ERROR_OUT_OF_MEMORY);
		context->generation++;
		context->failed = 0;
		context->null_stream = stream_new(device, 1, 0);
		if (context->null_stream < 0)
			return leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	context->references++;
	*ret_context = context_handle(device);
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	CUresult result = enter("cuDevicePrimaryCtxRelease_v2", NEED_INIT, NULL);
	if (result)
		return result;
	if (device < 0 || device >= process.visible_count)
		return leave(CUDA_ERROR_INVALID_DEVICE);
	struct context *context = &process.context[device];
	if (!context->references)
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	if (context->references == 1) {
		/* All that was made in it goes with it, after its work. */
		(void)stream_wait_context(device);
		stream_drop_context(device);
		memory_drop_context(device);
		for (int i = 0; i < EVENTS_MAX; i++)
			if (process.event[i].is_used && process.event[i].context == device)
				process.event[i].is_used = 0;
		world_lock();
		world->process[process.slot].contexts[context->device]--;
		world_unlock();
	}
	context->references--;
	return leave(CUDA_SUCCESS);
}

static CUresult check_context(CUcontext context, const char *function)
{
	if (!context || is_alive(context))
		return CUDA_SUCCESS;
	rule_broken(RULE_DEAD_HANDLE, "%s of a context that is gone, or none", function);
	return find(context) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext context)
{
	CUresult result = enter("cuCtxPushCurrent_v2", NEED_INIT, NULL);
	if (result)
		return result;
	result = context ? check_context(context, "cuCtxPushCurrent_v2") : CUDA_ERROR_INVALID_CONTEXT;
	if (!result && stack_count == STACK_MAX)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		stack[stack_count++] = context;
	return leave(result);
}

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext *ret_context)
{
	CUresult result = enter("cuCtxPopCurrent_v2", NEED_INIT, NULL);
	if (result)
		return result;
	if (!stack_count)
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	stack_count--;
	if (ret_context)
		*ret_context = stack[stack_count];
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
	CUresult result = enter("cuCtxSetCurrent", NEED_INIT, NULL);
	if (result)
		return result;
	result = check_context(context, "cuCtxSetCurrent");
	if (result)
		return leave(result);
	if (!context) /* takes the top away */
		stack_count -= stack_count > 0;
	else if (!stack_count)
		stack[stack_count++] = context;
	else
		stack[stack_count - 1] = context;
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *ret_context)
{
	CUresult result = enter("cuCtxGetCurrent", NEED_INIT, NULL);
	if (result)
		return result;
	if (!ret_context)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*ret_context = stack_count ? stack[stack_count - 1] : NULL;
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *ret_device)
{
	struct context *context;
	CUresult result = enter("cuCtxGetDevice", NEED_CONTEXT, &context);
	if (result)
		return result;
	if (!ret_device)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*ret_device = context_index(context);
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxSynchronize(void)
{
	struct context *context;
	CUresult result = enter("cuCtxSynchronize", NEED_CONTEXT, &context);
	if (result)
		return result;
	result = stream_wait_context(context_index(context));
	for (int i = 0; i < STREAMS_MAX && !result; i++)
		if (process.stream[i].is_used && process.stream[i].context == context_index(context))
			access_observe(i, process.stream[i].done);
	return leave(result);
}
