/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of gpu/device.h in a test, one at a time or many: submitted, and waited for with a bound. With any driver. */
#ifndef CNRE_TESTS_SUPPORT_GPU_JOBS_H
#define CNRE_TESTS_SUPPORT_GPU_JOBS_H

#include "gpu/device.h"

/* A job and whether it is done; the job is the first member. */
struct gpu_try {
	struct gpu_job job;
	int dones;
};

void gpu_try_submit(struct gpu *gpu, struct gpu_try *attempt);
/* Its status, or -ETIMEDOUT: it was not done in 20 s. Reaps what else is done meanwhile. */
int gpu_try_wait(struct gpu *gpu, struct gpu_try *attempt);

/* Submit and wait. */
int gpu_try_allocate(struct gpu *gpu, uint32_t device, uint64_t bytes, struct gpu_job *ret_job);
int gpu_try_free(struct gpu *gpu, uint32_t device, uint64_t address);
int gpu_try_upload(struct gpu *gpu, uint32_t device, uint64_t address, const void *source, uint64_t bytes, int is_registered);
int gpu_try_measure(struct gpu *gpu, uint32_t device);

/* Bytes that differ for every place and seed. */
void gpu_fill(void *memory, uint64_t bytes, uint32_t seed);

#endif
