/* SPDX-License-Identifier: Apache-2.0 */
/* How often experts were used before: by a history of Colibri's engines. What a trace teaches is in train.h. */
#ifndef CNRE_SIM_PRIOR_H
#define CNRE_SIM_PRIOR_H

#include "tools/sim/trace.h"

/* 1: a .coli_usage file, by its header or its name; 0: something else, a trace; or -errno. */
int sim_prior_is_usage(const char *path);
/*
 * Adds a history to `count`, by object. Experts beyond the geometry are left out: no trace uses them. 0; -EINVAL with one
 * line (no history, or one of a model with fewer layers or experts); or the error of reading. Nothing is added on failure.
 */
int sim_prior_add_usage(uint32_t *count, const char *path, const struct sim_geometry *geometry, char *message,
			size_t message_bytes);

#endif
