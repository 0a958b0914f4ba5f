/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of KV blocks; see key.h. A decode step of 64 tokens names one block, a match one for each 64 tokens of a prompt,
 * so a name must cost little: one SHA-256 context a thread, the algorithm looked up once, the record laid out in one
 * buffer and hashed by one call. OpenSSL looks an algorithm up for longer than it hashes a block with it.
 *
 * Fields of the records, by tag; numbers are 8 bytes little-endian:
 *
 *   root   f format  m model  w payload  t tokenizer  c chat template  p position  r representation  v version  a adapter digest
 *          s salt  b block_tokens  g flags
 *   media  f format  then for each item  o offset (two's complement)  n count  d digest
 *   block  f format  p parent  t tokens (4 bytes each)  and, where media overlap it,  d mark.digest  i mark.first
 */
#include "kvstore/key.h"

#include "base/check.h"

#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT_ROOT "cnre-kv-root-1"
#define FORMAT_MEDIA "cnre-kv-media-1"
#define FORMAT_BLOCK "cnre-kv-block-1"

#define FIELD_FORMAT 'f'

#define ROOT_MODEL 'm'
#define ROOT_PAYLOAD 'w'
#define ROOT_TOKENIZER 't'
#define ROOT_CHAT_TEMPLATE 'c'
#define ROOT_POSITION 'p'
#define ROOT_REPRESENTATION 'r'
#define ROOT_VERSION 'v'
#define ROOT_ADAPTER 'a'
#define ROOT_SALT 's'
#define ROOT_BLOCK_TOKENS 'b'
#define ROOT_FLAGS 'g'

#define MEDIA_OFFSET 'o'
#define MEDIA_COUNT 'n'
#define MEDIA_DIGEST 'd'

#define BLOCK_PARENT 'p'
#define BLOCK_TOKENS 't'
#define BLOCK_MEDIA 'd'
#define BLOCK_MEDIA_FIRST 'i'

#define NUMBER_BYTES 8u
#define START_BYTES (1 + NUMBER_BYTES) /* of a field: its tag and length */
#define TOKEN_BYTES 4u
#define MEDIA_INLINE 16u /* items of one block that need no allocation */

/* The longest record of a block: format, parent, tokens, media, first. */
#define BLOCK_RECORD_BYTES                                                                                             \
	(5 * START_BYTES + sizeof FORMAT_BLOCK - 1 + KV_KEY_BYTES + TOKEN_BYTES * KV_BLOCK_TOKENS_MAX + KV_KEY_BYTES + \
	 NUMBER_BYTES)

/* ---- the context of a thread ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t context_key;
static EVP_MD *algorithm; /* NULL: could not be had */

static void free_context(void *context)
{
	EVP_MD_CTX_free(context);
}

static void fetch(void)
{
	if (pthread_key_create(&context_key, free_context) == 0)
		algorithm = EVP_MD_fetch(NULL, "SHA256", NULL);
}

/* A library that was unloaded must not be called when a thread ends. The contexts of threads that live are lost then. */
__attribute__((destructor)) static void forget_key(void)
{
	if (algorithm != NULL)
		(void)pthread_key_delete(context_key);
}

static EVP_MD_CTX *open_context(void)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();

	if (context != NULL && pthread_setspecific(context_key, context) != 0) {
		EVP_MD_CTX_free(context);
		return NULL;
	}
	return context;
}

/* This thread's context at the start of a record; NULL: no memory. */
static EVP_MD_CTX *begin(void)
{
	EVP_MD_CTX *context;

	(void)pthread_once(&once, fetch);
	if (algorithm == NULL)
		return NULL;
	context = pthread_getspecific(context_key);
	if (context == NULL)
		context = open_context();
	return context != NULL && EVP_DigestInit_ex(context, algorithm, NULL) == 1 ? context : NULL;
}

static int end(EVP_MD_CTX *context, unsigned char ret_digest[KV_KEY_BYTES])
{
	unsigned char digest[KV_KEY_BYTES];

	if (EVP_DigestFinal_ex(context, digest, NULL) != 1)
		return -ENOMEM;
	memcpy(ret_digest, digest, sizeof digest);
	return 0;
}

/* ---- fields ---- */

static void put_number(unsigned char bytes[NUMBER_BYTES], uint64_t value)
{
	for (unsigned i = 0; i < NUMBER_BYTES; i++)
		bytes[i] = (unsigned char)(value >> 8 * i);
}

static unsigned char *put_start(unsigned char *to, char tag, uint64_t count)
{
	*to = (unsigned char)tag;
	put_number(to + 1, count);
	return to + START_BYTES;
}

static unsigned char *put_field(unsigned char *to, char tag, const void *bytes, size_t count)
{
	to = put_start(to, tag, count);
	memcpy(to, bytes, count);
	return to + count;
}

static int add_field(EVP_MD_CTX *context, char tag, const void *bytes, size_t count)
{
	unsigned char start[START_BYTES];

	(void)put_start(start, tag, count);
	if (EVP_DigestUpdate(context, start, sizeof start) != 1 || EVP_DigestUpdate(context, bytes, count) != 1)
		return -ENOMEM;
	return 0;
}

static int add_number(EVP_MD_CTX *context, char tag, uint64_t value)
{
	unsigned char bytes[NUMBER_BYTES];

	put_number(bytes, value);
	return add_field(context, tag, bytes, sizeof bytes);
}

/* An absent string is no field, an empty one is a field of no bytes. */
static int add_text(EVP_MD_CTX *context, char tag, const char *text)
{
	return text == NULL ? 0 : add_field(context, tag, text, strlen(text));
}

/* ---- root ---- */

static int is_text(const char *text)
{
	return text == NULL || strnlen(text, (size_t)KV_TEXT_BYTES_MAX + 1) <= KV_TEXT_BYTES_MAX;
}

static int identity_is_valid(const struct kv_identity *identity)
{
	return identity->model != NULL && is_text(identity->tokenizer) && is_text(identity->chat_template) &&
	       is_text(identity->position) && is_text(identity->representation) && is_text(identity->salt) &&
	       (identity->adapter_digest != NULL || identity->adapter_digest_bytes == 0) &&
	       identity->adapter_digest_bytes <= KV_ADAPTER_BYTES_MAX && identity->block_tokens >= 1 &&
	       identity->block_tokens <= KV_BLOCK_TOKENS_MAX;
}

static int add_identity(EVP_MD_CTX *context, const struct kv_identity *identity)
{
	int r = add_field(context, FIELD_FORMAT, FORMAT_ROOT, sizeof FORMAT_ROOT - 1);

	if (r == 0)
		r = add_field(context, ROOT_MODEL, identity->model, KV_KEY_BYTES);
	if (r == 0 && identity->payload != NULL)
		r = add_field(context, ROOT_PAYLOAD, identity->payload, KV_PAYLOAD_BYTES);
	if (r == 0)
		r = add_text(context, ROOT_TOKENIZER, identity->tokenizer);
	if (r == 0)
		r = add_text(context, ROOT_CHAT_TEMPLATE, identity->chat_template);
	if (r == 0)
		r = add_text(context, ROOT_POSITION, identity->position);
	if (r == 0)
		r = add_text(context, ROOT_REPRESENTATION, identity->representation);
	if (r == 0)
		r = add_number(context, ROOT_VERSION, identity->version);
	if (r == 0 && identity->adapter_digest != NULL)
		r = add_field(context, ROOT_ADAPTER, identity->adapter_digest, identity->adapter_digest_bytes);
	if (r == 0)
		r = add_text(context, ROOT_SALT, identity->salt);
	if (r == 0)
		r = add_number(context, ROOT_BLOCK_TOKENS, identity->block_tokens);
	if (r == 0)
		r = add_number(context, ROOT_FLAGS, identity->flags);
	return r;
}

int kv_key_root(const struct kv_identity *identity, unsigned char ret_root[KV_KEY_BYTES])
{
	EVP_MD_CTX *context;
	int r;

	if (!identity_is_valid(identity))
		return -EINVAL;
	context = begin();
	if (context == NULL)
		return -ENOMEM;
	r = add_identity(context, identity);
	return r < 0 ? r : end(context, ret_root);
}

/* ---- media ---- */

/* What an item's bytes may be. */
static int media_is_valid(const struct kv_media *media)
{
	if (media->token_offset > INT64_MAX)
		return 0;
	return media->digest == NULL || (media->digest_bytes >= 1 && media->digest_bytes <= KV_MEDIA_DIGEST_BYTES_MAX);
}

/* The end may lie beyond what 64 bits hold. */
static int media_overlaps(const struct kv_media *media, uint64_t start, uint64_t finish)
{
	if (media->token_count == 0 || media->token_offset >= finish)
		return 0;
	return media->token_offset >= start || media->token_count > start - media->token_offset;
}

/* How many items overlap [start, finish), or the error of the worst of all. */
static int64_t count_overlaps(const struct kv_media *media, size_t count, uint64_t start, uint64_t finish)
{
	int64_t overlaps = 0;
	int is_nameless = 0;

	for (size_t i = 0; i < count; i++) {
		if (!media_is_valid(&media[i]))
			return -EINVAL;
		is_nameless |= media[i].digest == NULL && media[i].token_offset < finish;
		overlaps += media_overlaps(&media[i], start, finish);
	}
	return is_nameless ? -ENODATA : overlaps;
}

static int order_of(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

/* By offset; what starts at one token is ordered by the rest, so that no order of the caller's can show. */
static int by_offset(const void *a, const void *b)
{
	const struct kv_media *left = *(const struct kv_media *const *)a, *right = *(const struct kv_media *const *)b;
	int order = order_of(left->token_offset, right->token_offset);

	if (order == 0)
		order = order_of(left->token_count, right->token_count);
	if (order == 0)
		order = order_of(left->digest_bytes, right->digest_bytes);
	return order != 0 ? order : memcmp(left->digest, right->digest, left->digest_bytes);
}

static int add_item(EVP_MD_CTX *context, const struct kv_media *media, uint64_t start)
{
	/* Both are at most INT64_MAX: the difference in two's complement says which side of the block's start it is. */
	int r = add_number(context, MEDIA_OFFSET, media->token_offset - start);

	if (r == 0)
		r = add_number(context, MEDIA_COUNT, media->token_count);
	if (r == 0)
		r = add_field(context, MEDIA_DIGEST, media->digest, media->digest_bytes);
	return r;
}

static int digest_items(const struct kv_media *const *item, size_t count, uint64_t start,
			unsigned char ret_digest[KV_KEY_BYTES])
{
	EVP_MD_CTX *context = begin();
	int r;

	if (context == NULL)
		return -ENOMEM;
	r = add_field(context, FIELD_FORMAT, FORMAT_MEDIA, sizeof FORMAT_MEDIA - 1);
	for (size_t i = 0; i < count && r == 0; i++)
		r = add_item(context, item[i], start);
	return r < 0 ? r : end(context, ret_digest);
}

/* item has room for every overlapping one. */
static int mark_items(const struct kv_media *media, size_t media_count, uint64_t start, uint64_t finish,
		      const struct kv_media **item, struct kv_media_mark *ret_mark)
{
	size_t count = 0;
	int r;

	for (size_t i = 0; i < media_count; i++)
		if (media_overlaps(&media[i], start, finish))
			item[count++] = &media[i];
	qsort(item, count, sizeof *item, by_offset);
	r = digest_items(item, count, start, ret_mark->digest);
	if (r == 0)
		ret_mark->first = item[0]->token_offset <= start ? 0 : (uint32_t)(item[0]->token_offset - start);
	return r;
}

int kv_key_media(const struct kv_media *media, size_t media_count, uint64_t start, uint32_t count,
		 struct kv_media_mark *ret_mark)
{
	const struct kv_media *inlined[MEDIA_INLINE], **item = inlined;
	struct kv_media_mark mark = {.first = count};
	uint64_t finish = start + count;
	int64_t overlaps;
	int r = 0;

	if (media_count > KV_MEDIA_MAX || start > INT64_MAX || count < 1 || count > KV_BLOCK_TOKENS_MAX)
		return -EINVAL;
	overlaps = count_overlaps(media, media_count, start, finish);
	if (overlaps < 0)
		return (int)overlaps;
	if (overlaps > MEDIA_INLINE) {
		item = calloc((size_t)overlaps, sizeof *item);
		if (item == NULL)
			return -ENOMEM;
	}
	if (overlaps > 0)
		r = mark_items(media, media_count, start, finish, item, &mark);
	if (item != inlined)
		free(item);
	if (r == 0)
		*ret_mark = mark;
	return r;
}

/* ---- block ---- */

static unsigned char *put_tokens(unsigned char *to, const int32_t *tokens, uint32_t count)
{
	to = put_start(to, BLOCK_TOKENS, (uint64_t)count * TOKEN_BYTES);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t token = (uint32_t)tokens[i];

		for (unsigned k = 0; k < TOKEN_BYTES; k++)
			*to++ = (unsigned char)(token >> 8 * k);
	}
	return to;
}

int kv_key_block(const unsigned char parent[KV_KEY_BYTES], const int32_t *tokens, uint32_t count,
		 const struct kv_media_mark *mark, unsigned char ret_key[KV_KEY_BYTES])
{
	static const unsigned char no_media[KV_KEY_BYTES];
	unsigned char record[BLOCK_RECORD_BYTES], first[NUMBER_BYTES], *to = record;
	int has_media = memcmp(mark->digest, no_media, sizeof no_media) != 0;
	EVP_MD_CTX *context;

	if (count < 1 || count > KV_BLOCK_TOKENS_MAX || (has_media && mark->first >= count))
		return -EINVAL;
	to = put_field(to, FIELD_FORMAT, FORMAT_BLOCK, sizeof FORMAT_BLOCK - 1);
	to = put_field(to, BLOCK_PARENT, parent, KV_KEY_BYTES);
	to = put_tokens(to, tokens, count);
	if (has_media) {
		put_number(first, mark->first);
		to = put_field(to, BLOCK_MEDIA, mark->digest, KV_KEY_BYTES);
		to = put_field(to, BLOCK_MEDIA_FIRST, first, sizeof first);
	}
	CNRE_CHECK(to <= record + sizeof record);
	context = begin();
	if (context == NULL || EVP_DigestUpdate(context, record, (size_t)(to - record)) != 1)
		return -ENOMEM;
	return end(context, ret_key);
}
