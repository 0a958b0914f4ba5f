/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for Colibri's header of that name; see tensor.h. */
#ifndef CNRE_TESTS_SUPPORT_COLIBRI_DEEPSEEK_V4_INTERNAL_H
#define CNRE_TESTS_SUPPORT_COLIBRI_DEEPSEEK_V4_INTERNAL_H

#include <stdint.h>

typedef struct {
	int num_hidden_layers;
} ColiDeepSeekV4Config;

typedef struct ColiV4Engine ColiV4Engine;

typedef struct ColiDeepSeekV4ExpertStoreOptions {
	const char *model_dir;
	int layers, experts_per_layer;
	uint64_t cache_bytes;
	int pin_slots_per_layer;
	uint64_t repin_interval;
	int skip_mirror_setup;
} ColiDeepSeekV4ExpertStoreOptions;

#endif
