/* SPDX-License-Identifier: Apache-2.0 */
/* How every call begins and ends, cuInit(), and what became of the process in the child of a fork. */
#include "tests/standin/fakecuda/fakecuda.h"
#include "tests/standin/fakecuda/process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct process process = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .slot = -1};
_Thread_local int thread_is_driver;

uintptr_t handle_make(enum kind kind, uint32_t generation, int index)
{
	return 1ULL << 62 | (uintptr_t)kind << 56 | (uintptr_t)(generation & 0xffffffff) << 16 | (uintptr_t)index;
}

int handle_index(const void *handle, enum kind kind, uint32_t *ret_generation, int limit)
{
	uintptr_t bits = (uintptr_t)handle;
	if (bits >> 56 != (1ULL << 6 | kind) || (int)(bits & 0xffff) >= limit)
		return -1;
	*ret_generation = (uint32_t)(bits >> 16);
	return (int)(bits & 0xffff);
}

/* The threads that execute streams are not there in the child, and process.lock may be held for ever. */
static void forget_in_child(void)
{
	if (atomic_load(&process.is_ready))
		atomic_store(&process.is_forked, 1);
}

CUresult enter(const char *function, enum need need, struct context **ret_context)
{
	if (atomic_load(&process.is_forked)) {
		rule_broken(RULE_CALL_AFTER_FORK, "%s in the child of a fork", function);
		return CUDA_ERROR_NOT_INITIALIZED;
	}
	if (thread_is_driver) {
		rule_broken(RULE_CALL_IN_HOST_FUNCTION, "%s in a host function", function);
		return CUDA_ERROR_NOT_PERMITTED;
	}
	if (need != NEED_NOTHING && !atomic_load(&process.is_ready)) {
		rule_broken(RULE_CALL_BEFORE_INIT, "%s without cuInit", function);
		return CUDA_ERROR_NOT_INITIALIZED;
	}
	(void)pthread_mutex_lock(&process.lock);
	CUresult result = atomic_load(&process.is_ready) ? failure_take(function) : CUDA_SUCCESS;
	if (need == NEED_CONTEXT && !result) {
		struct context *context = context_current();
		if (!context) {
			rule_broken(RULE_NO_CONTEXT, "%s without a current context", function);
			result = CUDA_ERROR_INVALID_CONTEXT;
		} else if (!context->references) {
			rule_broken(RULE_DEAD_HANDLE, "%s in a context that is gone", function);
			result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
		} else {
			result = context_failed(context);
		}
		if (ret_context)
			*ret_context = context;
	}
	return result ? leave(result) : CUDA_SUCCESS;
}

CUresult leave(CUresult result)
{
	(void)pthread_mutex_unlock(&process.lock);
	return result;
}

static CUresult init_process(void)
{
	int rc = fakecuda_world(NULL);
	if (rc) {
		(void)fprintf(stderr, "fakecuda: no world: %d\n", -rc);
		return CUDA_ERROR_SYSTEM_NOT_READY;
	}
	process.visible_count = settings_visible(world, process.visible);
	if (!process.visible_count)
		return CUDA_ERROR_NO_DEVICE;
	world_lock();
	world_reap();
	process.slot = world_slot_take();
	world_unlock();
	if (process.slot < 0)
		return CUDA_ERROR_SYSTEM_NOT_READY;
	/* Other addresses than in any other process, as with real importers. */
	process.next_address = DEVICE_ADDRESSES + (uint64_t)(process.slot + 1) * DEVICE_ADDRESSES_PER_SLOT;
	const char *limit = getenv("FAKECUDA_WAIT_MS");
	process.wait_limit_ns = (limit ? atoll(limit) : 60000) * 1000000;
	for (int i = 0; i < process.visible_count; i++)
		process.context[i].device = process.visible[i];
	failure_read_environment();
	(void)pthread_atfork(NULL, NULL, forget_in_child);
	atomic_store(&process.is_ready, 1);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuInit(unsigned int flags)
{
	CUresult result = enter("cuInit", NEED_NOTHING, NULL);
	if (result)
		return result;
	if (flags)
		return leave(CUDA_ERROR_INVALID_VALUE);
	return leave(atomic_load(&process.is_ready) ? CUDA_SUCCESS : init_process());
}

CUresult CUDAAPI cuDriverGetVersion(int *ret_version)
{
	if (!ret_version)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_version = 13000;
	return CUDA_SUCCESS;
}
