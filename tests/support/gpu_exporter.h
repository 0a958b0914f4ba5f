/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that has devices open as the manager does, allocates an arena in each and fills it, for tests of importers. It is
 * forked, so it must be started before this process calls the driver. With any driver.
 */
#ifndef CNRE_TESTS_SUPPORT_GPU_EXPORTER_H
#define CNRE_TESTS_SUPPORT_GPU_EXPORTER_H

#include "gpu/device.h"

#include <sys/types.h>

#define GPU_EXPORTER_DEVICES 2u

struct gpu_export {
	unsigned char uuid[GPU_UUID_BYTES], token[GPU_TOKEN_BYTES], handle[GPU_HANDLE_BYTES];
	uint64_t address, bytes;
	uint32_t seed;                     /* fill() of it made the content */
};

struct gpu_exporter {
	pid_t pid;
	int to, from;
	int error;                         /* of gpu_open or of a job there, as -errno, and what it said */
	char message[GPU_MESSAGE_BYTES];
	void (*fill)(void *memory, uint64_t bytes, uint32_t seed);
	uint32_t device_count;             /* at most GPU_EXPORTER_DEVICES */
	struct gpu_export device[GPU_EXPORTER_DEVICES];
};

/* Its settings: setenv before. 0, or -errno: it did not come up; exporter->error says why if it said so. */
int gpu_exporter_start(struct gpu_exporter *exporter, uint64_t bytes); /* filled by gpu_fill */
int gpu_exporter_start_filled(struct gpu_exporter *exporter, uint64_t bytes, void (*fill)(void *, uint64_t, uint32_t));
/* Asks it to do so and waits. 0, or -errno. */
int gpu_exporter_free(struct gpu_exporter *exporter, uint32_t device);
int gpu_exporter_upload(struct gpu_exporter *exporter, uint32_t device, uint32_t seed);
void gpu_exporter_kill(struct gpu_exporter *exporter); /* at once, by SIGKILL; reaped */
int gpu_exporter_stop(struct gpu_exporter *exporter);  /* closes everything; its exit status */

#endif
