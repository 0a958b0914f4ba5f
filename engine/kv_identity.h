/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this engine's KV rows depend on beyond the checkpoint's weights, as text: two engines that give the same texts
 * may use each other's rows, bit for bit. The kernel is no part of it: all variants give the same bits (kernel.h). The C
 * library is one: it computes angles and exponentials, and chooses its code by the CPU.
 */
#ifndef ENGINE_KV_IDENTITY_H
#define ENGINE_KV_IDENTITY_H

#include "engine/config.h"

#define KV_IDENTITY_TEXT_BYTES 256
#define KV_IDENTITY_VERSION 1u            /* of the payload's layout, kv_rows.h */
#define KV_BLOCK_TOKENS 64u

struct kv_identity {
	char position[KV_IDENTITY_TEXT_BYTES], representation[KV_IDENTITY_TEXT_BYTES];
	uint64_t block_bytes_max;
};

void kv_identity_make(struct kv_identity *ret_identity, const struct config *config);

#endif
