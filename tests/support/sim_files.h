/* SPDX-License-Identifier: Apache-2.0 */
/* Trace files for tests of cnre-sim's verbs. */
#ifndef CNRE_TESTS_SUPPORT_SIM_FILES_H
#define CNRE_TESTS_SUPPORT_SIM_FILES_H

#include "tests/support/folder.h"

#include <stdint.h>

/*
 * A group trace of 4 layers, 32 experts, top-4. Experts from `hot` on are the likelier by `skew` (0: all alike); token
 * by token the likely ones move on by one every `drift` tokens (0: never).
 */
void sim_files_write(const struct folder *folder, const char *name, uint32_t tokens, double skew, uint32_t hot,
		     uint32_t drift, uint64_t seed);

#endif
