/* SPDX-License-Identifier: Apache-2.0 */
/* The check for AVX2. Only the functions behind its table may use it, since only they are called after a look at the CPU. */
#include "kvstore/check_inner.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <stdlib.h>
#include <string.h>

#define XXH_VECTOR XXH_AVX2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
#include "kvstore/checker_body.h"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

static const struct kv_checker checker = CHECKER;

const struct kv_checker *kv_checker_avx2(void)
{
	__builtin_cpu_init();
	return __builtin_cpu_supports("avx2") ? &checker : NULL;
}

#else

const struct kv_checker *kv_checker_avx2(void)
{
	return NULL;
}

#endif
