/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices of the driver are served: all, or those that are named. */
#ifndef CNRE_GPU_DEVICE_SELECT_H
#define CNRE_GPU_DEVICE_SELECT_H

#include "gpu/device_state.h"

/* Sets device_count, and of each device its handle, UUID and name. 0, or -errno as gpu_open with `message`. */
int device_select(struct gpu *gpu, const struct gpu_setup *setup, char message[GPU_MESSAGE_BYTES]);

#endif
