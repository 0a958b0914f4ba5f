/* SPDX-License-Identifier: Apache-2.0 */
/* A driver of an earlier time for tests: it says its version, and has nothing else. */
#include "gpu/cuda_api.h"

#include <stddef.h>

CUresult CUDAAPI cuInit(unsigned int flags)
{
	(void)flags;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDriverGetVersion(int *ret_version)
{
	*ret_version = 10020;
	return CUDA_SUCCESS;
}
