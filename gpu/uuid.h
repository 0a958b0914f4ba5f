/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of GPUs. A device's number depends on the process that counts (CUDA_VISIBLE_DEVICES, containers, the order of the bus);
 * its UUID does not. A MIG instance has a UUID of its own, and never that of the GPU which it is a part of.
 */
#ifndef CNRE_GPU_UUID_H
#define CNRE_GPU_UUID_H

#include "gpu/device.h"

/* "GPU-" or "MIG-" and 32 hexadecimal digits as 8-4-4-4-12. 0, or -EINVAL. The bytes alone name a device, whatever the prefix. */
int gpu_uuid_parse(const char *text, unsigned char ret_uuid[GPU_UUID_BYTES]);
/* is_mig: as nvidia-smi shows it, "MIG-…". */
void gpu_uuid_format(const unsigned char uuid[GPU_UUID_BYTES], int is_mig, char text[GPU_UUID_TEXT_BYTES]);

#endif
