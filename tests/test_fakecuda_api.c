/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is declared of the driver's interface without the Toolkit, against the Toolkit's header, and what the stand-in
 * exports, against that and against the Toolkit's stub of the library.
 */
#define CNRE_OWN_CUDA_API 1
#include "tests/support/cuda_numbers.h"
#include "tests/support/fake_gpu.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct cuda_number own[] = CUDA_NUMBER_LIST;

#define NAME(name) #name,
static const char *const exported[] = {FAKE_GPU_CALLS(NAME)};
enum { EXPORTED = sizeof exported / sizeof *exported };

Test(fakecuda_api, own_numbers_are_those_of_the_toolkit)
{
	size_t count;
	const struct cuda_number *toolkit = cuda_numbers_of_toolkit(&count);
	if (!toolkit)
		cr_skip_test("built without the CUDA Toolkit's cuda.h (CUDA_HOME)");
	cr_assert_eq(count, sizeof own / sizeof *own);
	for (size_t i = 0; i < count; i++) {
		cr_expect_str_eq(own[i].name, toolkit[i].name);
		cr_expect_eq(own[i].value, toolkit[i].value, "%s: %lld, not %lld", own[i].name, own[i].value,
			     toolkit[i].value);
	}
}

static int is_exported(const char *name)
{
	for (int i = 0; i < EXPORTED; i++)
		if (!strcmp(exported[i], name))
			return 1;
	return 0;
}

Test(fakecuda_api, exports_what_is_used_and_no_more)
{
	char command[4096], name[128];
	int count = 0;
	Dl_info info;
	fake_gpu_start(); /* which finds each of them */
	cr_assert(dladdr((void *)(uintptr_t)fake_gpu.cuInit, &info));
	(void)snprintf(command, sizeof command, "nm -D --defined-only '%s' | awk '{print $3}'", info.dli_fname);
	FILE *names = popen(command, "r");
	cr_assert(names);
	while (fscanf(names, "%127s", name) == 1) {
		count++;
		cr_expect(is_exported(name), "%s is exported, and not in tests/support/fake_gpu.h", name);
	}
	(void)pclose(names);
	cr_expect_eq(count, EXPORTED);
}

/* Names are those of the real library, of which the Toolkit has a stub. */
Test(fakecuda_api, the_real_library_exports_them_too)
{
	const char *home = getenv("CUDA_HOME");
	char path[4096];
	(void)snprintf(path, sizeof path, "%s/lib64/stubs/libcuda.so", home && *home ? home : "/usr/local/cuda");
	void *stub = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!stub)
		cr_skip_test("no stub of libcuda at $CUDA_HOME/lib64/stubs");
	for (int i = 0; i < EXPORTED; i++)
		if (!strncmp(exported[i], "cu", 2))
			cr_expect(dlsym(stub, exported[i]), "libcuda has no %s", exported[i]);
}

Test(fakecuda_api, found_by_the_plain_name)
{
	void *function = NULL;
	CUdriverProcAddressQueryResult status;
	fake_gpu_start();
	cr_expect_eq(fake_gpu.cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 0, &status), CUDA_SUCCESS);
	cr_expect_eq(status, CU_GET_PROC_ADDRESS_SUCCESS);
	cr_expect_eq((uintptr_t)function, (uintptr_t)fake_gpu.cuMemAlloc_v2);
	cr_expect_eq(fake_gpu.cuGetProcAddress_v2("cuNothing", &function, 12000, 0, &status), CUDA_SUCCESS);
	cr_expect_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	cr_expect_eq(fake_gpu.cuGetProcAddress_v2("cuNothing", &function, 12000, 0, NULL), CUDA_ERROR_NOT_FOUND);
	cr_expect_eq(fake_gpu.cuGetProcAddress_v2("cuMemAlloc", &function, 3000, 0, &status), CUDA_SUCCESS);
	cr_expect_eq(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

Test(fakecuda_api, errors_have_names)
{
	const char *name;
	fake_gpu_start();
	cr_expect_eq(fake_gpu.cuGetErrorName(CUDA_ERROR_INVALID_CONTEXT, &name), CUDA_SUCCESS);
	cr_expect_str_eq(name, "CUDA_ERROR_INVALID_CONTEXT");
	cr_expect_eq(fake_gpu.cuGetErrorString((CUresult)12345, &name), CUDA_ERROR_INVALID_VALUE);
}
