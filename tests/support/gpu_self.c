/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/gpu_self.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpu_self self;

/* The stand-in looks for the name alone. */
static const char image[] = ".visible .entry cnre_checksum";

static void must(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	(void)fprintf(stderr, "stand-in driver: %s gives %d\n", what, (int)result);
	exit(99);
}

void gpu_self_start(int device)
{
	CUmodule module;
	must(fake_gpu.cuInit(0), "cuInit");
	must(fake_gpu.cuDevicePrimaryCtxRetain(&self.context, device), "cuDevicePrimaryCtxRetain");
	must(fake_gpu.cuCtxSetCurrent(self.context), "cuCtxSetCurrent");
	must(fake_gpu.cuStreamCreate(&self.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	must(fake_gpu.cuStreamCreate(&self.other, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	must(fake_gpu.cuMemAlloc_v2(&self.memory, GPU_SELF_BYTES), "cuMemAlloc");
	must(fake_gpu.cuMemAlloc_v2(&self.word, 8), "cuMemAlloc");
	must(fake_gpu.cuMemHostAlloc((void **)&self.pinned, GPU_SELF_BYTES, 0), "cuMemHostAlloc");
	must(fake_gpu.cuMemcpyHtoD_v2(self.memory, self.pinned, GPU_SELF_BYTES), "cuMemcpyHtoD");
	must(fake_gpu.cuModuleLoadData(&module, image), "cuModuleLoadData");
	must(fake_gpu.cuModuleGetFunction(&self.checksum, module, "cnre_checksum"), "cuModuleGetFunction");
}

CUresult gpu_self_checksum(CUdeviceptr memory, uint64_t bytes, CUstream stream)
{
	void *parameters[] = {&memory, &bytes, &self.word};
	return fake_gpu.cuLaunchKernel(self.checksum, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static void expect(const char *rule)
{
	char last[256];
	fake_gpu.fakecuda_last(last, sizeof last);
	if (rule)
		cr_expect_eq(fake_gpu.fakecuda_count(rule), 1, "%s: broken %llu times", rule,
			     (unsigned long long)fake_gpu.fakecuda_count(rule));
	int is_note = rule && (!strcmp(rule, "double-open") || !strcmp(rule, "exporter-gone") ||
			       !strcmp(rule, "left-open") || !strcmp(rule, "pageable"));
	cr_expect_eq(fake_gpu.fakecuda_count(NULL), rule && !is_note, "%s", last);
	fake_gpu.fakecuda_forget_reports();
}

void gpu_self_expect(const char *rule)
{
	expect(rule);
}

void gpu_self_expect_none(void)
{
	expect(NULL);
}
