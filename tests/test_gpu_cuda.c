/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the driver: there is none, it is a stub, it is too old, it does not start, it shows nothing. */
#include "gpu/cuda.h"

#include "gpu/import.h"
#include "tests/support/fake_gpu.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(gpu_cuda, .timeout = 20);

static char message[GPU_MESSAGE_BYTES];

static void expect_absent(const char *words)
{
	const struct gpu_cuda *cuda = NULL;
	struct gpu *gpu = NULL;
	struct gpu_import *import = NULL;
	const struct gpu_setup setup = {0};
	char again[GPU_MESSAGE_BYTES];

	cr_expect_eq(gpu_cuda_load(&cuda, message), -ENODEV);
	cr_expect_null(cuda, "output is untouched on failure");
	cr_expect(strstr(message, words) != NULL, "\"%s\" says nothing of \"%s\"", message, words);
	cr_expect_eq(gpu_open(&gpu, &setup, again), -ENODEV);
	cr_expect_str_eq(again, message, "whoever asks");
	cr_expect_eq(gpu_import_load(again), -ENODEV);
	cr_expect_eq(gpu_import_open(&import, 0, again), -ENODEV);
	cr_expect_null(gpu);
	cr_expect_null(import);
}

/* What is loaded by its path is found by its name afterwards. */
static void load_instead(const char *path)
{
	cr_assert_not_null(dlopen(path, RTLD_NOW | RTLD_LOCAL), "%s", dlerror());
}

Test(gpu_cuda, no_driver)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (library != NULL)
		cr_skip_test("this machine has a CUDA driver");
	expect_absent("no CUDA driver: libcuda.so.1");
}

Test(gpu_cuda, the_toolkits_stub_is_no_driver)
{
	const char *home = getenv("CUDA_HOME");
	char path[512];

	(void)snprintf(path, sizeof path, "%s/lib64/stubs/libcuda.so", home != NULL ? home : "/usr/local/cuda");
	if (dlopen(path, RTLD_NOW | RTLD_LOCAL) == NULL)
		cr_skip_test("no CUDA Toolkit with its stub here");
	expect_absent("is the stub of the CUDA Toolkit");
}

Test(gpu_cuda, a_driver_that_lacks_a_function_is_said_with_its_version)
{
	const char *build = getenv("CNRE_BUILD");
	char path[4096];

	(void)snprintf(path, sizeof path, "%s/tests/oldcuda/libcuda.so.1", build != NULL ? build : "build");
	load_instead(path);
	expect_absent("no cuGetErrorName: it is for CUDA 10.2, too old");
}

Test(gpu_cuda, a_driver_that_does_not_start_says_why)
{
	fake_gpu_start();
	cr_assert_eq(fake_gpu.cuInit(0), CUDA_SUCCESS, "injected failures count from here on");
	cr_assert_eq(fake_gpu.fakecuda_fail(0, "cuInit", 1, CUDA_ERROR_UNKNOWN, 0), 0);
	expect_absent("does not start: cuInit: CUDA_ERROR_UNKNOWN (999)");
}

Test(gpu_cuda, no_device_and_none_visible_are_told_apart)
{
	(void)setenv("CUDA_VISIBLE_DEVICES", "", 1);
	fake_gpu_start();
	expect_absent("shows no GPU (CUDA_VISIBLE_DEVICES is \"\")");
}

Test(gpu_cuda, no_device)
{
	(void)setenv("FAKECUDA_DEVICES", "0", 1);
	fake_gpu_start();
	expect_absent("shows no GPU: is one given to this machine");
}

Test(gpu_cuda, a_driver_is_loaded_once_and_says_its_version)
{
	const struct gpu_cuda *cuda = NULL, *again = NULL;

	fake_gpu_start();
	cr_assert_eq(gpu_cuda_load(&cuda, message), 0, "%s", message);
	cr_assert_eq(gpu_cuda_load(&again, NULL), 0);
	cr_expect_eq(cuda, again);
	cr_expect_geq(cuda->version, 11040);
}

Test(gpu_cuda, which_codes_mean_that_the_device_is_lost)
{
	static const int lost[] = {4, 100, 101, 201, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999};
	static const int others[][2] = {{0, 0}, {1, -EINVAL}, {2, -ENOMEM}, {400, -EINVAL}, {600, -EAGAIN}, {801, -ENOTSUP},
					{800, -EPERM}, {3, -ENODEV}, {34, -ENODEV}, {803, -ENODEV}, {208, -EIO}, {304, -EIO}, {5555, -EIO}};

	for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
		cr_expect(gpu_cuda_is_loss((CUresult)lost[i]), "%d", lost[i]);
		cr_expect_eq(gpu_cuda_error((CUresult)lost[i]), -ENODEV);
	}
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		cr_expect_not(gpu_cuda_is_loss((CUresult)others[i][0]), "%d", others[i][0]);
		cr_expect_eq(gpu_cuda_error((CUresult)others[i][0]), others[i][1], "%d", others[i][0]);
	}
}

Test(gpu_cuda, a_code_that_nobody_knows_is_described_all_the_same)
{
	const struct gpu_cuda *cuda;
	char text[GPU_MESSAGE_BYTES];

	fake_gpu_start();
	cr_assert_eq(gpu_cuda_load(&cuda, message), 0);
	gpu_cuda_describe(cuda, "cuMemAlloc_v2", (CUresult)5555, text);
	cr_expect(strstr(text, "cuMemAlloc_v2: ") == text && strstr(text, "(5555)") != NULL, "%s", text);
}
