/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fake_gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct fake_gpu fake_gpu;

static void *find(void *library, const char *name)
{
	void *function = dlsym(library, name);
	if (function)
		return function;
	(void)fprintf(stderr, "the stand-in driver has no %s\n", name);
	exit(99);
}

/* For programs that are started from here, whose dlopen() looks along it. */
static void lead_library_path(const char *folder)
{
	const char *before = getenv("LD_LIBRARY_PATH");
	char path[4096];
	if (before && !strncmp(before, folder, strlen(folder)))
		return;
	(void)snprintf(path, sizeof path, "%s%s%s", folder, before && *before ? ":" : "", before ? before : "");
	(void)setenv("LD_LIBRARY_PATH", path, 1);
}

/* In memory, and by a path that every process of this machine can open; the descriptor stays open, since closing it would
 * drop the locks that the driver has on it. */
static void make_world(void)
{
	char path[64];
	int fd = memfd_create("fakecuda-world", MFD_CLOEXEC);
	if (fd < 0) {
		perror("memfd_create");
		exit(99);
	}
	(void)snprintf(path, sizeof path, "/proc/%d/fd/%d", getpid(), fd);
	(void)setenv("FAKECUDA_WORLD", path, 1);
}

void fake_gpu_load(void)
{
	const char *build = getenv("CNRE_BUILD");
	char folder[2048], *real = realpath(build && *build ? build : "build", NULL);
	(void)snprintf(folder, sizeof folder, "%s/tests/fakecuda", real ? real : "build");
	free(real);
	char path[4096];
	(void)snprintf(path, sizeof path, "%s/libcuda.so.1", folder);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		(void)fprintf(stderr, "%s: make tests builds it\n", dlerror());
		exit(99);
	}
#define FIND(name)                                                  \
	do {                                                        \
		void *function = find(library, #name);              \
		memcpy(&fake_gpu.name, &function, sizeof function); \
	} while (0);
	FAKE_GPU_CALLS(FIND)
#undef FIND
	lead_library_path(folder);
}

void fake_gpu_start(void)
{
	fake_gpu_load();
	if (!getenv("FAKECUDA_WORLD"))
		make_world();
	int rc = fake_gpu.fakecuda_world(NULL);
	if (rc) {
		(void)fprintf(stderr, "no world for the stand-in driver at %s: %s\n", getenv("FAKECUDA_WORLD"),
			      strerror(-rc));
		exit(99);
	}
}
