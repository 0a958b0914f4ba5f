/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What config.json says about an OLMoE model, checked: every number lies within the bounds below, so that later
 * products of two of them fit 64 bits. Nothing else of the engine reads config.json.
 */
#ifndef ENGINE_CONFIG_H
#define ENGINE_CONFIG_H

#include "engine/message.h"

#include <stdbool.h>
#include <stdint.h>

#define CONFIG_LAYERS_MAX 4096u
#define CONFIG_HIDDEN_MAX (1u << 20)
#define CONFIG_HEADS_MAX (1u << 14)
#define CONFIG_EXPERTS_MAX (1u << 16)
#define CONFIG_TOP_K_MAX 64u
#define CONFIG_VOCAB_MAX (1u << 24)

struct config {
	uint32_t hidden, layers, heads, kv_heads, head_dim;
	uint32_t experts, top_k, intermediate, vocab;
	uint32_t positions_max;         /* 0: the checkpoint names no limit */
	float rope_theta, rms_norm_eps;
	float clip_qkv;                 /* 0: no clipping */
	bool norm_top_k;                /* gates of the chosen experts are scaled to sum 1 */
};

/*
 * config_load - read and check DIRECTORY/config.json
 *
 * Returns:  0, or -ENOENT (no such file), -ENOTSUP (not an OLMoE model, or a variant the engine does not compute),
 *           -EBADMSG (not JSON, a key missing or out of range); message says which. *ret_config is set on success only.
 */
int config_load(struct config *ret_config, const char *directory, char message[ENGINE_MESSAGE_BYTES]);

#endif
