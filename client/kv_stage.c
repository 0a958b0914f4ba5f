/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnre_kv_stage: the name of the next block before its bytes exist, so that what is there already is never gathered. The
 * request of the later commit is made here and waits in the chain.
 */
#include "base/crash.h"
#include "client/connection.h"
#include "client/kv.h"

#include <string.h>

/* 1: the store has it, in memory or in a file; the chain goes on from there when it is a whole one. */
static int is_stored(struct cnre_kv_chain *chain, const struct cnre_kv_name *name)
{
	struct cnre_kv_space *space = chain->kv->space;
	uint32_t word, index = cnre_kv_find(space, name, &word);

	if (index == CNRE_KV_NONE)
		return 0;
	cnre_kv_drop(space, index);
	if (name->count == name->block_tokens)
		cnre_kv_chain_advance(chain, name->key, 0);
	return 1;
}

static void keep_request(struct cnre_kv_chain *chain, const struct cnre_kv_name *name, uint64_t bytes, uint64_t off)
{
	struct cnre_kv_request *request = &chain->staged;

	memset(request, 0, sizeof *request);
	request->kind = CNRE_KV_PUBLISH;
	request->count = name->count;
	request->staging_off = off;
	request->bytes = bytes;
	request->position = name->position;
	request->block_tokens = name->block_tokens;
	request->media_first = name->mark.first;
	memcpy(request->root, name->root, sizeof request->root);
	memcpy(request->parent, name->parent, sizeof request->parent);
	memcpy(request->media, name->mark.digest, sizeof request->media);
	memcpy(request->token, name->tokens, name->count * sizeof *name->tokens);
	memcpy(chain->staged_key, name->key, sizeof chain->staged_key);
	chain->is_staged = 1;
}

/* Chain's lock held. */
static int stage_named(struct cnre_kv_chain *chain, const struct cnre_kv_name *name, uint64_t bytes, void **ret_buffer)
{
	struct cnre_kv_space *space = chain->kv->space;
	uint64_t off;
	int r;

	if (is_stored(chain, name))
		return 1;
	r = cnre_kv_chain_check_tip(chain);
	if (r == 0)
		r = cnre_connection_check(space->client);
	if (r == 0)
		r = cnre_kv_promise(space, bytes, &off);
	if (r < 0)
		return r;
	keep_request(chain, name, bytes, off);
	CNRE_CRASH_POINT("kv-staged");
	*ret_buffer = (char *)space->fixed[CNRE_KV_FD_STAGING].base + off;
	return 0;
}

int cnre_kv_stage(struct cnre_kv_chain *chain, const int32_t *block_tokens, size_t count,
		  const struct cnre_kv_media *media, size_t media_count, uint64_t bytes, void **ret_buffer)
{
	struct cnre_kv_name name;
	int r = cnre_kv_chain_check(chain);

	if (r < 0)
		return r;
	if (block_tokens == NULL || count == 0 || count > chain->kv->block_tokens || ret_buffer == NULL || bytes == 0 ||
	    bytes > chain->kv->block_bytes_max || (media == NULL && media_count > 0))
		return -EINVAL;
	(void)pthread_mutex_lock(&chain->lock);
	cnre_kv_chain_unstage(chain);
	name = (struct cnre_kv_name){
		.root = chain->kv->root,
		.parent = chain->tip,
		.tokens = block_tokens,
		.position = chain->base,
		.count = (uint32_t)count,
		.block_tokens = chain->kv->block_tokens,
	};
	r = cnre_kv_name_fill(&name, (const struct kv_media *)media, media_count);
	if (r == 0)
		r = stage_named(chain, &name, bytes, ret_buffer);
	(void)pthread_mutex_unlock(&chain->lock);
	return r;
}
