/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: what is queued, in which order, and the thread of each that executes it. */
#include "tests/standin/fakecuda/process.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

struct op *op_new(enum op_kind kind)
{
	struct op *op = calloc(1, sizeof *op);
	if (!op)
		abort();
	op->kind = kind;
	return op;
}

void op_free(struct op *op)
{
	free(op->staged);
	free(op);
}

void clock_join(struct clock *into, const struct clock *other)
{
	for (int i = 0; i < STREAMS_MAX; i++)
		if (other->seq[i] > into->seq[i])
			into->seq[i] = other->seq[i];
}

int stream_must_stop(const struct stream *stream)
{
	return context_failed(&process.context[stream->context]) != CUDA_SUCCESS;
}

static int is_ready(const struct stream *stream, const struct op *op)
{
	for (int i = 0; i < STREAMS_MAX; i++)
		if (&process.stream[i] != stream && process.stream[i].done < op->after.seq[i])
			return 0;
	return 1;
}

static void *execute(void *argument)
{
	struct stream *stream = argument;
	(void)pthread_mutex_lock(&process.lock);
	for (;;) {
		while (!stream->first && !stream->is_dying)
			(void)pthread_cond_wait(&stream->wake, &process.lock);
		struct op *op = stream->first;
		if (!op)
			break;
		while (!is_ready(stream, op) && !stream_must_stop(stream))
			(void)pthread_cond_wait(&process.changed, &process.lock);
		work_delay(stream, op);
		work_run(stream, op);
		stream->first = op->next;
		if (!stream->first)
			stream->last = &stream->first;
		stream->done = op->seq;
		world->process[process.slot].executed++;
		op_free(op);
		(void)pthread_cond_broadcast(&process.changed);
	}
	stream->is_used = 0;
	world->process[process.slot].streams--;
	(void)pthread_cond_broadcast(&process.changed);
	(void)pthread_mutex_unlock(&process.lock);
	return NULL;
}

static int start_thread(struct stream *stream)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t all, before;
	(void)sigfillset(&all);
	(void)pthread_attr_init(&attributes);
	(void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	int rc = pthread_create(&thread, &attributes, execute, stream);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attributes);
	return rc;
}

int stream_new(int context, int is_null, int is_non_blocking)
{
	/* One that was never used first: the numbers of an old one go on, which makes its late accesses look ordered. */
	int found = -1;
	for (int i = 0; i < STREAMS_MAX; i++) {
		const struct stream *stream = &process.stream[i];
		if (!stream->is_used && (found < 0 || (process.stream[found].generation && !stream->generation)))
			found = i;
	}
	if (found < 0)
		return -1;
	struct stream *new = &process.stream[found];
	new->is_used = 1;
	new->is_dying = 0;
	new->is_null = is_null;
	new->is_non_blocking = is_non_blocking;
	new->context = context;
	new->clock = (struct clock){0};
	new->first = NULL;
	new->last = &new->first;
	if (!new->generation++)
		(void)pthread_cond_init(&new->wake, NULL);
	if (start_thread(new)) {
		new->is_used = 0;
		return -1;
	}
	world->process[process.slot].streams++;
	return found;
}

CUresult stream_find(CUstream handle, struct context *current, int *ret_index)
{
	uint32_t generation;
	if (!handle || handle == (CUstream)1) {
		*ret_index = current->null_stream;
		return CUDA_SUCCESS;
	}
	int index = handle_index(handle, KIND_STREAM, &generation, STREAMS_MAX);
	const struct stream *stream = index < 0 ? NULL : &process.stream[index];
	if (!stream || !stream->is_used || stream->is_dying || stream->generation != generation) {
		rule_broken(RULE_DEAD_HANDLE, "stream %p is gone, or never was", (void *)handle);
		return CUDA_ERROR_INVALID_HANDLE;
	}
	*ret_index = index;
	return stream->context == context_index(current) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Stream 0 waits for all that block, and they for it. */
static void order_with_null(struct stream *stream, int index)
{
	if (stream->is_non_blocking)
		return;
	for (int i = 0; i < STREAMS_MAX; i++) {
		const struct stream *other = &process.stream[i];
		if (i == index || !other->is_used || other->is_non_blocking || other->context != stream->context ||
		    (!stream->is_null && !other->is_null))
			continue;
		clock_join(&stream->clock, &other->clock);
		if (other->queued > stream->clock.seq[i])
			stream->clock.seq[i] = other->queued;
	}
}

void stream_queue(int index, struct op *op, struct clock *ret_clock)
{
	struct stream *stream = &process.stream[index];
	order_with_null(stream, index);
	stream->clock.seq[index] = stream->queued;
	op->after = stream->clock;
	op->seq = ++stream->queued;
	if (op->from.id)
		access_begin(&op->from, 0, index, op);
	if (op->to.id)
		access_begin(&op->to, 1, index, op);
	if (op->host && !op->staged)
		host_pending(op->host, op->host_bytes, 1);
	if (ret_clock) {
		*ret_clock = op->after;
		ret_clock->seq[index] = op->seq;
	}
	*stream->last = op;
	stream->last = &op->next;
	world->process[process.slot].queued++;
	(void)pthread_cond_signal(&stream->wake);
}

CUresult stream_wait(int index, uint64_t seq)
{
	struct stream *stream = &process.stream[index];
	struct timespec until;
	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += process.wait_limit_ns / 1000000000;
	until.tv_nsec += process.wait_limit_ns % 1000000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	while (stream->done < seq)
		if (pthread_cond_timedwait(&process.changed, &process.lock, &until) == ETIMEDOUT &&
		    stream->done < seq) {
			rule_broken(RULE_WAITED_TOO_LONG, "for operation %llu of stream %d", (unsigned long long)seq,
				    index);
			context_fail(&process.context[stream->context], CUDA_ERROR_LAUNCH_TIMEOUT);
			world_announce();
			break;
		}
	return context_failed(&process.context[stream->context]);
}

/* All that is queued in it and what that comes after, streams that block included if it is stream 0. */
static struct clock clock_of(int index)
{
	struct stream *stream = &process.stream[index];
	if (stream->is_null)
		order_with_null(stream, index);
	struct clock clock = stream->clock;
	clock.seq[index] = stream->queued;
	return clock;
}

int stream_is_done(int index)
{
	struct clock clock = clock_of(index);
	for (int i = 0; i < STREAMS_MAX; i++)
		if (process.stream[i].done < clock.seq[i])
			return 0;
	stream_observe(&clock);
	return 1;
}

CUresult stream_finish(int index)
{
	struct clock clock = clock_of(index);
	CUresult result = CUDA_SUCCESS;
	for (int i = 0; i < STREAMS_MAX && !result; i++)
		result = clock.seq[i] ? stream_wait(i, clock.seq[i]) : CUDA_SUCCESS;
	if (!result)
		stream_observe(&clock);
	return result;
}

CUresult stream_wait_context(int context)
{
	CUresult result = CUDA_SUCCESS;
	for (int i = 0; i < STREAMS_MAX && !result; i++)
		if (process.stream[i].is_used && process.stream[i].context == context)
			result = stream_wait(i, process.stream[i].queued);
	return result;
}

void stream_observe(const struct clock *clock)
{
	for (int i = 0; i < STREAMS_MAX; i++)
		access_observe(i, clock->seq[i]);
}

void stream_drop_context(int context)
{
	for (int i = 0; i < STREAMS_MAX; i++)
		if (process.stream[i].is_used && process.stream[i].context == context) {
			process.stream[i].is_dying = 1;
			(void)pthread_cond_signal(&process.stream[i].wake);
		}
}
