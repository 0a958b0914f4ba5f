/* SPDX-License-Identifier: Apache-2.0 */
/* cnre_kv_route: how much of a conversation is stored, and who used its end last. */
#include "client/kv.h"

#include <string.h>

/* The name of a live holder of an entry: 1, or 0. What is read here may be outdated by the time it is used; so is a route. */
static int read_holder(const struct cnre_kv_space *space, uint32_t index, char ret_name[CNRE_NAME_BYTES])
{
	/* [KV19] relaxed: compared with the session below. */
	uint64_t word = atomic_load_explicit(&space->entry[index].holder, memory_order_relaxed);
	uint32_t session = (uint32_t)(word >> 32), place = (uint32_t)word;
	const struct cnre_kv_holder *holder;

	if (session == 0 || place >= CNRE_SESSIONS_MAX)
		return 0;
	holder = &space->directory->holder[place];
	/* [KV20] acquire, pairs with [KVH1] in manager/kv_session.c: the name was written before the session. */
	if (atomic_load_explicit(&holder->session, memory_order_acquire) != session)
		return 0;
	memcpy(ret_name, holder->name, CNRE_NAME_BYTES);
	ret_name[CNRE_NAME_BYTES - 1] = '\0';
	/* [KV21] acquire, pairs with [KVH1] in manager/kv_session.c: nobody else took the place while its name was copied. */
	return atomic_load_explicit(&holder->session, memory_order_acquire) == session;
}

static void copy_name(const char name[CNRE_NAME_BYTES], char *ret_name, size_t size)
{
	size_t length = strnlen(name, CNRE_NAME_BYTES);

	if (size == 0)
		return;
	length = length < size ? length : size - 1;
	memcpy(ret_name, name, length);
	ret_name[length] = '\0';
}

/* The deepest block that has a live holder. */
static void name_holder(const struct cnre_kv_chain *chain, char *ret_name, size_t size)
{
	char name[CNRE_NAME_BYTES] = "";
	uint32_t left = chain->item_count;

	while (left > 0 && !read_holder(chain->kv->space, chain->item[left - 1].entry, name))
		left--;
	copy_name(name, ret_name, size);
}

int cnre_kv_route(struct cnre_kv *kv, const int32_t *tokens, size_t count, const struct cnre_kv_media *media,
		  size_t media_count, char *ret_client_name, size_t size)
{
	const struct cnre_kv_query query = {
		.kv = kv,
		.tokens = tokens,
		.count = count,
		.media = (const struct kv_media *)media,
		.media_count = media_count,
		.is_probe = 1,
	};
	struct cnre_kv_chain *chain;
	int covered = cnre_kv_query_check(&query);

	if (covered < 0)
		return covered;
	covered = cnre_kv_run(&query, &chain);
	if (covered < 0)
		return covered;
	if (ret_client_name != NULL)
		name_holder(chain, ret_client_name, size);
	cnre_kv_chain_close(chain);
	return covered;
}
