/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captures of graphs, as far as they forbid things: nothing is recorded, what is queued in such a stream runs at once, and the
 * graph at the end is none. In the global mode, in which every thread begins, calls such as cuEventQuery are forbidden to all
 * threads while a global capture goes on anywhere; one that is made all the same is an error, and ends the capture.
 */
#include "tests/standin/fakecuda/process.h"

static _Thread_local CUstreamCaptureMode own_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static int forbids(const struct stream *stream)
{
	int is_own = pthread_equal(stream->capture_thread, pthread_self());

	if (stream->capture == CU_STREAM_CAPTURE_STATUS_NONE || own_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return 0;
	if (is_own)
		return stream->capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED;
	return own_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && stream->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_check(void)
{
	CUresult result = CUDA_SUCCESS;
	for (int i = 0; i < STREAMS_MAX; i++)
		if (process.stream[i].is_used && forbids(&process.stream[i])) {
			process.stream[i].capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
			result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	return result;
}

static CUresult enter_stream(const char *function, CUstream handle, struct stream **ret_stream)
{
	struct context *context;
	int index;
	CUresult result = enter(function, NEED_CONTEXT, &context);
	if (result)
		return result;
	result = stream_find(handle, context, &index);
	*ret_stream = result ? NULL : &process.stream[index];
	return result ? leave(result) : CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
	struct stream *stream;
	CUresult result = enter_stream("cuStreamBeginCapture_v2", handle, &stream);
	if (result)
		return result;
	if (stream->is_null || stream->capture != CU_STREAM_CAPTURE_STATUS_NONE)
		return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	stream->capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	stream->capture_mode = mode;
	stream->capture_thread = pthread_self();
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph *ret_graph)
{
	struct stream *stream;
	CUresult result = enter_stream("cuStreamEndCapture", handle, &stream);
	if (result)
		return result;
	if (!ret_graph || stream->capture == CU_STREAM_CAPTURE_STATUS_NONE)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (stream->capture == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	stream->capture = CU_STREAM_CAPTURE_STATUS_NONE;
	*ret_graph = NULL;
	return leave(result);
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *ret_status)
{
	struct stream *stream;
	CUresult result = enter_stream("cuStreamIsCapturing", handle, &stream);
	if (result)
		return result;
	if (!ret_status)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*ret_status = stream->capture;
	return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode before = own_mode;
	CUresult result = enter("cuThreadExchangeStreamCaptureMode", NEED_INIT, NULL);
	if (result)
		return result;
	if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return leave(CUDA_ERROR_INVALID_VALUE);
	own_mode = *mode;
	*mode = before;
	return leave(CUDA_SUCCESS);
}
