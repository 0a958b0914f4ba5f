/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for Colibri's header of that name; see tensor.h. The registry itself is in tests/support/v4_store.c. */
#ifndef CNRE_TESTS_SUPPORT_COLIBRI_EXPERT_STORE_REGISTRY_H
#define CNRE_TESTS_SUPPORT_COLIBRI_EXPERT_STORE_REGISTRY_H

#include "tests/support/colibri/deepseek_v4_internal.h"
#include "tests/support/colibri/expert_store.h"

typedef int (*ColiExpertStoreBackendOpenFn)(ColiV4Engine *engine, const ColiDeepSeekV4Config *config,
					    const ColiDeepSeekV4ExpertStoreOptions *options, ColiExpertStore **output,
					    char *error, size_t error_size);

int coli_expert_store_backend_register(const char *name, ColiExpertStoreBackendOpenFn open_fn);
ColiExpertStoreBackendOpenFn coli_expert_store_backend_lookup(const char *name);
/* By COLI_EXPERT_STORE, or "auto". */
int coli_expert_store_backend_open_selected(ColiV4Engine *engine, const ColiDeepSeekV4Config *config,
					    const ColiDeepSeekV4ExpertStoreOptions *options, ColiExpertStore **output,
					    char *error, size_t error_size);

#endif
