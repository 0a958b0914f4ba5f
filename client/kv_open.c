/* SPDX-License-Identifier: Apache-2.0 */
/* cnre_kv_open and cnre_kv_close: one identity in a namespace, which is a root of names and little else. */
#include "client/kv.h"

#include "base/places.h"

#include <stdlib.h>
#include <string.h>

#define IDENTITY_BYTES_MAX 65536u /* of a later version's struct */

static int has_unknown(const struct cnre_kv_identity *given)
{
	const unsigned char *bytes = (const unsigned char *)given;

	for (size_t i = sizeof *given; i < given->size; i++)
		if (bytes[i] != 0)
			return 1;
	return 0;
}

/* An older program's struct is shorter, a newer one's longer: fine as long as it asks for nothing that we do not know. */
static int read_identity(const struct cnre_kv_identity *given, struct cnre_kv_identity *ret_identity)
{
	struct cnre_kv_identity identity = {0};

	if (given->size < sizeof given->size || given->size > IDENTITY_BYTES_MAX || has_unknown(given))
		return -EINVAL;
	memcpy(&identity, given, given->size < sizeof identity ? given->size : sizeof identity);
	if (identity.block_tokens == 0)
		identity.block_tokens = KV_BLOCK_TOKENS_DEFAULT;
	if (identity.block_tokens > KV_BLOCK_TOKENS_MAX || (identity.flags & ~(uint32_t)CNRE_KV_CHECKPOINTS) != 0)
		return -EINVAL;
	*ret_identity = identity;
	return 0;
}

/* 1..63 bytes of a file name's harmless characters. NULL is the caller's own. */
static int is_name(const char *name)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t length = name == NULL ? 1 : strnlen(name, CNRE_WIRE_KV_NAME_BYTES);

	return length > 0 && length < CNRE_WIRE_KV_NAME_BYTES && (name == NULL || strspn(name, allowed) == length);
}

_Static_assert(sizeof((struct cnre_catalog *)NULL)->payload == KV_PAYLOAD_BYTES &&
		       sizeof((struct cnre *)NULL)->payload == KV_PAYLOAD_BYTES,
	       "one digest, three tellers");

/*
 * The weights that this engine reads, not those that the manager found when it began: a shard may have been replaced by one
 * of the same shapes meanwhile. Without a directory of our own the manager's word is all there is.
 */
static int read_payload(const struct cnre *client, unsigned char ret_payload[KV_PAYLOAD_BYTES])
{
	unsigned char digest[CNRE_DIGEST_BYTES];
	int r;

	if (client->places == NULL) {
		memcpy(ret_payload, client->catalog->payload, KV_PAYLOAD_BYTES);
		return 0;
	}
	r = cnre_places_digest_payload(client->places, digest);
	if (r == 0)
		memcpy(ret_payload, digest, KV_PAYLOAD_BYTES);
	return r;
}

/* Once a process: every tenant's salt would read the shards again. */
static int get_payload(struct cnre *client, unsigned char ret_payload[KV_PAYLOAD_BYTES])
{
	int r = 0;

	(void)pthread_mutex_lock(&client->kv_lock);
	if (!client->knows_payload)
		r = read_payload(client, client->payload);
	client->knows_payload |= r == 0;
	if (r == 0)
		memcpy(ret_payload, client->payload, KV_PAYLOAD_BYTES);
	(void)pthread_mutex_unlock(&client->kv_lock);
	return r;
}

static int make_root(struct cnre *client, const struct cnre_kv_identity *identity, unsigned char *ret_root)
{
	unsigned char payload[KV_PAYLOAD_BYTES];
	int r = get_payload(client, payload);
	const struct kv_identity named = {
		.payload = payload,
		.model = client->catalog->identity,
		.tokenizer = identity->tokenizer,
		.chat_template = identity->chat_template,
		.position = identity->position,
		.representation = identity->representation,
		.salt = identity->salt,
		.version = identity->version,
		.adapter_digest = identity->adapter_digest,
		.adapter_digest_bytes = identity->adapter_digest_bytes,
		.block_tokens = identity->block_tokens,
		.flags = identity->flags,
	};

	return r < 0 ? r : kv_key_root(&named, ret_root);
}

static int make_kv(struct cnre *client, const struct cnre_kv_identity *identity, struct cnre_kv **ret_kv)
{
	struct cnre_kv *kv = calloc(1, sizeof *kv);
	int r;

	if (kv == NULL)
		return -ENOMEM;
	r = make_root(client, identity, kv->root);
	if (r < 0) {
		free(kv);
		return r;
	}
	kv->client = client;
	kv->block_tokens = identity->block_tokens;
	kv->block_bytes_max = identity->block_bytes_max;
	kv->flags = identity->flags;
	/* [KV8] relaxed: nobody else knows it yet. */
	atomic_store_explicit(&kv->users, 1, memory_order_relaxed);
	*ret_kv = kv;
	return 0;
}

int cnre_kv_open(struct cnre *client, const char *kv_namespace, const struct cnre_kv_identity *identity,
		 struct cnre_kv **ret_kv)
{
	struct cnre_kv_identity read;
	struct cnre_kv *kv;
	int r = cnre_client_check(client);

	if (r < 0)
		return r;
	if (identity == NULL || ret_kv == NULL || !is_name(kv_namespace))
		return -EINVAL;
	r = read_identity(identity, &read);
	if (r == 0)
		r = make_kv(client, &read, &kv);
	if (r < 0)
		return r;
	r = cnre_kv_space_get(client, kv_namespace, kv->block_bytes_max, &kv->space);
	if (r < 0)
		free(kv);
	else
		*ret_kv = kv;
	return r;
}

int cnre_kv_check(const struct cnre_kv *kv)
{
	return kv == NULL ? -EINVAL : cnre_client_check(kv->client);
}

struct cnre_kv *cnre_kv_ref(struct cnre_kv *kv)
{
	/* [KV9] relaxed: the caller has a use of its own. */
	(void)atomic_fetch_add_explicit(&kv->users, 1, memory_order_relaxed);
	return kv;
}

void cnre_kv_unref(struct cnre_kv *kv)
{
	/* [KV6] acq_rel, pairs with [KV6]: the last one sees what the others did. */
	if (atomic_fetch_sub_explicit(&kv->users, 1, memory_order_acq_rel) == 1)
		free(kv);
}

/* Its chains keep what they need of it. Also in a forked child, where it is memory and nothing else. */
void cnre_kv_close(struct cnre_kv *kv)
{
	if (kv != NULL)
		cnre_kv_unref(kv);
}
