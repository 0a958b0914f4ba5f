/* SPDX-License-Identifier: Apache-2.0 */
/* This process with the stand-in driver, at work on one device, for tests of the driver itself. */
#ifndef CNRE_TESTS_SUPPORT_GPU_SELF_H
#define CNRE_TESTS_SUPPORT_GPU_SELF_H

#include "tests/support/fake_gpu.h"

enum { GPU_SELF_BYTES = 1 << 20 };

struct gpu_self {
	CUcontext context;
	CUstream stream, other;  /* that do not block */
	CUdeviceptr memory;      /* GPU_SELF_BYTES, zeros, that are written and synchronised with */
	unsigned char *pinned;   /* of the same size, zeros */
	CUdeviceptr word;        /* for the checksum */
	CUfunction checksum;
};
extern struct gpu_self self;

/* Of device, after fake_gpu_start(); exits(99) if something fails. */
void gpu_self_start(int device);
/* Adds up bytes of device memory, on a stream, into self.word. */
CUresult gpu_self_checksum(CUdeviceptr memory, uint64_t bytes, CUstream stream);
/* Asserts that rule was broken once more since the last call of this or of gpu_self_expect_none(), and no other. */
void gpu_self_expect(const char *rule);
void gpu_self_expect_none(void); /* of those that are no notes */

#endif
