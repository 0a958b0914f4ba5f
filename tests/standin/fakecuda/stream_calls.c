/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's calls on streams and events. */
#include "tests/standin/fakecuda/process.h"

CUresult CUDAAPI cuStreamCreate(CUstream *ret_stream, unsigned int flags)
{
	struct context *context;
	CUresult result = enter("cuStreamCreate", NEED_CONTEXT, &context);
	if (result)
		return result;
	if (!ret_stream || flags > CU_STREAM_NON_BLOCKING)
		return leave(CUDA_ERROR_INVALID_VALUE);
	int index = stream_new(context_index(context), 0, flags == CU_STREAM_NON_BLOCKING);
	if (index < 0) {
		rule_broken(RULE_TABLE_FULL, "%d streams", STREAMS_MAX);
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	*ret_stream = (CUstream)handle_make(KIND_STREAM, process.stream[index].generation, index);
	return leave(CUDA_SUCCESS);
}

/* A call on a stream up to where it is found: 0, and then leave() is due. */
static CUresult enter_stream(const char *function, CUstream handle, int *ret_index)
{
	struct context *context;
	CUresult result = enter(function, NEED_CONTEXT, &context);
	if (result)
		return result;
	result = stream_find(handle, context, ret_index);
	return result ? leave(result) : CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream stream)
{
	int index;
	CUresult result = enter_stream("cuStreamDestroy_v2", stream, &index);
	if (result)
		return result;
	if (process.stream[index].is_null)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	process.stream[index].is_dying = 1; /* once all that is queued is done */
	(void)pthread_cond_signal(&process.stream[index].wake);
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamQuery(CUstream stream)
{
	int index;
	CUresult result = enter_stream("cuStreamQuery", stream, &index);
	if (result)
		return result;
	return leave(stream_is_done(index) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

CUresult CUDAAPI cuStreamSynchronize(CUstream stream)
{
	int index;
	CUresult result = enter_stream("cuStreamSynchronize", stream, &index);
	if (result)
		return result;
	return leave(stream_finish(index));
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn call, void *user)
{
	int index;
	CUresult result = enter_stream("cuLaunchHostFunc", stream, &index);
	if (result)
		return result;
	if (!call)
		return leave(CUDA_ERROR_INVALID_VALUE);
	struct op *op = op_new(OP_HOST_FUNCTION);
	op->call = call;
	op->user = user;
	stream_queue(index, op, NULL);
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamAddCallback(CUstream stream, CUstreamCallback call, void *user, unsigned int flags)
{
	int index;
	CUresult result = enter_stream("cuStreamAddCallback", stream, &index);
	if (result)
		return result;
	if (!call || flags)
		return leave(CUDA_ERROR_INVALID_VALUE);
	struct op *op = op_new(OP_CALLBACK);
	op->callback = call;
	op->user = user;
	op->handle = stream;
	stream_queue(index, op, NULL);
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuEventCreate(CUevent *ret_event, unsigned int flags)
{
	struct context *context;
	CUresult result = enter("cuEventCreate", NEED_CONTEXT, &context);
	if (result)
		return result;
	if (!ret_event || flags > 7 || (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING)))
		return leave(CUDA_ERROR_INVALID_VALUE);
	for (int i = 0; i < EVENTS_MAX; i++) {
		struct event *new = &process.event[i];
		if (new->is_used)
			continue;
		*new = (struct event){
			.is_used = 1, .generation = new->generation + 1, .context = context_index(context)};
		*ret_event = (CUevent)handle_make(KIND_EVENT, new->generation, i);
		return leave(CUDA_SUCCESS);
	}
	rule_broken(RULE_TABLE_FULL, "%d events", EVENTS_MAX);
	return leave(CUDA_ERROR_OUT_OF_MEMORY);
}

static struct event *find_event(CUevent handle)
{
	uint32_t generation;
	int index = handle_index(handle, KIND_EVENT, &generation, EVENTS_MAX);
	struct event *event = index < 0 ? NULL : &process.event[index];
	if (event && event->is_used && event->generation == generation)
		return event;
	rule_broken(RULE_DEAD_HANDLE, "event %p is gone, or never was", (void *)handle);
	return NULL;
}

static CUresult enter_event(const char *function, CUevent handle, struct event **ret_event)
{
	CUresult result = enter(function, NEED_CONTEXT, NULL);
	if (result)
		return result;
	*ret_event = find_event(handle);
	return *ret_event ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_HANDLE);
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent handle)
{
	struct event *event;
	CUresult result = enter_event("cuEventDestroy_v2", handle, &event);
	if (result)
		return result;
	event->is_used = 0; /* streams that wait for it have its clock */
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuEventRecord(CUevent handle, CUstream stream)
{
	int index;
	CUresult result = enter_stream("cuEventRecord", stream, &index);
	if (result)
		return result;
	struct event *event = find_event(handle);
	if (!event || event->context != process.stream[index].context)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	event->is_captured = process.stream[index].capture != CU_STREAM_CAPTURE_STATUS_NONE;
	event->is_recorded = !event->is_captured;
	if (event->is_captured)
		return leave(CUDA_SUCCESS);
	stream_queue(index, op_new(OP_EVENT), &event->clock);
	event->stream = index;
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuEventQuery(CUevent handle)
{
	struct event *event;
	CUresult result = enter_event("cuEventQuery", handle, &event);
	if (result)
		return result;
	result = event->is_captured ? CUDA_ERROR_CAPTURED_EVENT : capture_check();
	if (result)
		return leave(result);
	if (event->is_recorded && process.stream[event->stream].done < event->clock.seq[event->stream])
		return leave(CUDA_ERROR_NOT_READY);
	if (event->is_recorded)
		stream_observe(&event->clock);
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuEventSynchronize(CUevent handle)
{
	struct event *event;
	CUresult result = enter_event("cuEventSynchronize", handle, &event);
	if (result)
		return result;
	if (!event->is_recorded)
		return leave(CUDA_SUCCESS);
	struct clock clock = event->clock; /* as it was recorded when the wait began */
	result = stream_wait(event->stream, clock.seq[event->stream]);
	if (!result)
		stream_observe(&clock);
	return leave(result);
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned int flags)
{
	int index;
	CUresult result = enter_stream("cuStreamWaitEvent", stream, &index);
	if (result)
		return result;
	const struct event *event = find_event(handle);
	if (!event || flags)
		return leave(event ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
	if (event->is_recorded)
		clock_join(&process.stream[index].clock, &event->clock);
	return leave(CUDA_SUCCESS);
}
