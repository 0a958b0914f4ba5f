/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the kernel variant once, by what the CPU can do; and what all variants do alike. */
#include "engine/kernel.h"

#include <string.h>

const struct kernel *kernel_best(void)
{
	const struct kernel *kernel = kernel_find("avx512");

	if (!kernel)
		kernel = kernel_find("avx2");
	return kernel ? kernel : &kernel_plain;
}

const struct kernel *kernel_find(const char *name)
{
#if defined(__x86_64__)
	__builtin_cpu_init();
	if (strcmp(name, "avx512") == 0)
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") ? &kernel_avx512 : NULL;
	if (strcmp(name, "avx2") == 0) /* every CPU with AVX2 has F16C */
		return __builtin_cpu_supports("avx2") ? &kernel_avx2 : NULL;
#endif
	return strcmp(name, "plain") == 0 ? &kernel_plain : NULL;
}

void kernel_scale_rows(const struct matrix *matrix, uint32_t first, uint32_t count, float *y)
{
	for (uint32_t i = 0; matrix->scale && i < count; i++) {
		float scale;

		memcpy(&scale, (const char *)matrix->scale + ((size_t)first + i) * sizeof scale, sizeof scale);
		y[i] *= scale;
	}
}
