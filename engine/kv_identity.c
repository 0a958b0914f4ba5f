/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See kv_identity.h. The numbers of config.json that change rows without changing a tensor's shape are named: they are no
 * weights, so the model's own identity need not have them.
 */
#include "engine/kv_identity.h"

#include "engine/attention.h"

#include <gnu/libc-version.h>
#include <stdio.h>

/* glibc takes variants with fused operations where the CPU has them, and those round differently. */
static const char *libm_variant(void)
{
#if defined(__x86_64__)
	return __builtin_cpu_supports("fma") ? "+fma" : "";
#else
	return "";
#endif
}

void kv_identity_make(struct kv_identity *ret_identity, const struct config *config)
{
	struct kv_identity identity = {.block_bytes_max = kv_cache_token_bytes(config) * KV_BLOCK_TOKENS};

	(void)snprintf(identity.position, sizeof identity.position, "rope rotate-half theta=%.9g",
		       (double)config->rope_theta);
	(void)snprintf(identity.representation, sizeof identity.representation,
		       "cnre-olmoe f32 layer-major layers=%u heads=%u/%u head_dim=%u top_k=%u norm_top_k=%d eps=%.9g "
		       "clip=%.9g libm=glibc-%.16s%s",
		       config->layers, config->heads, config->kv_heads, config->head_dim, config->top_k,
		       config->norm_top_k, (double)config->rms_norm_eps, (double)config->clip_qkv,
		       gnu_get_libc_version(), libm_variant());
	*ret_identity = identity;
}
