/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Points in a caller's streams: an event after what the caller has put there so far; see import.h. What a point said last it says
 * for ever, so that a stream that failed is asked once.
 */
#include "gpu/import.h"

#include "gpu/import_state.h"

#include <errno.h>
#include <stdlib.h>

struct gpu_point {
	const struct gpu_import *import;
	CUevent event;
	int result; /* 0: not known yet */
};

static int is_captured(const struct gpu_import *import, void *stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	return import->cuda->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

int gpu_point_record(struct gpu_import *import, void *stream, struct gpu_point **ret_point)
{
	struct gpu_point *point = calloc(1, sizeof *point);
	CUstreamCaptureMode mode;
	CUresult result;
	int r;

	if (point == NULL)
		return -ENOMEM;
	point->import = import;
	r = gpu_import_enter(import, &mode);
	if (r < 0) {
		free(point);
		return r;
	}
	result = is_captured(import, stream) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
					     : import->cuda->cuEventCreate(&point->event, CU_EVENT_DISABLE_TIMING);
	if (result == CUDA_SUCCESS) {
		result = import->cuda->cuEventRecord(point->event, stream);
		if (result != CUDA_SUCCESS)
			(void)import->cuda->cuEventDestroy_v2(point->event);
	}
	gpu_import_leave(import, mode);
	if (result == CUDA_SUCCESS) {
		*ret_point = point;
		return 0;
	}
	free(point);
	r = result == CUDA_ERROR_INVALID_CONTEXT ? -EINVAL : gpu_cuda_error(result); /* a stream of another device */
	return r == -ENOMEM || r == -ENODEV ? r : -EINVAL;
}

/* Forbidden now, since a graph is being captured: it says nothing of the stream, which may still read. */
static int is_of_capture(CUresult result)
{
	return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

int gpu_point_query(struct gpu_point *point)
{
	CUstreamCaptureMode mode;
	CUresult result;
	int r;

	if (point->result != 0)
		return point->result;
	r = gpu_import_enter(point->import, &mode);
	if (r == 0) {
		result = point->import->cuda->cuEventQuery(point->event);
		r = is_of_capture(result) ? -EAGAIN : gpu_cuda_error(result);
		gpu_import_leave(point->import, mode);
	}
	if (r == -EAGAIN)
		return 0;
	point->result = r == 0 ? 1 : r;
	return point->result;
}

struct gpu_point *gpu_point_free(struct gpu_point *point)
{
	CUstreamCaptureMode mode;

	if (point == NULL)
		return NULL;
	if (gpu_import_enter(point->import, &mode) == 0) {
		(void)point->import->cuda->cuEventDestroy_v2(point->event);
		gpu_import_leave(point->import, mode);
	}
	free(point);
	return NULL;
}
