/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that are resident before the first access: --seed-residents. */
#ifndef CNRE_SIM_RESIDENTS_H
#define CNRE_SIM_RESIDENTS_H

#include "tools/sim/trace.h"

/*
 * `text` is a list such as 3:17,3:18 (layer:expert), or else names a file with lines `layer expert`. Objects in their
 * order, each once; the caller frees them. 0; -EINVAL with one line; or the error of reading.
 */
int sim_residents_open(uint32_t **ret_object, uint32_t *ret_count, const char *text, const struct sim_geometry *geometry,
		       char *message, size_t message_bytes);

#endif
