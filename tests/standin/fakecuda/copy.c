/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies. Registered memory is read when the operation is executed, pageable memory when it is queued, into a stage. As
 * documented, a synchronous copy from pageable memory returns when that is done, and may still be on its way to the
 * device; from registered memory, and to the host, it returns when all is done.
 */
#include "tests/standin/fakecuda/process.h"

#include <stdlib.h>
#include <string.h>

static CUresult queue_upload(int stream, CUdeviceptr to, const void *from, size_t bytes, int *ret_is_staged)
{
	struct piece piece;
	CUresult result = memory_find(to, bytes, &piece);
	if (result)
		return result;
	struct op *op = op_new(OP_COPY);
	op->to = piece;
	op->host = (void *)(uintptr_t)from;
	op->host_bytes = bytes;
	*ret_is_staged = !host_find(from, bytes);
	if (*ret_is_staged) {
		op->staged = malloc(bytes);
		if (!op->staged) {
			op_free(op);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		memcpy(op->staged, from, bytes);
		host_count_staged((int64_t)bytes);
	} else {
		op->host_sum = host_sum(from, bytes);
	}
	stream_queue(stream, op, NULL);
	return CUDA_SUCCESS;
}

static CUresult queue_download(int stream, void *to, CUdeviceptr from, size_t bytes)
{
	struct piece piece;
	CUresult result = memory_find(from, bytes, &piece);
	if (result)
		return result;
	struct op *op = op_new(OP_COPY);
	op->from = piece;
	op->host = to;
	op->host_bytes = bytes;
	stream_queue(stream, op, NULL);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
	struct context *context;
	int is_staged;
	CUresult result = enter("cuMemcpyHtoD_v2", NEED_CONTEXT, &context);
	if (result || !bytes)
		return result ? result : leave(CUDA_SUCCESS);
	result = queue_upload(context->null_stream, to, from, bytes, &is_staged);
	if (!result && !is_staged)
		result = stream_finish(context->null_stream);
	return leave(result);
}

CUresult CUDAAPI cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
	struct context *context;
	CUresult result = enter("cuMemcpyDtoH_v2", NEED_CONTEXT, &context);
	if (result || !bytes)
		return result ? result : leave(CUDA_SUCCESS);
	result = queue_download(context->null_stream, to, from, bytes);
	return leave(result ? result : stream_finish(context->null_stream));
}

CUresult CUDAAPI cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	struct context *context;
	int index, is_staged;
	CUresult result = enter("cuMemcpyHtoDAsync_v2", NEED_CONTEXT, &context);
	if (result)
		return result;
	result = stream_find(stream, context, &index);
	if (!result && bytes) {
		result = queue_upload(index, to, from, bytes, &is_staged);
		if (!result && is_staged)
			rule_broken(RULE_PAGEABLE, "%zu bytes at %p", bytes, from);
	}
	return leave(result);
}

CUresult CUDAAPI cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	struct context *context;
	int index;
	CUresult result = enter("cuMemcpyDtoHAsync_v2", NEED_CONTEXT, &context);
	if (result)
		return result;
	result = stream_find(stream, context, &index);
	if (result || !bytes)
		return leave(result);
	int is_registered = !!host_find(to, bytes);
	result = queue_download(index, to, from, bytes);
	if (!result && !is_registered) { /* asynchronous by name only */
		rule_broken(RULE_PAGEABLE, "%zu bytes at %p", bytes, to);
		result = stream_finish(index);
	}
	return leave(result);
}

CUresult CUDAAPI cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	struct context *context;
	struct piece source, target;
	int index;
	CUresult result = enter("cuMemcpyDtoDAsync_v2", NEED_CONTEXT, &context);
	if (result)
		return result;
	result = stream_find(stream, context, &index);
	if (result || !bytes)
		return leave(result);
	result = memory_find(from, bytes, &source);
	if (!result)
		result = memory_find(to, bytes, &target);
	if (!result) {
		struct op *op = op_new(OP_COPY);
		op->from = source;
		op->to = target;
		stream_queue(index, op, NULL);
	}
	return leave(result);
}
