/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the contract that this build does not have: the VRAM tier and the KV-prefix store. Their names exist, so
 * that a program written for them runs and learns it from the return value; the capability bits of cnre_model say the
 * same beforehand. Nothing is emulated: an absent capability that seemed to work would only hide what it costs.
 */
#include "client/client.h"

int cnre_acquire_vram(struct cnre *client, uint32_t layer, uint32_t expert, int device, int64_t timeout_ns,
		      struct cnre_expert *ret_expert)
{
	uint32_t object;
	int r = cnre_client_check(client);

	(void)device;
	(void)timeout_ns;
	if (r < 0)
		return r;
	if (ret_expert == NULL)
		return -EINVAL;
	r = cnre_client_find(client, layer, expert, &object);
	return r < 0 ? r : -ENODEV;
}

/* No lease can be in VRAM. A cleared view is nothing to release, here as in cnre_release. */
int cnre_release_on_stream(struct cnre *client, struct cnre_expert *expert, void *cu_stream)
{
	int r = cnre_client_check(client);

	(void)cu_stream;
	if (r < 0)
		return r;
	if (expert == NULL)
		return -EINVAL;
	return expert->lease == 0 ? 0 : -ENODEV;
}

int cnre_kv_open(struct cnre *client, const char *kv_namespace, const struct cnre_kv_identity *identity,
		 struct cnre_kv **ret_kv)
{
	int r = cnre_client_check(client);

	(void)kv_namespace;
	if (r < 0)
		return r;
	return identity == NULL || ret_kv == NULL ? -EINVAL : -ENOTSUP;
}

void cnre_kv_close(struct cnre_kv *kv)
{
	(void)kv; /* never made */
}

int cnre_kv_match(struct cnre_kv *kv, const int32_t *tokens, size_t count, const struct cnre_kv_media *media,
		  size_t media_count, struct cnre_kv_chain **ret_chain)
{
	(void)kv;
	(void)tokens;
	(void)count;
	(void)media;
	(void)media_count;
	(void)ret_chain;
	return -ENOTSUP;
}

int cnre_kv_block(const struct cnre_kv_chain *chain, size_t index, int64_t timeout_ns, const void **ret_data,
		  uint64_t *ret_bytes)
{
	(void)chain;
	(void)index;
	(void)timeout_ns;
	(void)ret_data;
	(void)ret_bytes;
	return -ENOTSUP;
}

int cnre_kv_unpin(struct cnre_kv_chain *chain)
{
	(void)chain;
	return -ENOTSUP;
}

int cnre_kv_stage(struct cnre_kv_chain *chain, const int32_t *block_tokens, size_t count,
		  const struct cnre_kv_media *media, size_t media_count, uint64_t bytes, void **ret_buffer)
{
	(void)chain;
	(void)block_tokens;
	(void)count;
	(void)media;
	(void)media_count;
	(void)bytes;
	(void)ret_buffer;
	return -ENOTSUP;
}

int cnre_kv_commit(struct cnre_kv_chain *chain, uint64_t compute_ns, uint32_t flags)
{
	(void)chain;
	(void)compute_ns;
	(void)flags;
	return -ENOTSUP;
}

void cnre_kv_release(struct cnre_kv_chain *chain)
{
	(void)chain; /* never made */
}

int cnre_kv_route(struct cnre_kv *kv, const int32_t *tokens, size_t count, const struct cnre_kv_media *media,
		  size_t media_count, char *ret_client_name, size_t size)
{
	(void)kv;
	(void)tokens;
	(void)count;
	(void)media;
	(void)media_count;
	(void)ret_client_name;
	(void)size;
	return -ENOTSUP;
}

int cnre_kv_invalidate(struct cnre_kv *kv)
{
	(void)kv;
	return -ENOTSUP;
}
