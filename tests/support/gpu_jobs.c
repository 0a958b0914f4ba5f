/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/gpu_jobs.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define WAIT_NS (20 * CNRE_NS_PER_S)

static void count_done(struct gpu_job *job)
{
	((struct gpu_try *)job)->dones++;
}

void gpu_try_submit(struct gpu *gpu, struct gpu_try *attempt)
{
	attempt->dones = 0;
	attempt->job.done = count_done;
	gpu_submit(gpu, &attempt->job);
}

int gpu_try_wait(struct gpu *gpu, struct gpu_try *attempt)
{
	int64_t deadline_ns = cnre_clock_deadline_ns(WAIT_NS);

	while (attempt->dones == 0 && cnre_clock_left_ns(deadline_ns) > 0) {
		struct pollfd event = {.fd = gpu_event_fd(gpu), .events = POLLIN};

		(void)poll(&event, 1, 50);
		(void)gpu_reap(gpu);
	}
	return attempt->dones == 0 ? -ETIMEDOUT : attempt->job.status;
}

static int run(struct gpu *gpu, struct gpu_job job, struct gpu_job *ret_job)
{
	static struct gpu_try kept[64]; /* one that hangs is still the device's after we gave up */
	static unsigned next;
	struct gpu_try *attempt = &kept[next++ % 64];
	int r;

	attempt->job = job;
	gpu_try_submit(gpu, attempt);
	r = gpu_try_wait(gpu, attempt);
	if (ret_job != NULL)
		*ret_job = attempt->job;
	return r;
}

int gpu_try_allocate(struct gpu *gpu, uint32_t device, uint64_t bytes, struct gpu_job *ret_job)
{
	return run(gpu, (struct gpu_job){.kind = GPU_JOB_ALLOCATE, .device = device, .bytes = bytes}, ret_job);
}

int gpu_try_free(struct gpu *gpu, uint32_t device, uint64_t address)
{
	return run(gpu, (struct gpu_job){.kind = GPU_JOB_FREE, .device = device, .address = address}, NULL);
}

int gpu_try_upload(struct gpu *gpu, uint32_t device, uint64_t address, const void *source, uint64_t bytes, int is_registered)
{
	return run(gpu,
		   (struct gpu_job){.kind = GPU_JOB_UPLOAD,
				    .device = device,
				    .address = address,
				    .source = source,
				    .bytes = bytes,
				    .is_registered = is_registered},
		   NULL);
}

int gpu_try_measure(struct gpu *gpu, uint32_t device)
{
	return run(gpu, (struct gpu_job){.kind = GPU_JOB_MEASURE, .device = device}, NULL);
}

void gpu_fill(void *memory, uint64_t bytes, uint32_t seed)
{
	unsigned char *at = memory;

	for (uint64_t i = 0; i < bytes; i++) {
		uint64_t mixed = (i + 1) * 0x9e3779b97f4a7c15ull + seed * 0xd1b54a32d192ed03ull;

		at[i] = (unsigned char)(mixed >> 56);
	}
}
